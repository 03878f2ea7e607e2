// What is around the time line: the header, the world now and then, the action.
function headerOf(data) {
  const { run, certificate } = data;
  const sentence = certificate ? String(certificate.sentence) : '';
  const colon = sentence.indexOf(':');
  const facts = [run.world, run.agent, run.checkpoint, run.steps === null || run.steps === undefined ? null : `${plural(run.steps, 'step')} of training`, run.how];
  const headline = sentence ? (colon > 0 ? sentence.slice(0, colon) : sentence) : String(run.name);
  const rest = colon > 0 ? sentence.slice(colon + 1).trim() : '';
  return element('header', {},
    element('p', { class: 'run' },
      sentence ? element('b', { text: run.name }) : null,
      ...facts.filter(Boolean).map((fact) => element('span', { text: fact }))),
    element('h1', { id: 'headline', text: headline }),
    rest ? element('p', { class: 'evidence', text: rest.charAt(0).toUpperCase() + rest.slice(1) }) : null,
    ...(data.notes || []).map((note) => element('p', { class: 'data-note muted', text: note })));
}

function settingsSection(data) {
  const rows = Object.entries(data.settings || {}).map(([key, value]) =>
    element('tr', {}, element('th', { scope: 'row' }, element('code', { text: key })), element('td', {}, element('code', { text: value }))));
  const version = data.run.version ? element('p', { class: 'muted', text: `Written by Holdfast ${data.run.version}.` }) : null;
  return element('section', { id: 'settings' },
    rows.length ? element('details', {}, element('summary', { text: 'Settings' }), element('table', {}, element('tbody', {}, ...rows))) : null,
    version);
}

// The world now, the most influential earlier observation beside it, and the action that followed.
class Stage {
  constructor(data, player) {
    this.data = data;
    this.player = player;
    this.scene = makeScene(data, () => this.draw(player.state));
    this.now = element('canvas', { id: 'world', role: 'img', 'aria-label': 'The world at this step' });
    this.title = element('h2', { text: 'Now' });
    this.status = element('p', { class: 'status muted' });
    this.legend = element('div', { class: 'legend-place' });
    this.nowBox = element('div', { class: 'picture' }, this.now);
    this.near = element('canvas', { id: 'near', role: 'img', 'aria-label': 'What the agent observes at this step' });
    this.nearBox = element('div', { class: 'picture' }, this.near);
    this.world = element('div', { class: 'world' }, this.nowBox, this.nearBox, this.legend);
    this.makePast();
    this.action = new ActionPanel(data);
    this.node = element('section', { class: 'stage', 'aria-label': 'The world and the action' },
      element('div', { class: 'panel now' }, this.title, this.world, this.status), this.pastPanel, this.action.node);
    this.now.addEventListener('pointermove', (event) => this.showHovered(this.scene.hover(event.offsetX, event.offsetY)));
    this.now.addEventListener('pointerleave', () => this.showHovered(''));
    new ResizeObserver(() => this.resize()).observe(this.world);
  }

  makePast() {
    this.then = element('canvas', { id: 'past-world', role: 'img', 'aria-label': 'The most influential earlier observation' });
    this.thenBox = element('div', { class: 'picture' }, this.then);
    this.figure = element('span', { class: 'influence' });
    this.back = element('span', { class: 'back' });
    this.factor = element('p', { class: 'muted factor' });
    this.jump = element('button', { id: 'jump-past', type: 'button', title: 'Key m', onclick: () => this.player.jumpToPast() });
    this.nothing = element('p', { class: 'muted', id: 'no-past' });
    this.found = element('div', { class: 'found' },
      element('p', { class: 'finding' }, this.back, this.figure), this.thenBox, element('div', { class: 'after' }, this.factor, this.jump));
    this.pastPanel = element('div', { class: 'panel then' }, element('h2', { text: 'Most influential observation' }), this.found, this.nothing);
    if (!this.data.memory.length) this.pastPanel.hidden = true;
  }

  showHovered(text) {
    this.hovered = text;
    this.drawStatus(this.player.state);
  }

