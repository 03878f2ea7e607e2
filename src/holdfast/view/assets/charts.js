// Drawings that do not move: the certificate and the training curve.
function certificateSection(certificate) {
  if (!certificate) return null;
  const about = `Mean return and its 95% confidence interval over ${plural(certificate.episodes, 'episode')}, by what is done to the memory.`;
  return element('section', { id: 'certificate' },
    element('h2', { text: 'Memory certificate' }),
    element('p', { class: 'muted', text: about }),
    element('div', { class: 'pair' }, waysTable(certificate), stepsBack(certificate)));
}

function isEstimate(estimate) {
  return Boolean(estimate) && ['mean', 'low', 'high'].every((key) => Number.isFinite(estimate[key]));
}

function waysTable(certificate) {
  const ways = Object.entries(certificate.meanings || {}).filter(([key]) => isEstimate(certificate[key]));
  const ends = ways.flatMap(([key]) => [certificate[key].low, certificate[key].high]);
  const [low, high] = [Math.min(0, ...ends), Math.max(0, ...ends)];
  const x = (value) => 2 + ((value - low) / (high - low || 1)) * 196;
  const rows = ways.map(([key, meaning]) => {
    const { mean, low: from, high: to } = certificate[key];
    const bar = drawing('svg', { viewBox: '0 0 200 24', class: `bar ${key}`, preserveAspectRatio: 'none', 'aria-hidden': 'true' },
      drawing('rect', { class: 'fill', x: Math.min(x(0), x(mean)), width: Math.abs(x(mean) - x(0)), y: 5, height: 14 }),
      drawing('line', { class: 'interval', x1: x(from), x2: x(to), y1: 12, y2: 12 }),
      ...[from, to].map((end) => drawing('line', { class: 'interval', x1: x(end), x2: x(end), y1: 8, y2: 16 })));
    return element('tr', {},
      element('th', { scope: 'row' }, element('span', { text: key }), element('small', { text: meaning })),
      element('td', { class: 'bar-cell' }, bar),
      element('td', { class: 'figure' }, element('span', { text: formatNumber(mean) }),
        element('small', { text: `${formatNumber(from)} to ${formatNumber(to)}` })));
  });
  return element('table', { class: 'ways' }, element('tbody', {}, ...rows));
}

// The return by how many observations are remembered.
function stepsBack(certificate) {
  const points = (certificate.steps_back || []).filter(isEstimate).sort((a, b) => a.steps - b.steps);
  if (points.length < 2 || !isEstimate(certificate.intact)) return null;
  const needs = certificate.needs_steps;
  const chart = makeChart({
    x: [points[0].steps, points[points.length - 1].steps], label: 'Return by how many steps are remembered',
    y: [Math.min(...points.map((p) => p.low), certificate.intact.low), Math.max(...points.map((p) => p.high), certificate.intact.high)],
    xName: 'steps remembered', yName: 'return', whole: true,
  });
  const { x, y } = chart;
  const intact = certificate.intact.mean;
  chart.node.append(
    drawing('line', { class: 'intact-line', x1: chart.left, x2: chart.right, y1: y(intact), y2: y(intact) }),
    drawing('text', { class: 'tick', x: chart.right - 4, y: y(intact) - 5, 'text-anchor': 'end' }, 'memory intact'),
    drawing('polyline', { class: 'curve', points: points.map((p) => `${x(p.steps)},${y(p.mean)}`).join(' ') }));
  for (const point of points) {
    const enough = needs !== null && point.steps >= needs;
    chart.node.append(
      drawing('line', { class: 'interval', x1: x(point.steps), x2: x(point.steps), y1: y(point.low), y2: y(point.high) }),
      drawing('circle', { class: enough ? 'point enough' : 'point', cx: x(point.steps), cy: y(point.mean), r: point.steps === needs ? 6.5 : 4.5 },
        drawing('title', {}, `${plural(point.steps, 'step')}: ${formatNumber(point.mean)}`)));
  }
  const caption = needs === null ? 'No number of steps tried was enough.' : `From ${plural(needs, 'step')} on, it does as well as with all of its memory.`;
  return element('figure', {}, chart.node, element('figcaption', { class: 'muted', text: certificate.needs_memory ? caption : '' }));
}

function curveSection(curve) {
  const points = curve.steps.map((step, i) => [step, curve.episode_return[i]]).filter(([, y]) => Number.isFinite(y));
  if (points.length < 2) return null;
  const values = points.map(([, y]) => y);
  const chart = makeChart({
    x: [points[0][0], points[points.length - 1][0]], y: [Math.min(...values), Math.max(...values)],
    xName: 'steps of training', yName: 'return', label: 'Episode return in training', ...(window.innerWidth < 640 ? {} : { width: 1000, height: 230 }),
  });
  chart.node.append(drawing('polyline', { class: 'curve', points: points.map(([a, b]) => `${chart.x(a)},${chart.y(b)}`).join(' ') }));
  return element('section', { id: 'training' }, element('h2', { text: 'Training' }), element('figure', {}, chart.node));
}

// An empty chart: axes, ticks and the functions from values to places.
function makeChart({ x: [x0, x1], y: [low, high], xName, yName, label: about, whole = false, width = 480, height = 250 }) {
  const pad = (high - low || 1) * 0.06;
  const [y0, y1] = [low - pad, high + pad];
  const [left, right, top, bottom] = [46, width - 14, 20, height - 38];
  const place = whole && x1 > 16 ? (value) => Math.log2(value + 1) : (value) => value;
  const x = (value) => left + ((place(value) - place(x0)) / (place(x1) - place(x0) || 1)) * (right - left);
  const y = (value) => bottom - ((value - y0) / (y1 - y0)) * (bottom - top);
  const node = drawing('svg', { viewBox: `0 0 ${width} ${height}`, class: 'chart', role: 'img', 'aria-label': about });
  for (const value of ticks(y0, y1, 5)) {
    node.append(
      drawing('line', { class: 'grid', x1: left, x2: right, y1: y(value), y2: y(value) }),
      drawing('text', { class: 'tick', x: left - 7, y: y(value) + 4, 'text-anchor': 'end' }, formatNumber(value)));
  }
  const doubling = [0, ...Array.from({ length: 20 }, (_, i) => 2 ** i)].filter((value) => value >= x0 && value <= x1);
  for (const value of whole && x1 > 16 ? doubling : ticks(x0, x1, whole ? Math.min(8, x1 - x0) : 6)) {
    node.append(drawing('text', { class: 'tick', x: x(value), y: bottom + 17, 'text-anchor': 'middle' }, compact(value)));
  }
  node.append(
    drawing('line', { class: 'axis', x1: left, x2: right, y1: bottom, y2: bottom }),
    drawing('text', { class: 'name', x: (left + right) / 2, y: height - 4, 'text-anchor': 'middle' }, xName),
    drawing('text', { class: 'name', x: left - 40, y: 11 }, yName));
  return { node, x, y, left, right };
}

function compact(value) {
  return value.toLocaleString('en-US', { notation: 'compact', maximumFractionDigits: 1 });
}
