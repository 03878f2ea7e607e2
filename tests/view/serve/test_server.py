"""HTTP: who is answered, what is refused, and that looking changes nothing."""

import contextlib
import http.client
import json
import signal
import socket
import subprocess
import sys
from unittest.mock import Mock

import pytest

from holdfast.errors import SettingsError
from holdfast.view.serve import RunServer, watching
from holdfast.view.serve.metrics import Columns
from holdfast.view.serve.site import OF_A_RUN
from holdfast.view.serve.watching import key_of
from support.shown_runs import append, lines, make_run, row


def ask(server, path, method="GET", host=None, body=None, **headers):
    """Send one request as it is, without anything a client library would correct."""
    connection = http.client.HTTPConnection("127.0.0.1", server.server_port, timeout=60)
    connection.putrequest(method, path, skip_host=True, skip_accept_encoding=True)
    for each in [f"127.0.0.1:{server.server_port}"] if host is None else host:
        connection.putheader("Host", each)
    for name, value in headers.items():
        connection.putheader(name.replace("_", "-"), value)
    if body:
        connection.putheader("Content-Length", str(len(body)))
    connection.endheaders(body)
    response = connection.getresponse()
    data = response.read()
    connection.close()
    return response, data


def state_of_folder(folder):
    return {p: (s.st_mtime_ns, s.st_size, s.st_ino) for p in sorted(folder.rglob("*")) if (s := p.lstat())}


@pytest.fixture
def runs(tmp_path):
    make_run(tmp_path / "runs", "demo")
    make_run(tmp_path / "runs", "other", settings={"trainer.lr": 0.5})
    make_run(tmp_path, "secret")
    (tmp_path / "runs" / "notes.txt").write_text("mine")
    return tmp_path / "runs"


@pytest.fixture
def server(runs, serve):
    return serve(runs)


FILES = [
    "/",
    "/watch",
    "/plotly.js",
    "/look.css",
    "/site.css",
    "/app.js",
    "/table.js",
    "/plotly-rules.css",
    "/icon.svg",
]


@pytest.mark.parametrize("path", FILES)
def test_files_of_the_site(server, path):
    response, data = ask(server, path)
    assert response.status == 200
    assert len(data) > 50
    again, nothing = ask(server, path, If_None_Match=response.headers["ETag"])
    assert (again.status, nothing) == (304, b"")


@pytest.mark.parametrize("path", [*FILES, "/data/runs", "/nothing", "/data/curves"])
def test_every_answer_has_the_headers_that_protect_it(server, path):
    headers = ask(server, path)[0].headers
    policy = dict(part.strip().split(" ", 1) for part in headers["Content-Security-Policy"].split(";"))
    assert policy["default-src"] == "'none'"
    assert policy["script-src"] == policy["connect-src"] == "'self'"
    assert "unsafe" not in headers["Content-Security-Policy"]
    assert policy["style-src"].split()[-1] == "'self'"
    assert headers["X-Content-Type-Options"] == "nosniff"
    assert headers["Cross-Origin-Resource-Policy"] == "same-origin"
    assert headers["Cache-Control"] == ("no-cache" if path.endswith(".js") else "no-store")
    assert "Python" not in headers["Server"]


@pytest.mark.parametrize(
    "path",
    [
        "/../secret/metrics.jsonl",
        "/..%2fsecret%2fmetrics.jsonl",
        "/%2e%2e/secret/metrics.jsonl",
        "/runs/demo/metrics.jsonl",
        "/demo",
        "/notes.txt",
        "/assets/app.js",
        "/app.js/",
        "/server.py",
        "/%61pp.js",
        "/etc/passwd",
        "/data",
        "/data/",
        "/data/curves",
        "/data/page",
        "/page",
        *(
            f"/{place}?run={run}&metric=episode_return"
            for place in ("data/curves", "data/page", "page")
            for run in (
                "demo",
                "../secret",
                "..%2Fsecret",
                "%2e%2e/secret",
                "/etc",
                "",
                "x&run=y",
                key_of("../secret"),
                "%00",
            )
        ),
    ],
)
def test_there_is_nothing_at_other_addresses(server, path):
    response, data = ask(server, path)
    assert response.status == 404
    assert b"Not found" in data


