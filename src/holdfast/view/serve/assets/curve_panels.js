// Panels of curves, one per metric. The cursor in one panel marks the same place in all.
import { at, smoothed, usualRange } from "./curves.js";
import { byId, make, number, setText, whole } from "./dom.js";
import { change, state } from "./state.js";
import { swatch } from "./settings.js";

const TITLES = new Map([
  ["episode_return", "Return"],
  ["parity_max_abs_logratio", "Replay parity, largest |log-ratio|"],
  ["grad_norm", "Gradient norm"],
  ["grad_norm_encoder", "Gradient norm, encoder"],
  ["grad_norm_recurrence", "Gradient norm, recurrence"],
  ["grad_norm_heads", "Gradient norm, heads"],
  ["memory_norm", "Memory norm"],
  ["explained_variance", "Explained variance"],
]);
export const titleOf = (metric) => TITLES.get(metric) ?? metric;
const DASHES = ["solid", "dash", "dot"];
const CONFIG = { displayModeBar: false, responsive: true, showTips: false, scrollZoom: false };
const touch = matchMedia("(pointer: coarse)");
const panels = new Map();
let zoom = null; // the range of x in all panels
let shown = null; // what show was given

export function show(runs, curves, healthy) {
  shown = { runs, curves, healthy };
  for (const [metric, panel] of panels) {
    if (!state.metrics.includes(metric)) {
      window.Plotly.purge(panel.plot);
      panel.element.remove();
      panels.delete(metric);
    }
  }
  for (const metric of state.metrics) {
    if (!panels.has(metric)) {
      panels.set(metric, makePanel(metric));
      byId("panels").append(panels.get(metric).element);
    }
    draw(metric);
  }
  byId("unzoom").hidden = zoom === null;
}

export function redraw() {
  for (const metric of panels.keys()) draw(metric);
}

export function unzoom() {
  zoom = null;
  redraw();
  byId("unzoom").hidden = true;
}

function makePanel(metric) {
  const log = make("button", { class: "toggle", title: "Logarithmic axis", onclick: () => change(() => (state.log.has(metric) ? state.log.delete(metric) : state.log.add(metric))) }, "log");
  const close = make("button", { class: "close", title: "Remove this panel", "aria-label": "Remove this panel" }, "×");
  close.addEventListener("click", () => change(() => (state.metrics = state.metrics.filter((name) => name !== metric))));
  const title = make("h3", { title: metric }, titleOf(metric));
  const plot = make("div", { class: "plot" });
  const [line, readout, note] = [make("div", { class: "cursor", hidden: true }), make("div", { class: "readout", hidden: true }), make("p", { class: "note muted" })];
  const area = make("div", { class: "area" }, plot, line, readout);
  const element = make("section", { class: "panel", "data-metric": metric }, make("header", {}, title, log, close), area, note);
  const panel = { element, plot, log, line, readout, note, lines: [], bound: false };
  area.addEventListener("pointermove", (event) => point(panel, event.clientX - area.getBoundingClientRect().left));
  area.addEventListener("pointerleave", () => hideCursors());
  return panel;
}

// Plotly reads markup in text: names are shown as they are.
const plain = (text) => text.replace(/&/g, "&amp;").replace(/</g, "&lt;").replace(/>/g, "&gt;");

export function linesOf(metric) {
  const found = [];
  for (const run of shown.runs) {
    const curves = shown.curves.get(run.key)?.curves ?? {};
    const points = Object.hasOwn(curves, metric) && curves[metric]; // a metric may be called constructor
    if (points) found.push({ run, raw: points, smooth: state.smooth > 0 ? smoothed(points, state.smooth) : points });
  }
  return found;
}

function draw(metric) {
  const panel = panels.get(metric);
  const style = getComputedStyle(document.documentElement);
  const color = (name) => style.getPropertyValue(name).trim();
  const log = state.log.has(metric);
  const positive = (values) => (log ? values.map((v) => (v > 0 ? v : null)) : values);
  panel.lines = linesOf(metric);
  panel.log.setAttribute("aria-pressed", String(log));
  const traces = [];
  for (const { run, raw, smooth } of panel.lines) {
    const slot = state.runs.get(run.key);
    const line = { color: color(`--c${slot % 8}`), dash: DASHES[Math.floor(slot / 8) % DASHES.length] };
    const common = { type: "scatter", mode: raw.x.length === 1 ? "markers" : "lines", hoverinfo: "skip", name: plain(run.name) };
    if (state.smooth > 0) traces.push({ ...common, x: raw.x, y: positive(raw.y), opacity: 0.3, line: { ...line, width: 1, dash: "solid" } });
    traces.push({ ...common, x: smooth.x, y: positive(smooth.y), marker: { color: line.color }, line: { ...line, width: state.smooth > 0 ? 2 : 1.4 } });
  }
  const usual = log ? null : usualRange(panel.lines.map((line) => line.raw), metric === "explained_variance" ? -1 : -Infinity);
  window.Plotly.react(panel.plot, traces, layout(metric, log, usual, color), { ...CONFIG });
  bind(panel);
  setText(panel.note, noteOf(panel.lines, log, usual));
  panel.note.hidden = !panel.note.textContent;
  panel.plot.setAttribute("role", "img");
  panel.plot.setAttribute("aria-label", `${titleOf(metric)} of ${panel.lines.length} runs`);
}

