"""holdfast export RUN --mettagrid DIR: a policy that MettaGrid's own runner loads and plays without Holdfast.

DIR is a bundle, as MettaGrid calls it: policy_spec.json, a package with the policy's class (a copy of
`mettagrid_policy.py`), and the network. It gets its name only after MettaGrid has played it in another process.
"""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import zlib
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, cast
from uuid import uuid4

import torch

from holdfast.config.sections import EnvSection
from holdfast.deploy.loading import load_agent_for_world
from holdfast.envs.mettagrid import api as mg  # imports mettagrid first, and restores the root logger
from holdfast.envs.mettagrid.game import MettaGridEnv
from holdfast.envs.mettagrid.runner import runner_episode
from holdfast.errors import HoldfastError, SettingsError, printable, reason_of
from holdfast.export import mettagrid_policy as exported
from holdfast.export.interface import metadata_of
from holdfast.export.program import save, trace
from holdfast.export.step import Step, prepared, refuse_custom_forward
from holdfast.export.trajectory import record
from holdfast.files import write_error
from holdfast.policies import Policy
from holdfast.policies.tensordict_api import Acted, Inputs
from holdfast.recurrence import State
from holdfast.rollout import play_episodes
from holdfast.spec import keys

PACKAGE = "holdfast_policy"
CLASS_PATH = f"{PACKAGE}.{exported.HoldfastPolicy.__name__}"
SPEC = "policy_spec.json"  # MettaGrid's name
PLAYER = Path(__file__).with_name("mettagrid_play.py")
SEED = 1_000_000  # as in `holdfast evaluate`
MOST_STEPS = 1000  # of an episode
TIME_LIMIT = 900  # seconds
# Rounding differs a little in the exported network. A value may differ by SAME_VALUE (those in policy_infos have 6 decimals).
# Of two actions, either may be taken if their logits differ by less than TIE.
SAME_VALUE, TIE = 1e-4, 1e-5


@dataclass(frozen=True)
class Exported:
    """A finished export, and what was compared with our own policy."""

    folder: Path
    checkpoint: str
    seed: int
    steps: int
    agents: int
    value_difference: float  # the largest
    ties: int  # actions that differ, because two were equally probable up to rounding

    @property
    def text(self) -> str:
        """What the command prints."""
        ties = f", except {self.ties} of two that are equally probable up to rounding" if self.ties else ""
        return (
            f"{printable(str(self.folder), 150)}: checkpoint {self.checkpoint} as a policy for MettaGrid.\n"
            f"Checked: MettaGrid's runner played {self.steps} steps of {self.agents} agents, in a process that cannot import "
            f"holdfast.\nObservations and all {self.steps * self.agents:,} actions are those of `holdfast evaluate "
            f"--seed {self.seed}`{ties}; values differ by at most {self.value_difference:.1g}."
        )


@dataclass(frozen=True)
class Played:
    """What happened at each step of an episode in MettaGrid's runner."""

    observed: list[int]  # checksum of all agents' observations
    actions: list[list[int]]  # one per agent
    values: list[list[float]]


def export_mettagrid(
    run_dir: Path,
    folder: Path,
    env: EnvSection,
    checkpoint: str | None = None,
    py_agent: str | type[Policy] | None = None,
) -> Exported:
    """Export the agent of a run as a policy for MettaGrid's runner. Nothing is left behind if that fails.

    env: the world that the policy is for: the run's, or another MettaGrid world, as in `holdfast evaluate`.
    """
    folder = folder.absolute()
    if not isinstance(env, MettaGridEnv):
        raise SettingsError(
            f"{printable(str(run_dir), 100)}: --mettagrid needs a MettaGrid world, but the world is env={env.name}."
        )
    refuse_target(folder)
    agent, _, path = load_agent_for_world(run_dir, env, checkpoint, py_agent)
    policy = agent.policy
    refuse_policy(policy)
    with _named_when_done(folder) as staging:
        try:
            write_bundle(staging, policy, env, {"run": run_dir.absolute().name, "checkpoint": path.name})
        except OSError as error:
            raise write_error(folder, error) from error
        played = play_in_runner(staging, env, SEED)
        compared = compare(played, policy, env, SEED)
    steps, agents = len(played.actions), len(played.actions[0])
    return Exported(folder, path.name, SEED, steps, agents, compared.value_difference, compared.ties)


