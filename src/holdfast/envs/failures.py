"""Error messages for a failing environment: which environment and slot, what it did, where in its code."""

from __future__ import annotations

import os
import traceback

from holdfast.errors import HoldfastError


class BadValue(Exception):  # noqa: N818  (internal: `environment_error` turns it into a HoldfastError)
    """An environment returned something its spaces do not allow. The text continues "returned ..."."""


class BadMask(BadValue):
    """The same for an action mask."""


def environment_error(world: str, where: str, doing: str, step: int, error: BaseException) -> HoldfastError:
    """The error to show to the user. where: "environment 3 (slot 3)"; doing: "step" or "reset"."""
    if isinstance(error, BadValue):
        return HoldfastError(f"{world}: {where} returned {error} from {doing}() at step {step}.")
    frames = traceback.extract_tb(error.__traceback__)[-1:]
    origin = [f"\nRaised in {frame.name}, {os.path.basename(frame.filename)} line {frame.lineno}." for frame in frames]
    return HoldfastError(
        f"{world}: {where} raised {describe_error(error)} in {doing}() at step {step}.{''.join(origin)}"
    )


def describe_error(error: BaseException) -> str:
    """Type and message of an error; only the type if there is no message."""
    return f"{type(error).__name__}: {error}".removesuffix(": ")


def last_lines(error: BaseException, count: int = 4) -> str:
    """Last lines of the traceback of the original error; empty if that is a Holdfast error."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, HoldfastError | BadValue):
        return ""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join([line for line in lines if line.strip(" ^~")][-count:])


def numbered(noun: str, numbers: range) -> str:
    """'slot 3' or 'slots 3 to 7'."""
    return f"{noun} {numbers[0]}" if len(numbers) == 1 else f"{noun}s {numbers[0]} to {numbers[-1]}"
