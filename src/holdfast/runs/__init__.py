"""Run folders: their files, the lock that allows only one writer, and the check whether a run can be resumed."""

from holdfast.runs.folder import TIMING, RunFolder, find_run, read_metrics
from holdfast.runs.resumable import Resumable, find_resumable, resume_words
