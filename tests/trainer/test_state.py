"""The typed state of a run: facts.json is validated when it is read, and comes back as it was written."""

import json
import math
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from holdfast.checkpoint import list_checkpoints, read_facts
from holdfast.errors import CheckpointError
from holdfast.trainer.state import Progress, RunState

GOLDEN = Path(__file__).parents[1] / "golden" / "checkpoint-1"


@pytest.fixture
def facts() -> dict[str, Any]:
    return read_facts(list_checkpoints(GOLDEN / "checkpoints")[-1])


def test_an_old_file_comes_back_unchanged(facts):
    """Except for what version 0.1.0 did not save."""
    assert json.loads(json.dumps(asdict(RunState.from_json(facts)))) == {
        **facts,
        "skipped_in_a_row": 0,
        "info_names": [],
    }


def test_progress_is_the_part_that_the_loop_counts(facts):
    progress = RunState.from_json(facts).progress
    assert type(progress) is Progress
    assert (progress.update, progress.agent_steps, progress.exact) == (25, 6400, True)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("update", "25"),
        ("update", -1),
        ("update", 2**64),
        ("update", 10**400),
        ("update", True),
        ("update", 1.5),
        ("agent_steps", [1]),
        ("wall_s", "os.system"),
        ("wall_s", -0.5),
        ("worst_parity", None),
        ("episode_return", "high"),
        ("exact", 1),
        ("world_seed", "0"),
        ("skipped_in_a_row", -1),
        ("optimizer", "Adam"),
        ("rng", "os.system"),
        ("rng.numpy", ["a", "b", "c"]),
        ("world", ["os.system"]),
    ],
)
def test_a_wrong_field_is_named(field, value, facts):
    outer, _, inner = field.partition(".")
    if inner:
        facts[outer][inner] = value
    else:
        facts[outer] = value
    with pytest.raises(CheckpointError, match=rf"^{field}[.0-9]* is .* in facts\.json, which is invalid$"):
        RunState.from_json(facts)


@pytest.mark.parametrize("field", sorted(RunState.__dataclass_fields__.keys() - {"skipped_in_a_row", "info_names"}))
def test_a_missing_field_is_named(field, facts):
    del facts[field]
    with pytest.raises(CheckpointError, match=f"^{field} is missing in facts.json"):
        RunState.from_json(facts)


def test_no_episode_yet_and_fields_of_a_newer_version_are_fine(facts):
    state = RunState.from_json({**facts, "episode_return": None, "something_new": 1})
    assert state.episode_return is None


@pytest.mark.parametrize("parity", [math.inf, math.nan])
def test_a_parity_that_is_not_finite_is_stored_as_the_largest_number_and_loads_again(parity, facts):
    metrics = {"update": 1, "agent_steps": 64, "wall_s": 0.5, "episode_return": None}
    progress = Progress(worst_parity=1e-6).after(metrics, parity)
    assert progress.worst_parity == sys.float_info.max
    assert progress.after(metrics, 1e-7).worst_parity == sys.float_info.max
    assert RunState.from_json({**facts, **vars(progress)}).worst_parity == sys.float_info.max
