// Elements, canvases, colours and numbers. Text always goes in as text: names come from strangers.
const SVG = 'http://www.w3.org/2000/svg';
const theme = {};

function element(tag, properties = {}, ...children) {
  return fill(document.createElement(tag), properties, children);
}

function drawing(tag, properties = {}, ...children) {
  return fill(document.createElementNS(SVG, tag), properties, children);
}

function fill(node, properties, children) {
  for (const [key, value] of Object.entries(properties)) {
    if (key === 'text') node.textContent = value;
    else if (key.startsWith('on')) node.addEventListener(key.slice(2), value);
    else if (value === true) node.setAttribute(key, '');
    else if (value !== false && value !== null && value !== undefined) node.setAttribute(key, value);
  }
  node.append(...children.filter((child) => child !== null && child !== undefined));
  return node;
}

function setText(node, text) {
  if (node.textContent !== text) node.textContent = text;
}

// Read the colours of the style sheet, which differ between light and dark.
function readTheme() {
  const style = getComputedStyle(document.documentElement);
  for (const name of ['paper', 'card', 'ink', 'muted', 'line', 'grid', 'blue', 'orange', 'good', 'alarm', 'floor', 'tile', 'wall', 'face',
    'edge', 'void', 'past', 'zero', 'minus', 'plus']) {
    theme[name] = style.getPropertyValue(`--${name}`).trim();
  }
  theme.font = getComputedStyle(document.body).fontFamily;
}

// Give the canvas this size in CSS pixels and return its context, cleared, with those as units.
function prepare(canvas, width, height) {
  const scale = window.devicePixelRatio || 1;
  const [w, h] = [Math.round(width * scale), Math.round(height * scale)];
  if (canvas.width !== w || canvas.height !== h) {
    canvas.width = w;
    canvas.height = h;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const ctx = canvas.getContext('2d');
  ctx.setTransform(scale, 0, 0, scale, 0, 0);
  ctx.clearRect(0, 0, width, height);
  return ctx;
}

function label(ctx, text, x, y, { color = theme.muted, size = 11, weight = 400, align = 'left', baseline = 'alphabetic' } = {}) {
  ctx.font = `${weight} ${size}px ${theme.font}`;
  ctx.fillStyle = color;
  ctx.textAlign = align;
  ctx.textBaseline = baseline;
  ctx.fillText(text, x, y);
}

function roundedBox(ctx, x, y, width, height, radius) {
  ctx.beginPath();
  ctx.roundRect(x, y, width, height, radius);
}

// Return [r, g, b] of a color written as #rrggbb.
function channels(color) {
  return [1, 3, 5].map((at) => parseInt(color.slice(at, at + 2), 16));
}

function readableOn(color) {
  const [r, g, b] = channels(color);
  return r * 0.299 + g * 0.587 + b * 0.114 > 150 ? '#14171b' : '#ffffff';
}

function formatNumber(value, digits = 3) {
  if (value === null || value === undefined || !Number.isFinite(value)) return '–';
  if (value !== 0 && (Math.abs(value) >= 1e6 || Math.abs(value) < 1e-3)) return value.toExponential(2).replace('-', '\u2212');
  return value.toLocaleString('en-US', { maximumSignificantDigits: Math.max(digits, 1) }).replace('-', '\u2212');
}

function plural(count, noun) {
  return `${count.toLocaleString('en-US')} ${noun}${count === 1 ? '' : 's'}`;
}

function clamp(value, low, high) {
  return Math.max(low, Math.min(high, value));
}

// Return round numbers that divide low..high into about `count` parts.
function ticks(low, high, count) {
  const raw = (high - low) / Math.max(count, 1) || 1;
  const power = 10 ** Math.floor(Math.log10(raw));
  const step = [1, 2, 5, 10].map((factor) => factor * power).find((size) => size >= raw * 0.999);
  const result = [];
  for (let i = Math.ceil(low / step - 1e-9); i * step <= high + step * 1e-9; i++) result.push(i * step || 0); // not -0
  return result;
}

function fail(message) {
  const box = document.getElementById('failure');
  box.hidden = false;
  box.textContent = message;
  document.documentElement.dataset.failed = '1';
  const loading = document.getElementById('loading');
  if (loading) loading.remove();
}
