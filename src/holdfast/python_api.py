"""`holdfast.train` and `holdfast.Run`: the command line, from Python."""

from __future__ import annotations

from collections.abc import Mapping
from os import PathLike, fspath
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

import numpy as np

from holdfast.config import Settings, load_run_world, load_settings
from holdfast.config.ranks import plan_ranks, started_ranks
from holdfast.config.sections import EnvSection
from holdfast.deploy import Agent, load
from holdfast.envs import OwnEnv, python_env
from holdfast.errors import SettingsError, printable
from holdfast.files import Folder
from holdfast.policies import OwnPolicySettings, Policy
from holdfast.rollout.play import random_states_kept
from holdfast.runs import find_run, read_metrics
from holdfast.runs.folder import CONFIG, SUMMARY, has_begun
from holdfast.runs.listing import read_facts
from holdfast.threads import num_threads_kept
from holdfast.user_code import code_name

if TYPE_CHECKING:
    from holdfast.evaluate import Certificate, EvaluationResult
    from holdfast.trainer.callback import Callback

_training = Lock()  # random generators, signals and os._exit belong to the process, so only one run can have them


def train(*words: str | Mapping[str, Any], callback: Callback | None = None, **settings: Any) -> Run:
    """Train an agent and return its run. The settings are those of the command line, `holdfast train`.

    words: settings as on the command line, "trainer.lr=1e-3", or as nested dicts, {"trainer": {"lr": 1e-3}}.
    settings: the same as keywords: seed=3, trainer={"lr": 1e-3}.
        env: a name such as "gym:CartPole-v1" or "./mine.py:MyEnv"; or the class of an environment, a function that makes one,
            or an environment; or a dict of `env.*` with one of these as "name".
        env_kwargs: the arguments of the environment.
        policy, py_agent: a policy class, or the name of an agent; or, for `policy`, a dict of `policy.*`.
        policy_kwargs: the arguments of the policy class.
    callback: called with an `UpdateInfo` after every update; it may call `update.stop()`.
    """
    texts, keywords = [word for word in words if isinstance(word, str)], dict(settings)
    for word in words:
        if isinstance(word, Mapping):
            keywords = _merged(keywords, word)
        elif not isinstance(word, str):
            raise SettingsError(
                f"train: {type(word).__name__} is not a setting. Write 'key=value', or key=value as a keyword."
            )
    env_source, policy_source = _take_env(keywords), _take_policy(keywords)
    found = load_settings(texts, keywords)
    if env_source is not None:
        assert isinstance(found.env, OwnEnv)
        found = found.model_copy(update={"env": found.env.with_source(env_source)})
    if policy_source is not None:
        assert isinstance(found.policy, OwnPolicySettings)
        found = found.model_copy(update={"policy": found.policy.with_source(policy_source)})
    _refuse_ranks(found)
    from holdfast.trainer import train as run_training

    if callback is not None and not callable(callback):
        raise SettingsError(
            f"callback: needs a function that takes an UpdateInfo, not an object of type {type(callback).__name__}."
        )
    if not _training.acquire(blocking=False):
        raise SettingsError("train: another thread of this process is training. Train in separate processes instead.")
    try:
        with random_states_kept(found.seed), num_threads_kept():
            result = run_training(found, callback)
    finally:
        _training.release()
    if env_source is None and found.env.module_in(found.env.name):
        env_source = found.env.name  # code that the user named
    if policy_source is None and isinstance(found.policy, OwnPolicySettings):
        policy_source = found.policy.py_agent
    return Run(result.run, env=env_source, policy=policy_source)


