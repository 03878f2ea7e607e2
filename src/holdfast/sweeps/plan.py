"""What a sweep consists of: combinations of values, and the runs of each, one per seed."""

from __future__ import annotations

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from holdfast.config import Settings, load_settings
from holdfast.config.nearest import nearest
from holdfast.errors import SettingsError, printable
from holdfast.runs.resumable import BOOKKEEPING, flatten
from holdfast.sweeps.words import MAX_RUNS, Axis, full_key, split_axes
from holdfast.trainer.sinks import SECTIONS

DEFAULT_METRIC = "episode_return_mean"
# The numbers in summary.json; other metrics are those of metrics.jsonl.
SUMMARY_NUMBERS = (
    *(DEFAULT_METRIC, "episode_length_mean", "episodes", "agent_steps", "updates", "wall_s", "sps", "solved_at"),
    *("parity_max_abs_logratio", "resumed"),
)
BRACKETS = "[]{}()'\" "
NAME = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,149}")


@dataclass(frozen=True)
class Combination:
    """One value for every setting of the sweep except the seed, by key as it was typed."""

    number: int  # from 0
    values: Mapping[str, str]

    @property
    def words(self) -> list[str]:
        return [f"{key}={value}" for key, value in self.values.items()]

    @property
    def label(self) -> str:
        return ", ".join(f"{_short(key)}={value}" for key, value in self.values.items())


@dataclass(frozen=True)
class Run:
    name: str
    combination: Combination
    seed: str | None  # None: the sweep has no seeds
    words: list[str]


@dataclass(frozen=True)
class Plan:
    """A sweep as its command describes it. trials: number of combinations to search for; 0: all of a grid."""

    name: str
    fixed: tuple[str, ...]
    axes: tuple[Axis, ...]
    seeds: tuple[str, ...]
    metric: str = DEFAULT_METRIC
    minimize: bool = False
    trials: int = 0
    one_thread: bool = False  # decided when the sweep begins, because the number of threads changes rounding

    def grid(self) -> list[Combination]:
        """Return all combinations; of a search, none."""
        if self.trials:
            return []
        products = itertools.product(*(axis.values for axis in self.axes))
        keys = [axis.key for axis in self.axes]
        return [Combination(i, dict(zip(keys, values, strict=True))) for i, values in enumerate(products)]

    def extremes(self) -> list[Combination]:
        """Return combinations that contain every value and the ends of every range, each with the first of the others."""
        first = {axis.key: axis.ends[0] for axis in self.axes}
        others = [{**first, axis.key: value} for axis in self.axes for value in axis.ends[1:]]
        return [Combination(i, values) for i, values in enumerate([first, *others])]

    def runs_of(self, combination: Combination) -> list[Run]:
        """Return the runs of a combination, one per seed. Their words do not name the folder yet."""
        runs = []
        for i, seed in enumerate(self.seeds or (None,)):
            swept = {**combination.values, **({} if seed is None else {"seed": seed})}
            number = combination.number * max(1, len(self.seeds)) + i + 1
            readable = "-".join(f"{_short(key)}_{value.strip(BRACKETS)}" for key, value in swept.items())
            stem = re.sub(r"[^A-Za-z0-9._-]+", "-", readable)[:100].strip(".-_")
            words = [*self.fixed, *(f"{key}={value}" for key, value in swept.items())]
            runs.append(Run(f"{number:03d}-{stem}", combination, seed, words))
        return runs

    @property
    def num_combinations(self) -> int:
        if self.trials:
            return self.trials
        count = 1
        for axis in self.axes:
            count *= len(axis.values)
        return count

    @property
    def num_runs(self) -> int:
        return self.num_combinations * max(1, len(self.seeds))

    @property
    def command(self) -> list[str]:
        """The words after `holdfast sweep` that describe this sweep."""
        seeds = [f"seed={','.join(self.seeds)}"] if self.seeds else []
        options = ["--trials", str(self.trials)] if self.trials else []
        options += ["--metric", self.metric] if self.metric != DEFAULT_METRIC else []
        options += ["--minimize"] if self.minimize else []
        return [*self.fixed, *map(str, self.axes), *seeds, *options, "--name", self.name]


