"""A lock that allows one writer per run folder. The system releases it when the process ends, so it is never stale."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
from pathlib import Path

from holdfast.errors import SettingsError
from holdfast.files import Folder

LOCK = "lock"


# Not filelock: it keeps its file after release and advises against removing it, it locks pipes, and in version 3
# a process that fails to get the lock truncates the file, which would erase the owner's process id.
class RunLock:
    """A lock held from `take()` to `release()`, or until the process ends, even by a crash."""

    def __init__(self, folder: Folder, file: io.FileIO):
        self._folder, self._file = folder, file

    @classmethod
    def take(cls, folder: Folder) -> RunLock:
        """Lock the folder; if it is already locked, raise SettingsError with the process id of the owner."""
        while True:
            file = folder.append(LOCK)
            handle = file.fileno()
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError as error:
                owner = os.pread(handle, 20, 0).decode("ascii", "replace").strip()
                file.close()
                if error.errno not in (errno.EWOULDBLOCK, errno.EACCES):
                    raise
                path = folder.path
                raise SettingsError(
                    f"run={path.name}: {path} is in use by process {owner or 'unknown'}.\n"
                    "Wait for that process, stop it, or choose another run=NAME."
                ) from None
            if folder.holds(LOCK, handle):
                break
            file.close()  # the last owner removed the file between open and flock: try again
        file.truncate(0)
        file.write(f"{os.getpid()}\n".encode())
        return cls(folder, file)

    def release(self) -> None:
        if self._file.closed:
            return
        with contextlib.suppress(OSError):
            self._folder.remove(LOCK)  # before unlocking, so that another owner's file is never deleted
        self._file.close()


def refuse_if_in_use(path: Path) -> None:
    """Raise SettingsError if another process has locked the folder. Leaves no file behind."""
    with contextlib.suppress(OSError), Folder.open(path) as folder:  # a folder that cannot be locked fails later
        if folder.has(LOCK):
            RunLock.take(folder).release()
