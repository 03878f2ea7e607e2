// What is chosen: kept in the address, so that it survives a reload and can be bookmarked.

export const DEFAULT_METRICS = [
  "episode_return", "parity_max_abs_logratio", "grad_norm", "grad_norm_recurrence", "memory_norm", "explained_variance",
];
const DEFAULT_LOG = ["parity_max_abs_logratio"];
export const MAX_SELECTED = 24;

export const state = {
  runs: new Map(), // key of a selected run: its color
  known: new Set(), // keys of all runs
  chosen: false, // whether runs were selected or deselected by hand
  metrics: [...DEFAULT_METRICS],
  log: new Set(DEFAULT_LOG),
  x: "steps",
  smooth: 0.6,
  sort: "-began",
  find: "",
};
const SAVE_MS = 150; // without changes, before the address is written: browsers limit how often that may be done
const listeners = [];
let saving = 0;
export const onChange = (listener) => listeners.push(listener);

export function change(update) {
  update(state);
  save();
  for (const listener of listeners) listener();
}

export function select(keys, on) {
  change(() => {
    state.chosen = true;
    for (const key of state.runs.keys()) if (!state.known.has(key)) state.runs.delete(key);
    for (const key of keys) {
      if (!on) state.runs.delete(key);
      else if (!state.runs.has(key) && state.runs.size < MAX_SELECTED) state.runs.set(key, freeColor());
    }
  });
}

export function freeColor() {
  const used = new Set(state.runs.values());
  let color = 0;
  while (used.has(color)) color += 1;
  return color;
}

export function save() {
  clearTimeout(saving);
  saving = setTimeout(write, SAVE_MS);
}

function write() {
  const words = new URLSearchParams();
  if (state.chosen) words.set("runs", [...state.runs].map(([key, color]) => `${key}.${color}`).join("-"));
  if (state.metrics.join("\n") !== DEFAULT_METRICS.join("\n")) {
    for (const metric of state.metrics) words.append("metric", metric);
    if (!state.metrics.length) words.set("metric", "");
  }
  if ([...state.log].sort().join("\n") !== DEFAULT_LOG.join("\n")) {
    for (const metric of state.log) words.append("log", metric);
    if (!state.log.size) words.set("log", "");
  }
  if (state.x !== "steps") words.set("x", state.x);
  if (state.smooth !== 0.6) words.set("smooth", String(state.smooth));
  if (state.sort !== "-began") words.set("sort", state.sort);
  if (state.find) words.set("find", state.find);
  try {
    history.replaceState(null, "", `#${words}`);
  } catch {
    // too many changes: the next one is written
  }
}

export function load() {
  const words = new URLSearchParams(location.hash.slice(1));
  if (words.has("runs")) {
    state.chosen = true;
    state.runs = new Map();
    for (const word of words.get("runs").split("-").slice(0, MAX_SELECTED)) {
      const [key, color] = word.split(".");
      if (/^[0-9a-f]{16}$/.test(key) && /^[0-9]{1,3}$/.test(color)) state.runs.set(key, Number(color));
    }
  }
  if (words.has("metric")) state.metrics = [...new Set(words.getAll("metric"))].filter(Boolean).slice(0, 60);
  if (words.has("log")) state.log = new Set(words.getAll("log").filter(Boolean));
  if (words.get("x") === "seconds") state.x = "seconds";
  const smooth = Number(words.get("smooth") ?? 0.6);
  state.smooth = smooth >= 0 && smooth <= 0.99 ? smooth : 0.6;
  state.sort = /^-?[a-z]{1,12}$/.test(words.get("sort") ?? "") ? words.get("sort") : "-began";
  state.find = (words.get("find") ?? "").slice(0, 200);
}
