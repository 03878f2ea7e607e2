"""How an environment's failure is told: which environment, which slot, what it did, where in its code."""

from __future__ import annotations

import os
import traceback

from holdfast.errors import HoldfastError


class BadValue(Exception):  # noqa: N818  (never seen by users: `environment_error` turns it into one)
    """An environment returned something its spaces do not allow; the text follows "returned"."""


def environment_error(world: str, where: str, doing: str, step: int, error: BaseException) -> HoldfastError:
    """The error for the user; `where` is like "environment 3 (slot 3)", `doing` is "step" or "reset"."""
    if isinstance(error, BadValue):
        return HoldfastError(f"{world}: {where} returned {error} from {doing}() at step {step}.")
    what = describe_error(error)
    return HoldfastError(f"{world}: {where} raised {what} in {doing}() at step {step}.{_origin(error)}")


def describe_error(error: BaseException) -> str:
    """Type and text, without a dangling colon when there is no text."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def last_lines(error: BaseException, count: int = 4) -> str:
    """The end of the traceback of the error that started it all; nothing if that was one of ours."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, HoldfastError | BadValue):
        return ""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join([line for line in lines if line.strip(" ^~")][-count:])


def numbered(noun: str, numbers: range) -> str:
    """'slot 3' or 'slots 3 to 7'."""
    return f"{noun} {numbers[0]}" if len(numbers) == 1 else f"{noun}s {numbers[0]} to {numbers[-1]}"


def _origin(error: BaseException) -> str:
    frames = traceback.extract_tb(error.__traceback__)
    if not frames:
        return ""
    frame = frames[-1]
    return f"\nIt happened in {frame.name}, {os.path.basename(frame.filename)} line {frame.lineno}."
