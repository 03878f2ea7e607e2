"""`make audit-peers`: audit recurrent policies of other libraries, in the environment of `make bench-peers`.

Prints each audit in full and runs the scripts in docs/audit-peers.md. Exit code 0: the results are that page's rows, and its
scripts run.
"""

from __future__ import annotations

import argparse
import importlib.metadata
import re
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from holdfast.audit import Report, Subject

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv-peers"
PAGE = ROOT / "docs" / "audit-peers.md"
LIBRARIES = ["sb3-contrib", "stable-baselines3", "pufferlib-core", "mettagrid", "torch"]
# Without its needs: it asks for exactly torch 2.9.0, and then both sides would not run on the same kernels.
WITH_NEEDS, WITHOUT_NEEDS = ["--editable", str(ROOT), "einops>=0.8"], ["--no-deps", "pufferlib-core==3.0.23"]
STAMP = VENV / ".installed-audit"


@dataclass(frozen=True)
class Peer:
    name: str
    make: Callable[[], Subject]
    declared: frozenset[str] = frozenset()


def peers() -> list[Peer]:
    through = frozenset({"learning_without_resets"})
    sb3 = {
        "a critic of its own": {},
        "shared LSTM": {"shared_lstm": True, "enable_critic_lstm": False},
        "critic without LSTM": {"enable_critic_lstm": False},
        "two layers": {"n_lstm_layers": 2},
    }
    others = {
        "PufferLib LSTMWrapper": puffer,
        "MettaGrid LSTMPolicy, arena": mettagrid_in_the_arena,
        "MettaGrid LSTMPolicy, CartPole": mettagrid_in_a_box_world,
    }
    return [
        *(Peer(f"RecurrentPPO, {name}", lambda more=more: recurrent_ppo(more)) for name, more in sb3.items()),
        *(Peer(name, make) for name, make in others.items()),
        *(Peer(f"{name}, run-through declared", make, through) for name, make in others.items()),
    ]


def recurrent_ppo(more: dict[str, Any]) -> Subject:
    """CartPole without velocities, as in `make bench-peers`."""
    import gymnasium as gym
    from sb3_contrib import RecurrentPPO  # pyright: ignore[reportMissingImports]

    from holdfast.audit.adapters import RecurrentPPOPolicy

    class Blind(gym.ObservationWrapper):
        def __init__(self, env: gym.Env):
            super().__init__(env)
            seen = env.observation_space
            self.observation_space = gym.spaces.Box(seen.low[[0, 2]], seen.high[[0, 2]])  # type: ignore[attr-defined]

        def observation(self, observation: Any) -> Any:
            return observation[[0, 2]]

    policy_kwargs = {"lstm_hidden_size": 64, **more}
    env = Blind(gym.make("CartPole-v1"))
    return RecurrentPPOPolicy(
        RecurrentPPO("MlpLstmPolicy", env, policy_kwargs=policy_kwargs, seed=0, device="cpu").policy
    )


def puffer() -> Subject:
    import pufferlib.models  # pyright: ignore[reportMissingImports]
    from gymnasium.spaces import Box, Discrete

    from holdfast.audit.adapters import PufferPolicy

    seen = Box(-1, 1, (4,))
    env = SimpleNamespace(observation_space=seen, single_observation_space=seen, single_action_space=Discrete(3))
    return PufferPolicy(pufferlib.models.LSTMWrapper(env, pufferlib.models.Default(env)), obs_shape=(4,))


def mettagrid_in_the_arena() -> Subject:
    from mettagrid.config.mettagrid_config import MettaGridConfig
    from mettagrid.policy.policy_env_interface import PolicyEnvInterface

    from holdfast.config import load_settings

    env: Any = load_settings(["env=arena"]).env
    return mettagrid(PolicyEnvInterface.from_mg_cfg(MettaGridConfig(game=env.game().config)), env)


def mettagrid_in_a_box_world() -> Subject:
    import gymnasium as gym
    from mettagrid.policy.policy_env_interface import PolicyEnvInterface

    from holdfast.config import load_settings

    world = gym.make("CartPole-v1")
    interface = PolicyEnvInterface.from_spaces(
        observation_space=world.observation_space, action_space=world.action_space, num_agents=1
    )
    return mettagrid(interface, load_settings(["env=gym:CartPole-v1"]).env)


def mettagrid(interface: Any, env: Any) -> Subject:
    """MettaGrid's policy with real observations of this world."""
    from mettagrid.policy.lstm import LSTMPolicy

    from holdfast.audit.adapters import MettaGridLSTM
    from holdfast.audit.sample_observations import observation_sampler

    return MettaGridLSTM(LSTMPolicy(interface), observation_sampler(env))


def audit_peer(peer: Peer) -> Report:
    import torch

    from holdfast.audit import audit

    torch.manual_seed(0)
    subject = peer.make()
    subject.name = peer.name
    subject.declared = peer.declared
    return audit(subject)


def row(report: Report) -> str:
    """Return the row of the page's table for this report."""
    counts = " | ".join(str(number) for number in report.counts().values())
    failed = [f"`{finding.check.name}`" for finding in report.findings if finding.verdict == "FAIL"]
    return f"| {report.name} | {counts} | {', '.join(failed) or 'nothing'} |"


def scripts() -> list[str]:
    """Return the code blocks of the page marked py, which need this environment."""
    return re.findall(r"^```py\n(.*?)^```", PAGE.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE)


def write(rows: list[str]) -> None:
    """Replace the rows of the same name."""
    by_name = {row.split("|")[1]: row for row in rows}
    lines = PAGE.read_text(encoding="utf-8").split("\n")
    changed = [by_name.get(line.split("|")[1], line) if line.startswith("| ") else line for line in lines]
    PAGE.write_text("\n".join(changed), encoding="utf-8")


def inside(rewrite: bool) -> int:
    from holdfast.cli.audit_text import report_text

    rows = []
    for peer in peers():
        report = audit_peer(peer)
        rows.append(row(report))
        print(f"{report_text(report)}\n", flush=True)
    if rewrite:
        write(rows)
    page = PAGE.read_text(encoding="utf-8").splitlines()
    missing = [row for row in rows if row not in page]
    failed = 0
    for number, script in enumerate(scripts(), 1):
        ran = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True)
        failed += ran.returncode != 0
        print(f"script {number}: {ran.stdout.strip() if ran.returncode == 0 else ran.stderr.strip()}")
    print(", ".join(f"{name} {importlib.metadata.version(name)}" for name in LIBRARIES))
    if missing:
        print(f"rows missing in {PAGE.name} (--write updates them):", *missing, sep="\n")
    else:
        print(f"results match {PAGE.name}")
    return int(bool(missing or failed))


def install() -> Path:
    from peers.environments import make_environment

    python = make_environment("peers", ["sb3-contrib==2.9.2"])
    if not STAMP.exists():
        print(f"Installing Holdfast and what it audits into {VENV.name} ...", flush=True)
        for packages in (WITH_NEEDS, WITHOUT_NEEDS):
            subprocess.run([str(python), "-m", "pip", "install", "--quiet", *packages], check=True)
        STAMP.touch()
    return python


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--write", action="store_true", help="update the rows of the page")
    options = parser.parse_args()
    if Path(sys.prefix).resolve() == VENV.resolve():
        raise SystemExit(inside(options.write))
    raise SystemExit(subprocess.run([str(install()), __file__, *sys.argv[1:]]).returncode)


if __name__ == "__main__":
    main()