def make_plan(words: Sequence[str], name: str | None, trials: int, metric: str, minimize: bool) -> Plan:
    """Read the words of a sweep; raise SettingsError if they describe none. Values are checked by `check_plan`."""
    if name is not None and not NAME.fullmatch(name):
        raise SettingsError(f"--name {printable(name)}: needs letters, digits and . _ - (at most 150).")
    fixed, axes = split_axes(words, trials > 0)
    seeds = [axis for axis in axes if full_key(axis.key) == "seed"]
    others = tuple(axis for axis in axes if full_key(axis.key) != "seed")
    if trials and not others:
        raise SettingsError(
            "--trials: nothing to search. Give a range or several values, such as trainer.lr=1e-5..1e-1."
        )
    if not axes:
        raise SettingsError(
            "nothing to sweep. Give a setting several values, such as trainer.lr=1e-3,1e-4 or seed=0..4."
        )
    keys = [full_key(axis.key) for axis in axes] + [full_key(word.partition("=")[0].strip()) for word in fixed]
    if twice := next((key for i, key in enumerate(keys) if key in keys[:i]), None):
        raise SettingsError(f"{printable(twice)}: the same key is set twice. Remove one of the two.")
    plan = Plan("", tuple(fixed), others, seeds[0].values if seeds else (), metric, minimize, trials)
    if plan.num_runs > MAX_RUNS:
        raise SettingsError(f"this sweep has {plan.num_runs:,} runs; at most {MAX_RUNS:,} are allowed.")
    return replace(plan, name=name or _default_name(plan))


def check_plan(plan: Plan) -> None:
    """Load the settings of every run; raise SettingsError with one line about the first that is refused. Writes nothing.

    Of a search, the runs are those at the ends of its ranges. No run folder is read, so a damaged one stops no other run.
    """
    combinations = plan.grid() or plan.extremes()
    loaded: list[Settings] = []
    seen: dict[str, Run] = {}
    for run in (run for combination in combinations for run in plan.runs_of(combination)):
        try:
            settings = load_settings([*run.words, "progress=off"])
        except SettingsError as error:
            raise SettingsError(refusal(str(error), run, plan)) from None
        own = {key: value for key, value in flatten(settings.model_dump()) if key not in BOOKKEEPING}
        first = seen.setdefault(json.dumps(own, sort_keys=True, default=str), run)
        if first is not run and not plan.trials:
            raise SettingsError(f"{_swept(first)} and {_swept(run)} are the same run. Remove one of the two values.")
        loaded.append(settings)
    _check_metric(plan.metric, loaded)


def refusal(message: str, run: Run, plan: Plan) -> str:
    """Return the message about a refused run as one line, with its combination unless that is the refused word."""
    message = " ".join(message.split("\n"))
    words = _swept(run)
    return message if len(plan.axes) + bool(plan.seeds) < 2 or words in message else f"{message} (With {words}.)"


def run_words(run: Run, plan: Plan, folder: Path) -> list[str]:
    """Return the words after `holdfast train` that start or resume a run in the sweep's folder."""
    settings = load_settings([*run.words, "progress=off"])
    words = [*run.words, f"run={run.name}", f"runs_dir={folder}", "progress=off"]
    if plan.one_thread and not settings.trainer.threads:
        words.append("trainer.threads=1")
    if settings.wandb.mode != "off" and settings.wandb.group is None:
        words.append(f"wandb.group={plan.name}")
    return words


def _check_metric(metric: str, loaded: Sequence[Settings]) -> None:
    if metric.startswith(("info/", "weights/")):
        return
    if metric.startswith("eval/"):
        if not all(settings.eval.interval for settings in loaded):
            raise SettingsError(f"--metric {printable(metric)}: needs evaluations while training. Set eval.interval.")
        return
    known = {*SUMMARY_NUMBERS, *itertools.chain(*SECTIONS.values())}
    if metric not in known:
        near = nearest(metric, sorted(known))
        hint = f" Did you mean {near}?" if near else " docs/training.md lists the metrics."
        raise SettingsError(f"--metric {printable(metric)}: no such metric.{hint}")


def _default_name(plan: Plan) -> str:
    """Return a name that is the same for the same command, so that the command resumes the sweep."""
    searched = [plan.metric, plan.minimize] if plan.trials else []
    described = json.dumps([plan.fixed, [str(axis) for axis in plan.axes], plan.seeds, searched])
    keys = "-".join([*(_short(axis.key) for axis in plan.axes), *(["seed"] if plan.seeds else [])])
    stem = re.sub(r"[^A-Za-z0-9_-]+", "-", keys)[:60].strip("-")
    return f"sweep-{stem}-{hashlib.sha256(described.encode(errors='replace')).hexdigest()[:8]}"


def _swept(run: Run) -> str:
    values = {**run.combination.values, **({} if run.seed is None else {"seed": run.seed})}
    return printable(" ".join(f"{key}={value}" for key, value in values.items()), 200)


def _short(key: str) -> str:
    return key.rpartition(".")[2]


def combinations_of(plan: Plan, proposed: Sequence[Mapping[str, str]]) -> Iterator[Combination]:
    """Yield the combinations of a grid, or those that a search has proposed so far."""
    yield from plan.grid() or (Combination(i, values) for i, values in enumerate(proposed))
