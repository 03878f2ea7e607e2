"""`holdfast export` of a trained run, and the exported file played by a script without Holdfast and torch."""

import ast
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.cli import main
from holdfast.config import load_run_world, load_settings
from holdfast.deploy.loading import load_agent
from holdfast.evaluate import evaluate
from holdfast.export.onnx import OnnxModel
from holdfast.runs.folder import CONFIG
from holdfast.trainer import train
from support.runs import SMALL_NET, TINY

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "examples" / "play_onnx.py"
OWN = """
import torch
from torch import nn
from holdfast.policies import LSTMWrapper

class Mine(LSTMWrapper):
    def __init__(self, spec, hidden_size=8, num_layers=1, **memory):
        super().__init__(spec, 8, hidden_size, num_layers, **memory)
        self.encoder, self.actor, self.critic = nn.Linear(2, 8), nn.Linear(hidden_size, 2), nn.Linear(hidden_size, 1)

    def encode_observations(self, observations):
        return torch.tanh(self.encoder(observations))

    def decode_actions(self, hidden):
        return self.actor(hidden), self.critic(hidden).squeeze(-1)
"""

MOVING = """
import os
from gymnasium.envs.classic_control.cartpole import CartPoleEnv

class Moving(CartPoleEnv):
    def reset(self, **options):
        if os.path.isdir("elsewhere"):
            os.chdir("elsewhere")
        return super().reset(**options)
"""


def holdfast(*args: object, code: int = 0) -> None:
    with pytest.raises(SystemExit) as caught:
        main([str(arg) for arg in args])
    assert (caught.value.code or 0) == code


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    """A folder of runs: `cart`, with a few updates."""
    runs = tmp_path_factory.mktemp("runs")
    words = ["env=gym:CartPole-v1", "env.hide=[1,3]", *TINY, *SMALL_NET, "audit=off"]
    train(load_settings([*words, f"runs_dir={runs}", "run=cart"]))
    return runs


