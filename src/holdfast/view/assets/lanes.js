// The lanes of the time line: functions (ctx, view, track, state, height) that draw one lane each.
// view: the first step drawn, how many, pixels per step, and the width.
const LONGEST_PICTURE = 8192; // columns of a memory picture that are kept drawn

function centreOf(view, step) {
  return (step - view.first + 0.5) * view.per;
}

function drawEpisodeStarts(ctx, view, track, height) {
  ctx.save();
  ctx.strokeStyle = theme.ink;
  ctx.globalAlpha = 0.55;
  ctx.setLineDash([3, 3]);
  for (const episode of track.episodes) {
    if (episode.start < view.first || episode.start > view.first + view.count) continue;
    const x = Math.max(0.5, Math.round((episode.start - view.first) * view.per) + 0.5);
    ctx.beginPath();
    ctx.moveTo(x, 0);
    ctx.lineTo(x, height);
    ctx.stroke();
  }
  ctx.restore();
}

function drawAxis(ctx, view, track, state, height) {
  const step = [1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 5000, 10000].find((size) => size * view.per >= 42) || 50000;
  track.episodes.forEach((episode, index) => {
    const end = episode.start + episode.length;
    if (end <= view.first || episode.start >= view.first + view.count) return;
    const left = Math.max((episode.start - view.first) * view.per, 0);
    const right = Math.min((end - view.first) * view.per, view.width);
    const current = track.episodeAt[state.step] === index;
    ctx.save();
    ctx.beginPath();
    ctx.rect(left, 0, right - left, height);
    ctx.clip();
    if (current) {
      roundedBox(ctx, left + 0.5, 1, right - left - 1, 17, 4);
      ctx.fillStyle = theme.grid;
      ctx.fill();
    }
    const name = right - left > 76 ? `episode ${index}` : String(index);
    label(ctx, name, left + 5, 14, { color: current ? theme.ink : theme.muted, weight: current ? 650 : 400 });
    for (let t = 0; t < episode.length; t += step) {
      const x = centreOf(view, episode.start + t);
      if (x < -9 || x > view.width + 9) continue;
      ctx.fillStyle = theme.line;
      ctx.fillRect(x - 0.5, height - 3, 1, 3);
      if (x > left + 6 && x < right - 6) label(ctx, String(t), x, height - 6, { size: 10, align: 'center' });
    }
    ctx.restore();
  });
}

// Bars over the observations that the action under the cursor could remember, and an arc from the most influential one to now.
function drawInfluence(ctx, view, track, state, height, data) {
  const [base, top] = [height - 1, 24];
  for (const [value, color] of [[0, theme.line], [0.5, theme.grid], [1, theme.grid]]) {
    ctx.fillStyle = color;
    ctx.fillRect(0, base - value * (base - top), view.width, 1);
  }
  const text = (words) => label(ctx, words, 4, height / 2 + 4, { size: 12 });
  if (!track.valid[state.step * track.agents + state.agent]) return text('This agent is not in the episode at this step.');
  const from = (state.step * track.agents + state.agent) * data.lookback;
  const past = strongestPast(data, track, state.step, state.agent);
  const width = Math.max(2, Math.min(view.per - 1, 26));
  for (let k = 0; k <= measuredBack(data, track, state.step); k++) {
    const x = centreOf(view, state.step - k);
    if (x < 0) break;
    const size = (track.influence[from + k] / 255) * (base - top);
    ctx.fillStyle = k === 0 ? theme.blue : theme.past;
    ctx.globalAlpha = k === 0 || (past && past.back === k) ? 1 : 0.5;
    ctx.fillRect(x - width / 2, base - Math.max(size, 1.5), width, Math.max(size, 1.5));
  }
  ctx.globalAlpha = 1;
  if (past) drawArc(ctx, view, state.step, past, base - past.influence * (base - top));
}

function drawArc(ctx, view, step, past, y) {
  const [from, to] = [centreOf(view, past.step), centreOf(view, step)];
  const peak = 9;
  ctx.strokeStyle = theme.past;
  ctx.lineWidth = 1.75;
  ctx.beginPath();
  ctx.moveTo(from, y);
  ctx.bezierCurveTo(from + (to - from) * 0.1, peak - 6, to - (to - from) * 0.1, peak - 6, to, y + 4);
  ctx.stroke();
  ctx.fillStyle = theme.past;
  ctx.beginPath();
  ctx.moveTo(to, y + 8);
  ctx.lineTo(to - 4.5, y);
  ctx.lineTo(to + 4.5, y);
  ctx.fill();
  const text = `${formatNumber(past.influence, 2)} from ${plural(past.back, 'step')} earlier`;
  ctx.font = `650 12px ${theme.font}`;
  const half = ctx.measureText(text).width / 2 + 5;
  const narrow = to - Math.max(from, 0) < half * 2 + 8 && to + half * 2 + 8 < view.width;
  const middle = narrow ? to + half + 6 : clamp((Math.max(from, 0) + to) / 2, half, view.width - half);
  ctx.fillStyle = theme.paper;
  roundedBox(ctx, middle - half, 1, half * 2, 17, 4);
  ctx.fill();
  label(ctx, text, middle, 14, { color: theme.past, size: 12, weight: 650, align: 'center' });
}

// How much the most influential earlier observation moved the action of every step.
function drawFromPast(ctx, view, track, state, height) {
  for (let t = view.first; t < view.first + view.count; t++) {
    ctx.globalAlpha = 0.06 + 0.94 * track.fromPast[t * track.agents + state.agent];
    ctx.fillStyle = theme.past;
    ctx.fillRect((t - view.first) * view.per, 0, Math.max(view.per - (view.per > 5 ? 1 : 0), 0.5), height);
  }
  ctx.globalAlpha = 1;
}

