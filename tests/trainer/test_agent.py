"""How an agent is built: weights of another run, the try-out and the first audit of a user's own policy."""

from pathlib import Path

import pytest

from holdfast.config import load_settings
from holdfast.errors import SettingsError
from holdfast.trainer import agent, train

EXAMPLE = Path(__file__).parents[2] / "examples" / "custom_policy.py"
SMALL = ["env=gym:CartPole-v1", "env.num_envs=2", "trainer.horizon=4", "trainer.total_timesteps=8", "progress=off"]


def test_a_run_is_found_by_name(tmp_path: Path):
    words = [*SMALL, f"runs_dir={tmp_path}"]
    train(load_settings([*words, "run=first"]))
    assert train(load_settings([*words, "run=second", "policy.weights=first"])).summary["agent_steps"] == 8
    with pytest.raises(SettingsError, match=r"policy\.weights=frist: no checkpoint there"):
        train(load_settings([*words, "run=third", "policy.weights=frist"]))
    assert not (tmp_path / "third").exists()


def test_the_size_is_checked_before_weights_are_loaded_too(monkeypatch):
    def too_large(settings, spec):
        raise SettingsError("too large")

    monkeypatch.setattr(agent, "check_policy_size", too_large)
    settings = load_settings([*SMALL, "policy.weights=nowhere"])
    with pytest.raises(SettingsError, match="too large"):
        agent.make_agent(settings, settings.env.describe())


@pytest.mark.parametrize(
    ("words", "part"),
    [
        (
            ["env=memory"],
            r"cannot act in memory \(observations uint8 \[\d+, 3\], actions DiscreteActions\):\nRuntimeError",
        ),
        ([*SMALL, "policy.kwargs.input_size=31"], "cannot act in gym:CartPole-v1"),
    ],
)
def test_a_class_of_ones_own_that_does_not_fit_is_refused_early(words: list[str], part: str, tmp_path: Path):
    code = tmp_path / "mine.py"
    text = EXAMPLE.read_text().replace("num_layers=1, **memory):", "num_layers=1, input_size=None, **memory):")
    code.write_text(text.replace("(spec, width, hidden", "(spec, input_size or width, hidden"))
    with pytest.raises(SettingsError, match=part) as caught:
        train(load_settings([*words, f"py_agent={code}:MyPolicy", "run=own", f"runs_dir={tmp_path}"]))
    assert len(str(caught.value).split("\n")) <= 3
    assert not (tmp_path / "own").exists()


TOO_NARROW = """
from examples_custom import MyPolicy

class TooNarrow(MyPolicy):
    def decode_actions(self, hidden):
        params, values = super().decode_actions(hidden)
        return params[:, :1], values
"""
CUTS_ARE_NO_ENDS = """
from examples_custom import MyPolicy

class CutsAreNoEnds(MyPolicy):
    def forward(self, td, state=None, action=None):
        return super().forward(td.replace(truncateds=td["truncateds"] & False), state=state, action=action)
"""


@pytest.mark.parametrize(
    ("text", "name", "part"),
    [
        (TOO_NARROW, "TooNarrow", "outputs 1 action scores, but gym:CartPole-v1 needs 2"),
        (CUTS_ARE_NO_ENDS, "CutsAreNoEnds", "fails reset_on_truncated"),
    ],
)
def test_what_training_would_not_show_is_refused(text: str, name: str, part: str, tmp_path: Path, monkeypatch):
    """One score for two actions trains, and so does memory that gets through a time limit, with perfect parity."""
    (tmp_path / "examples_custom.py").write_text(EXAMPLE.read_text())
    (tmp_path / "mine.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    words = [*SMALL, f"py_agent={tmp_path / 'mine.py'}:{name}", f"runs_dir={tmp_path}", "run=own"]
    with pytest.raises(SettingsError, match=part):
        train(load_settings(words))
    assert not (tmp_path / "own").exists()


FORGETFUL = """
from examples_custom import MyPolicy
import torch

class Forgetful(MyPolicy):
    def unroll(self, inputs, first, start):
        return super().unroll(inputs, first, tuple(torch.zeros_like(leaf) for leaf in start))
"""


NEVER_RESETS = """
from examples_custom import MyPolicy
import torch

class NeverResets(MyPolicy):
    def unroll(self, inputs, first, start):
        return super().unroll(inputs, torch.zeros_like(first), start)
"""


WHISPERS = """
from examples_custom import MyPolicy
import torch

class Whispers(MyPolicy):
    def decode_actions(self, hidden):
        scores, values = super().decode_actions(hidden)
        return 1e-9 * scores, 1e-9 * values
"""


def test_a_policy_that_cannot_be_audited_is_trained_only_if_told(tmp_path: Path, monkeypatch, caplog):
    (tmp_path / "examples_custom.py").write_text(EXAMPLE.read_text())
    code = tmp_path / "whispers.py"
    code.write_text(WHISPERS)
    monkeypatch.syspath_prepend(tmp_path)
    words = [*SMALL, f"py_agent={code}:Whispers", f"runs_dir={tmp_path}", "run=own"]
    with pytest.raises(SettingsError, match=r"Whispers cannot be audited: observations change no.*\n.*audit=off"):
        train(load_settings(words))
    assert train(load_settings([*words, "audit=warn"])).run.exists()
    assert "Whispers cannot be audited" in caplog.text


LEAVES = """
import sys
from examples_custom import MyPolicy

class Leaves(MyPolicy):
    def __init__(self, *args, **kwargs):
        sys.exit(0)
"""


def test_a_policy_that_ends_the_process_when_it_is_made_is_refused(tmp_path: Path, monkeypatch):
    (tmp_path / "examples_custom.py").write_text(EXAMPLE.read_text())
    code = tmp_path / "leaves.py"
    code.write_text(LEAVES)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingsError, match=r"its constructor calls sys.exit\(\) at .*leaves.py:7"):
        train(load_settings([*SMALL, f"py_agent={code}:Leaves", f"runs_dir={tmp_path}", "run=own"]))


def test_a_refused_policy_is_told_which_known_bugs_fail_like_it(tmp_path: Path, monkeypatch):
    (tmp_path / "examples_custom.py").write_text(EXAMPLE.read_text())
    code = tmp_path / "resets.py"
    code.write_text(NEVER_RESETS)
    monkeypatch.syspath_prepend(tmp_path)
    with pytest.raises(SettingsError, match=r"fails reset_.*\n.*\nKnown bugs that fail like this:\n  NeverResets: "):
        train(load_settings([*SMALL, f"py_agent={code}:NeverResets", f"runs_dir={tmp_path}", "run=own"]))


def test_a_class_of_ones_own_that_fails_the_audit_is_refused_unless_told(tmp_path: Path, monkeypatch, caplog):
    (tmp_path / "examples_custom.py").write_text(EXAMPLE.read_text())
    code = tmp_path / "forgetful.py"
    code.write_text(FORGETFUL)
    monkeypatch.syspath_prepend(tmp_path)
    words = [*SMALL, f"py_agent={code}:Forgetful", f"runs_dir={tmp_path}", "run=own"]
    with pytest.raises(SettingsError, match=r"fails memory_is_used.*\n.*\n.*audit=warn") as caught:
        train(load_settings(words))
    assert len(str(caught.value).split("\n")) <= 3
    assert not (tmp_path / "own").exists()
    assert train(load_settings([*words, "audit=warn"])).run.exists()
    assert "memory_is_used: step" in caplog.text
    caplog.clear()
    train(load_settings([*words[:-1], "run=unseen", "audit=off"]))
    assert "audit" not in caplog.text