def test_a_run_is_exported_and_played_by_a_script_without_holdfast(runs, tmp_path, capsys):
    file = tmp_path / "cartpole.onnx"
    holdfast("export", "cart", "--onnx", file, "--torch", tmp_path / "cartpole.pt2", "--runs-dir", runs)
    out = capsys.readouterr().out
    assert "obs [batch, 2] float32, h_in [1, batch, 8] float32, c_in [1, batch, 8] float32, first [batch] bool" in out
    assert "logits [batch, 2] float32, value [batch] float32, h_out" in out
    assert out.count("actions equal, largest difference") == 2
    assert f"Next: holdfast export --check {file}" in out

    metadata = OnnxModel(file.read_bytes()).metadata
    assert json.loads(metadata["action_names"]) == ["0", "1"]
    assert json.loads(metadata["observation_space"])["shape"] == [2]
    assert json.loads(metadata["action_space"])["kind"] == "DiscreteActions"
    manifest = runs / "cart" / "checkpoints" / metadata["checkpoint"] / "manifest.json"
    digest = subprocess.run(["sha256sum", manifest], capture_output=True, text=True, check=True).stdout.split()[0]
    assert metadata["checkpoint_sha256"] == digest

    holdfast("export", "--check", file)
    assert "actions equal" in capsys.readouterr().out

    imported = [
        node for node in ast.walk(ast.parse(SCRIPT.read_text())) if isinstance(node, ast.Import | ast.ImportFrom)
    ]
    assert [alias.name for node in imported for alias in node.names] == ["numpy", "onnxruntime"]
    code = f"import runpy, sys; runpy.run_path({str(SCRIPT)!r}); assert not {{'torch', 'holdfast', 'gymnasium'}} & set(sys.modules)"
    played = subprocess.run([sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, timeout=60)
    assert played.returncode == 0, played.stderr
    env = load_run_world(runs / "cart" / CONFIG)
    agent, *_ = load_agent(runs / "cart")
    expected = evaluate(agent.policy, env, episodes=10, seed=1_000_000).returns
    found = [float(number) for number in re.findall(r"return (\d+)", played.stdout)]
    assert len(found) == 10
    assert sorted(found) == sorted(expected)  # evaluate lists episodes as they end


def test_the_script_is_in_the_docs():
    assert SCRIPT.read_text().split('"""\n', 1)[1].strip() in (ROOT / "docs" / "export.md").read_text()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        ((), "name a run to export"),
        (("cart",), "--onnx FILE, --torch FILE or --mettagrid DIR"),
        (("nobody", "--onnx", "a.onnx"), "no such run"),
        (("cart", "--onnx", "nowhere/a.onnx"), "existing folder"),
        (("cart", "--onnx", "a", "--torch", "a"), "two different files"),
        (("cart", "policy.core=gru", "--onnx", "a.onnx"), "only the world can be changed here"),
        (("cart", "--checkpoint", "99", "--onnx", "a.onnx"), "no checkpoint 99"),
        (("cart", "--py-agent", "./a.py:A", "--onnx", "a.onnx"), "--py-agent"),
        (("cart", "env=gym:Pendulum-v1", "env.hide=[2]", "--onnx", "a.onnx"), "cannot run in"),
        (("--check", "a.onnx"), "no such file"),
        (("cart", "--check", "a.onnx"), "takes one file and nothing else"),
    ],
)
def test_bad_input_is_exit_code_2_and_writes_nothing(args, said, runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    holdfast("export", *args, "--runs-dir", runs, code=2)
    error = capsys.readouterr().err
    assert said in error
    assert len(error.splitlines()) <= 3
    assert list(tmp_path.iterdir()) == []


def test_a_run_without_checkpoints(runs, tmp_path, capsys):
    shutil.copytree(runs / "cart", tmp_path / "cart", ignore=shutil.ignore_patterns("checkpoints"))
    holdfast("export", tmp_path / "cart", "--onnx", tmp_path / "a.onnx", code=2)
    assert "has no checkpoint" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["cart"]


def test_code_of_the_user_must_be_named(runs, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    Path("mine.py").write_text(OWN)
    words = ["env=gym:CartPole-v1", "env.hide=[1,3]", *TINY, "audit=off", "py_agent=./mine.py:Mine"]
    train(load_settings([*words, "run=own"]))
    capsys.readouterr()
    holdfast("export", "own", "--torch", "own.pt2", code=2)
    assert "which is custom code. If you trust it, add:\n--py-agent ./mine.py:Mine" in capsys.readouterr().err
    assert not os.path.exists("own.pt2")
    holdfast("export", "own", "--torch", "own.pt2", "--py-agent", "./mine.py:Mine")
    assert "actions equal" in capsys.readouterr().out


@pytest.mark.parametrize("package", ["onnx", "onnxscript", "onnxruntime"])
def test_a_package_that_is_missing(package, runs, tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, package, None)
    holdfast("export", "cart", "--onnx", tmp_path / "a.onnx", "--runs-dir", runs, code=2)
    error = capsys.readouterr().err
    assert package in error
    assert "pip install onnx onnxruntime onnxscript" in error
    assert list(tmp_path.iterdir()) == []


def test_a_check_needs_onnxruntime_only(runs, tmp_path, monkeypatch, capsys):
    holdfast("export", "cart", "--onnx", tmp_path / "a.onnx", "--runs-dir", runs)
    for package in ("onnx", "onnxscript"):
        monkeypatch.setitem(sys.modules, package, None)
    holdfast("export", "--check", tmp_path / "a.onnx")
    assert "actions equal" in capsys.readouterr().out


def test_a_world_that_changes_the_working_directory(tmp_path, monkeypatch, capsys):
    """The file is where the user named it."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "elsewhere").mkdir()
    Path("moving.py").write_text(MOVING)
    words = ["env=./moving.py:Moving", *TINY, *SMALL_NET, "audit=off"]
    train(load_settings([*words, "run=moving"]))
    capsys.readouterr()
    holdfast("export", "moving", "env=./moving.py:Moving", "--torch", "a.pt2")
    assert "actions equal" in capsys.readouterr().out
    assert Path("a.pt2").is_file()
    assert Path("a.pt2.proof.npz").is_file()
    assert list((tmp_path / "elsewhere").iterdir()) == []
