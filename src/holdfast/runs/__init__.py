"""A run is a folder: its files, the lock that gives it one writer, and whether it can be resumed."""

from holdfast.runs.find import find_run
from holdfast.runs.folder import TIMING, RunFolder, read_metrics
from holdfast.runs.lock import RunLock
from holdfast.runs.resumable import Resumable, find_resumable

__all__ = ["TIMING", "Resumable", "RunFolder", "RunLock", "find_resumable", "find_run", "read_metrics"]
