"""Reading a file that grows: only new lines, cut files, damage; thinned curves keep their extremes."""

import errno
import io
import json
from unittest.mock import Mock

import numpy as np
import pytest

from holdfast.errors import HoldfastError
from holdfast.files import Folder
from holdfast.runs.folder import MAX_LINE
from holdfast.view.serve import metrics
from holdfast.view.serve.metrics import Columns, Extremes, thin
from support.shown_runs import METRICS, append, lines, make_run, row


def values(columns, metric="episode_return", over="agent_steps"):
    points = columns.curve(metric, over, 2000)
    return points and (points.x, points.y)


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path, "demo", rows=[row(i, episode_return=float(i)) for i in range(1, 4)])


def test_new_lines_are_added_and_nothing_is_read_twice(run, monkeypatch):
    parsed, parse = [], metrics.pydantic_core.from_json
    monkeypatch.setattr(metrics.pydantic_core, "from_json", lambda text: parsed.append(text) or parse(text))
    columns = Columns(run)
    columns.refresh()
    assert values(columns) == ([64, 128, 192], [1, 2, 3])
    assert values(columns, over="wall_s") == ([0.5, 1, 1.5], [1, 2, 3])
    stamp = columns.stamp
    columns.refresh()
    assert columns.stamp == stamp
    half = json.dumps(row(5, episode_return=5.0))
    append(run, lines([row(4, episode_return=4.0)]) + half[:30])
    columns.refresh()
    assert values(columns)[1] == [1, 2, 3, 4], "half a line is not read"
    append(run, half[30:] + "\n")
    columns.refresh()
    assert values(columns)[1] == [1, 2, 3, 4, 5]
    assert columns.stamp != stamp
    assert len(parsed) == 5
    assert columns.problem == ""


def test_a_metric_that_is_not_in_every_line_or_no_number_is_left_out_there(tmp_path):
    odd = [
        {"agent_steps": 1},
        {"agent_steps": 2, "eval/return": 5.0, "text": "x", "flag": True},
        {"agent_steps": 3, "eval/return": None},
        {"agent_steps": 4, "eval/return": "6"},
        {"agent_steps": 5, "eval/return": 7},
    ]
    columns = Columns(make_run(tmp_path, "demo", rows=odd))
    columns.refresh()
    assert values(columns, "eval/return") == ([2, 5], [5, 7])
    assert columns.names == ["agent_steps", "eval/return"]
    assert values(columns, "nothing") is None
    assert values(columns, "eval/return", "wall_s") is None


def test_a_clock_that_was_set_back_makes_no_loop(tmp_path):
    columns = Columns(make_run(tmp_path, "demo", rows=[row(i, wall_s=w) for i, w in enumerate([1, 5, 2, 6], 1)]))
    columns.refresh()
    assert values(columns, over="wall_s")[0] == [1, 5, 6]


@pytest.mark.parametrize("how", ["cut", "cut and longer", "replaced", "gone"])
def test_a_file_that_a_resumed_run_has_cut_is_read_again(run, how):
    columns, extremes = Columns(run), Extremes()
    columns.refresh()
    with Folder.open(run) as folder, folder.open_file(METRICS) as file:
        extremes.read(file, 10**9)
    assert extremes.best_return == 3
    file = run / METRICS
    new = [row(1, episode_return=1.0), *(row(i, episode_return=-1.0 * i) for i in range(2, 3 + 4 * (how != "cut")))]
    if how in ("replaced", "gone"):
        file.rename(run / "old")
    if how != "gone":
        file.write_text(lines(new))
    columns.refresh()
    if how == "gone":
        assert columns.names == []
        return
    assert values(columns)[1] == [1, *(-i for i in range(2, len(new) + 1))]
    with Folder.open(run) as folder, folder.open_file(METRICS) as file:
        extremes.read(file, 10**9)
    assert extremes.best_return == 1


@pytest.mark.parametrize(
    ("text", "part"),
    [
        ("nonsense\n", "line 4 is damaged: not a JSON object"),
        ("[1]\n", "line 4 is damaged: not a JSON object"),
        ("[" * 5000 + "\n", "line 4 is damaged"),
        ('{"agent_steps": 5}\n', "agent_steps does not increase"),
        ('{"update": 5}\n', "agent_steps does not increase"),
        ("x" * 3 * MAX_LINE, "a line has more than"),
    ],
)
def test_damage_is_named_and_the_lines_before_it_are_kept(run, text, part):
    append(run, text)
    append(run, lines([row(9)]))
    columns = Columns(run)
    columns.refresh()
    assert part in columns.problem
    assert values(columns)[1] == [1, 2, 3]


def test_damage_stays_until_the_file_is_read_anew(run):
    columns = Columns(run)
    append(run, "nonsense\n")
    columns.refresh()
    append(run, lines([row(9)]))
    columns.refresh()
    assert "line 4 is damaged" in columns.problem
    assert columns.failure == ""
    (run / METRICS).write_text(lines(row(i, episode_return=-1.0 * i) for i in range(1, 3)))
    columns.refresh()
    assert columns.problem == ""
    assert values(columns)[1] == [-1, -2]