function drawValue(ctx, view, track, state, height) {
  const { low, high, reward: largest } = valueRange(track, state.agent);
  const y = (value) => height - 5 - ((value - low) / (high - low)) * (height - 10);
  ctx.fillStyle = theme.line;
  ctx.fillRect(0, Math.round(y(0)), view.width, 1);
  const width = clamp(view.per * 0.4, 1.5, 6);
  const stop = view.first + view.count;
  for (let t = view.first; t < stop; t++) {
    const reward = track.reward[t * track.agents + state.agent];
    if (!reward || !track.valid[t * track.agents + state.agent]) continue;
    const size = (reward / largest) * (reward > 0 ? y(0) - 3 : height - 3 - y(0));
    const [x, zero] = [centreOf(view, t), y(0)];
    ctx.fillStyle = reward > 0 ? theme.good : theme.alarm;
    ctx.globalAlpha = 0.85;
    ctx.fillRect(x - width / 2, Math.min(zero, zero - size), width, Math.max(Math.abs(size), 2));
  }
  ctx.globalAlpha = 1;
  ctx.strokeStyle = theme.blue;
  ctx.lineWidth = 1.75;
  ctx.lineJoin = 'round';
  ctx.beginPath();
  for (let t = view.first; t < stop; t++) {
    const value = track.value[t * track.agents + state.agent];
    const drawn = t > view.first && track.episodeAt[t] === track.episodeAt[t - 1] && track.valid[t * track.agents + state.agent];
    if (drawn) ctx.lineTo(centreOf(view, t), y(value));
    else ctx.moveTo(centreOf(view, t), y(value));
  }
  ctx.stroke();
}

// Return the range of value and the largest size of reward of an agent; the range contains zero.
function valueRange(track, agent) {
  track.ranges ||= [];
  if (track.ranges[agent]) return track.ranges[agent];
  const range = { low: 0, high: 0, reward: 1e-9, loss: 0 };
  for (let t = 0; t < track.steps; t++) {
    const [value, reward] = [track.value[t * track.agents + agent], track.reward[t * track.agents + agent]];
    range.low = Math.min(range.low, value);
    range.high = Math.max(range.high, value);
    range.reward = Math.max(range.reward, Math.abs(reward));
    range.loss = Math.min(range.loss, reward);
  }
  const size = range.high - range.low || 1;
  if (range.loss < 0) range.low = Math.min(range.low, -0.35 * (range.high || size));
  if (range.high <= 0) range.high = 0.35 * -range.low || 1;
  track.ranges[agent] = range;
  return range;
}

// The picture of one entry of memory: a row per unit, a column per step. Drawn once, then copied.
class MemoryLane {
  constructor(entry, units) {
    this.entry = entry;
    this.units = units;
    this.key = '';
  }

  draw(ctx, view, track, state, height) {
    const from = track.steps <= LONGEST_PICTURE ? 0 : Math.max(0, Math.floor(view.first / 4096) * 4096 - 2048);
    const key = `${state.track} ${state.agent} ${from} ${theme.zero}`;
    if (key !== this.key) this.paint(track, state.agent, from, Math.min(track.steps, from + LONGEST_PICTURE));
    this.key = key;
    ctx.imageSmoothingEnabled = height < this.units;
    ctx.drawImage(this.picture, view.first - from, 0, view.count, this.units, 0, 0, view.width, height);
  }

  // The number and the value of the unit that is drawn at this share of the height.
  describe(track, at, share, { units, order, scale }) {
    const row = clamp(Math.floor(share * units), 0, units - 1);
    return `unit ${order[row]} ${formatNumber((track.memory[this.entry][at * units + row] / 127) * scale, 2)}`;
  }

  paint(track, agent, from, to) {
    const [values, units, columns] = [track.memory[this.entry], this.units, to - from];
    const colors = divergingColors();
    const image = new ImageData(columns, units);
    for (let t = 0; t < columns; t++) {
      const start = ((from + t) * track.agents + agent) * units;
      if (!track.valid[(from + t) * track.agents + agent]) continue;
      for (let unit = 0; unit < units; unit++) {
        const [r, g, b] = colors[values[start + unit] + 127] || colors[0];
        const at = (unit * columns + t) * 4;
        image.data[at] = r;
        image.data[at + 1] = g;
        image.data[at + 2] = b;
        image.data[at + 3] = 255;
      }
    }
    this.picture = new OffscreenCanvas(columns, units);
    this.picture.getContext('2d').putImageData(image, 0, 0);
  }
}

// The whole track in one line, with a box around the steps that the lanes show.
function drawOverview(ctx, view, track, state, width, height) {
  const per = width / track.steps;
  track.episodes.forEach((episode, index) => {
    ctx.fillStyle = index % 2 ? theme.line : theme.grid;
    ctx.fillRect(episode.start * per, 3, episode.length * per, height - 6);
  });
  ctx.fillStyle = theme.past;
  for (let x = 0; x < width; x++) {
    let most = 0;
    for (let t = Math.floor(x / per); t <= Math.min(track.steps - 1, Math.floor((x + 1) / per)); t++) {
      most = Math.max(most, track.fromPast[t * track.agents + state.agent]);
    }
    const size = most * (height - 8);
    ctx.fillRect(x, height - 4 - size, 1, size);
  }
  ctx.strokeStyle = theme.ink;
  ctx.lineWidth = 1.5;
  roundedBox(ctx, view.first * per + 0.75, 0.75, Math.max(view.count * per - 1.5, 3), height - 1.5, 3);
  ctx.stroke();
  ctx.fillStyle = theme.ink;
  ctx.fillRect((state.step + 0.5) * per - 0.75, 0, 1.5, height);
}
