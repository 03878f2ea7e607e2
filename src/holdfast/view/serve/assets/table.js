// The list of runs: one row per run, updated in place so that what is being clicked stays.
import { byId, duration, make, number, setText, whole } from "./dom.js";
import { change, select, state } from "./state.js";

const AUDITS = {
  passed: ["passed", "good", "The quick audit before training passed."],
  "built in": ["built in", "", "This agent ships with Holdfast, whose own tests audit it."],
  warn: ["only warned", "warn", "audit=warn: the audit printed its failures and did not stop training."],
  off: ["off", "", "audit=off: the policy was not audited before training."],
};
const ORDER = { running: 0, failed: 1, stopped: 2, finished: 3 };
const COLUMNS = [
  ["name", "Run", (run) => run.name],
  ["world", "World", (run) => run.world],
  ["agent", "Agent", (run) => run.agent],
  ["state", "State", (run) => ORDER[run.state]],
  ["steps", "Steps", (run) => run.steps],
  ["return", "Return", (run) => run.return],
  ["best", "Best", (run) => run.best],
  ["parity", "Parity", (run) => run.parity],
  ["audit", "Audit", (run) => run.audit],
  ["began", "Started", (run) => run.began],
];
const rows = new Map();

export function build() {
  const head = byId("list").querySelector("thead tr");
  head.append(make("th", { class: "pick" }, make("span", { class: "unseen" }, "Compare")));
  for (const [id, title] of COLUMNS) {
    const button = make("button", { class: "sort", "data-sort": id, onclick: () => sortBy(id) }, title);
    head.append(make("th", { "data-column": id, scope: "col" }, button));
  }
  head.append(make("th", {}, make("span", { class: "unseen" }, "Watch")));
  byId("sort").append(...COLUMNS.map(([id, title]) => make("option", { value: id }, title)));
  byId("sort").addEventListener("change", (event) => sortBy(event.target.value));
  byId("direction").addEventListener("click", () => sortBy(sortColumn()));
  byId("find").value = state.find;
  byId("find").addEventListener("input", (event) => change(() => (state.find = event.target.value)));
  byId("all").addEventListener("click", () => select(shownKeys(), true));
  byId("none").addEventListener("click", () => select([...state.runs.keys()], false));
}

const sortColumn = () => state.sort.replace("-", "");
const shownKeys = () => [...byId("list").querySelectorAll("tbody tr")].map((row) => row.dataset.key);

function sortBy(id) {
  const down = `-${id}`;
  const numeric = ["steps", "return", "best", "parity", "began"].includes(id);
  const next = state.sort === id ? down : state.sort === down ? id : numeric ? down : id;
  change(() => (state.sort = next));
}

export function sorted(runs) {
  const down = state.sort.startsWith("-");
  const [, , value] = COLUMNS.find(([id]) => id === sortColumn()) ?? COLUMNS.at(-1);
  const missing = (v) => v === null || v === undefined;
  return [...runs].sort((a, b) => {
    const [one, two] = [value(a), value(b)];
    if (missing(one) || missing(two)) return missing(one) - missing(two);
    const order = typeof one === "string" ? one.localeCompare(two, "en", { numeric: true }) : one - two;
    return (down ? -order : order) || a.name.localeCompare(b.name, "en", { numeric: true });
  });
}

function matches(run) {
  const text = [run.name, run.world, run.agent, run.core, run.state, run.error].join(" ").toLowerCase();
  return state.find.toLowerCase().split(/\s+/).every((word) => text.includes(word));
}

