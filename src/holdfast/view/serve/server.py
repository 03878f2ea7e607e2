"""The local server: HTTP on 127.0.0.1, for browsers on this machine only, that reads and never writes."""

from __future__ import annotations

import errno
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from http import HTTPStatus
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import FrameType
from typing import Any, cast
from urllib.parse import parse_qs, urlsplit

from holdfast.errors import SettingsError, one_line, printable, reason_of
from holdfast.view.serve.pages import Command, Pages, view_command
from holdfast.view.serve.site import SCRIPT, Answer, Site

ADDRESS = "127.0.0.1"
MAX_FIELDS = 200  # in the query of an address
IDLE_S = 60.0  # after which a connection without requests is closed
logger = logging.getLogger(__name__)


def serve(runs_dir: Path, port: int = 0, on_ready: Callable[[str], None] = lambda url: None) -> None:
    """Serve the runs in a folder until Ctrl-C or SIGTERM. port: 0 for any free one; on_ready gets the address."""
    if runs_dir.exists() and not runs_dir.is_dir():
        raise SettingsError(f"--runs-dir {printable(str(runs_dir), 200)}: not a folder.")
    with RunServer(runs_dir, port) as server, _ending_on_sigterm():
        try:
            on_ready(server.url)
            server.serve_forever()
        except KeyboardInterrupt:
            pass


class RunServer(ThreadingHTTPServer):
    """Serves the site of a runs folder. Raises SettingsError if the port cannot be used."""

    daemon_threads = True
    block_on_close = False  # a browser keeps connections open

    def __init__(self, runs_dir: Path, port: int = 0, page_command: Command = view_command):
        self._pages = Pages(page_command)
        self._connections: set[socket.socket] = set()
        self.site = Site(runs_dir, self._pages)
        try:
            super().__init__((ADDRESS, port), _Handler)
        except (OSError, OverflowError) as error:
            used = isinstance(error, OSError) and error.errno == errno.EADDRINUSE
            reason = "in use" if used else reason_of(error) if isinstance(error, OSError) else str(error)
            raise SettingsError(f"port {port}: {reason}. Choose another port, or 0 for any free one.") from error
        self.url = f"http://{ADDRESS}:{self.server_port}/"
        names = (ADDRESS, "localhost")
        self.hosts = {f"{name}:{self.server_port}" for name in names} | ({*names} if self.server_port == 80 else set())

    def server_bind(self) -> None:
        """Bind without looking up the name of this machine, which can take seconds."""
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        self.socket.bind(self.server_address)
        self.server_address = self.socket.getsockname()
        self.server_name, self.server_port = ADDRESS, self.server_address[1]

    def get_request(self) -> tuple[socket.socket, Any]:
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        self._connections.discard(request)
        super().shutdown_request(request)

    def server_close(self) -> None:
        """Stop, also on connections that a browser keeps open."""
        super().server_close()
        for connection in list(self._connections):
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
        self._pages.close()

    def handle_error(self, request: Any, client_address: Any) -> None:
        logger.debug("a request failed", exc_info=True)  # such as a tab that was closed


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    timeout = IDLE_S

    def do_GET(self) -> None:
        self._send(self._answer())

    def do_HEAD(self) -> None:
        self._send(self._answer())

    @property
    def _runs(self) -> RunServer:
        return cast(RunServer, self.server)

    def _answer(self) -> Answer:
        if refusal := self._refusal():
            return Answer(403, f"{refusal}\n".encode())
        try:
            url = urlsplit(self.path)
            query = parse_qs(url.query, keep_blank_values=True, max_num_fields=MAX_FIELDS)
        except ValueError:
            return Answer(400, b"Malformed address.\n")
        try:
            return self._runs.site.answer(url.path, query, self.headers.get("If-None-Match", ""))
        except Exception as error:  # the next request may succeed: a run may have been deleted meanwhile
            logger.debug("an error while answering", exc_info=True)
            return Answer(500, f"{type(error).__name__}: {one_line(error)}\n".encode(errors="replace"))

    def _refusal(self) -> str:
        """Return why this request is not from a page of this server, "" if it is.

        A page of another site could name this address as its own (DNS rebinding): then the Host header has its name.
        """
        if [host.lower() for host in self.headers.get_all("Host", [])] not in ([host] for host in self._runs.hosts):
            return f"Open {self._runs.url} instead: requests under any other name are refused."
        if self.headers.get("Sec-Fetch-Site", "none") in ("none", "same-origin") or self.path == "/":
            return ""
        return "Requests from other sites are refused."

    def _send(self, answer: Answer) -> None:
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.kind)
        self.send_header("Content-Length", str(len(answer.body)))
        self.send_header("Cache-Control", "no-cache" if answer.kind == SCRIPT else "no-store")
        if answer.etag:
            self.send_header("ETag", answer.etag)
        self.send_header("Content-Security-Policy", answer.policy)
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Referrer-Policy", "no-referrer")
        self.send_header("Cross-Origin-Resource-Policy", "same-origin")
        if answer.status >= 400 and answer.status != 404:
            self.close_connection = True  # its body, if any, is not read
            self.send_header("Connection", "close")
        if answer.status == 405:
            self.send_header("Allow", "GET, HEAD")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """Answer a request that is not HTTP, or has a method other than GET and HEAD."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._send(Answer(405, b"This server is read-only: use GET.\n"))
        else:
            self._send(Answer(int(code), f"{HTTPStatus(code).phrase}\n".encode()))

    def version_string(self) -> str:
        return "Holdfast"

    def log_message(self, format: str, *args: Any) -> None:
        logger.debug(format, *args)


@contextmanager
def _ending_on_sigterm() -> Iterator[None]:
    """Treat SIGTERM as Ctrl-C, in the main thread."""

    def stop(number: int, frame: FrameType | None) -> None:
        raise KeyboardInterrupt

    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGTERM, stop)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
