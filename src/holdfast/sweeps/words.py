"""Split the words of `holdfast sweep` into fixed settings and those that take several values."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.config.describe import keys_by_name
from holdfast.config.words import SHORT
from holdfast.errors import SettingsError, printable

MAX_RUNS = 10_000
LOG_FROM = 100  # ranges whose ends differ by this factor are searched on a log scale,
LOG_KEYS = ("trainer.lr", "trainer.adam_eps", "trainer.entropy_coef", "trainer.l2_init")  # and those of these keys
OURS = {
    "run": "a sweep names its runs; name the sweep with --name",
    "runs_dir": "use --runs-dir",
    "resume": "a sweep resumes its runs by itself",
    "progress": "a sweep shows its own progress",
}
OPEN, CLOSED, QUOTES = "[{(", "]})", "'\""


@dataclass(frozen=True)
class Axis:
    """A setting with several values: `values` as text, or with `--trials` a range of numbers (low and high, inclusive)."""

    key: str
    values: tuple[str, ...] = ()
    low: float = math.nan
    high: float = math.nan
    whole: bool = False
    log: bool = False

    @property
    def is_range(self) -> bool:
        return not self.values

    @property
    def ends(self) -> tuple[str, ...]:
        """The values that bound all others, to be checked before the first run."""
        return (self.as_text(self.low), self.as_text(self.high)) if self.is_range else self.values

    def as_text(self, value: float) -> str:
        """Return a value of the range as it is written on the command line, with few digits, and inside the range."""
        if self.whole:
            return str(int(value))
        short = f"{value:.4g}"
        return short if self.low <= float(short) <= self.high else repr(float(value))

    def __str__(self) -> str:
        if not self.is_range:
            return f"{self.key}={','.join(self.values)}"
        return f"{self.key}={self.as_text(self.low)}..{self.as_text(self.high)}"


def split_axes(words: Sequence[str], trials: bool) -> tuple[list[str], list[Axis]]:
    """Return the fixed words and the settings with several values; raise SettingsError for words that no sweep takes.

    trials: ranges are searched, and may be ranges of real numbers. Values are not checked here: load_settings does that.
    """
    fixed, axes = [], []
    for word in words:
        key, equals, text = word.partition("=")
        key = key.strip()
        if key in OURS:
            raise SettingsError(f"{printable(word)}: {OURS[key]}.")
        parts = split_values(text) if equals else [text]
        if len(parts) > 1 and not all(parts):
            raise SettingsError(f"{printable(word)}: an empty value. Write values as KEY=A,B,C.")
        axis = _range(word, key, parts[0], trials) if len(parts) == 1 else None
        if axis is None and len(parts) > 1:
            values = [value for part in parts for value in _whole_numbers(word, key, part)]
            if twice := next((value for i, value in enumerate(values) if value in values[:i]), None):
                raise SettingsError(f"{printable(word)}: the value {printable(twice)} is there twice. Remove one.")
            axis = Axis(key, tuple(values))
        if axis is None or (not axis.is_range and len(axis.values) == 1):
            fixed.append(word if axis is None else f"{key}={axis.values[0]}")
        else:
            axes.append(axis)
    return fixed, axes


def split_values(text: str) -> list[str]:
    """Split at commas that are not inside of brackets or of a quoted value: `[1,2],[3]` has two values."""
    parts, depth, quote = [""], 0, ""
    for c in text:
        if quote:
            quote = "" if c == quote else quote
        elif c in QUOTES and not parts[-1].strip():
            quote = c
        elif c in OPEN or c in CLOSED:
            depth += 1 if c in OPEN else -1
        elif c == "," and depth <= 0:
            parts.append("")
            continue
        parts[-1] += c
    return [part.strip() for part in parts]


def full_key(key: str) -> str:
    return SHORT.get(key, key)


def _range(word: str, key: str, text: str, trials: bool) -> Axis | None:
    """Return the range that the text LOW..HIGH means, None if it is none."""
    low_text, dots, high_text = text.partition("..")
    low, high = _number(low_text), _number(high_text)
    kinds = {found.kind for found in keys_by_name().get(full_key(key), [])}
    if not dots or low is None or high is None or not (kinds <= {"int", "float"}):
        return None
    if low > high:
        raise SettingsError(f"{printable(word)}: the range is empty. Write the smaller number first.")
    if kinds == {"int"} or (not kinds and low_text.strip("+- ").isdigit() and high_text.strip("+- ").isdigit()):
        if not (low.is_integer() and high.is_integer()):
            raise SettingsError(f"{printable(word)}: needs whole numbers at both ends of the range.")
        if trials and full_key(key) != "seed" and low < high:
            return Axis(key, (), low, high, whole=True, log=low > 0 and high / low >= LOG_FROM)
        if high - low >= MAX_RUNS:
            raise SettingsError(
                f"{printable(word)}: {high - low + 1:,.0f} values; a sweep has at most {MAX_RUNS:,} runs."
            )
        return Axis(key, tuple(str(value) for value in range(int(low), int(high) + 1)))
    if not trials:
        raise SettingsError(
            f"{printable(word)}: a range of real numbers needs --trials N. Without it, list the values: "
            f"{printable(key)}={printable(low_text)},{printable(high_text)}."
        )
    return Axis(key, (), low, high, log=low > 0 and (high / low >= LOG_FROM or full_key(key) in LOG_KEYS))


def _whole_numbers(word: str, key: str, part: str) -> tuple[str, ...]:
    """Return the values of a part of a list: LOW..HIGH is allowed there for whole numbers."""
    axis = _range(word, key, part, trials=False)
    return (part,) if axis is None else axis.values


def _number(text: str) -> float | None:
    try:
        value = float(text)
    except ValueError:
        return None
    return value if math.isfinite(value) and text.isascii() and abs(value) < 2**63 else None