export function show(listed) {
  const shown = sorted(listed.runs.filter(matches));
  const body = byId("list").querySelector("tbody");
  for (const run of shown) {
    if (!rows.has(run.key)) rows.set(run.key, makeRow(run));
    fill(rows.get(run.key), run, listed.healthy_parity);
  }
  const wanted = shown.map((run) => rows.get(run.key).row);
  if (wanted.length !== body.children.length || wanted.some((row, i) => row !== body.children[i])) body.replaceChildren(...wanted);
  for (const column of byId("list").querySelectorAll("th[data-column]")) {
    const on = sortColumn() === column.dataset.column;
    column.setAttribute("aria-sort", !on ? "none" : state.sort.startsWith("-") ? "descending" : "ascending");
  }
  byId("sort").value = sortColumn();
  setText(byId("direction"), state.sort.startsWith("-") ? "↓" : "↑");
  byId("direction").setAttribute("aria-label", `Sort order: ${state.sort.startsWith("-") ? "descending" : "ascending"}`);
  const running = listed.runs.filter((run) => run.state === "running").length;
  const part = shown.length === listed.runs.length ? `${shown.length}` : `${shown.length} of ${listed.runs.length}`;
  setText(byId("count"), `${part} ${listed.runs.length === 1 ? "run" : "runs"}${running ? `, ${running} training` : ""}`);
}

function makeRow(run) {
  const box = make("input", { type: "checkbox", id: `pick-${run.key}`, onchange: (event) => select([run.key], event.target.checked) });
  box.setAttribute("aria-label", `Compare ${run.name}`);
  const cells = Object.fromEntries(COLUMNS.map(([id, title]) => [id, make("td", { "data-column": id, "data-title": title })]));
  const name = make("label", { class: "name", for: box.id });
  const error = make("div", { class: "error" });
  cells.name.append(name, error);
  const [label, bar, pace] = [make("span", { class: "state" }), make("span", { class: "bar-fill" }), make("span", { class: "pace muted" })];
  const progress = make("span", { class: "progress" }, bar);
  cells.state.append(label, progress, pace);
  const watch = make("a", { class: "button", target: "_blank", rel: "noopener", href: `/watch?run=${run.key}` }, "Watch");
  const row = make("tr", { "data-key": run.key }, make("td", { class: "pick" }, box), ...Object.values(cells), make("td", { class: "go" }, watch));
  return { row, box, cells, name, error, label, bar, progress, pace, watch };
}

function fill(parts, run, healthy) {
  const on = state.runs.has(run.key);
  parts.box.checked = on;
  parts.box.className = on ? `c${state.runs.get(run.key) % 8}` : "";
  parts.row.classList.toggle("selected", on);
  setText(parts.name, run.name);
  setText(parts.error, [run.error, run.problem].filter(Boolean).join(" "));
  setText(parts.cells.world, run.world);
  parts.cells.world.title = run.world;
  setText(parts.cells.agent, run.core && run.core !== "own" ? `${run.agent} · ${run.core}` : run.agent);
  setText(parts.label, run.state);
  parts.label.className = `state ${run.state}`;
  const running = run.state === "running" && run.total > 0;
  parts.progress.hidden = parts.pace.hidden = !running;
  if (running) {
    const share = Math.min(1, (run.steps ?? 0) / run.total);
    parts.bar.style.width = `${100 * share}%`;
    const left = run.sps ? `, ${duration(Math.max(0, run.total - (run.steps ?? 0)) / run.sps)} left` : "";
    setText(parts.pace, `${Math.floor(100 * share)}%${left}`);
  }
  setText(parts.cells.steps, whole(run.steps));
  setText(parts.cells.return, number(run.return));
  setText(parts.cells.best, number(run.best));
  setText(parts.cells.began, timeOf(run.began));
  const [text, kind, meaning] = AUDITS[run.audit] ?? AUDITS.off;
  setText(parts.cells.audit, text);
  parts.cells.audit.className = kind;
  parts.cells.audit.title = meaning;
  setText(parts.cells.parity, number(run.parity));
  parts.cells.parity.className = run.parity > healthy ? "alarm" : "";
  parts.cells.parity.title = `Largest |log-ratio| between acting and learning over all updates. Healthy: at most ${number(healthy)}.`;
  parts.watch.hidden = !run.checkpoint;
}

function timeOf(seconds) {
  const date = new Date(1000 * seconds);
  const today = new Date().toDateString() === date.toDateString();
  const time = { hour: "2-digit", minute: "2-digit", hourCycle: "h23" };
  return date.toLocaleString("en-GB", today ? time : { day: "numeric", month: "short", ...time });
}
