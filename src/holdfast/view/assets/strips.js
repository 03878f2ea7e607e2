// The time line: lanes over the same steps, a cursor through all of them, and scrubbing.
const ENOUGH = 4; // pixels per step; with fewer, a window of the track is shown
const WINDOWED = 7;
const MARGIN = 0.12; // of the window, that is kept after the cursor; before it, what the action may remember is shown

class Timeline {
  constructor(data, player) {
    this.data = data;
    this.player = player;
    this.first = 0;
    this.lanes = this.makeLanes();
    this.overview = element('canvas', { class: 'overview', 'aria-hidden': 'true' });
    this.overviewLane = element('div', { class: 'lane', hidden: true },
      element('div', { class: 'lane-name' }, element('b', { text: 'Whole track' })), this.overview);
    this.cursor = element('div', { class: 'cursor' }, element('span', { text: 'now' }));
    this.pastLine = element('div', { class: 'past-line' });
    this.scrubber = element('div', {
      class: 'lanes', role: 'slider', tabindex: '0', 'aria-label': 'Step', 'aria-valuemin': '0', id: 'timeline',
    }, ...this.lanes.map((lane) => lane.node), this.pastLine, this.cursor);
    this.node = element('section', { class: 'timeline', 'aria-label': 'Time line' }, this.overviewLane, this.scrubber);
    if (!data.memory.length) this.node.append(element('p', { class: 'muted', id: 'no-memory', text: 'This agent has no memory: every action follows from the present observation.' }));
    this.listen();
  }

  makeLanes() {
    const { data } = this;
    const lanes = [
      { name: 'Step', height: 34, draw: drawAxis, followsStep: true },
    ];
    if (data.memory.length) {
      lanes.push({
        name: 'Influence', title: 'How much each observation moved the action of the step under the cursor', height: 96, followsStep: true,
        draw: (ctx, view, track, state, height) => drawInfluence(ctx, view, track, state, height, data),
      }, {
        name: 'From the past', title: 'How much the most influential earlier observation moved the action of each step', height: 14, draw: drawFromPast,
        describe: (track, at) => formatNumber(track.fromPast[at], 2),
      });
    }
    lanes.push({
      name: 'Value', nameClass: 'value-name', also: 'reward', height: 64, draw: drawValue,
      describe: (track, at) => `${formatNumber(track.value[at])}, reward ${formatNumber(track.reward[at])}`,
    });
    data.memory.forEach((entry, index) => {
      const lane = new MemoryLane(index, entry.units);
      lanes.push({
        name: entry.name, height: pictureHeight(entry.units), memory: entry,
        draw: (...args) => lane.draw(...args),
        describe: (track, at, share) => lane.describe(track, at, share, entry),
      });
    });
    for (const lane of lanes) this.makeLane(lane);
    return lanes;
  }

  makeLane(lane) {
    lane.canvas = element('canvas', { 'aria-hidden': 'true' });
    lane.note = element('span', { class: 'note' });
    const name = element('div', { class: 'lane-name', title: lane.title || null }, element('b', { class: lane.nameClass || null, text: lane.name }));
    if (lane.also) name.append(element('span', { class: 'reward-name', text: lane.also }));
    if (lane.memory) {
      const scale = formatNumber(lane.memory.scale, 2);
      name.append(element('span', { class: 'scale' }, element('span', { text: `\u2212${scale}` }), element('i'), element('span', { text: `+${scale}` })));
    }
    name.append(lane.note);
    lane.node = element('div', { class: `lane${lane.memory ? ' memory' : ''}` }, name, lane.canvas);
  }

  listen() {
    const drag = (node, stepAt) => {
      const seek = (event) => this.player.seek(undefined, stepAt(event), undefined, true);
      node.addEventListener('pointerdown', (event) => {
        if (event.button !== 0 || event.clientX < this.lanes[0].canvas.getBoundingClientRect().left) return;
        node.setPointerCapture(event.pointerId);
        this.player.pause();
        this.dragging = true;
        seek(event);
      });
      node.addEventListener('pointermove', (event) => (this.dragging ? seek(event) : this.describe(event)));
      for (const name of ['pointerup', 'pointercancel']) node.addEventListener(name, () => { this.dragging = false; });
      node.addEventListener('pointerleave', () => this.describe(null));
    };
    drag(this.scrubber, (event) => this.stepAt(event));
    drag(this.overview, (event) => {
      const box = this.overview.getBoundingClientRect();
      return Math.floor(((event.clientX - box.left) / box.width) * this.player.track().steps);
    });
    new ResizeObserver(() => this.resize()).observe(this.scrubber);
  }

