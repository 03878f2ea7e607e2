"""A lock that allows one writer per run folder. The system releases it when the process ends, so it is never stale."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from holdfast.errors import SettingsError
from holdfast.runs.files import refuse_unless_regular

LOCK = "lock"


# Not filelock: it keeps its file after release and advises against removing it, it locks pipes, and in version 3
# a process that fails to get the lock truncates the file, which would erase the owner's process id.
class RunLock:
    """A lock held from `take()` to `release()`, or until the process ends, even by a crash."""

    def __init__(self, path: Path, handle: int):
        self._path, self._handle = path, handle

    @classmethod
    def take(cls, folder: Path) -> RunLock:
        """Lock the folder; if it is already locked, raise SettingsError with the process id of the owner."""
        path = folder / LOCK
        refuse_unless_regular(path)
        while True:
            handle = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                owner = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
                os.close(handle)
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                raise SettingsError(
                    f"run={folder.name}: {folder} is in use by process {owner or 'unknown'}.\n"
                    "Wait for that process, stop it, or choose another run=NAME."
                ) from None
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(handle), os.stat(path)):
                    break
            os.close(handle)  # the last owner removed the file between open and flock: try again
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        return cls(path, handle)

    def release(self) -> None:
        if self._handle < 0:
            return
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)  # before unlocking, so that another owner's file is never deleted
        os.close(self._handle)
        self._handle = -1


def refuse_if_in_use(folder: Path) -> None:
    """Raise SettingsError if another process has locked the folder. Leaves no file behind."""
    if (folder / LOCK).is_file():
        with contextlib.suppress(OSError):  # a folder that cannot be locked fails later, with its own message
            RunLock.take(folder).release()
