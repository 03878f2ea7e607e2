// The world at a step, whatever its kind. A scene has ready(), size(), draw(), nearSize(), drawNear(), drawPast(), describe(), hover()
// and legend().
const SMALL_TILE = 32; // pixels; below it, there is a close-up of what the agent observes
const LEAST_NEAR = 150;
function makeScene(data, redraw) {
  if (data.scene.kind === 'grid') return new GridScene(data);
  if (data.scene.kind === 'frames') return new FrameScene(data, redraw);
  return new ObservationScene(data);
}

class GridScene {
  constructor(data) {
    this.window = data.scene.window || null;
    this.about = { ...data.scene, agentColor: (agent) => agentColor(data, agent) };
    this.tracks = data.tracks.map((track) => ({
      scene: track.scene,
      agents: track.agents,
      recorded: track,
      now: new GridReplay(track.scene),
      past: new GridReplay(track.scene),
      places: agentPlaces(track.scene, track.steps, track.agents),
    }));
  }

  async ready() {}

  place(index, step, agent) {
    const track = this.tracks[index];
    const from = (step * track.agents + agent) * 2;
    return track.places[from] < 0 ? null : [track.places[from], track.places[from + 1]];
  }

  size(index, width, height) {
    const view = gridView(this.tracks[index].scene, width, height, [0, 0]);
    return { width: view.cols * view.tile, height: view.rows * view.tile };
  }

  draw(ctx, size, index, step, agent, past) {
    const track = this.tracks[index];
    const place = this.place(index, step, agent);
    const middle = place || [track.scene.height >> 1, track.scene.width >> 1];
    const view = gridView(track.scene, size.width, size.height, middle);
    const objects = track.now.at(step);
    drawGrid(ctx, view, track.scene, objects, this.about, agent);
    if (place && this.window) drawWindow(ctx, view, this.window, place, theme.ink);
    const { episodeAt } = track.recorded;
    const from = past && episodeAt[past.step] === episodeAt[step] ? this.place(index, past.step, agent) : null;
    drawWay(ctx, view, this.way(index, step, agent), from);
    if (view.cropped) drawMap(ctx, view, track.scene, objects, this.about, middle);
    this.shown = { view, index, step };
  }

  // The places of the agent from the start of the episode on, 64 of them at most.
  way(index, step, agent) {
    const { recorded } = this.tracks[index];
    const places = [];
    for (let t = Math.max(recorded.episodes[recorded.episodeAt[step]].start, step - 64); t <= step; t++) {
      const place = this.place(index, t, agent);
      if (place) places.push(place);
    }
    return places;
  }

  // The room for a close-up beside the world, which has this size; null if there is none, or no need.
  nearSize(index, size, width) {
    const free = width - size.width - 20;
    const tile = size.width / Math.min(this.tracks[index].scene.width, size.width / SMALLEST_TILE);
    return this.window && tile < SMALL_TILE && free >= LEAST_NEAR ? { width: free, height: size.height } : null;
  }

  drawNear(canvas, room, index, step, agent) {
    this.drawAround(canvas, room, index, step, agent, this.tracks[index].now, theme.ink);
  }

  drawPast(canvas, room, index, step, agent) {
    this.drawAround(canvas, room, index, step, agent, this.tracks[index].past, theme.past);
  }

  // What the agent observes, and a little more.
  drawAround(canvas, room, index, step, agent, replay, color) {
    const { scene } = this.tracks[index];
    const place = this.place(index, step, agent) || [scene.height >> 1, scene.width >> 1];
    const view = this.window
      ? windowView(this.window, room.width, room.height, place)
      : gridView(scene, room.width, room.height, place);
    const ctx = prepare(canvas, view.cols * view.tile, view.rows * view.tile);
    drawGrid(ctx, view, scene, replay.at(step), this.about, agent);
    if (this.window) drawWindow(ctx, view, this.window, place, color);
  }

  // What the agent carries, in words.
  describe(index, step, agent) {
    for (const object of this.tracks[index].now.at(step).values()) {
      if (object[4] === agent) return `Agent ${agent} carries ${this.inventory(object[5]) || 'nothing'}.`;
    }
    return `Agent ${agent} is not in the world.`;
  }

  inventory(held) {
    return Object.entries(held || {})
      .filter(([, amount]) => amount)
      .map(([resource, amount]) => `${amount} ${this.about.resources[resource] ?? resource}`)
      .join(', ');
  }

  // What stands at this place of the canvas.
  hover(x, y) {
    if (!this.shown) return '';
    const { view, index, step } = this.shown;
    const [row, col] = [view.row + Math.floor(y / view.tile), view.col + Math.floor(x / view.tile)];
    const here = [];
    for (const object of this.tracks[index].now.at(step).values()) {
      if (object[2] !== row || object[3] !== col) continue;
      const held = this.inventory(object[5]);
      const shown = object[6] ? `, showing ${this.about.vibes[object[6]].name}` : '';
      here.push((object[4] >= 0 ? `agent ${object[4]}` : this.about.types[object[1]].name) + (held ? ` with ${held}` : '') + shown);
    }
    return `Row ${row}, column ${col}: ${here.join('; ') || 'empty'}`;
  }

