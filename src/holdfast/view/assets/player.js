// The state of the page, and everything that changes it.
const MEMORY_DECIDES = 0.5; // influence from which on an earlier observation is said to decide an action

class Player {
  constructor(data) {
    this.data = data;
    this.state = { track: 0, step: 0, agent: 0, playing: false, speed: 4, from: null };
    this.stage = new Stage(data, this);
    this.controls = new Controls(data, this);
    this.timeline = new Timeline(data, this);
  }

  track() {
    return this.data.tracks[this.state.track];
  }

  // Go to a place; what is not given stays. keep: the window of the time line moves only if it has to.
  seek(track = this.state.track, step = this.state.step, agent = this.state.agent, keep = false) {
    const { state } = this;
    state.track = clamp(Math.trunc(track) || 0, 0, this.data.tracks.length - 1);
    state.step = clamp(Math.trunc(step) || 0, 0, this.track().steps - 1);
    state.agent = clamp(Math.trunc(agent) || 0, 0, this.track().agents - 1);
    this.draw(keep);
    this.rememberPlace();
  }

  draw(keep = false) {
    this.stage.draw(this.state);
    this.controls.draw(this.state);
    this.timeline.draw(this.state, keep);
  }

  move(by) {
    this.pause();
    this.seek(undefined, this.state.step + by);
  }

  episode() {
    return this.track().episodes[this.track().episodeAt[this.state.step]];
  }

  moveEpisode(by) {
    let { track } = this.state;
    let episode = this.track().episodeAt[this.state.step] + by;
    if (episode < 0 && track > 0) episode = this.data.tracks[--track].episodes.length - 1;
    else if (episode >= this.track().episodes.length && track + 1 < this.data.tracks.length) [track, episode] = [track + 1, 0];
    const { episodes } = this.data.tracks[track];
    this.seek(track, episodes[clamp(episode, 0, episodes.length - 1)].start);
  }

  toReset() {
    this.seek(undefined, this.episode().start);
  }

  toEnd() {
    this.seek(undefined, this.episode().start + this.episode().length - 1);
  }

  jumpToPast() {
    const { track, step, agent } = this.state;
    const past = strongestPast(this.data, this.track(), step, agent);
    if (!past) return;
    this.pause();
    this.state.from = { track, step, agent };
    this.seek(track, past.step, agent);
  }

  jumpBack() {
    const { from } = this.state;
    if (!from) return;
    this.state.from = null;
    this.seek(from.track, from.step, from.agent);
  }

  // Go to the next step whose action was decided by an earlier observation; after the last, to the first.
  jumpToDecided() {
    const { step, agent } = this.state;
    const track = this.track();
    this.pause();
    for (let i = 1; i <= track.steps; i++) {
      const at = (step + i) % track.steps;
      if (track.fromPast[at * track.agents + agent] >= MEMORY_DECIDES) return this.seek(undefined, at);
    }
  }

  toggle() {
    if (this.state.playing) this.pause();
    else this.play();
  }

  play() {
    if (this.state.step === this.track().steps - 1) this.seek(undefined, 0);
    this.state.playing = true;
    this.controls.draw(this.state);
    let [last, owed] = [performance.now(), 0];
    const frame = (now) => {
      owed = Math.min(owed + ((now - last) / 1000) * this.state.speed, this.state.speed);
      last = now;
      const steps = Math.floor(owed);
      owed -= steps;
      if (steps > 0) this.seek(undefined, this.state.step + steps);
      if (this.state.step === this.track().steps - 1) this.pause();
      else this.nextFrame = requestAnimationFrame(frame);
    };
    this.nextFrame = requestAnimationFrame(frame);
  }

  pause() {
    if (!this.state.playing) return;
    this.state.playing = false;
    cancelAnimationFrame(this.nextFrame);
    this.controls.draw(this.state);
  }

  setSpeed(speed) {
    this.state.speed = speed;
    this.controls.draw(this.state);
  }

  changeSpeed(by) {
    this.setSpeed(SPEEDS[clamp(SPEEDS.indexOf(this.state.speed) + by, 0, SPEEDS.length - 1)]);
  }

  // Write the place into the address, once it has settled: browsers limit how often that may be done.
  rememberPlace() {
    clearTimeout(this.remembering);
    this.remembering = setTimeout(() => {
      const { track, step, agent } = this.state;
      try {
        history.replaceState(null, '', `#track=${track}&step=${step}&agent=${agent}`);
      } catch { /* a page in a sandbox has no address of its own */ }
    }, 150);
  }

  readPlace() {
    const place = new URLSearchParams(location.hash.slice(1));
    const number = (key) => Number.parseInt(place.get(key) ?? (location.hash ? 0 : this.data.start?.[key] ?? 0), 10);
    this.seek(number('track'), number('step'), number('agent'));
  }

  recolor() {
    readTheme();
    this.stage.recolor();
    this.draw();
  }

  report() {
    const { track, step, agent, playing, speed } = this.state;
    const now = this.track();
    return {
      track, step, agent, playing, speed,
      episode: now.episodeAt[step], stepOfEpisode: stepOfEpisode(now, step), tracks: this.data.tracks.length, steps: now.steps, agents: now.agents,
      strongestPast: strongestPast(this.data, now, step, agent), scene: this.data.scene.kind,
      shown: { first: this.timeline.view.first, count: this.timeline.view.count },
    };
  }
}

function build(data) {
  readTheme();
  const player = new Player(data);
  const page = document.getElementById('page');
  const sections = [headerOf(data), player.stage.node, element('div', {}, player.controls.node, player.timeline.node),
    certificateSection(data.certificate), curveSection(data.curve || { steps: [], episode_return: [] }), settingsSection(data)];
  page.replaceChildren(...sections.filter(Boolean));
  player.stage.recolor();
  player.readPlace();
  window.addEventListener('hashchange', () => player.readPlace());
  matchMedia('(prefers-color-scheme: dark)').addEventListener('change', () => player.recolor());
  return player;
}

window.holdfast = { ready: false, seek() {}, state: () => null };
window.addEventListener('error', (event) => fail(`This page failed: ${event.message}`));
readData().then(async (data) => {
  const player = build(data);
  await player.stage.scene.ready(player.state.track, player.state.step);
  player.draw();
  window.holdfast = {
    ready: true,
    seek: (track, step, agent) => player.seek(track, step, agent),
    state: () => player.report(),
  };
  document.documentElement.dataset.ready = '1';
}).catch((error) => fail(messageOf(error)));

function messageOf(error) {
  if (error instanceof Damaged) return `The data of this page is damaged: ${error.message}. Write the page again with holdfast view.`;
  if (error instanceof TooOld) return `This browser is too old: ${error.message}. Open the page with a newer one.`;
  return `This page failed: ${error.message}`;
}