  resize() {
    const width = Math.floor(this.world.clientWidth);
    if (width === this.width) return;
    this.width = width;
    this.draw(this.player.state);
  }

  draw(state) {
    this.width ||= Math.floor(this.world.clientWidth);
    const width = Math.max(this.width, 100);
    const track = this.player.track();
    const past = strongestPast(this.data, track, state.step, state.agent);
    const size = this.scene.size(state.track, width, clamp(window.innerHeight * 0.4, 240, width * 1.05));
    this.scene.draw(prepare(this.now, size.width, size.height), size, state.track, state.step, state.agent, past);
    const near = this.scene.nearSize(state.track, size, width);
    this.nearBox.hidden = !near;
    if (near) this.scene.drawNear(this.near, near, state.track, state.step, state.agent);
    setText(this.title, `Now: step ${stepOfEpisode(track, state.step)}`);
    this.drawStatus(state);
    this.drawPast(state, track, past, window.innerWidth < 640 ? 220 : size.height - 100);
    this.action.draw(track, state);
  }

  drawStatus(state) {
    setText(this.status, this.hovered || this.scene.describe(state.track, state.step, state.agent));
  }

  drawPast(state, track, past, height) {
    this.found.classList.toggle('away', !past);
    this.nothing.hidden = Boolean(past);
    if (!past) {
      const present = track.valid[state.step * track.agents + state.agent];
      setText(this.nothing, present ? 'No earlier observation moved this action.' : 'No action at this step.');
      return;
    }
    const episode = track.episodeAt[past.step];
    const before = episode === track.episodeAt[state.step] ? '' : `episode ${episode}, `;
    setText(this.back, `${plural(past.back, 'step')} earlier`);
    setText(this.figure, formatNumber(past.influence, 2));
    const times = 1 / (1 - past.influence);
    const much = past.influence > 0.99 ? 'over 100' : times < 10 ? times.toFixed(1) : String(Math.round(times));
    setText(this.factor, `Another observation there makes the action ${much} times more or less likely.`);
    setText(this.jump, `Go to ${before}step ${stepOfEpisode(track, past.step)}`);
    const width = Math.max(Math.floor(this.thenBox.clientWidth), 100);
    const room = { width, height: clamp(height, 150, width) };
    this.scene.drawPast(this.then, room, state.track, past.step, state.agent);
  }

  // Draw what depends on the colours anew.
  recolor() {
    const legend = this.scene.legend();
    this.legend.replaceChildren(...(legend ? [legend] : []));
  }
}

// The distribution over actions, the chosen one, value and reward.
class ActionPanel {
  constructor(data) {
    this.data = data;
    this.rows = [];
    this.scales = data.numbers.map((number, index) => this.scaleOf(number, index));
    const groups = [
      ...data.choices.map((choice) => this.makeChoice(choice, data.choices.length > 1)),
      ...data.numbers.map((number, index) => this.makeNumber(number, index)),
    ];
    this.figures = Object.fromEntries(['value', 'reward', 'so-far'].map((name) => [name, element('dd', { id: name })]));
    this.absent = element('p', { class: 'muted absent', text: 'This agent is not in the episode at this step.' });
    this.body = element('div', { class: 'choices' }, ...groups);
    this.node = element('div', { class: 'panel action' },
      element('h2', { text: 'Action' }), this.absent, this.body,
      element('dl', { class: 'figures' },
        element('div', {}, element('dt', { text: 'Value' }), this.figures.value),
        element('div', {}, element('dt', { text: 'Reward' }), this.figures.reward),
        element('div', {}, element('dt', { text: 'Return so far' }), this.figures['so-far'])));
  }

  makeChoice(choice, named) {
    const rows = choice.options.map((option) => {
      const row = { bar: element('i'), text: element('span', { class: 'percent' }) };
      row.node = element('li', { class: 'option' }, element('span', { class: 'option-name', text: option, title: option }), element('span', { class: 'track' }, row.bar), row.text);
      return row;
    });
    this.rows.push(rows);
    return element('div', { class: 'choice' }, named ? element('h3', { text: choice.name }) : null, element('ol', {}, ...rows.map((row) => row.node)));
  }

