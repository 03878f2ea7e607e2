// Settings of the selected runs: those that differ side by side, and all of each run, folded.
import { byId, make, setText } from "./dom.js";
import { state } from "./state.js";

let last = "";

export function show(found, runs) {
  const now = JSON.stringify([found, runs.map((run) => [run.name, state.runs.get(run.key)])]);
  if (last === now) return; // what is being read stays as it is
  last = now;
  const keys = runs.map((run) => run.key).filter((key) => found.runs[key]);
  const name = new Map(runs.map((run) => [run.key, run.name]));
  const differ = Object.entries(found.differ);
  setText(byId("settings-note"), note(keys, differ));
  byId("differing").hidden = keys.length < 2 || !differ.length;
  const [head, body] = ["thead", "tbody"].map((tag) => byId("differing").querySelector(tag));
  const titles = keys.map((key) => make("th", { scope: "col" }, swatch(key), name.get(key)));
  head.replaceChildren(make("tr", {}, make("th", {}, "Setting"), ...titles));
  body.replaceChildren(
    ...differ.map(([setting, values]) =>
      make("tr", {}, make("th", { scope: "row" }, make("code", {}, setting)), ...keys.map((key) => make("td", {}, values[key] ?? "-"))),
    ),
  );
  const open = new Set([...byId("own").querySelectorAll("details[open]")].map((details) => details.dataset.key));
  byId("own").replaceChildren(...keys.map((key) => details(key, name.get(key), found.runs[key], open.has(key))));
}

function note(keys, differ) {
  if (keys.length < 2) return "Select two or more runs to compare their settings.";
  return differ.length ? "" : "The selected runs have identical settings.";
}

function details(key, name, settings, open) {
  const list = make("dl", {}, ...Object.entries(settings).map(([setting, value]) => make("div", {}, make("dt", {}, setting), make("dd", {}, value))));
  return make("details", { "data-key": key, open }, make("summary", {}, swatch(key), name), list);
}

export function swatch(key) {
  return make("span", { class: `swatch c${state.runs.get(key) % 8}` });
}
