import pytest

from holdfast.config.settings import Schedule
from holdfast.ppo import scheduled


@pytest.mark.parametrize(
    ("kind", "values"),
    [
        ("constant", [8.0, 8.0, 8.0, 8.0]),
        ("linear", [8.0, 6.5, 5.0, 2.0]),
        ("cosine", [8.0, 5 + 3 * 2**-0.5, 5.0, 2.0]),
    ],
)
def test_from_start_to_end(kind, values):
    schedule = Schedule(kind=kind, end=2.0)
    assert [scheduled(8.0, schedule, p) for p in (0.0, 0.25, 0.5, 1.0)] == pytest.approx(values)


@pytest.mark.parametrize("kind", ["linear", "cosine"])
def test_progress_past_the_end_keeps_the_end_value(kind):
    assert scheduled(8.0, Schedule(kind=kind, end=2.0), 1.2) == 2.0


def test_a_schedule_may_increase():
    assert scheduled(0.6, Schedule(kind="linear", end=1.0), 0.5) == pytest.approx(0.8)