// How numbers on an axis are written: for those without a prefix, such as k, plotly uses markup that the page's policy forbids.
function exponents(values) {
  const most = values.reduce((found, value) => Math.max(found, Math.abs(value) || 0), 0);
  return most && (most >= 1e14 || most < 1e-12) ? "e" : "SI";
}

function layout(metric, log, usual, color) {
  const axis = { gridcolor: color("--grid"), linecolor: color("--line"), zeroline: false, automargin: false, ticks: "", nticks: 6, fixedrange: touch.matches };
  const parity = metric === "parity_max_abs_logratio";
  const limit = { type: "line", xref: "paper", x0: 0, x1: 1, y0: shown.healthy, y1: shown.healthy, line: { color: color("--alarm"), width: 1, dash: "dot" } };
  const label = { xref: "paper", x: 1, xanchor: "right", y: log ? Math.log10(shown.healthy) : shown.healthy, yanchor: "top", text: `healthy below ${number(shown.healthy)}`, showarrow: false, font: { size: 11, color: color("--alarm") } };
  return {
    uirevision: `${state.x} ${log}`,
    margin: { l: 54, r: 16, t: 6, b: 38 },
    paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)",
    font: { family: "system-ui, 'Segoe UI', Roboto, 'DejaVu Sans', sans-serif", size: 12, color: color("--muted") },
    showlegend: false,
    hovermode: false,
    dragmode: touch.matches ? false : "zoom",
    xaxis: {
      ...axis,
      exponentformat: exponents(panels.get(metric).lines.flatMap((line) => line.raw.x)),
      title: { text: state.x === "steps" ? "agent steps" : "seconds of training", standoff: 6, font: { size: 12 } },
      ...(zoom ? { range: zoom, autorange: false } : { autorange: true }),
      uirevision: JSON.stringify(zoom),
      rangemode: "tozero",
    },
    yaxis: {
      ...axis,
      type: log ? "log" : "linear",
      exponentformat: log ? "e" : exponents(panels.get(metric).lines.flatMap((line) => line.raw.y)),
      dtick: log && parity ? 1 : undefined,
      ...(usual ? { range: usual, autorange: false } : { autorange: true }),
    },
    shapes: parity ? [limit] : [],
    annotations: parity ? [label] : [],
  };
}

function noteOf(lines, log, usual) {
  if (!shown.runs.length) return "";
  const without = shown.runs.length - lines.length;
  const values = lines.flatMap((line) => line.raw.y);
  const notes = [];
  if (!lines.length) notes.push(state.x === "seconds" ? "No selected run has logged this metric with wall-clock time." : "No selected run has logged this metric yet.");
  else if (without) notes.push(`${without} of ${shown.runs.length} runs have not logged this metric.`);
  if (log && values.length && values.every((v) => v <= 0)) notes.push("All values are 0 or below, so a log axis cannot show them.");
  if (usual) notes.push("Outliers are out of view: double-click to see all values.");
  return notes.join(" ");
}

function bind(panel) {
  if (panel.bound) return;
  panel.bound = true;
  panel.plot.on("plotly_relayout", (event) => {
    const range = event["xaxis.range[0]"] !== undefined ? [event["xaxis.range[0]"], event["xaxis.range[1]"]] : undefined;
    const reset = event["xaxis.autorange"] || event["xaxis.range"] !== undefined;
    if (!range && !reset) return;
    zoom = range ?? null;
    byId("unzoom").hidden = zoom === null;
    redraw();
  });
}

function point(panel, left) {
  const axis = panel.plot._fullLayout?.xaxis;
  const inside = axis && left >= axis._offset && left <= axis._offset + axis._length;
  if (!inside || !panel.lines.length) return hideCursors();
  const place = axis.p2d(left - axis._offset);
  for (const each of panels.values()) mark(each, place, each === panel);
  return undefined;
}

function mark(panel, place, full) {
  const axis = panel.plot._fullLayout?.xaxis;
  const left = axis ? axis._offset + axis.d2p(place) : -1;
  const visible = axis && left >= axis._offset - 1 && left <= axis._offset + axis._length + 1;
  panel.line.hidden = !visible;
  panel.readout.hidden = !visible || !full;
  if (!visible) return;
  panel.line.style.left = `${left}px`;
  if (!full) return;
  const values = panel.lines.map((line) => ({ ...line, found: at(line.smooth, place), own: at(line.raw, place) })).filter((line) => line.found);
  values.sort((a, b) => b.found.y - a.found.y);
  const rows = values.slice(0, 12).map(({ run, found, own }) =>
    make("tr", {}, make("td", {}, swatch(run.key), run.name), make("td", {}, number(found.y)), ...(state.smooth > 0 ? [make("td", { class: "muted" }, number(own.y))] : [])),
  );
  const more = values.length > 12 ? [make("p", { class: "muted" }, `and ${values.length - 12} more`)] : [];
  const where = state.x === "steps" ? `${whole(Math.round(place))} steps` : `${number(place)} s`;
  panel.readout.replaceChildren(make("p", { class: "muted" }, where), make("table", {}, ...rows), ...more);
  const right = left > panel.plot.clientWidth / 2;
  panel.readout.style.left = right ? "auto" : `${left + 12}px`;
  panel.readout.style.right = right ? `${panel.plot.clientWidth - left + 12}px` : "auto";
}

function hideCursors() {
  for (const panel of panels.values()) panel.line.hidden = panel.readout.hidden = true;
}
