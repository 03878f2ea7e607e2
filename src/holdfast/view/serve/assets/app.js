// The page: asks every two seconds while it is visible, and shows what has changed.
import * as panels from "./curve_panels.js";
import { byId, make, setText, whole } from "./dom.js";
import { get, Unreachable } from "./requests.js";
import * as settings from "./settings.js";
import { change, freeColor, load, MAX_SELECTED, onChange, save, select, state } from "./state.js";
import * as table from "./table.js";

const PERIOD_MS = 2000;
const AT_FIRST = 5; // runs that are selected when the page is opened
let listed = null;
let stale = true; // the page does not show the newest list and choices completely: the next poll tries again
let timer = 0;
let round = 0;
let curves = new Map(); // by run
const kept = new Map(); // by run, the newest answer: {asked, value}

async function poll() {
  clearTimeout(timer);
  let wait = PERIOD_MS;
  try {
    const { value, changed } = await get("/data/runs");
    if (changed || !listed) {
      listed = value;
      state.known = new Set(listed.runs.map((run) => run.key));
      selectFirst();
    }
    if (changed || stale) await show();
    wait = value.pending ? 100 : PERIOD_MS;
    connection("");
  } catch (error) {
    report(error);
  }
  clearTimeout(timer);
  if (!document.hidden) timer = setTimeout(poll, wait);
}

function report(error) {
  connection(error instanceof Unreachable ? "The server has stopped. Restart it with holdfast view." : error.message);
}

function connection(problem) {
  const training = listed?.runs.some((run) => run.state === "running");
  setText(byId("connection"), problem || (training ? "live" : ""));
  byId("connection").className = problem ? "alarm" : training ? "live" : "";
}

function selectFirst() {
  if (state.chosen) return;
  const newest = [...listed.runs].sort((a, b) => (b.state === "running") - (a.state === "running") || b.began - a.began);
  const world = (newest.find((run) => run.steps) ?? newest[0])?.world; // returns of other worlds are not comparable
  const first = newest.filter((run) => run.world === world && (run.steps || run.state === "running"));
  for (const run of first) if (state.runs.size < AT_FIRST && !state.runs.has(run.key)) state.runs.set(run.key, freeColor());
}

const selected = () => {
  const known = new Map(listed.runs.map((run) => [run.key, run]));
  return [...state.runs.keys()].map((key) => known.get(key)).filter(Boolean);
};

async function show() {
  if (!listed) return;
  const mine = ++round;
  stale = true;
  setText(byId("folder"), listed.folder);
  const empty = !listed.runs.length && !listed.unreadable.length;
  byId("empty").hidden = !empty;
  byId("runs").hidden = empty;
  setText(byId("first-command"), listed.first_command);
  table.show(listed);
  byId("left-out").hidden = !listed.left_out;
  setText(byId("left-out"), leftOut(listed));
  byId("unreadable").hidden = !listed.unreadable.length;
  byId("unreadable").querySelector("ul").replaceChildren(
    ...listed.unreadable.map((run) => make("li", {}, make("strong", {}, run.name), ": ", run.reason)),
  );
  const runs = selected();
  byId("curves").hidden = byId("settings").hidden = !listed.runs.length;
  legend(runs);
  const [complete] = await Promise.all([showCurves(runs, mine), showSettings(runs, mine)]);
  if (mine === round) stale = !complete;
}

function leftOut({ runs, unreadable, left_out: others }) {
  const count = runs.length + unreadable.length;
  const shown = `${whole(count)} of ${whole(count + others)} runs are listed, in order of name.`;
  return `${shown} To see the others, use holdfast view --runs-dir with a subfolder, or move runs to another folder.`;
}

// Shows the curves of these runs; returns whether all of them are the newest ones.

async function showCurves(runs, mine) {
  const words = [["x", state.x], ...state.metrics.map((metric) => ["metric", metric])];
  const found = await Promise.all(
    runs.map((run) => curvesOf(run, [["run", run.key], ...words]).catch((error) => ({ error }))),
  );
  if (mine !== round) return false; // another choice was made meanwhile
  const unreachable = found.find(({ error }) => error instanceof Unreachable);
  if (unreachable) throw unreachable.error;
  curves = new Map();
  const problems = [];
  runs.forEach((run, i) => {
    const value = found[i].value ?? kept.get(run.key)?.value; // the last answer, if there is no new one
    if (value) curves.set(run.key, value);
    const problem = found[i].error?.message ?? value.problem;
    if (problem) problems.push(`${run.name}: ${problem}`);
  });
  if (state.runs.size === MAX_SELECTED) problems.push(`At most ${MAX_SELECTED} runs can be compared at once.`);
  setText(byId("curve-notes"), runs.length ? problems.join(" · ") : "Select runs in the list to see their curves.");
  controls();
  panels.show(runs, curves, listed.healthy_parity);
  return found.every(({ value }) => value && !value.incomplete);
}

async function curvesOf(run, words) {
  const asked = JSON.stringify([run.stamp, words]);
  if (kept.get(run.key)?.asked !== asked || kept.get(run.key).value.incomplete) {
    kept.set(run.key, { asked, value: (await get("/data/curves", words)).value });
  }
  return kept.get(run.key);
}

async function showSettings(runs, mine) {
  const { value } = await get("/data/settings", runs.map((run) => ["run", run.key]));
  if (mine === round) settings.show(value, runs);
}

function legend(runs) {
  byId("legend").replaceChildren(
    ...runs.map((run) => {
      const remove = make("button", { class: "close", "aria-label": `Deselect ${run.name}`, onclick: () => select([run.key], false) }, "×");
      return make("li", {}, settings.swatch(run.key), make("span", { class: "name" }, run.name), remove);
    }),
  );
}

function controls() {
  for (const input of document.querySelectorAll("input[name=x]")) input.checked = input.value === state.x;
  byId("smooth").value = state.smooth;
  setText(byId("smooth-value"), state.smooth.toFixed(2));
  const names = new Set(listed.metrics);
  for (const found of curves.values()) for (const name of found.names) names.add(name);
  const offered = [...names].filter((name) => !state.metrics.includes(name)).sort();
  const options = offered.map((name) => make("option", { value: name }, panels.titleOf(name) === name ? name : `${panels.titleOf(name)} (${name})`));
  const now = [...byId("add").options].slice(1).map((option) => option.value);
  if (now.join("\n") !== offered.join("\n") || !byId("add").options.length) byId("add").replaceChildren(make("option", { value: "" }, "Add a curve …"), ...options);
}

function start() {
  load();
  table.build();
  onChange(() => show().catch(report));
  for (const input of document.querySelectorAll("input[name=x]")) input.addEventListener("change", () => change(() => ((state.x = input.value), panels.unzoom())));
  byId("smooth").addEventListener("input", (event) => {
    state.smooth = Number(event.target.value);
    save();
    setText(byId("smooth-value"), state.smooth.toFixed(2));
    panels.redraw();
  });
  byId("add").addEventListener("change", (event) => {
    const metric = event.target.value;
    if (!metric) return;
    event.target.value = "";
    change(() => state.metrics.push(metric));
    document.querySelector("#panels > :last-child")?.scrollIntoView({ block: "nearest", behavior: "smooth" });
  });
  byId("unzoom").addEventListener("click", panels.unzoom);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", panels.redraw);
  document.addEventListener("visibilitychange", () => document.hidden || poll());
  poll();
}

start();
