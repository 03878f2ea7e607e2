"""Run folders for tests of the site: written file by file, so that they can have any name and content."""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from holdfast.config import load_settings, settings_to_yaml

METRICS = "metrics.jsonl"


def row(update: int, **more: Any) -> dict[str, Any]:
    """Return the metrics of an update of a run that learns."""
    noise = math.sin(7.0 * update)
    return {
        "update": update,
        "agent_steps": 64 * update,
        "wall_s": 0.5 * update,
        "sps": 128.0,
        "episode_return": 10.0 + update + noise,
        "grad_norm": 0.5 + 0.1 * noise,
        "grad_norm_recurrence": 0.2 + 0.1 * noise,
        "explained_variance": 1 - 1 / (1 + update),
        "parity_max_abs_logratio": 1e-7 * (2 + noise),
        "memory_norm": 3.0 + noise,
        "entropy": 1 / update,
        **more,
    }


def lines(rows: Iterable[Mapping[str, Any]]) -> str:
    return "".join(json.dumps(each) + "\n" for each in rows)


def make_run(
    runs: Path,
    name: str,
    updates: int = 20,
    settings: Mapping[str, Any] | None = None,
    rows: Iterable[Mapping[str, Any]] | None = None,
    summary: bool = True,
    checkpoint: str = "",
    began: float | None = None,
) -> Path:
    """Make the folder of a run. settings: by full key, such as trainer.lr; any key and any value. began: None for now."""
    path = runs / name
    path.mkdir(parents=True)
    tree = yaml.safe_load(settings_to_yaml(load_settings(["env=gym:CartPole-v1", "trainer.total_timesteps=1280"])))
    for key, value in (settings or {}).items():
        *groups, last = key.split(".")
        group = tree
        for each in groups:
            group = group.setdefault(each, {})
        group[last] = value
    (path / "config.yaml").write_text(yaml.safe_dump(tree, allow_unicode=True))
    (path / METRICS).write_text(lines(rows if rows is not None else (row(i) for i in range(1, updates + 1))))
    (path / "run-id").write_text("0123456789abcdef" * 2 + "\n")
    if began is not None:
        os.utime(path / "run-id", (began, began))
    if summary:
        (path / "summary.json").write_text("{}")
    if checkpoint:
        (path / "checkpoints" / checkpoint).mkdir(parents=True)
        (path / "checkpoints" / checkpoint / "manifest.json").write_text("{}")
    return path


def append(run: Path, text: str) -> None:
    with (run / METRICS).open("a") as file:
        file.write(text)