  stepAt(event) {
    const box = this.lanes[0].canvas.getBoundingClientRect();
    return this.view.first + Math.floor((event.clientX - box.left) / this.view.per);
  }

  // Write what is under the pointer beside the name of its lane.
  describe(event) {
    for (const lane of this.lanes) setText(lane.note, '');
    const lane = event && this.lanes.find(({ canvas }) => canvas === event.target);
    const track = this.player.track();
    const step = event ? this.stepAt(event) : -1;
    if (!lane || !lane.describe || !this.view || step < 0 || step >= track.steps) return;
    const at = step * track.agents + this.player.state.agent;
    setText(lane.note, `step ${stepOfEpisode(track, step)}: ${lane.describe(track, at, event.offsetY / lane.height)}`);
  }

  resize() {
    if (this.measure()) this.draw(this.player.state, this.dragging);
  }

  // Read the room for the lanes; true if it has changed.
  measure() {
    const [lane, canvas] = [this.lanes[0].node, this.lanes[0].canvas].map((node) => node.getBoundingClientRect());
    const [gutter, width] = [canvas.left - lane.left, Math.floor(lane.right - canvas.left)];
    const changed = gutter !== this.gutter || width !== this.width;
    [this.gutter, this.width] = [gutter, width];
    return changed;
  }

  // Choose the steps to show: all if they fit, otherwise a window that contains the cursor.
  chooseView(track, step, keep) {
    const width = Math.max(this.width, 50);
    const fits = track.steps * ENOUGH <= width;
    const count = fits ? track.steps : Math.min(track.steps, Math.floor(width / WINDOWED));
    const [before, after] = keep || fits ? [0, 0] : [Math.floor(Math.min(this.data.lookback + 1, count * 0.6)), Math.floor(count * MARGIN)];
    this.first = clamp(this.first, step - count + 1 + after, step - before);
    this.first = clamp(this.first, 0, track.steps - count);
    this.view = { first: this.first, count, per: width / count, width };
    this.overviewLane.hidden = fits;
  }

  draw(state, keep = false) {
    if (!this.width) this.measure();
    const track = this.player.track();
    this.chooseView(track, state.step, keep);
    const { view } = this;
    const drawn = [state.track, state.agent, view.first, view.count, view.width, theme.paper, window.devicePixelRatio].join(' ');
    const moved = drawn !== this.drawn;
    this.drawn = drawn;
    for (const lane of this.lanes) {
      if (!moved && !lane.followsStep) continue;
      const ctx = prepare(lane.canvas, view.width, lane.height);
      const starts = () => drawEpisodeStarts(ctx, view, track, lane.height);
      if (!lane.memory) starts();
      lane.draw(ctx, view, track, state, lane.height);
      if (lane.memory) starts();
    }
    if (!this.overviewLane.hidden) {
      drawOverview(prepare(this.overview, view.width, 26), view, track, state, view.width, 26);
    }
    this.placeLines(track, state);
  }

  placeLines(track, state) {
    const place = (node, step) => {
      const x = centreOf(this.view, step);
      node.hidden = x < 0 || x > this.view.width;
      node.style.transform = `translateX(${this.gutter + x}px)`;
    };
    place(this.cursor, state.step);
    const past = strongestPast(this.data, track, state.step, state.agent);
    this.pastLine.hidden = true;
    if (past) place(this.pastLine, past.step);
    this.scrubber.setAttribute('aria-valuemax', track.steps - 1);
    this.scrubber.setAttribute('aria-valuenow', state.step);
    this.scrubber.setAttribute('aria-valuetext', `Episode ${track.episodeAt[state.step]}, step ${stepOfEpisode(track, state.step)}`);
  }
}

// Return a height that gives every unit the same whole number of pixels where that is not too high.
function pictureHeight(units) {
  if (units > 160) return 144;
  return units * clamp(Math.floor(128 / units), 1, 12);
}
