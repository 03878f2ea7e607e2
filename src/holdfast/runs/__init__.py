"""A run is a folder: its files, the lock that gives it one writer, and what a run that exists was started with."""

from holdfast.runs.folder import TIMING, RunFolder, read_metrics
from holdfast.runs.lock import RunLock
from holdfast.runs.past import Past, find_past

__all__ = ["TIMING", "Past", "RunFolder", "RunLock", "find_past", "read_metrics"]
