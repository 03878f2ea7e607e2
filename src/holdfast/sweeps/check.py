"""Check the settings of all runs of a sweep as training would, in a process of its own, because worlds are code.

`python -m holdfast.sweeps.check FD` reads the words of each run as JSON from standard input, builds every world and agent, and
writes the first refusal to the pipe FD as JSON: {"run": number, "message": text}, or {} if there is none.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Sequence

from holdfast.config import load_settings
from holdfast.errors import HoldfastError, SettingsError, one_line, printable

MAX_MESSAGE = 5_000


def first_refusal(runs: Sequence[Sequence[str]]) -> tuple[int, str] | None:
    """Return the number of the first run that training would refuse, and why; None if it would take all."""
    reader, writer = os.pipe()
    with open(reader, "rb") as answers:
        command = [sys.executable, "-m", "holdfast.sweeps.check", str(writer)]
        try:
            done = subprocess.run(
                command,
                input=json.dumps([*map(list, runs)]).encode(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.PIPE,
                pass_fds=[writer],
                check=False,
            )
        finally:
            os.close(writer)
        os.set_blocking(reader, False)  # a process that the world left behind may hold the pipe open
        answer = answers.read(8 * MAX_MESSAGE)
    try:
        found = json.loads(answer or b"")
        return (int(found["run"]), str(found["message"])) if found else None
    except (ValueError, KeyError, TypeError):
        last = (done.stderr.decode("utf-8", "replace").strip().splitlines() or ["no message"])[-1]
        how = f"exit code {done.returncode}: {printable(last, 200)}"
        raise SettingsError(
            f"the settings could not be checked: the code of the world or the agent ended with {how}."
        ) from None


def _main(pipe: int) -> None:
    from holdfast.trainer import check

    found: dict[str, object] = {}
    for number, words in enumerate(json.load(sys.stdin)):
        try:
            check(load_settings(words))
        except HoldfastError as error:
            found = {"run": number, "message": str(error)[:MAX_MESSAGE]}
        except Exception as error:  # of the world or the agent
            found = {"run": number, "message": f"{type(error).__name__}: {one_line(error)}"}
        if found:
            break
    with open(pipe, "w") as answer:
        json.dump(found, answer)  # shorter than what a pipe holds, because nobody reads it yet


if __name__ == "__main__":
    _main(int(sys.argv[1]))
