// An observation: every part of it as picture, bars, cells or number, whichever suits its shape.
const MOST_PARTS = 12;

function partsOf(about, track) {
  let from = 0;
  const parts = about.parts.map((part) => {
    const size = part.shape.reduce((a, b) => a * b, 1);
    const result = { name: part.name, shape: part.shape, from, size, form: formOf(part.shape, size) };
    from += size;
    return result;
  });
  if (from !== track.scene.perAgent) {
    throw new Damaged(`its observations have ${track.scene.perAgent} numbers, and their parts need ${from}`);
  }
  for (const part of parts) Object.assign(part, rangeOf(part, track));
  return parts;
}

function formOf(shape, size) {
  if (size === 1) return { kind: 'number' };
  const sides = shape.filter((side) => side > 1);
  if (shape.length === 3 && Math.min(shape[1], shape[2]) > 4 && shape[0] <= 4) {
    return { kind: 'picture', height: shape[1], width: shape[2], channels: shape[0], channelsFirst: true };
  }
  if (shape.length === 3 && [1, 2, 3, 4].includes(shape[2])) {
    return { kind: 'picture', height: shape[0], width: shape[1], channels: shape[2], channelsFirst: false };
  }
  if (sides.length === 2) return { kind: 'cells', height: sides[0], width: sides[1] };
  if (sides.length === 1 && size <= 24) return { kind: 'bars' };
  const width = Math.ceil(Math.sqrt(size * 1.6));
  return { kind: 'cells', width, height: Math.ceil(size / width) };
}

// Return the smallest and largest value of the part in the track.
function rangeOf(part, track) {
  const { values, perAgent } = track.scene;
  let [low, high, whole] = [Infinity, -Infinity, true];
  for (let base = part.from; base < values.length; base += perAgent) {
    for (let i = base; i < base + part.size; i++) {
      const value = values[i];
      if (value < low) low = value;
      if (value > high) high = value;
      whole = whole && Number.isInteger(value);
    }
  }
  return { low, high, whole };
}

function drawObservation(ctx, width, height, parts, track, step, agent) {
  const shown = parts.slice(0, MOST_PARTS);
  const columns = shown.length === 1 ? 1 : width < 340 && shown.length < 4 ? 1 : Math.ceil(Math.sqrt(shown.length));
  const rows = Math.ceil(shown.length / columns);
  const gap = 14;
  const [w, h] = [(width - gap * (columns - 1)) / columns, (height - gap * (rows - 1)) / rows];
  const base = (step * track.agents + agent) * track.scene.perAgent;
  shown.forEach((part, i) => {
    const [x, y] = [(i % columns) * (w + gap), Math.floor(i / columns) * (h + gap)];
    const values = track.scene.values.subarray(base + part.from, base + part.from + part.size);
    ctx.save();
    ctx.beginPath();
    ctx.rect(x, y, w, h);
    ctx.clip();
    label(ctx, part.shape.length ? `${part.name} [${part.shape.join(' × ')}]` : part.name, x, y + 11, { size: 11 });
    DRAW_PART[part.form.kind](ctx, part, values, x, y + 18, w, h - 18);
    ctx.restore();
  });
}