@pytest.mark.parametrize(
    "path", ["http://evil.example/data/runs", "/data/runs?" + "&".join(["a=1"] * 1000), "*", "/[", "http://["]
)
def test_odd_addresses_are_answered(server, path):
    assert ask(server, path)[0].status in (200, 400, 404)
    assert ask(server, "/data/runs")[0].status == 200


@pytest.mark.parametrize("path", ["/", "/data/runs", "/app.js"])
def test_only_the_names_of_this_machine_are_served(server, path):
    port = server.server_port
    for good in (f"127.0.0.1:{port}", f"localhost:{port}", f"LocalHost:{port}"):
        assert ask(server, path, host=[good])[0].status == 200
    for bad in (
        ["evil.example"],
        [f"evil.example:{port}"],
        ["127.0.0.1"],
        ["localhost"],
        [f"127.0.0.1:{port + 1}"],
        [f"127.0.0.1.evil.example:{port}"],
        [f"127.0.0.1:{port}, evil.example"],
        [f"127.0.0.1:{port}", "evil.example"],
        [f"127.0.0.1:{port}", f"127.0.0.1:{port}"],
        [""],
        [],
    ):
        response, data = ask(server, path, host=bad)
        assert response.status == 403, bad
        assert b"demo" not in data


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "PATCH", "OPTIONS", "TRACE", "CONNECT", "NONSENSE"])
def test_other_methods_are_refused(server, method):
    response, data = ask(server, "/data/runs", method=method, body=b"x=1")
    assert response.status == 405
    assert response.headers["Allow"] == "GET, HEAD"
    assert b"demo" not in data


def test_head_is_get_without_the_body(server):
    got, data = ask(server, "/data/runs")
    response, nothing = ask(server, "/data/runs", method="HEAD")
    assert (response.status, nothing) == (200, b"")
    assert response.headers["Content-Length"] == str(len(data)) == got.headers["Content-Length"]


def test_pages_of_other_sites_get_nothing(server):
    for site in ("cross-site", "same-site"):
        assert ask(server, "/data/runs", Sec_Fetch_Site=site)[0].status == 403
        assert ask(server, f"/watch?run={key_of('demo')}", Sec_Fetch_Site=site)[0].status == 403
        assert ask(server, "/", Sec_Fetch_Site=site)[0].status == 200, "a link to the site works"
    for site in ("same-origin", "none"):
        assert ask(server, "/data/runs", Sec_Fetch_Site=site)[0].status == 200


def test_only_this_interface_is_bound(server):
    assert server.socket.getsockname()[0] == "127.0.0.1"
    others = {info[4][0] for info in socket.getaddrinfo(socket.gethostname(), None, socket.AF_INET)} | {"127.0.0.2"}
    for address in others - {"127.0.0.1"}:
        with contextlib.closing(socket.socket()) as client:
            client.settimeout(30)
            assert client.connect_ex((address, server.server_port)) != 0, address


def test_what_is_no_http_is_answered_or_closed(server):
    for data in (
        b"\x16\x03\x01\x00\xff\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/9.9\r\n\r\n",
        b"GET /" + b"a" * 70_000 + b" HTTP/1.1\r\n\r\n",
    ):
        with contextlib.closing(socket.create_connection(("127.0.0.1", server.server_port), 30)) as client:
            client.sendall(data)
            with contextlib.suppress(ConnectionResetError):
                assert b"demo" not in client.recv(10_000)
    assert ask(server, "/data/runs")[0].status == 200


def test_data_is_sent_again_only_if_it_has_changed(server, runs):
    words = f"/data/curves?run={key_of('demo')}&metric=episode_return&metric=nothing"
    for path in ("/data/runs", words):
        first, data = ask(server, path)
        assert ask(server, path, If_None_Match=first.headers["ETag"])[0].status == 304
        append(runs / "demo", lines([row(30 if "curves" in path else 29)]))
        second, new = ask(server, path, If_None_Match=first.headers["ETag"])
        assert second.status == 200
        assert new != data
    curves = json.loads(new)["curves"]
    assert list(curves) == ["episode_return"]
    assert curves["episode_return"]["x"][-1] == 30 * 64


