"""The driver of `make bench-peers`: its clocks and tables. The libraries themselves are not installed here."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path
from types import ModuleType

import pytest

PEERS = Path(__file__).parents[2] / "proofs" / "peers"
TITLES = {"holdfast": "Holdfast", "sb3": "RecurrentPPO", "skrl": "skrl"}


@pytest.fixture
def common(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(PEERS)
    import common  # pyright: ignore[reportMissingImports]

    return common


@pytest.fixture
def tables(monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    monkeypatch.syspath_prepend(PEERS)
    import tables  # pyright: ignore[reportMissingImports]

    return tables


def speed(peer: str, seed: int, steps_per_s: float, envs: int = 8) -> dict:
    return {"peer": peer, "task": "speed", "envs": envs, "seed": seed, "steps_per_s": steps_per_s}


def goal(peer: str, task: str, seed: int, seconds: float, reached: bool = True) -> dict:
    row = {"peer": peer, "task": task, "envs": 8, "seed": seed}
    return {**row, "reached": reached, "steps": 2048, "seconds": seconds}


def test_clock_leaves_the_warm_up_out(common: ModuleType):
    clock = common.Clock(Namespace(warm_up=2.0, seconds=5.0))
    ends = [(100, 1.0), (200, 3.0), (300, 5.0), (400, 9.0)]
    assert [clock.update_done(steps, clock.began + at) for steps, at in ends] == [False, False, False, True]
    figures = clock.figures()
    assert (figures["steps"], round(figures["seconds"], 6)) == (200, 6.0)


def test_clock_refuses_a_measurement_that_is_not_complete(common: ModuleType):
    clock = common.Clock(Namespace(warm_up=0.0, seconds=5.0))
    clock.update_done(100, clock.began + 1.0)
    with pytest.raises(RuntimeError, match="before the measurement was complete"):
        clock.figures()


def test_goal_clock_evaluates_every_1024_steps(common: ModuleType):
    returns = iter([100.0, 460.0])
    clock = common.GoalClock(Namespace(steps=10**6, limit=10**6), lambda: next(returns))
    assert [clock.update_done(steps) for steps in (512, 1024, 1536, 2048)] == [False, False, False, True]
    assert clock.figures()["steps"] == 2048
    assert clock.figures()["reached"]


def test_speed_is_compared_seed_by_seed(tables: ModuleType):
    rows = [speed("holdfast", 0, 100.0), speed("holdfast", 1, 300.0), speed("sb3", 0, 50.0), speed("sb3", 1, 100.0)]
    text = tables.make_tables({"machine": "here", "rows": rows}, TITLES)
    assert "| Holdfast | 200 |" in text
    assert "| RecurrentPPO | 75 (2.50x; 2.00 to 3.00) |" in text
    assert "skrl" not in text


def test_a_library_that_failed_stays_in_the_table_with_its_reason(tables: ModuleType):
    failed = {"peer": "skrl", "task": "speed", "envs": 8, "seed": 0, "failed": "no wheel for this Python"}
    text = tables.make_tables({"machine": "here", "rows": [speed("holdfast", 0, 100.0), failed]}, TITLES)
    assert "| skrl | did not run |" in text
    assert "no wheel for this Python" in text


def test_a_goal_that_was_not_reached_gives_a_lower_bound(tables: ModuleType):
    rows = [goal("holdfast", "goal", 0, 5.0), goal("sb3", "goal-zoo", 0, 40.0), goal("sb3", "goal", 0, 90.0, False)]
    lines = tables.make_tables({"machine": "here", "rows": rows}, TITLES).splitlines()
    ratios = [line.split("|")[-2].strip() for line in lines if "RecurrentPPO" in line]
    assert ratios == ["8.0x", "at least 18.0x"]


def test_tables_replace_what_is_between_the_marks(tables: ModuleType, tmp_path: Path):
    page = tmp_path / "speed.md"
    page.write_text(f"before\n{tables.BEGIN}\nold\n{tables.END}\nafter\n", encoding="utf-8")
    tables.write_page(page, "new")
    assert page.read_text(encoding="utf-8") == f"before\n{tables.BEGIN}\nnew\n{tables.END}\nafter\n"


def test_the_page_has_the_marks(tables: ModuleType):
    page = (PEERS.parents[1] / "docs" / "speed.md").read_text(encoding="utf-8")
    assert page.count(tables.BEGIN) == page.count(tables.END) == 1
