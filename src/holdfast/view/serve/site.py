"""What is served for which address. An address names a run by a key from the list of runs; no path is made from it."""

from __future__ import annotations

import base64
import hashlib
import re
import threading
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

import pydantic_core

from holdfast.errors import HoldfastError, printable
from holdfast.look import LOOK_CSS
from holdfast.runs.comparing import differing_settings
from holdfast.view.serve.metrics import MAX_POINTS, SECONDS, STEPS
from holdfast.view.serve.pages import Pages
from holdfast.view.serve.watching import Runs, WatchedRun, id_of

ASSETS = Path(__file__).parent / "assets"
KINDS = {
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".css": "text/css; charset=utf-8",
    ".svg": "image/svg+xml",
}
JSON, TEXT, HTML, SCRIPT = "application/json", "text/plain; charset=utf-8", KINDS[".html"], KINDS[".js"]
OURS = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
# A page of a run holds its own scripts, so it gets an origin of its own: it can read nothing from this server.
OF_A_RUN = (
    "sandbox allow-scripts; default-src 'none'; script-src 'unsafe-inline'; style-src 'unsafe-inline'; img-src data:; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
MAX_ASKED = 64  # runs or metrics in one address


@dataclass(frozen=True)
class Answer:
    """etag: "" for answers that are never asked for again."""

    status: int
    body: bytes
    kind: str = TEXT
    etag: str = ""
    policy: str = OURS


NOT_FOUND = Answer(404, b"Not found: no such page or run.\n")
UNCHANGED = 304
Query = Mapping[str, Sequence[str]]


class Site:
    """Answers requests, from several threads."""

    def __init__(self, runs_dir: Path, pages: Pages):
        self._runs, self._pages = Runs(runs_dir), pages
        self._lock = threading.Lock()
        self._files = {f"/{path.name}": path for path in sorted(ASSETS.iterdir()) if path.suffix in KINDS}
        self._files["/"] = self._files.pop("/index.html")
        self._files["/watch"] = self._files.pop("/watch.html")
        self._files["/look.css"] = LOOK_CSS
        plotly = distribution("plotly")
        self._files["/plotly.js"] = Path(str(plotly.locate_file("plotly/package_data/plotly.min.js")))
        self._with_plotly = OURS.replace(
            "style-src", f"style-src {style_hashes(self._files['/plotly.js'].read_bytes())}"
        )
        self._loaded: dict[str, Answer] = {}
        self._data: dict[str, Callable[[Query, str], Answer]] = {
            "/data/runs": self._list,
            "/data/curves": self._curves,
            "/data/settings": self._settings,
            "/data/page": self._page_state,
            "/page": self._page,
        }

    def answer(self, path: str, query: Query, known: str = "") -> Answer:
        """Return the answer to a request. known: the etag of what the browser has."""
        if path in self._files:
            answer = self._file(path)
        elif path in self._data:
            try:
                with self._lock:
                    answer = self._data[path](query, known)
            except HoldfastError as error:
                answer = Answer(500, f"{error}\n".encode(errors="replace"))
        else:
            return NOT_FOUND
        if known and answer.etag == known:
            return Answer(UNCHANGED, b"", answer.kind, answer.etag, answer.policy)
        return answer

    def _file(self, path: str) -> Answer:
        """Return a file of the package."""
        if path not in self._loaded:
            file = self._files[path]
            data = file.read_bytes()
            policy = self._with_plotly if path == "/" else OURS
            self._loaded[path] = Answer(200, data, KINDS[file.suffix], _etag(data), policy)
        return self._loaded[path]

    def _list(self, query: Query, known: str) -> Answer:
        self._runs.refresh()
        return _json(self._runs.listed())

    def _asked_run(self, query: Query) -> WatchedRun | None:
        keys = query.get("run", ())
        run = self._runs.find(keys[0]) if len(keys) == 1 else None
        if run is None and len(keys) == 1:  # nobody has asked for the list since the server began
            self._runs.refresh()
            run = self._runs.find(keys[0])
        return None if run is None or run.problem else run

    def _curves(self, query: Query, known: str) -> Answer:
        run = self._asked_run(query)
        if run is None:
            return NOT_FOUND
        columns = self._runs.columns(run)
        metrics = list(dict.fromkeys(query.get("metric", ())))[:MAX_ASKED]
        over = SECONDS if list(query.get("x", ())) == ["seconds"] else STEPS
        etag = "" if columns.failure else _etag(repr((columns.stamp, metrics, over)).encode())
        if etag and etag == known:
            return Answer(UNCHANGED, b"", JSON, etag)
        curves = {metric: columns.curve(metric, over, MAX_POINTS) for metric in metrics}
        return _json(
            {
                "curves": {metric: vars(points) for metric, points in curves.items() if points is not None},
                "names": columns.names,
                "problem": printable(columns.problem, 300),
                "incomplete": bool(columns.failure),
            },
            etag,
        )

    def _settings(self, query: Query, known: str) -> Answer:
        found = [run for key in query.get("run", ())[:MAX_ASKED] if (run := self._runs.find(key)) and not run.problem]
        settings = {run.key: run.settings for run in found}
        return _json({"differ": differing_settings(settings), "runs": settings})

    def _page_state(self, query: Query, known: str) -> Answer:
        run = self._asked_run(query)
        if run is None:
            return NOT_FOUND
        checkpoint = str(run.row.get("checkpoint", ""))
        if not checkpoint:
            text = "This run has no checkpoint yet. The first one is written after trainer.checkpoint_interval updates."
            return _json({"name": run.name, "state": "failed", "text": text})
        again = list(query.get("again", ())) == ["1"]
        page, before = self._pages.ask(_page_key(run), run.path, checkpoint, again)
        return _json(
            {
                "name": run.name,
                "state": page.state,
                "text": page.text,
                "command": self._runs.view_command(run),
                "seconds": round(page.seconds),
                "before": before,
                "checkpoint": checkpoint,
            }
        )

    def _page(self, query: Query, known: str) -> Answer:
        run = self._asked_run(query)
        data = None if run is None else self._pages.read(_page_key(run, query.get("checkpoint", ())))
        return NOT_FOUND if data is None else Answer(200, data, HTML, policy=OF_A_RUN)


def style_hashes(script: bytes) -> str:
    """Return what the policy needs to allow the styles that a script inserts: plotly has one, of its maps."""
    styles = (re.sub(rb"\\(.)", rb"\1", text) for text in re.findall(rb"\.textContent='((?:[^'\\]|\\.)*)'", script))
    hashes = (base64.b64encode(hashlib.sha256(style).digest()).decode() for style in styles)
    return " ".join(f"'sha256-{found}'" for found in hashes)


def _page_key(run: WatchedRun, checkpoint: Sequence[str] = ()) -> tuple[str, ...]:
    named = checkpoint[0] if len(checkpoint) == 1 else str(run.row.get("checkpoint", ""))
    return run.key, id_of(run), named


def _json(value: object, etag: str = "") -> Answer:
    data = pydantic_core.to_json(value, inf_nan_mode="null")
    return Answer(200, data, JSON, etag or _etag(data))


def _etag(data: bytes) -> str:
    return f'"{hashlib.blake2s(data, digest_size=12).hexdigest()}"'