  legend() {
    const present = new Set();
    for (const track of this.tracks) {
      for (const move of track.scene.moves) for (const object of move.objects) present.add(object[1]);
    }
    const list = element('ul', { class: 'legend' });
    this.about.types.forEach((look, type) => {
      if (!present.has(type)) return;
      const canvas = element('canvas', { 'aria-hidden': 'true' });
      const ctx = prepare(canvas, 18, 18);
      if (look.glyph === 'wall') {
        ctx.fillStyle = theme.wall;
        ctx.fillRect(1, 1, 16, 16);
        ctx.fillStyle = theme.face;
        ctx.fillRect(1, 12, 16, 5);
      } else if (look.glyph === 'agent') drawAgent(ctx, 0, look.color, 0, 0, 18, false);
      else drawGlyph(ctx, look, 0, 0, 18);
      list.append(element('li', {}, canvas, element('span', { text: look.name })));
    });
    return list;
  }
}

class FrameScene {
  constructor(data, redraw) {
    this.about = data.scene;
    this.redraw = redraw;
    this.tracks = data.tracks.map((track) => ({ scene: track.scene }));
    this.images = new Map(); // of all tracks, by number
  }

  size(index, width, height) {
    const scale = Math.min(width / this.about.width, height / this.about.height);
    return { width: Math.floor(this.about.width * scale), height: Math.floor(this.about.height * scale) };
  }

  // Wait until the frame can be drawn.
  async ready(index, step) {
    await this.image(index, step).decode().catch(() => {});
  }

  image(index, step) {
    const { images } = this;
    const number = this.tracks[index].scene.index[step];
    if (!images.has(number)) {
      const text = String(this.about.images[number] || '');
      const image = new Image();
      image.onload = this.redraw;
      image.onerror = () => { image.damaged = true; this.redraw(); };
      images.set(number, image);
      image.src = `data:image/${text.startsWith('UklGR') ? 'webp' : 'png'};base64,${text}`;
    }
    return images.get(number);
  }

  draw(ctx, size, index, step) {
    const image = this.image(index, step);
    const ready = image.complete && image.naturalWidth > 0;
    if (ready) this.last = image;
    for (let ahead = 1; ahead <= 4; ahead++) {
      if (step + ahead < this.tracks[index].scene.index.length) this.image(index, step + ahead);
    }
    if (image.damaged) {
      label(ctx, 'This frame is damaged.', size.width / 2, size.height / 2, { color: theme.alarm, size: 14, align: 'center' });
      return;
    }
    const shown = ready ? image : this.last; // until the frame is decoded, the previous one
    if (shown) this.show(ctx, shown, size);
  }

  show(ctx, image, size) {
    ctx.imageSmoothingEnabled = image.naturalWidth > size.width / 2;
    ctx.drawImage(image, 0, 0, size.width, size.height);
  }

  nearSize() { return null; }

  drawPast(canvas, room, index, step) {
    const size = this.size(index, room.width, room.height);
    const ctx = prepare(canvas, size.width, size.height);
    const image = this.image(index, step);
    if (image.complete && image.naturalWidth > 0) this.show(ctx, image, size);
  }

  describe() { return ''; }

  hover() { return ''; }

  legend() { return null; }
}

class ObservationScene {
  constructor(data) {
    this.tracks = data.tracks;
    this.parts = data.tracks.map((track) => partsOf(data.scene, track));
  }

  size(index, width, height) {
    return { width, height: this.parts[index].length === 1 ? Math.min(height, this.alone(index, width)) : height };
  }

  async ready() {}

  // The height of an observation that has one part only.
  alone(index, width) {
    const { form, size } = this.parts[index][0];
    if (form.kind === 'number') return 150;
    if (form.kind === 'bars') return 24 + size * 24;
    return 20 + (width * form.height) / form.width;
  }

  draw(ctx, size, index, step, agent) {
    drawObservation(ctx, size.width, size.height, this.parts[index], this.tracks[index], step, agent);
  }

  nearSize() { return null; }

  drawPast(canvas, room, index, step, agent) {
    const size = this.size(index, room.width, room.height);
    drawObservation(prepare(canvas, size.width, size.height), size.width, size.height, this.parts[index], this.tracks[index], step, agent);
  }

  describe(index) {
    const more = this.parts[index].length - MOST_PARTS;
    return more > 0 ? `${plural(more, 'more part')} of the observation not drawn.` : '';
  }

  hover() { return ''; }

  legend() { return null; }
}
