"""Folders and files that may come from somebody else: opened by handle, never through a link, and only regular files.

Everything that Holdfast reads or writes in a run folder goes through `Folder`. A link there could point to any of the
user's files, so could a hard link, which is read but never written, and opening a pipe could block forever.
"""

from __future__ import annotations

import errno
import io
import os
import shutil
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import TracebackType
from uuid import uuid4

import psutil

from holdfast.errors import CheckpointError, lack_of_memory, reason_of

READ = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC  # without O_NONBLOCK, opening a pipe waits for a writer
CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC  # O_EXCL also refuses a link
AS_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC
_umask: int | None = None  # inside `umask_kept`: the umask of new files and folders


@contextmanager
def umask_kept() -> Iterator[None]:
    """Inside the block, create files and folders with the umask of its start, even if custom code changes it.

    Afterwards, restore that umask. Modes are not set with chmod, which would clear the setgid bit of a shared folder.
    """
    global _umask
    os.umask(now := os.umask(0o077))  # it can only be read by setting it
    before, _umask = _umask, now if _umask is None else _umask
    try:
        yield
    finally:
        _umask = before
        os.umask(now)


def restore_umask() -> None:
    """Inside `umask_kept`, undo a change of the umask. Call this before a file or folder is created."""
    if _umask is not None:
        os.umask(_umask)


