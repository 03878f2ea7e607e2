"""Train as one of several ranks."""

from __future__ import annotations

import json
import os
from contextlib import suppress

import torch

import holdfast
from holdfast.config.settings import Settings
from holdfast.errors import HoldfastError, SettingsError
from holdfast.ranks import Group, RankLostError
from holdfast.ranks.distributed import Ranks
from holdfast.runs import find_resumable
from holdfast.runs.resumable import flatten
from holdfast.trainer import loop
from holdfast.trainer.callback import Callback
from holdfast.trainer.loop import TrainResult

FAILED, BAD_SETTINGS = 1, 2  # exit codes of a rank that leaves the report to another one


def train_together(settings: Settings, callback: Callback | None = None) -> TrainResult:
    """Join the other ranks and train with them. An error that ends the job is reported by one rank only."""
    if int(os.environ.get("TORCHELASTIC_MAX_RESTARTS", "0")) and not settings.run:
        raise SettingsError("torchrun --max-restarts: a restart resumes the run, so it needs a name. Add run=NAME.")
    if settings.device == "cuda":
        torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
    group = Ranks.join(torch.device(settings.device), settings.trainer.rank_timeout)
    failed = True
    try:
        refuse_differences(settings, group)
        resumable = find_resumable(settings) if group.leads else None
        result = loop.train(settings, resumable, group, callback)
        failed = False
    except RankLostError as error:
        group.report_once(str(error))
        raise SystemExit(FAILED) from error
    except HoldfastError as error:
        if not group.claim_report():
            raise SystemExit(BAD_SETTINGS if isinstance(error, SettingsError) else FAILED) from error
        if not group.leads and not str(error).startswith("rank "):
            error.args = (f"rank {group.rank}: {error}",)
        error.claimed = True
        raise
    except Exception:
        group.claim_report()
        raise
    finally:
        with suppress(RankLostError):
            group.close(failed)
    return result


def refuse_differences(settings: Settings, group: Group) -> None:
    """Raise SettingsError if the ranks were started with different settings or versions."""
    mine = {
        "holdfast": holdfast.__version__,
        "torch": torch.__version__,
        **dict(flatten(settings.model_dump(mode="json"))),
    }
    ranks = [json.loads(data) for data in group.gather(json.dumps(mine).encode())]
    for rank, other in enumerate(ranks):
        if odd := [key for key in {**ranks[0], **other} if ranks[0].get(key) != other.get(key)]:
            raise SettingsError(
                f"rank {rank} has {odd[0]}={other.get(odd[0])}, but rank 0 has {ranks[0].get(odd[0])}.\n"
                "Start all ranks with the same command and the same versions."
            )