const DRAW_PART = {
  number(ctx, part, values, x, y, width, height) {
    const size = clamp(Math.min(height * 0.5, width * 0.3), 14, 72);
    label(ctx, formatNumber(values[0], 4), x + 2, y + size, { color: theme.ink, size, weight: 650 });
    const count = part.high - part.low + 1;
    if (!part.whole || count < 2 || count > 32 || height < size * 1.4) return;
    const cell = Math.min(22, width / count);
    for (let i = 0; i < count; i++) {
      roundedBox(ctx, x + i * cell + 1, y + size * 1.25, cell - 2, Math.min(cell, 22) - 2, 3);
      ctx.fillStyle = i + part.low === values[0] ? theme.blue : theme.grid;
      ctx.fill();
    }
  },

  bars(ctx, part, values, x, y, width, height) {
    const line = Math.min(24, height / values.length);
    const scale = Math.max(Math.abs(part.low), Math.abs(part.high)) || 1;
    const text = line >= 11 ? 44 : 0;
    const index = line >= 11 ? 20 : 0;
    const left = x + index + text;
    const space = width - index - text - 2;
    const zero = part.low < 0 ? left + space / 2 : left;
    const room = part.low < 0 ? space / 2 : space;
    values.forEach((value, i) => {
      const top = y + i * line;
      ctx.fillStyle = theme.grid;
      ctx.fillRect(left, top + line * 0.2, space, line * 0.6);
      ctx.fillStyle = value < 0 ? theme.minus : theme.plus;
      const length = (value / scale) * room;
      ctx.fillRect(Math.min(zero, zero + length), top + line * 0.2, Math.abs(length), line * 0.6);
      if (!text) return;
      label(ctx, String(i), x, top + line / 2, { size: 10, baseline: 'middle' });
      label(ctx, formatNumber(value, 3), left - 6, top + line / 2, { color: theme.ink, size: 11, align: 'right', baseline: 'middle' });
    });
    ctx.fillStyle = theme.muted;
    ctx.fillRect(zero - 0.5, y, 1, line * values.length);
  },

  cells(ctx, part, values, x, y, width, height) {
    const { width: cols, height: rows } = part.form;
    const cell = Math.min(width / cols, height / rows, 48);
    const colors = divergingColors();
    const scale = Math.max(Math.abs(part.low), Math.abs(part.high)) || 1;
    values.forEach((value, i) => {
      const [left, top] = [x + (i % cols) * cell, y + Math.floor(i / cols) * cell];
      const [r, g, b] = colors[Math.round((value / scale) * 127) + 127];
      ctx.fillStyle = `rgb(${r} ${g} ${b})`;
      ctx.fillRect(left, top, Math.max(cell - (cell > 6 ? 1 : 0), 0.5), Math.max(cell - (cell > 6 ? 1 : 0), 0.5));
      if (cell < 22) return;
      const color = r * 0.299 + g * 0.587 + b * 0.114 > 130 ? '#14171b' : '#ffffff';
      label(ctx, formatNumber(value, 2), left + cell / 2, top + cell / 2, { color, size: Math.min(12, cell * 0.34), align: 'center', baseline: 'middle' });
    });
  },

  picture(ctx, part, values, x, y, width, height) {
    const { width: cols, height: rows, channels: depth, channelsFirst } = part.form;
    const image = new ImageData(cols, rows);
    const [low, high] = part.low >= 0 ? [0, part.high > 1 ? (part.whole ? Math.max(part.high, 255) : part.high) : 1] : [part.low, part.high];
    for (let i = 0; i < cols * rows; i++) {
      for (let c = 0; c < 3; c++) {
        const channel = depth < 3 ? Math.min(c, depth - 1) : c;
        const value = values[channelsFirst ? channel * cols * rows + i : i * depth + channel];
        image.data[i * 4 + c] = ((value - low) / (high - low || 1)) * 255;
      }
      image.data[i * 4 + 3] = 255;
    }
    const picture = new OffscreenCanvas(cols, rows);
    picture.getContext('2d').putImageData(image, 0, 0);
    const scale = Math.min(width / cols, height / rows);
    ctx.imageSmoothingEnabled = false;
    ctx.drawImage(picture, x, y, cols * scale, rows * scale);
  },
};

// Return 255 colours from most negative to most positive.
function divergingColors() {
  if (divergingColors.of === theme.zero) return divergingColors.colors;
  const [minus, zero, plus] = [channels(theme.minus), channels(theme.zero), channels(theme.plus)];
  divergingColors.of = theme.zero;
  divergingColors.colors = Array.from({ length: 255 }, (_, i) => {
    const share = Math.abs(i - 127) / 127;
    return zero.map((from, c) => Math.round(from + ((i < 127 ? minus : plus)[c] - from) * share));
  });
  return divergingColors.colors;
}