def test_curves_that_were_dropped_from_memory_are_sent_again_only_if_the_file_has_changed(runs, serve, monkeypatch):
    monkeypatch.setattr(watching, "MAX_COLUMNS", 1)
    monkeypatch.setattr(
        "holdfast.view.serve.site.id", lambda thing: 1, raising=False
    )  # Python gives the address of a freed object again
    server = serve(runs)
    demo, other = (f"/data/curves?run={key_of(name)}&metric=episode_return" for name in ("demo", "other"))
    etag = ask(server, demo)[0].headers["ETag"]
    assert ask(server, other)[0].status == 200
    assert ask(server, demo, If_None_Match=etag)[0].status == 304
    assert ask(serve(runs), demo, If_None_Match=etag)[0].status == 304, "also from a server that was started again"
    assert ask(server, other)[0].status == 200
    (runs / "demo" / "metrics.jsonl").write_text(lines([row(1, episode_return=-7.0)]))
    response, data = ask(server, demo, If_None_Match=etag)
    assert response.status == 200
    assert json.loads(data)["curves"]["episode_return"]["y"] == [-7]
    for words in ("&metric=entropy", "&x=seconds"):
        assert ask(server, demo + words, If_None_Match=response.headers["ETag"])[0].status == 200


def test_curves_that_could_not_be_read_are_marked_and_sent_again(server):
    words = f"/data/curves?run={key_of('demo')}&metric=episode_return"
    etag = ask(server, words)[0].headers["ETag"]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Columns, "_read", Mock(side_effect=OSError("for a moment")))
        response, data = ask(server, words, If_None_Match=etag)
        assert response.status == 200
        assert json.loads(data)["incomplete"]
        assert "for a moment" in json.loads(data)["problem"]
        assert json.loads(data)["curves"], "what was read before"
    response, data = ask(server, words, If_None_Match=response.headers["ETag"])
    assert response.status == 200
    assert (json.loads(data)["incomplete"], json.loads(data)["problem"]) == (False, "")


def test_pages_of_runs_may_only_run_scripts_and_draw_images_that_they_contain():
    policy = {name: value for name, _, value in (part.strip().partition(" ") for part in OF_A_RUN.split(";"))}
    assert {name: value for name, value in policy.items() if value != "'none'"} == {
        "sandbox": "allow-scripts",
        "script-src": "'unsafe-inline'",
        "style-src": "'unsafe-inline'",
        "img-src": "data:",
    }
    assert policy["default-src"] == policy["frame-ancestors"] == "'none'"


def test_curves_over_seconds(server):
    _, data = ask(server, f"/data/curves?run={key_of('demo')}&metric=entropy&x=seconds")
    assert json.loads(data)["curves"]["entropy"]["x"] == [0.5 * i for i in range(1, 21)]


def test_settings_that_differ(server):
    ask(server, "/data/runs")
    _, data = ask(server, f"/data/settings?run={key_of('demo')}&run={key_of('other')}&run=../secret")
    found = json.loads(data)
    assert found["differ"] == {"trainer.lr": {key_of("demo"): "0.001", key_of("other"): "0.5"}}
    assert sorted(found["runs"]) == sorted([key_of("demo"), key_of("other")])


def test_a_folder_that_cannot_be_read_is_an_error_in_words(tmp_path, serve):
    (tmp_path / "file").write_text("")
    response, data = ask(serve(tmp_path / "file"), "/data/runs")
    assert response.status == 500
    assert b"cannot be read" in data


def test_looking_writes_nothing(server, runs):
    before = state_of_folder(runs.parent)
    for path in (
        "/",
        "/data/runs",
        f"/data/curves?run={key_of('demo')}&metric=entropy",
        f"/data/settings?run={key_of('demo')}",
    ):
        assert ask(server, path)[0].status == 200
    assert state_of_folder(runs.parent) == before


def test_a_port_that_is_in_use_or_impossible_is_named(server, runs):
    for port, part in ((server.server_port, "in use"), (70_000, "port 70000")):
        with pytest.raises(SettingsError, match=part):
            RunServer(runs, port)


SERVE = """
import sys
from pathlib import Path
from holdfast.view.serve import serve
serve(Path(sys.argv[1]), 0, lambda url: print(url, flush=True))
print("closed")
"""


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_the_server_cleanly(runs, number):
    process = subprocess.Popen(
        [sys.executable, "-c", SERVE, str(runs)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    url = process.stdout.readline()
    assert url, process.stderr.read()
    with contextlib.closing(
        socket.create_connection(("127.0.0.1", int(url.split(":")[2].strip("/\n"))), 30)
    ):  # stays open
        process.send_signal(number)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "closed\n", "")


def test_the_server_does_not_import_torch():
    code = "import holdfast.view.serve, sys; sys.exit('torch' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