class Folder:
    """A folder that is held open, so that it stays the same if it is renamed or the working directory changes.

    Methods take the name of an entry, and treat a link as what it is: it is listed, renamed and removed, never followed.
    """

    def __init__(self, path: Path, handle: int):
        self.path, self._handle = path, handle

    @classmethod
    def open(cls, path: Path, inside: int = 0, create: bool = False) -> Folder:
        """Open a folder. The last `inside` parts of `path` lie in a run, so they must not be links.

        create: make missing folders.
        """
        outer = path.parents[inside - 1] if inside else path
        if create:
            restore_umask()
            outer.mkdir(parents=True, exist_ok=True)
        folder = cls(outer, os.open(outer, AS_FOLDER))
        for name in path.parts[len(path.parts) - inside :]:
            with folder:
                folder = folder.subfolder(name, create)
        return folder

    def subfolder(self, name: str, create: bool = False) -> Folder:
        """Open a folder in this one; raise CheckpointError for a link or a file."""
        if create:
            restore_umask()
            with suppress(FileExistsError):
                os.mkdir(name, dir_fd=self._handle)
        try:
            return Folder(self.path / name, os.open(name, AS_FOLDER | os.O_NOFOLLOW, dir_fd=self._handle))
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.ENOTDIR):
                what = "a link, and links in a run are not followed" if self.is_link(name) else "not a folder"
                raise CheckpointError(f"{self.path / name}: {what}") from None
            raise

    def read(self, name: str, size: int | None = None, max_bytes: int | None = None) -> bytes:
        """Return the content of a file; its type and size are checked before anything is read."""
        path = self.path / name
        try:
            with self._open(name, READ) as file:
                found = os.fstat(file.fileno()).st_size
                if size is not None and found != size:
                    raise CheckpointError(f"{path}: damaged; it has {found:,} bytes instead of {size:,}")
                if max_bytes is not None and found > max_bytes:
                    raise CheckpointError(f"{path}: too large: {found:,} bytes, but the limit is {max_bytes:,}")
                if lack := lack_of_memory(found, psutil.virtual_memory().available):
                    raise CheckpointError(f"{path}: needs {lack}")
                return file.readall()
        except FileNotFoundError:
            raise CheckpointError(f"{path}: missing") from None
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({reason_of(error)})") from error

    def open_file(self, name: str) -> io.FileIO:
        """Open a file for reading; raise CheckpointError if it is missing, cannot be read or is no regular file."""
        try:
            return self._open(name, READ)
        except FileNotFoundError:
            raise CheckpointError(f"{self.path / name}: missing") from None
        except OSError as error:
            raise CheckpointError(f"{self.path / name}: cannot be read ({reason_of(error)})") from error

    def lines(self, name: str, max_bytes: int) -> Iterator[bytes]:
        """Yield the complete lines of a file without their line ends, and never read more than the caller asks for.

        A line longer than `max_bytes` is yielded cut, and is the last one.
        """
        path = self.path / name
        try:
            with self._open(name, READ) as raw, io.BufferedReader(raw) as file:
                while (line := file.readline(max_bytes + 1)).endswith(b"\n"):
                    yield line[:-1]
                if len(line) > max_bytes:
                    yield line
        except FileNotFoundError:
            raise CheckpointError(f"{path}: missing") from None
        except OSError as error:
            raise CheckpointError(f"{path}: cannot be read ({reason_of(error)})") from error

    def append(self, name: str) -> io.FileIO:
        """Open a file for reading and for writing at its end; create it if it does not exist."""
        return self._open(name, os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_NONBLOCK | os.O_CLOEXEC)

    def write(self, name: str, data: bytes) -> None:
        """Write a new file and sync it to disk."""
        with self._open(name, CREATE) as file:
            view = memoryview(data)
            while view:
                view = view[file.write(view) :]
            os.fsync(file.fileno())

    def replace(self, name: str, data: bytes) -> None:
        """Replace a file atomically: readers see the old or the new content, never a part, even after a crash."""
        partial = f".{name}.partial"
        self.remove(partial)
        try:
            self.write(partial, data)
            self.rename(partial, name)
        except BaseException:
            self.remove(partial)
            raise
        self.sync()

    def rename(self, name: str, new_name: str, into: Folder | None = None) -> None:
        os.replace(name, new_name, src_dir_fd=self._handle, dst_dir_fd=(into or self)._handle)

    def remove(self, name: str) -> None:
        """Remove a file, a link or a folder with everything in it, if it exists."""
        with suppress(FileNotFoundError):
            if self.is_folder(name):
                with self.subfolder(name) as folder:
                    folder._clear()
                os.rmdir(name, dir_fd=self._handle)
            else:
                os.unlink(name, dir_fd=self._handle)

    def _clear(self) -> None:
        """Remove all entries. Folders in folders are moved up first: shutil.rmtree fails at about 1000 levels."""
        while names := self.names():
            for name in names:
                if not self.is_folder(name):
                    os.unlink(name, dir_fd=self._handle)
                    continue
                with self.subfolder(name) as inner:
                    for entry in inner.names():
                        if inner.is_folder(entry):
                            inner.rename(entry, uuid4().hex, self)
                        else:
                            os.unlink(entry, dir_fd=inner._handle)
                os.rmdir(name, dir_fd=self._handle)

    def names(self) -> list[str]:
        return os.listdir(self._handle)

    def has(self, name: str) -> bool:
        return self._stat(name) is not None

    def is_folder(self, name: str) -> bool:
        found = self._stat(name)
        return found is not None and stat.S_ISDIR(found.st_mode)

    def is_link(self, name: str) -> bool:
        found = self._stat(name)
        return found is not None and stat.S_ISLNK(found.st_mode)

    def size(self, name: str) -> int:
        """Return the size of an entry in bytes, 0 if it does not exist."""
        found = self._stat(name)
        return found.st_size if found else 0

    def holds(self, name: str, handle: int) -> bool:
        """Return whether the entry `name` is the file that is open as `handle`."""
        found = self._stat(name)
        return found is not None and os.path.samestat(os.fstat(handle), found)

    def sync(self) -> None:
        """Sync the list of entries to disk, so that new and renamed files survive a crash."""
        os.fsync(self._handle)

    def close(self) -> None:
        if self._handle >= 0:
            os.close(self._handle)
            self._handle = -1

    def __enter__(self) -> Folder:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def _stat(self, name: str) -> os.stat_result | None:
        """Return the status of an entry itself, not of what a link points to; None if it does not exist."""
        try:
            return os.stat(name, dir_fd=self._handle, follow_symlinks=False)
        except FileNotFoundError:
            return None

    def _open(self, name: str, flags: int) -> io.FileIO:
        """Open a regular file; raise CheckpointError for a link, a pipe, a device or a folder.

        A file with a second name (a hard link) is not opened for writing: the other name may be outside the run.
        """
        if flags & os.O_CREAT:
            restore_umask()
        try:
            handle = os.open(name, flags | os.O_NOFOLLOW, 0o666, dir_fd=self._handle)
        except OSError as error:
            if error.errno in (errno.ELOOP, errno.EISDIR, errno.ENXIO):  # a link, a folder, a socket or device
                raise CheckpointError(f"{self.path / name}: not a regular file") from None
            raise
        found, reads_only = os.fstat(handle), flags & os.O_ACCMODE == os.O_RDONLY
        if not stat.S_ISREG(found.st_mode):
            os.close(handle)
            raise CheckpointError(f"{self.path / name}: not a regular file")
        if found.st_nlink > 1 and not reads_only:
            os.close(handle)
            raise CheckpointError(f"{self.path / name}: a hard link to another file; replace it by a copy")
        return io.FileIO(handle, "r" if reads_only else "r+")


def read_named(path: Path, max_bytes: int) -> bytes:
    """Return the content of a file that the user named, which may be a link; raise ValueError if it cannot be used."""
    handle = os.open(path, READ)
    with io.FileIO(handle, "r") as file:
        if not stat.S_ISREG(os.fstat(handle).st_mode):
            raise ValueError("not a regular file")
        data = file.read(max_bytes + 1)
    if len(data) > max_bytes:
        raise ValueError(f"larger than {max_bytes} bytes, the limit for such a file")
    return data


def write_error(path: Path, error: OSError, needed_bytes: int = 0) -> CheckpointError:
    """Return the error to raise for a failed write. If the disk is full, the message includes the space needed and free."""
    sizes = ""
    if needed_bytes and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        free = shutil.disk_usage(next(p for p in (path, *path.absolute().parents) if p.exists())).free
        sizes = f" (needs {needed_bytes / 2**20:.1f} MB; {free / 2**20:.1f} MB are free)"
    return CheckpointError(f"{path}: cannot be written: {reason_of(error)}{sizes}")