# ------------------------------------------------------------------------------------------------ what is refused


def refuse_target(folder: Path) -> None:
    """Raise SettingsError unless `folder` can be written: it is new, empty or an earlier export."""
    shown = f"--mettagrid {printable(str(folder), 150)}"
    try:
        if not folder.parent.is_dir() or not os.access(folder.parent, os.W_OK):
            raise SettingsError(f"{shown}: needs a folder path inside an existing folder that can be written.")
        if folder.is_symlink() or (folder.exists() and not folder.is_dir()):
            raise SettingsError(f"{shown}: not a folder. Name a new one.")
        if folder.is_dir() and any(folder.iterdir()) and not _is_export(folder):
            raise SettingsError(f"{shown}: holds something else than an earlier export. Name a new or empty folder.")
    except OSError as error:
        raise SettingsError(f"{shown}: {reason_of(error)}.") from error


def _is_export(folder: Path) -> bool:
    """Return whether everything in a folder is from an export, so that nobody misses what is replaced."""
    if {entry.name for entry in folder.iterdir()} - {SPEC, PACKAGE, exported.PROGRAM}:
        return False
    if {entry.name for entry in (folder / PACKAGE).glob("*")} - {"__init__.py", "__pycache__"}:
        return False
    with suppress(OSError, ValueError, KeyError, TypeError):
        return json.loads((folder / SPEC).read_bytes())["class_path"] == CLASS_PATH
    return False


def refuse_policy(policy: Policy) -> None:
    """Raise SettingsError if the policy needs something that MettaGrid's runner does not give to policies."""
    if policy.memory_scope == "lifetime":
        raise SettingsError(
            "--mettagrid: MettaGrid makes a new policy for every episode, so memory cannot be kept across episodes "
            "(policy.memory_scope=lifetime)."
        )
    if policy.previous_step is not None and "reward" in policy.previous_step.sees:
        raise SettingsError("--mettagrid: MettaGrid does not show policies their rewards (policy.sees=[reward]).")


# -------------------------------------------------------------------------------------------------- what is written


@contextmanager
def _named_when_done(folder: Path) -> Iterator[Path]:
    """Yield a new folder, and rename it to `folder` if the block succeeds; remove it otherwise."""
    staging, old = (folder.with_name(f".{folder.name}.{uuid4().hex[:8]}.{what}") for what in ("partial", "removed"))
    try:
        staging.mkdir()
        yield staging
        refuse_target(folder)  # what was checked at the start may have changed
        with suppress(FileNotFoundError):
            os.rename(folder, old)
        os.rename(staging, folder)
    finally:
        if old.exists() and not folder.exists():
            os.rename(old, folder)
        for leftover in (staging, old):
            shutil.rmtree(leftover, ignore_errors=True)


def write_bundle(folder: Path, policy: Policy, env: MettaGridEnv, source: dict[str, str]) -> None:
    """Write policy_spec.json, the class and the network."""
    interface = mg.PolicyEnvInterface.from_mg_cfg(mg.MettaGridConfig(game=env.games()(0, 0, 0).config))
    data = program_of(policy, env, source | {exported.WORLD: interface.model_dump_json()})
    (folder / exported.PROGRAM).write_bytes(data)
    (folder / PACKAGE).mkdir()
    shutil.copyfile(exported.__file__, folder / PACKAGE / "__init__.py")
    spec = mg.SubmissionPolicySpec(
        class_path=CLASS_PATH,
        data_path=exported.PROGRAM,
        init_kwargs={"sample": False, "seed": None},
        policy_env_interface=interface,
    )
    (folder / SPEC).write_text(spec.model_dump_json(indent=2) + "\n")


def program_of(policy: Policy, env: MettaGridEnv, source: dict[str, str]) -> bytes:
    """Return the policy's acting step as a torch.export program, with metadata that includes `source`."""
    refuse_custom_forward(policy)
    with prepared(policy):
        _, interface = record(policy, env, steps=2, slots=env.describe().agents_per_env, seed=SEED)
        if "last_reward" in {port.name for port in interface.inputs}:
            raise SettingsError("--mettagrid: MettaGrid does not show policies their rewards, which this policy reads.")
        return save(trace(Step(policy, interface)), metadata_of(policy, interface, source))


