"""One writer per run folder. The system lets go of a lock when its process is gone, so none is ever left behind."""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
from pathlib import Path

from holdfast.errors import SettingsError
from holdfast.runs.files import refuse_unless_regular

LOCK = "lock"


class RunLock:
    """Held from `take` to `release`, or to the end of the process, however that comes."""

    def __init__(self, path: Path, handle: int):
        self._path, self._handle = path, handle

    @classmethod
    def take(cls, folder: Path) -> RunLock:
        """SettingsError, with the other's process id, if the folder has a writer."""
        path = folder / LOCK
        refuse_unless_regular(path)  # it is written to
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
                    "Wait for it, end it, or choose another run=NAME."
                ) from None
            try:
                if os.path.samestat(os.fstat(handle), os.stat(path)):
                    break
            except FileNotFoundError:
                pass
            os.close(handle)  # its last owner removed it between our two calls
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"{os.getpid()}\n".encode(), 0)
        return cls(path, handle)

    def release(self) -> None:
        if self._handle < 0:
            return
        with contextlib.suppress(OSError):
            self._path.unlink(missing_ok=True)  # before the lock goes: nobody else's is removed
        os.close(self._handle)
        self._handle = -1


def refuse_if_in_use(folder: Path) -> None:
    """SettingsError if somebody writes there. Leaves nothing behind."""
    if (folder / LOCK).is_file():
        with contextlib.suppress(OSError):  # a folder that cannot be locked is somebody else's trouble
            RunLock.take(folder).release()
