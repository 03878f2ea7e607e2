"""A run is a folder: its files, the lock that gives it one writer, and whether it can be resumed."""

from holdfast.runs.folder import TIMING, RunFolder, find_run, read_metrics
from holdfast.runs.resumable import Resumable, find_resumable
