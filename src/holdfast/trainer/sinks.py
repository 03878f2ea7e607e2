"""Sinks for metrics: TensorBoard and Weights & Biases. metrics.jsonl contains the same values."""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from typing import Any, SupportsFloat
from uuid import uuid4

from holdfast.config import Settings
from holdfast.errors import HoldfastError, SettingsError, one_line
from holdfast.files import Folder
from holdfast.runs.resumable import BOOKKEEPING, flatten

SECTIONS = {
    "episode": ("episode_return", "episode_length", "episodes", "first_share"),
    "loss": ("policy_loss", "value_loss", "entropy", "approx_kl", "clip_fraction", "explained_variance", "lr"),
    "gradient": ("grad_norm", "grad_norm_encoder", "grad_norm_recurrence", "grad_norm_heads"),
    "memory": ("parity_max_abs_logratio", "parity_max_abs_value", "memory_norm"),
    "time": ("sps", "wall_s", "share_world", "share_inference", "share_learning", "rss_mb", "update"),
}
RETURN = "episode/episode_return"
_SECTION_OF = {key: section for section, keys in SECTIONS.items() for key in keys}


def check_sinks(settings: Settings) -> None:
    """Raise SettingsError if the package for an enabled sink is not installed. Writes nothing."""
    if settings.tensorboard == "on":
        _import("torch.utils.tensorboard", "SummaryWriter", "tensorboard", "on")
    if settings.wandb.mode != "off":
        _import("wandb", "init", "wandb", settings.wandb.mode)


def make_sinks(settings: Settings, run: Folder, done_steps: int = 0) -> list[TensorBoard | WandB]:
    """Open the sinks that the settings enable. done_steps: agent steps before a resume, 0 for a new run."""
    tensorboard = [TensorBoard(settings, run, done_steps)] if settings.tensorboard == "on" else []
    return [*tensorboard, *([WandB(settings, run)] if settings.wandb.mode != "off" else [])]


class TensorBoard:
    """Writes metrics as scalars, and the settings as hyperparameters (the tab HPARAMS), into one folder of events."""

    def __init__(self, settings: Settings, run: Folder, done_steps: int):
        writer = _import("torch.utils.tensorboard", "SummaryWriter", "tensorboard", "on")
        run.subfolder("tensorboard", create=True).close()  # refuses a link
        # hide what an earlier process logged after its last checkpoint
        self._writer = writer(log_dir=str(run.path / "tensorboard"), purge_step=done_steps + 1 if done_steps else None)
        from torch.utils.tensorboard.summary import hparams

        # Not add_hparams, which writes them into a folder of their own, where the metrics are missing.
        *begin, self._end = hparams(_hyperparameters(settings), {RETURN: 0.0})
        for summary in begin:
            self._writer.file_writer.add_summary(summary)

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        for name, value in _figures(metrics).items():
            self._writer.add_scalar(name, value, step)

    def close(self) -> None:
        self._writer.file_writer.add_summary(self._end)
        self._writer.close()


class WandB:
    def __init__(self, settings: Settings, run: Folder):
        wandb = settings.wandb
        init = _import("wandb", "init", "wandb", wandb.mode)
        run.subfolder("wandb", create=True).close()  # refuses a link
        run_id = _wandb_id(run)
        try:
            self._run = init(
                project=wandb.project,
                entity=wandb.entity,
                group=wandb.group,
                tags=wandb.tags,
                name=wandb.name or run.path.name,
                id=run_id,
                resume="allow",
                dir=str(run.path),
                config=settings.model_dump(mode="json"),
                mode="offline" if wandb.mode == "offline" else "online",
                settings={"console": "off"},  # wandb would record every redraw of the progress bars
            )
        except Exception as error:  # wandb raises many kinds of errors
            raise HoldfastError(
                f"wandb={wandb.mode}: Weights & Biases did not start: {one_line(error)}\n"
                "Log in with `wandb login`, or use wandb=offline or wandb=off."
            ) from error

    def log(self, metrics: Mapping[str, Any], step: int) -> None:
        self._run.log(_figures(metrics), step=step)

    def close(self) -> None:
        self._run.finish()


def _hyperparameters(settings: Settings) -> dict[str, int | float | str]:
    """Return the settings as TensorBoard shows them: numbers stay numbers, switches are on or off."""
    leaves = {key: value for key, value in flatten(settings.model_dump()) if key not in BOOKKEEPING}
    switches = {key: "on" if value else "off" for key, value in leaves.items() if isinstance(value, bool)}
    numbers = {key: value for key, value in leaves.items() if isinstance(value, int | float)}
    return {key: str(value) for key, value in leaves.items()} | numbers | switches


def _wandb_id(run: Folder) -> str:
    """Return the W&B run id, stored in the run folder so that a resumed run continues the same charts."""
    if not run.has("wandb-id"):
        run.replace("wandb-id", f"{uuid4().hex[:12]}\n".encode())
    found = run.read("wandb-id", max_bytes=100).strip()
    if not re.fullmatch(rb"[A-Za-z0-9_-]{1,64}", found):
        raise HoldfastError(
            f"{run.path / 'wandb-id'}: not a Weights & Biases run id; delete the file to start a new Weights & Biases run."
        )
    return found.decode()


def _figures(metrics: Mapping[str, Any]) -> dict[str, float]:
    """Return the numeric metrics, keyed by section/name, because both tools group charts by section."""
    return {
        key if key.startswith(("info/", "eval/")) else f"{_SECTION_OF.get(key, 'other')}/{key}": float(value)
        for key, value in metrics.items()
        if key != "agent_steps" and isinstance(value, SupportsFloat)
    }


def _import(module: str, name: str, extra: str, value: str) -> Any:
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:  # a folder ./wandb imports as a module without `init`
        raise SettingsError(
            f"{extra}={value} needs a package that is not installed ({one_line(error, 120)}).\n"
            f"Install it with: pip install {extra}"
        ) from error
