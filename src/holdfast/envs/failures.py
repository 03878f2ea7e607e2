"""Error messages for environments that fail. They name the environment, its slots, the error and its source line."""

from __future__ import annotations

import os
import traceback
from pathlib import Path

from holdfast import custom_code
from holdfast.errors import HoldfastError, is_user_code, one_line


class BadValue(Exception):  # noqa: N818  (internal: `environment_error` turns it into a HoldfastError)
    """An environment returned a value that does not fit its spaces. The message completes "ENVIRONMENT returned ..."."""


class BadMask(BadValue):
    """An environment returned an invalid action mask. The message completes "ENVIRONMENT returned ..."."""


def environment_error(world: str, where: str, doing: str, step: int, error: BaseException) -> HoldfastError:
    """Return the error to show to the user. `where`: such as "environment 3 (slot 3)"; `doing`: "step" or "reset"."""
    if isinstance(error, BadValue):
        return HoldfastError(f"{world}: {where} returned {error} from {doing}() at step {step}.")
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if frame.filename != custom_code.__file__]
    own = [frame for frame in frames if is_user_code(Path(frame.filename))]
    hint = "\nThere is no memory left: use fewer environments (env.num_envs)." if isinstance(error, MemoryError) else ""
    origin = [
        f"\nRaised in {frame.name}, {os.path.basename(frame.filename)} line {frame.lineno}."
        for frame in (own or frames)[-1:]
    ]
    return HoldfastError(
        f"{world}: {where} raised {describe_error(error)} in {doing}() at step {step}.{''.join(origin)}{hint}"
    )


def describe_error(error: BaseException) -> str:
    """Return the type and message of an error on one line; only the type if the message is empty."""
    return f"{type(error).__name__}: {one_line(error, 300)}".removesuffix(": ")


def last_lines(error: BaseException, count: int = 4) -> str:
    """Return the last lines of the original error's traceback; "" if the original error is a Holdfast error."""
    while error.__cause__ is not None:
        error = error.__cause__
    if isinstance(error, HoldfastError | BadValue):
        return ""
    lines = "".join(traceback.format_exception(error)).splitlines()
    return "\n".join([line for line in lines if line.strip(" ^~")][-count:])


def numbered(noun: str, numbers: range) -> str:
    """Return "slot 3" or "slots 3 to 7"."""
    return f"{noun} {numbers[0]}" if len(numbers) == 1 else f"{noun}s {numbers[0]} to {numbers[-1]}"
