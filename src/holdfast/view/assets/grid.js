// A grid world: its objects and their positions at each step, and its drawing.
const SMALLEST_TILE = 10; // pixels; below it only the surroundings of the agent are drawn
const CROPPED_TILE = 15;
const MOST_KEPT = 40;
const LARGEST_TILE = 56;
const KEEP_EVERY = 64; // steps between kept copies of the world

// Rebuilds the objects of a step: a map of [id, type, row, column, agent, inventory, vibe] by id.
class GridReplay {
  constructor(scene) {
    this.moves = scene.moves;
    this.kept = new Map();
    this.step = -1;
    this.objects = new Map();
  }

  at(step) {
    if (step < this.step || step - this.step > KEEP_EVERY) this.restart(step);
    while (this.step < step) {
      this.step++;
      this.apply(this.moves[this.step]);
      if (this.step % KEEP_EVERY || this.kept.has(this.step)) continue;
      this.kept.set(this.step, new Map(this.objects));
      if (this.kept.size > MOST_KEPT) this.kept.delete(this.kept.keys().next().value);
    }
    return this.objects;
  }

  restart(step) {
    let from = step;
    while (from > 0 && !this.moves[from].full && !this.kept.has(from)) from--;
    this.objects = this.kept.has(from) ? new Map(this.kept.get(from)) : new Map();
    this.step = this.kept.has(from) ? from : from - 1;
  }

  apply(move) {
    if (move.full) this.objects = new Map();
    for (const id of move.gone || []) this.objects.delete(id);
    for (const object of move.objects) this.objects.set(object[0], object);
  }
}

// Return row and column of every agent at every step, [steps, agents, 2]; -1 where it is not in the world.
function agentPlaces(scene, steps, agents) {
  const places = new Int16Array(steps * agents * 2).fill(-1);
  const last = new Map();
  for (let t = 0; t < steps; t++) {
    const move = scene.moves[t];
    if (move.full) last.clear();
    for (const id of move.gone || []) last.delete(id);
    for (const object of move.objects) if (object[4] >= 0) last.set(object[0], object);
    for (const [, , row, col, agent] of last.values()) {
      if (agent < agents) places.set([row, col], (t * agents + agent) * 2);
    }
  }
  return places;
}

// Return the tiles to draw: those of the whole grid if they fit, otherwise those around the place in the middle.
function gridView(scene, width, height, middle) {
  const fit = Math.floor(Math.min(width / scene.width, height / scene.height, LARGEST_TILE));
  if (fit >= SMALLEST_TILE) return { tile: fit, row: 0, col: 0, rows: scene.height, cols: scene.width, cropped: false };
  const rows = Math.min(scene.height, Math.floor(height / CROPPED_TILE));
  const cols = Math.min(scene.width, Math.floor(width / CROPPED_TILE));
  return {
    tile: CROPPED_TILE, rows, cols, cropped: true,
    row: clamp(middle[0] - Math.floor(rows / 2), 0, scene.height - rows),
    col: clamp(middle[1] - Math.floor(cols / 2), 0, scene.width - cols),
  };
}

// Return the tiles that the agent at `place` observes, with one more tile on each side.
function windowView(window, width, height, place) {
  const [rows, cols] = [window[0] + 2, window[1] + 2];
  const tile = Math.max(4, Math.floor(Math.min(width / cols, height / rows, LARGEST_TILE)));
  return { tile, rows, cols, row: place[0] - (rows >> 1), col: place[1] - (cols >> 1), cropped: true };
}

// about: the looks of types, the vibes and the colours of agents.
function drawGrid(ctx, view, scene, objects, about, selected) {
  const { tile } = view;
  const inside = (row, col) => row >= view.row && row < view.row + view.rows && col >= view.col && col < view.col + view.cols;
  const x = (col) => (col - view.col) * tile;
  const y = (row) => (row - view.row) * tile;
  drawFloor(ctx, view, scene);
  const walls = new Set();
  const others = [];
  for (const object of objects.values()) {
    const look = about.types[object[1]];
    if (!look) continue;
    if (look.glyph === 'wall') walls.add(object[2] * scene.width + object[3]);
    else if (inside(object[2], object[3])) others.push([object, look]);
  }
  for (const place of walls) {
    const [row, col] = [Math.floor(place / scene.width), place % scene.width];
    if (!inside(row, col)) continue;
    ctx.fillStyle = theme.wall;
    ctx.fillRect(x(col), y(row), tile, tile);
    if (!walls.has(place + scene.width) && row + 1 < scene.height) {
      ctx.fillStyle = theme.face;
      ctx.fillRect(x(col), y(row) + tile * 0.72, tile, tile * 0.28);
    }
    ctx.fillStyle = theme.edge;
    if (!walls.has(place - scene.width) && row > 0) ctx.fillRect(x(col), y(row), tile, 1);
  }
  const isAgent = ([object, look]) => object[4] >= 0 || look.glyph === 'agent';
  others.sort((a, b) => Number(isAgent(a)) - Number(isAgent(b)));
  for (const pair of others) {
    const [object, look] = pair;
    const [left, top] = [x(object[3]), y(object[2])];
    const index = Math.max(object[4], 0);
    if (isAgent(pair)) drawAgent(ctx, index, about.agentColor(index), left, top, tile, object[4] === selected);
    else drawGlyph(ctx, look, left + tile * 0.06, top + tile * 0.06, tile * 0.88);
    if (object[6]) drawVibe(ctx, look, about.vibes[object[6]].mark, left + tile * 0.06, top + tile * 0.06, tile * 0.88);
    drawInventory(ctx, object[5], left, top, tile);
  }
}