def test_a_file_that_cannot_be_opened_for_a_moment_is_read_later(run):
    columns = Columns(run)
    columns.refresh()
    append(run, lines([row(4, episode_return=4.0)]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Folder, "_open", Mock(side_effect=OSError(errno.EMFILE, "Too many open files")))
        columns.refresh()
        assert "too many open files" in columns.failure
        assert columns.problem == columns.failure
        assert values(columns)[1] == [1, 2, 3]
    append(run, lines([row(5, episode_return=5.0)]))
    columns.refresh()
    assert columns.problem == columns.failure == ""
    assert values(columns)[1] == [1, 2, 3, 4, 5]


@pytest.mark.parametrize("good_reads", [0, 1, 5, 9])
def test_a_read_that_fails_halfway_is_continued_without_a_change_of_the_file(tmp_path, monkeypatch, good_reads):
    class Failing(io.FileIO):
        reads = 0

        def read(self, size=-1):
            Failing.reads += 1
            if Failing.reads > good_reads:
                raise OSError(errno.EIO, "Input/output error")
            return super().read(size)

    run = make_run(tmp_path, "demo", rows=[row(i, episode_return=float(i)) for i in range(1, 21)])
    monkeypatch.setattr(metrics, "CHUNK", 500)
    columns = Columns(run)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Folder, "open_file", lambda folder, name: Failing(folder.path / name))
        columns.refresh()
    assert "Input/output error" in columns.failure
    assert len((values(columns) or ([], []))[1]) < 20
    columns.refresh()
    assert columns.problem == ""
    assert values(columns)[1] == list(range(1, 21))


def test_a_link_as_metrics_is_not_followed(run, tmp_path):
    (run / METRICS).rename(tmp_path / "secret")
    (run / METRICS).symlink_to(tmp_path / "secret")
    columns = Columns(run)
    columns.refresh()
    assert "not a regular file" in columns.problem
    assert columns.names == []


def test_numbers_in_memory_are_limited(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "MAX_CELLS", 60)
    monkeypatch.setattr(metrics, "MAX_NAMES", 12)
    run = make_run(
        tmp_path, "demo", rows=[row(i, **{f"m{k}": 1 for k in range(100)}, **{"n" * 500: 1}) for i in range(1, 9)]
    )
    columns = Columns(run)
    columns.refresh()
    assert len(columns.names) == 12
    assert "only the first 5 lines" in columns.problem
    assert len(values(columns)[0]) == 5


def test_extremes_are_found_in_parts_and_only_of_the_right_metric(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "CHUNK", 1000)
    rows = [row(i, **{"info/episode_return": 1e9}) for i in range(1, 101)]
    rows[50] |= {"episode_return": 777.5, "parity_max_abs_logratio": 0.25}
    rows[60] |= {"episode_return": None}
    run = make_run(tmp_path, "demo", rows=rows)
    append(run, '{"agent_steps": 1, "episode_return": 1e300')
    extremes, looks = Extremes(), 0
    with Folder.open(run) as folder, folder.open_file(METRICS) as file:
        while not extremes.read(file, 2500):
            looks += 1
            assert looks < 100
    assert looks > 5
    assert (extremes.best_return, extremes.worst_parity) == (777.5, 0.25)


def test_a_line_longer_than_one_look_is_read(tmp_path, monkeypatch):
    monkeypatch.setattr(metrics, "CHUNK", 100)
    run = make_run(tmp_path, "demo", rows=[row(i, **{"info/x" * 100: 1.0}) for i in range(1, 4)])
    extremes = Extremes()
    with Folder.open(run) as folder, folder.open_file(METRICS) as file:
        assert not extremes.read(file, 10)
        assert extremes.offset > 600
        assert not extremes.read(file, 10)
        assert extremes.read(file, 10)
    assert extremes.offset == (run / METRICS).stat().st_size


def test_nothing_found_is_no_number(tmp_path):
    run = make_run(tmp_path, "demo", rows=[{"agent_steps": 1, "episode_return": None}])
    extremes = Extremes()
    with Folder.open(run) as folder, folder.open_file(METRICS) as file:
        assert extremes.read(file, 10**9)
    assert (extremes.best_return, extremes.worst_parity) == (None, None)


def test_a_line_that_never_ends_is_an_error_not_endless_memory(tmp_path):
    run = make_run(tmp_path, "demo", rows=[])
    (run / METRICS).write_bytes(b"x" * (3 * MAX_LINE))
    with Folder.open(run) as folder, folder.open_file(METRICS) as file, pytest.raises(HoldfastError, match="more than"):
        Extremes().read(file, 10**9)


@pytest.mark.parametrize("count", [1, 2, 1999, 2000, 2001, 5000, 10_000, 123_457])
def test_thinned_curves_keep_first_last_and_extremes(count):
    rng = np.random.default_rng(count)
    x, y = np.arange(count) * 64.0, rng.normal(size=count)
    y[count // 3], y[count // 2] = 1e6, -1e6
    points = thin(x, y, 2000)
    assert len(points.x) == len(points.y) <= 2000
    assert points.x == sorted(set(points.x))
    assert (points.x[0], points.x[-1]) == (0, (count - 1) * 64)
    assert {float(f"{y.max():.7g}"), float(f"{y.min():.7g}")} <= set(points.y)
    if count <= 2000:
        assert (points.group, points.mean_x) == (1, [])
        assert len(points.x) == count
    else:
        sizes = [points.group] * (len(points.mean_y) - 1)
        sizes.append(count - sum(sizes))
        assert 0 < sizes[-1] <= points.group
        assert np.isclose(np.average(points.mean_y, weights=sizes), y.mean(), rtol=1e-4, atol=1e-4)
        assert points.mean_x[-1] == x[-1]
