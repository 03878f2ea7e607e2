// Waits until the page of a run is made, and goes there.
import { byId, duration, setText } from "./dom.js";
import { get } from "./requests.js";

const run = new URLSearchParams(location.search).get("run") ?? "";
const PERIOD_MS = 500;

async function poll(again = false) {
  let page;
  try {
    page = (await get("/data/page", [["run", run], ...(again ? [["again", "1"]] : [])])).value;
  } catch (error) {
    return failed("This run's page is not available.", error.message);
  }
  setText(byId("title"), page.name);
  document.title = `${page.name} · Holdfast`;
  if (page.state === "failed") return failed("This run's page could not be made.", page.text, page.command);
  if (page.state === "ready") return location.replace(`/page?${new URLSearchParams({ run, checkpoint: page.checkpoint })}`);
  const others = page.before === 1 ? "one other page" : `${page.before} other pages`;
  const doing = `Playing episodes of checkpoint ${page.checkpoint} … ${duration(page.seconds ?? 0)}`;
  setText(byId("what"), page.state === "waiting" && page.before ? `Queued behind ${others}.` : doing);
  output(page.text);
  return setTimeout(poll, PERIOD_MS);
}

function output(text) {
  setText(byId("text"), text);
  byId("text").hidden = !text;
}

function failed(what, text, command = "") {
  setText(byId("what"), what);
  byId("terminal").hidden = !command;
  setText(byId("command"), command);
  output(text);
  byId("busy").hidden = true;
  byId("again").hidden = false;
}

byId("again").addEventListener("click", () => {
  byId("busy").hidden = false;
  byId("terminal").hidden = true;
  byId("again").hidden = true;
  poll(true);
});
poll(true);