function drawFloor(ctx, view, scene) {
  const { tile } = view;
  ctx.fillStyle = theme.void;
  ctx.fillRect(0, 0, view.cols * tile, view.rows * tile);
  for (let row = Math.max(view.row, 0); row < Math.min(view.row + view.rows, scene.height); row++) {
    for (let col = Math.max(view.col, 0); col < Math.min(view.col + view.cols, scene.width); col++) {
      ctx.fillStyle = (row + col) % 2 ? theme.tile : theme.floor;
      ctx.fillRect((col - view.col) * tile, (row - view.row) * tile, tile, tile);
    }
  }
}

// A small count of all that the object holds, in the tile's upper right corner.
function drawInventory(ctx, held, left, top, tile) {
  const amount = Object.values(held || {}).reduce((sum, count) => sum + Number(count), 0);
  if (!amount || tile < 26) return;
  const text = amount > 99 ? '99+' : String(amount);
  const size = Math.max(8, tile * 0.25);
  const width = Math.max(size * 1.25, size * 0.65 * text.length + size * 0.5);
  roundedBox(ctx, left + tile - width - 1, top + 1, width, size * 1.25, size * 0.6);
  ctx.fillStyle = theme.ink;
  ctx.fill();
  label(ctx, text, left + tile - width / 2 - 1, top + 1 + size * 0.68, {
    color: theme.paper, size, weight: 700, align: 'center', baseline: 'middle',
  });
}

// Outline what the agent at `place` observes, and dim the rest.
function drawWindow(ctx, view, window, place, color) {
  const { tile } = view;
  const [left, top] = [(place[1] - (window[1] >> 1) - view.col) * tile, (place[0] - (window[0] >> 1) - view.row) * tile];
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, 0, view.cols * tile, view.rows * tile);
  ctx.clip();
  ctx.beginPath();
  ctx.rect(0, 0, view.cols * tile, view.rows * tile);
  ctx.rect(left, top, window[1] * tile, window[0] * tile);
  ctx.globalAlpha = 0.42;
  ctx.fillStyle = theme.paper;
  ctx.fill('evenodd');
  ctx.globalAlpha = 1;
  ctx.strokeStyle = color;
  ctx.lineWidth = 2;
  ctx.strokeRect(left + 1, top + 1, window[1] * tile - 2, window[0] * tile - 2);
  ctx.restore();
}

// The way of the agent up to now, and the place from which it made the most influential observation.
function drawWay(ctx, view, places, from) {
  const at = ([row, col]) => [(col - view.col + 0.5) * view.tile, (row - view.row + 0.5) * view.tile];
  ctx.save();
  ctx.beginPath();
  ctx.rect(0, 0, view.cols * view.tile, view.rows * view.tile);
  if (places.length) ctx.arc(...at(places[places.length - 1]), view.tile * 0.45, 0, 2 * Math.PI); // not across the agent
  ctx.clip('evenodd');
  ctx.lineJoin = 'round';
  ctx.lineCap = 'round';
  ctx.strokeStyle = theme.past;
  for (let i = 1; i < places.length; i++) {
    ctx.globalAlpha = 0.15 + (0.6 * i) / places.length;
    ctx.lineWidth = Math.max(1.5, view.tile * 0.08);
    ctx.beginPath();
    ctx.moveTo(...at(places[i - 1]));
    ctx.lineTo(...at(places[i]));
    ctx.stroke();
  }
  ctx.globalAlpha = 1;
  if (from) {
    const [x, y] = at(from);
    ctx.lineWidth = Math.max(2, view.tile * 0.09);
    ctx.setLineDash([view.tile * 0.16, view.tile * 0.12]);
    ctx.beginPath();
    ctx.arc(x, y, view.tile * 0.42, 0, 2 * Math.PI);
    ctx.stroke();
  }
  ctx.restore();
}

// Where the cropped view lies in the whole grid.
function drawMap(ctx, view, scene, objects, about, place) {
  const scale = Math.min(84 / scene.width, 84 / scene.height);
  const [width, height] = [scene.width * scale, scene.height * scale];
  const right = place[1] < view.col + view.cols / 2;
  const low = place[0] < view.row + view.rows / 2;
  const left = right ? view.cols * view.tile - width - 8 : 8;
  const top = low ? view.rows * view.tile - height - 8 : 8;
  ctx.globalAlpha = 0.92;
  roundedBox(ctx, left - 4, top - 4, width + 8, height + 8, 4);
  ctx.fillStyle = theme.card;
  ctx.fill();
  ctx.strokeStyle = theme.line;
  ctx.lineWidth = 1;
  ctx.stroke();
  ctx.globalAlpha = 1;
  const dot = Math.max(scale, 1);
  for (const [, type, row, col, agent] of objects.values()) {
    const look = about.types[type];
    if (!look) continue;
    ctx.fillStyle = agent >= 0 ? about.agentColor(agent) : look.glyph === 'wall' ? theme.muted : look.color;
    const size = agent >= 0 ? dot + 2 : dot;
    ctx.fillRect(left + col * scale - (size - dot) / 2, top + row * scale - (size - dot) / 2, size, size);
  }
  ctx.strokeStyle = theme.ink;
  ctx.strokeRect(left + view.col * scale, top + view.row * scale, view.cols * scale, view.rows * scale);
}