  makeNumber(number, index) {
    const scale = this.scales[index];
    scale.band = element('i', { class: 'band' });
    scale.mean = element('i', { class: 'mean' });
    scale.mark = element('i', { class: 'mark' });
    scale.text = element('b');
    scale.spread = element('span', { class: 'muted' });
    return element('div', { class: 'number' },
      element('div', { class: 'number-name' }, element('span', { text: /^\d+$/.test(number.name) ? `number ${number.name}` : number.name }), scale.text, scale.spread),
      element('div', { class: 'range' }, scale.band, scale.mean, scale.mark),
      element('div', { class: 'ends muted' }, element('span', { text: formatNumber(scale.low) }), element('span', { text: formatNumber(scale.high) })));
  }

  // The range to draw: the limits of the action, or what was recorded if it has none.
  scaleOf(number, index) {
    let [low, high] = [number.low ?? Infinity, number.high ?? -Infinity];
    const count = this.data.numbers.length;
    for (const track of this.data.tracks) {
      for (let i = index; i < track.number.length; i += count) {
        if (number.low === null || number.low === undefined) low = Math.min(low, track.number[i], track.mean[i] - track.std[i]);
        if (number.high === null || number.high === undefined) high = Math.max(high, track.number[i], track.mean[i] + track.std[i]);
      }
    }
    return { low, high: high > low ? high : low + 1 };
  }

  draw(track, { step, agent }) {
    const at = step * track.agents + agent;
    const present = track.valid[at] === 1;
    this.absent.hidden = present;
    this.body.classList.toggle('away', !present);
    this.drawChoices(track, at);
    this.drawNumbers(track, at);
    setText(this.figures.value, present ? formatNumber(track.value[at]) : '–');
    setText(this.figures.reward, present ? formatNumber(track.reward[at]) : '–');
    setText(this.figures['so-far'], formatNumber(returnSoFar(track, step, agent)));
  }

  drawChoices(track, at) {
    const width = this.rows.reduce((sum, rows) => sum + rows.length, 0);
    let from = at * width;
    this.rows.forEach((rows, choice) => {
      const chosen = track.chosen[at * this.rows.length + choice];
      rows.forEach((row, option) => {
        const share = track.probabilities[from + option] / 255;
        row.bar.style.transform = `scaleX(${share})`;
        setText(row.text, share > 0 && share < 0.01 ? '<1%' : `${Math.round(share * 100)}%`);
        if (row.chosen !== (option === chosen)) {
          row.chosen = option === chosen;
          row.node.classList.toggle('chosen', row.chosen);
          if (row.chosen) row.node.setAttribute('aria-current', 'true');
          else row.node.removeAttribute('aria-current');
        }
        if (row.chosen) keepVisible(row.node);
      });
      from += rows.length;
    });
  }

  drawNumbers(track, at) {
    this.scales.forEach((scale, index) => {
      const [number, mean, std] = ['number', 'mean', 'std'].map((key) => track[key][at * this.scales.length + index]);
      const place = (value) => clamp((value - scale.low) / (scale.high - scale.low), 0, 1) * 100;
      scale.band.style.left = `${place(mean - std)}%`;
      scale.band.style.width = `${place(mean + std) - place(mean - std)}%`;
      scale.mean.style.left = `${place(mean)}%`;
      scale.mark.style.left = `${place(number)}%`;
      setText(scale.text, formatNumber(number));
      setText(scale.spread, `${formatNumber(mean)} ± ${formatNumber(std, 2)}`);
    });
  }
}

// Scroll a long list of options, and only it, to the chosen one.
function keepVisible(node) {
  const list = node.parentNode;
  if (list.scrollHeight <= list.clientHeight) return;
  const top = node.offsetTop - list.offsetTop;
  if (top < list.scrollTop || top + node.offsetHeight > list.scrollTop + list.clientHeight) list.scrollTop = top - list.clientHeight / 2;
}
