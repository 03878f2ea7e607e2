"""Metrics for tools outside: TensorBoard and Weights & Biases. metrics.jsonl has the same figures."""

from __future__ import annotations

import os
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from importlib import import_module
from pathlib import Path
from typing import Any
from uuid import uuid4

from holdfast.config import Settings
from holdfast.errors import HoldfastError, SettingsError
from holdfast.runs.files import read_whole
from holdfast.trainer.figures import number

SECTIONS = {
    "episode": ("episode_return", "episode_length", "episodes", "first_share"),
    "loss": (
        "policy_loss",
        "value_loss",
        "entropy",
        "approx_kl",
        "clip_fraction",
        "explained_variance",
        "lr",
    ),
    "gradient": ("grad_norm", "grad_norm_encoder", "grad_norm_recurrence", "grad_norm_heads"),
    "memory": ("parity_max_abs_logratio", "parity_max_abs_value", "memory_norm"),
    "time": ("sps", "wall_s", "share_world", "share_inference", "share_learning", "rss_mb", "update"),
}
_SECTION_OF = {key: section for section, keys in SECTIONS.items() for key in keys}


def check_sinks(settings: Settings) -> None:
    """Refuse what cannot be logged to because its package is not there. Touches nothing."""
    if settings.tensorboard == "on":
        _import("torch.utils.tensorboard", "SummaryWriter", "tensorboard", "on")
    if settings.wandb != "off":
        _import("wandb", "init", "wandb", settings.wandb)


def make_sinks(settings: Settings, run: Path, done_steps: int = 0) -> list[Sink]:
    """The sinks the settings ask for, writing into the run folder. done_steps: a run goes on from there."""
    check_sinks(settings)
    sinks: list[Sink] = []
    if settings.tensorboard == "on":
        sinks.append(TensorBoard(run, done_steps))
    if settings.wandb != "off":
        sinks.append(WandB(settings, run))
    return sinks


class Sink(ABC):
    @abstractmethod
    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        """Log every figure that is known; step counts agent steps."""

    @abstractmethod
    def close(self) -> None:
        """Write out what is still held back."""


class TensorBoard(Sink):
    def __init__(self, run: Path, done_steps: int = 0):
        writer = _import("torch.utils.tensorboard", "SummaryWriter", "tensorboard", "on")
        # what an ended process logged past its last checkpoint is not shown
        self._writer = writer(log_dir=str(run / "tensorboard"), purge_step=done_steps + 1 if done_steps else None)

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        for name, value in _figures(metrics).items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.close()


class WandB(Sink):
    def __init__(self, settings: Settings, run: Path):
        init = _import("wandb", "init", "wandb", settings.wandb)
        own_id = _wandb_id(run)
        try:
            self._run = init(
                project="holdfast",
                name=run.name,
                id=own_id,
                resume="allow",
                dir=str(run),
                config=settings.model_dump(mode="json"),
                mode="offline" if settings.wandb == "offline" else "online",
                settings={"console": "off"},  # it would record every redraw of the bars
            )
        except Exception as error:  # whatever the package raises, the user needs to know the same thing
            reason = " ".join(str(error).split())[:200]
            raise HoldfastError(
                f"wandb={settings.wandb}: Weights & Biases did not start: {reason}\n"
                "Log in with `wandb login`, or use wandb=offline or wandb=off."
            ) from error

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        self._run.log(_figures(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


def _wandb_id(run: Path) -> str:
    """The same for a run that goes on; another one for another run of the same name."""
    file = run / "wandb-id"
    if not os.path.lexists(file):
        file.write_text(f"{uuid4().hex[:12]}\n")
    found = read_whole(file, most_bytes=100).strip()
    if not re.fullmatch(rb"[A-Za-z0-9_-]{1,64}", found):
        raise HoldfastError(
            f"{file}: not the id of a run of Weights & Biases; delete the file to begin another one there."
        )
    return found.decode()


def _figures(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Known figures under section/key; the tools draw one group of charts per section."""
    values = {key: number(metrics, key) for key in metrics if key != "agent_steps"}
    return {f"{_SECTION_OF.get(k, 'other')}/{k}": value for k, value in values.items() if value is not None}


def _import(module: str, name: str, extra: str, value: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:  # a folder ./wandb imports as a module without `init`
        raise SettingsError(
            f"{extra}={value} needs a package that is not here ({' '.join(str(error).split())[:120]}).\n"
            f'pip install "holdfast[{extra}]"'
        ) from error