class Run:
    """A run's folder: its results, its agent, and new episodes with it.

    run: the folder, or its name in `runs_dir`.
    env, policy: the environment and the policy class of the run, if they are code of your own, because a run folder is not
        trusted to name code.
    """

    def __init__(
        self, run: str | PathLike[str], *, env: Any = None, policy: Any = None, runs_dir: str | PathLike[str] = "runs"
    ):
        self.path = find_run(fspath(run), Path(runs_dir)).absolute()
        self._env, self._policy = env, policy

    def __repr__(self) -> str:
        return f"<Run {self.path}>"

    def __fspath__(self) -> str:
        return str(self.path)

    @property
    def summary(self) -> dict[str, Any]:
        """The content of summary.json; {} while the run is not finished."""
        with Folder.open(self.path) as folder:
            return read_facts(folder, SUMMARY) if folder.has(SUMMARY) else {}

    @property
    def metrics(self) -> dict[str, np.ndarray]:
        """The columns of metrics.jsonl, one entry per update; NaN where an update has no value."""
        rows = read_metrics(self.path) if has_begun(self.path) else []
        names = dict.fromkeys(name for row in rows for name in row)
        return {name: np.array([_number(row.get(name)) for row in rows]) for name in names}

    def load(self, checkpoint: str | None = None, device: str = "cpu", seed: int = 0) -> Agent:
        """Load the trained agent, as `holdfast.load` does."""
        return load(self.path, checkpoint, policy=self._policy, device=device, seed=seed)

    def evaluate(
        self,
        episodes: int = 20,
        greedy: bool = True,
        seed: int = 1_000_000,
        checkpoint: str | None = None,
        max_steps: int = 100_000,
        both: bool = False,
    ) -> EvaluationResult:
        """Play new episodes of the run's world.

        both: also play with sampled actions, as `holdfast evaluate` does; their result is `sampled` of the result.
        """
        from holdfast.evaluate import evaluate_run

        world = self._world()
        return evaluate_run(self.path, episodes, greedy, seed, checkpoint, max_steps, world, self._policy, both)

    def certify(
        self,
        episodes: int = 100,
        greedy: bool = True,
        seed: int = 1_000_000,
        checkpoint: str | None = None,
        max_steps: int = 100_000,
    ) -> Certificate:
        """Return the memory certificate, `holdfast evaluate --certificate`: what the agent achieves with less memory."""
        from holdfast.evaluate import certify_run

        return certify_run(self.path, self._world(), episodes, greedy, seed, checkpoint, max_steps, self._policy)

    def view(
        self,
        html: str | PathLike[str] | None = None,
        episodes: int = 20,
        greedy: bool = True,
        seed: int = 1_000_000,
        checkpoint: str | None = None,
        max_steps: int = 100_000,
        certificate: bool = True,
    ) -> Path:
        """Write the page of `holdfast view`: episodes, memory over time, what decided each action. Return its path.

        html: the file; None: view.html in the run folder.
        certificate: also measure what the memory is worth.
        """
        from holdfast.view.run_page import see_run, write_page

        world, file = self._world(), None if html is None else Path(fspath(html))
        seen = see_run(self.path, world, episodes, greedy, seed, checkpoint, max_steps, self._policy, certificate)
        return write_page(seen, self.path, file)[0]

    def export(
        self,
        *,
        onnx: str | PathLike[str] | None = None,
        torch: str | PathLike[str] | None = None,
        mettagrid: str | PathLike[str] | None = None,
        checkpoint: str | None = None,
    ) -> list[Any]:
        """Write the trained agent for other programs, as `holdfast export` does, and return what was written and its proof.

        onnx, torch: a file. mettagrid: a folder for MettaGrid's runner. Nothing is written unless it acts as the agent does.
        """
        from holdfast.export import export_run

        world, bundles = self._world(), []
        if mettagrid is not None:
            from holdfast.export.mettagrid import export_mettagrid

            bundles = [export_mettagrid(self.path, Path(mettagrid), world, checkpoint, self._policy)]
        if onnx is None and torch is None and bundles:
            return bundles
        onnx_file, torch_file = (None if file is None else Path(file) for file in (onnx, torch))
        return [*bundles, *export_run(self.path, onnx_file, torch_file, checkpoint, world, self._policy)]

    def _world(self) -> EnvSection:
        """Return the run's world. Its code, if it is the user's own, was given by the user."""
        env = self._env
        if env is None or isinstance(env, str):
            try:
                return load_run_world(self.path / CONFIG, [f"env={env}"] if env else [])
            except SettingsError as error:
                if env is not None or "env=" not in str(error):
                    raise
                raise SettingsError(
                    f"{error}\nIn Python: holdfast.Run({str(self.path)!r}, env=MyEnv), with the class or its name."
                ) from error
        world = load_run_world(self.path / CONFIG, [f"env={python_env(env).name}"])
        assert isinstance(world, OwnEnv)
        return world.with_source(env)


def _take_env(keywords: dict[str, Any]) -> Any:
    """Replace an environment class, function or object in the keywords by its name, and return it; None if there is none."""
    env = keywords.get("env")
    within = isinstance(env, Mapping)
    source = env.get("name") if within else env
    if source is None or isinstance(source, str | PathLike):
        return None
    usual = python_env(source)
    rest = {key: value for key, value in env.items() if key != "name"} if within else {}
    ready = {"num_envs": usual.num_ready} if usual.num_ready else {}
    keywords["env"] = {"name": usual.name, **ready, **rest}
    return source


def _take_policy(keywords: dict[str, Any]) -> type[Policy] | None:
    """Replace a policy class in the keywords by its name, and return it; None if there is none."""
    for key in ("policy", "py_agent"):
        value = keywords.get(key)
        within = isinstance(value, Mapping)
        source = value.get("py_agent") if within else value
        if source is None or isinstance(source, str | PathLike | Mapping):
            continue
        if not isinstance(source, type):
            raise SettingsError(
                f"{key}: needs a policy class, or the name of an agent, not {printable(repr(source), 60)}. "
                "Pass the arguments of a class as policy_kwargs."
            )
        if not issubclass(source, Policy):
            raise SettingsError(f"{key}={source.__name__}: a policy must subclass holdfast.policies.Policy.")
        name = code_name(source)
        keywords[key] = {**value, "py_agent": name} if within else name
        return source
    return None


def _merged(first: Mapping[str, Any], second: Mapping[str, Any]) -> dict[str, Any]:
    """Return both mappings as one; raise SettingsError for a key that both have."""
    merged = dict(first)
    for key, value in second.items():
        if key in merged and isinstance(value, Mapping) and isinstance(merged[key], Mapping):
            value = _merged(merged[key], value)
        elif key in merged:
            raise SettingsError(f"{key}: the same setting is given twice. Remove one of the two.")
        merged[key] = value
    return merged


def _refuse_ranks(settings: Settings) -> None:
    """Raise SettingsError if the settings ask for more processes than this one: only the command line starts them."""
    ranks = plan_ranks(settings, started_ranks()).trainer.ranks
    if started_ranks() == 1 and int(ranks) > 1:
        raise SettingsError(
            f"trainer.ranks={ranks}: a Python program is one process. Start it with torchrun --nproc-per-node {ranks}, or use "
            "the command line, holdfast train."
        )


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) else float("nan")
