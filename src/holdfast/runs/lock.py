"""A lock that allows one writer per run folder. The system releases it when the process ends, so it is never stale."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import io
import os
import time
from pathlib import Path

from holdfast.errors import CheckpointError, SettingsError
from holdfast.files import Folder

LOCK = "lock"
TRIES, PAUSE_S = 5, 0.02  # `is_in_use` holds the lock for a moment


# Not filelock: it keeps its file after release and advises against removing it, it locks pipes, and in version 3
# a process that fails to get the lock truncates the file, which would erase the owner's process id.
class RunLock:
    """A lock held from `take()` to `release()`, or until the process ends, even by a crash."""

    def __init__(self, folder: Folder, file: io.FileIO):
        self._folder, self._file = folder, file

    @classmethod
    def take(cls, folder: Folder, option: str = "run=") -> RunLock:
        """Lock the folder; if it is already locked, raise SettingsError with the process id of the owner.

        option: what names the folder on the command line.
        """
        tries = 0
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
                if (tries := tries + 1) < TRIES:
                    time.sleep(PAUSE_S)
                    continue
                path = folder.path
                raise SettingsError(
                    f"{option}{path.name}: {path} is in use by process {owner or 'unknown'}.\n"
                    f"Wait for that process, stop it, or choose another {option}NAME."
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


def is_in_use(folder: Folder) -> bool:
    """Return whether a process has locked the folder. Writes nothing, so it also works in a read-only folder."""
    try:
        if not folder.has(LOCK):
            return False
        with folder.open_file(LOCK) as file:
            fcntl.flock(file.fileno(), fcntl.LOCK_SH | fcntl.LOCK_NB)
    except CheckpointError:  # no lock of ours
        return False
    except OSError as error:
        return error.errno in (errno.EWOULDBLOCK, errno.EACCES)
    return False
