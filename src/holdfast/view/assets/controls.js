// Buttons, the list of episodes, agents, speed, and the keyboard.
const SPEEDS = [1, 2, 4, 8, 15, 30, 60]; // steps per second
const MOST_AGENT_BUTTONS = 10;
const ICONS = {
  play: 'M5 3v14l12-7z', pause: 'M5 3h4v14H5zM11 3h4v14h-4z', back: 'M14 3v14L5 10z', forward: 'M6 3v14l9-7z',
  previous: 'M4 3h2.5v14H4zM17 3v14L7 10z', next: 'M13.5 3H16v14h-2.5zM3 3v14l10-7z', reset: 'M10 4a6.5 6.5 0 1 0 6.5 6.5h-2A4.5 4.5 0 1 1 10 6v3l5-4-5-4z',
};
const KEYS = [
  ['space', 'play or pause'], ['←  →', 'one step back or forward'], ['shift ←  →', 'previous or next episode'],
  ['home  end', 'reset or last step of the episode'], ['m', 'go to the most influential earlier observation'], ['b', 'go back to where m was pressed'],
  ['n', 'next action that an earlier observation decided'], ['1 … 9', 'agent 0 … 8'], ['+  −', 'faster or slower'], ['?', 'this list'],
];

class Controls {
  constructor(data, player) {
    this.data = data;
    this.player = player;
    const button = (id, name, key, act) => this.makeButton(id, name, key, act);
    this.play = button('play', 'Play', 'space', () => player.toggle());
    this.scrub = element('input', { id: 'scrub', type: 'range', min: 0, 'aria-label': 'Step', oninput: () => player.seek(undefined, Number(this.scrub.value)) });
    this.where = element('div', { class: 'where', id: 'where' });
    this.episodes = element('select', { id: 'episodes', 'aria-label': 'Episode', onchange: () => this.chooseEpisode() }, ...this.makeEpisodes());
    this.agents = element('div', { class: 'agents', role: 'group', 'aria-label': 'Agent' });
    this.speed = element('select', { id: 'speed', 'aria-label': 'Speed', onchange: () => player.setSpeed(Number(this.speed.value)) },
      ...SPEEDS.map((speed) => element('option', { value: speed, text: `${speed} steps/s` })));
    this.back = element('button', { id: 'back', type: 'button', class: 'wide', hidden: true, title: 'Key b', onclick: () => player.jumpBack() });
    this.decided = element('button', { id: 'decided', type: 'button', class: 'wide', title: 'Next action that an earlier observation decided (n)', onclick: () => player.jumpToDecided() }, 'Next use of memory');
    this.help = this.makeHelp();
    if (!data.memory.length) this.decided.hidden = true;
    this.node = element('div', { class: 'controls', role: 'group', 'aria-label': 'Controls' },
      element('div', { class: 'transport' },
        this.scrub,
        button('previous-episode', 'Previous episode', 'shift ←', () => player.moveEpisode(-1)),
        button('to-reset', 'To the reset of this episode', 'home', () => player.toReset()),
        button('step-back', 'One step back', '←', () => player.move(-1)), this.play,
        button('step-forward', 'One step forward', '→', () => player.move(1)),
        button('next-episode', 'Next episode', 'shift →', () => player.moveEpisode(1))),
      this.where, this.episodes, this.agents, this.speed, this.decided, this.back,
      element('button', { id: 'help', type: 'button', 'aria-label': 'Keys', title: 'Keys (?)', text: '?', onclick: () => this.help.showModal() }),
      this.help);
    this.episodes.addEventListener('pointerdown', () => { this.clicked = true; });
    this.episodes.addEventListener('keydown', () => { this.clicked = false; });
    // After a click, keys belong to the player again; with the keyboard or in the dialog, focus stays.
    this.node.addEventListener('click', (event) => {
      if (event.detail > 0 && !this.help.open && event.target.closest('button')) document.activeElement.blur();
    });
    document.addEventListener('keydown', (event) => this.key(event));
  }

  makeButton(id, name, key, act) {
    const icons = { play: 'play', 'previous-episode': 'previous', 'next-episode': 'next', 'step-back': 'back', 'step-forward': 'forward', 'to-reset': 'reset' };
    const path = drawing('path', { d: ICONS[icons[id]] });
    return element('button', { id, type: 'button', 'aria-label': name, title: `${name} (${key})`, onclick: act },
      drawing('svg', { viewBox: '0 0 20 20', class: 'icon', 'aria-hidden': 'true' }, path));
  }

