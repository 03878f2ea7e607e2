"""`python -m holdfast.cli.child FD WORDS...`: `holdfast WORDS...`, stopped when the sweep that started it is gone.

FD is a pipe whose other end the sweep holds. The system closes that end when the sweep ends, even by kill -9; then this
process gets SIGTERM, upon which training saves a checkpoint. So nothing trains on unnoticed.
"""

from __future__ import annotations

import os
import signal
import sys
import threading

from holdfast.cli import main


def end_with(pipe: int) -> None:
    """Send SIGTERM to this process when the other end of the pipe is closed."""
    try:
        while os.read(pipe, 1):
            pass
    except OSError:  # custom code closed the pipe
        return
    os.kill(os.getpid(), signal.SIGTERM)


if __name__ == "__main__":
    threading.Thread(target=end_with, args=[int(sys.argv.pop(1))], name="end with the sweep", daemon=True).start()
    main()