# -------------------------------------------------------------------------------------------------- what is checked


def play_in_runner(bundle: Path, env: MettaGridEnv, seed: int) -> Played:
    """Play the first episode of `holdfast evaluate --seed SEED`, in a process that can import nothing of Holdfast."""
    config, own_seed = runner_episode(env, seed)
    job = {"bundle": str(bundle), "env": config.model_dump(mode="json"), "seed": own_seed, "most_steps": MOST_STEPS}
    # -P: do not search the player's folder, where `import mettagrid` would find our module of that name
    # -B: leave no __pycache__ in the bundle
    command = [sys.executable, "-P", "-B", str(PLAYER)]
    try:
        done = subprocess.run(command, input=json.dumps(job), capture_output=True, text=True, timeout=TIME_LIMIT)
    except subprocess.TimeoutExpired:
        raise HoldfastError(
            f"Not exported: MettaGrid's runner did not finish an episode in {TIME_LIMIT} seconds."
        ) from None
    if done.returncode:
        lines = done.stderr.strip().splitlines() or [f"exit code {done.returncode}"]
        raise HoldfastError(f"Not exported: MettaGrid's runner cannot play the policy: {printable(lines[-1], 250)}")
    return Played(**json.loads(done.stdout.splitlines()[-1]))


def compare(played: Played, policy: Policy, env: MettaGridEnv, seed: int) -> Follower:
    """Replay an episode of MettaGrid's runner in our world; raise HoldfastError unless our policy plays the same."""
    follower = Follower(policy, played)
    try:
        with suppress(EnoughPlayed):
            play_episodes(cast(Policy, follower), env, 1, seed, num_envs=1)
        if follower.step < len(played.actions):
            raise DifferenceError(f"the episode has {len(played.actions)} steps instead of {follower.step}")
    except DifferenceError as error:
        raise HoldfastError(
            f"Not exported: MettaGrid's runner does not play as `holdfast evaluate --seed {seed}`: {error}."
        ) from None
    return follower


class EnoughPlayed(Exception):  # noqa: N818  (no error)
    """The runner was stopped here."""


class DifferenceError(Exception):
    pass


class Follower:
    """A policy for `play_episodes` that takes the actions of MettaGrid's runner, and raises if it would take others."""

    def __init__(self, policy: Policy, played: Played):
        self._policy, self._played = policy, played
        self.step = self.ties = 0
        self.value_difference = 0.0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._policy, name)

    def act(self, inputs: Inputs, state: State) -> Acted:
        step, played = self.step, self._played
        if step == MOST_STEPS:
            raise EnoughPlayed
        if step == len(played.actions):
            raise DifferenceError(f"the episode ends after {step} steps")
        if zlib.crc32(inputs[keys.OBS].numpy().tobytes()) != played.observed[step]:
            raise DifferenceError(f"the observations at step {step} are other ones")
        acted = self._policy.act(inputs, state)
        assert acted.params is not None  # only a custom `forward` gives none, which cannot be exported
        logits, own, value = acted.params[0], acted.actions[0], acted.values[0]
        taken, values = torch.tensor(played.actions[step]), torch.tensor(played.values[step])
        difference = (values - value).abs()
        best = logits.amax(-1)
        behind = best - logits.gather(-1, taken.unsqueeze(-1)).squeeze(-1)
        for agent in (difference > SAME_VALUE * value.abs().clamp(min=1.0)).nonzero().flatten().tolist():
            raise DifferenceError(
                f"at step {step}, agent {agent} predicts {values[agent]:.6g} instead of {value[agent]:.6g}"
            )
        for agent in (behind > TIE * best.abs().clamp(min=1.0)).nonzero().flatten().tolist():
            raise DifferenceError(f"at step {step}, agent {agent} takes action {taken[agent]} instead of {own[agent]}")
        self.step += 1
        self.ties += int((taken != own).sum())
        self.value_difference = max(self.value_difference, float(difference.max()))
        return acted._replace(actions=taken[None])