  makeEpisodes() {
    return this.data.tracks.map((track, t) => {
      const options = track.episodes.map((episode, e) => {
        const returns = episode.returns || [];
        const mean = formatNumber(returns.reduce((sum, value) => sum + value, 0) / (returns.length || 1));
        const achieved = returns.length > 2 ? `mean return ${mean}` : `return ${returns.map((value) => formatNumber(value)).join(', ')}`;
        const ended = episode.ended === 'terminated' ? '' : `, ${episode.ended}`;
        return element('option', { value: `${t} ${e}`, text: `Episode ${e}: ${achieved}, ${plural(episode.length, 'step')}${ended}, seed ${episode.seed}` });
      });
      return this.data.tracks.length > 1 ? element('optgroup', { label: `Environment ${track.env}` }, ...options) : options;
    }).flat();
  }

  chooseEpisode() {
    const [track, episode] = this.episodes.value.split(' ').map(Number);
    this.player.seek(track, this.data.tracks[track].episodes[episode].start);
    if (this.clicked) this.episodes.blur();
  }

  makeAgents(count) {
    this.agentCount = count;
    this.agents.hidden = count < 2;
    if (count > MOST_AGENT_BUTTONS) {
      const select = element('select', { 'aria-label': 'Agent', onchange: () => this.player.seek(undefined, undefined, Number(select.value)) },
        ...Array.from({ length: count }, (_, i) => element('option', { value: i, text: `Agent ${i}` })));
      this.agents.replaceChildren(select);
      return;
    }
    const short = count > 2;
    this.agents.replaceChildren(...(short ? [element('span', { text: 'Agent' })] : []), ...Array.from({ length: count }, (_, i) => {
      const dot = element('i', { class: 'dot' });
      dot.style.background = agentColor(this.data, i);
      return element('button', { type: 'button', 'data-agent': i, 'aria-label': `Agent ${i}`, title: i < 9 ? `Key ${i + 1}` : null, onclick: () => this.player.seek(undefined, undefined, i) }, dot, short ? String(i) : `Agent ${i}`);
    }));
  }

  makeHelp() {
    const dialog = element('dialog', { id: 'keys', 'aria-label': 'Keys' }, element('h2', { text: 'Keys' }),
      element('table', {}, element('tbody', {}, ...KEYS.map(([key, meaning]) =>
        element('tr', {}, element('th', { scope: 'row' }, element('kbd', { text: key })), element('td', { text: meaning }))))),
      element('button', { type: 'button', text: 'Close', onclick: () => dialog.close() }));
    return dialog;
  }

  draw(state) {
    const track = this.player.track();
    const episode = track.episodeAt[state.step];
    const { length } = track.episodes[episode];
    setText(this.where, `Step ${stepOfEpisode(track, state.step)} / ${length - 1}`);
    this.episodes.value = `${state.track} ${episode}`;
    this.speed.value = state.speed;
    this.scrub.max = track.steps - 1;
    this.scrub.value = state.step;
    const name = state.playing ? 'Pause' : 'Play';
    if (this.play.getAttribute('aria-label') !== name) {
      this.play.setAttribute('aria-label', name);
      this.play.title = `${name} (space)`;
      this.play.querySelector('path').setAttribute('d', state.playing ? ICONS.pause : ICONS.play);
    }
    if (this.agentCount !== track.agents) this.makeAgents(track.agents);
    for (const node of this.agents.children) {
      if (node.tagName === 'SELECT') node.value = state.agent;
      else if (node.tagName === 'BUTTON') node.setAttribute('aria-pressed', String(Number(node.dataset.agent) === state.agent));
    }
    this.back.hidden = !state.from;
    if (state.from) setText(this.back, `Back to step ${stepOfEpisode(this.data.tracks[state.from.track], state.from.step)}`);
  }

  key(event) {
    if (event.ctrlKey || event.metaKey || event.altKey || this.help.open) return;
    const { target, key } = event;
    if (/^(INPUT|SELECT|TEXTAREA)$/.test(target.tagName)) return;
    const closed = target.closest('dialog'); // it keeps the focus for a moment after it was closed
    if (key === ' ' && !closed && target.closest('button, summary, a')) return;
    const { player } = this;
    const actions = {
      ' ': () => player.toggle(),
      ArrowLeft: () => (event.shiftKey ? player.moveEpisode(-1) : player.move(-1)),
      ArrowRight: () => (event.shiftKey ? player.moveEpisode(1) : player.move(1)),
      Home: () => player.toReset(), End: () => player.toEnd(),
      '+': () => player.changeSpeed(1), '=': () => player.changeSpeed(1), '-': () => player.changeSpeed(-1),
      m: () => player.jumpToPast(), b: () => player.jumpBack(), n: () => player.jumpToDecided(), '?': () => this.help.showModal(),
    };
    const agent = /^[1-9]$/.test(key) ? Number(key) - 1 : -1;
    if (agent >= 0 && agent < player.track().agents) player.seek(undefined, undefined, agent);
    else if (actions[key]) actions[key]();
    else return;
    event.preventDefault();
  }
}
