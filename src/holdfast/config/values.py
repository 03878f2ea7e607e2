"""Parse the value of a key, from a `key=value` word or from a settings file. Validation by pydantic follows.

A ValueError raised in this module contains only the reason; `load` adds the key, the value and the accepted values.
"""

from __future__ import annotations

import re
from typing import Any

import yaml

from holdfast.config.describe import Key
from holdfast.errors import printable

MAX_DEPTH = 20
MAX_DIGITS = 100
_NOTHING = ("none", "null", "~")
_AS_SWITCH = {"true": "on", "yes": "on", "false": "off", "no": "off"}

# use libyaml if PyYAML was built with it
_SafeLoader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_SafeDumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)


class SafeSettingsLoader(_SafeLoader):
    """Load YAML with three rules of YAML 1.2: 1e-3 is a number, a date and 1:30 are text. Duplicate keys are errors."""

    def construct_mapping(self, node: Any, deep: bool = False) -> Any:
        seen = set()
        for key, _ in node.value:
            if key.tag == "tag:yaml.org,2002:str" and key.value in seen:
                raise yaml.MarkedYAMLError(problem=f"found duplicate key {key.value}", problem_mark=key.start_mark)
            seen.add(key.value if isinstance(key, yaml.ScalarNode) else None)
        return super().construct_mapping(node, deep)

    def construct_whole_number(self, node: Any) -> Any:
        if len(node.value) > MAX_DIGITS:  # Python cannot print a number with thousands of digits
            raise yaml.MarkedYAMLError(
                problem=f"a number of {len(node.value):,} characters", problem_mark=node.start_mark
            )
        return self.construct_yaml_int(node)


class SafeSettingsDumper(_SafeDumper):
    """Dump YAML, with quotes around text that `SafeSettingsLoader` would otherwise read as a number."""

    def ignore_aliases(self, data: Any) -> bool:
        return True


_FLOAT = re.compile(
    r"[-+]?[0-9][0-9_]*\.[0-9_]*([eE][-+]?[0-9]+)?|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+|\.[0-9][0-9_]*([eE][-+][0-9]+)?"
    r"|[-+]?\.(inf|Inf|INF)|\.(nan|NaN|NAN)"
)
_INT = re.compile(r"[-+]?(0b[01_]+|0[0-7_]*|[1-9][0-9_]*|0x[0-9a-fA-F_]+)")
SafeSettingsLoader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if not tag.endswith((":timestamp", ":float", ":int"))]
    for first, resolvers in _SafeLoader.yaml_implicit_resolvers.items()
}
for _class in (SafeSettingsLoader, SafeSettingsDumper):
    _class.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(f"^({_FLOAT.pattern})$"), list("-+0123456789."))
SafeSettingsLoader.add_implicit_resolver(
    "tag:yaml.org,2002:int", re.compile(f"^({_INT.pattern})$"), list("-+0123456789")
)
SafeSettingsLoader.add_constructor("tag:yaml.org,2002:int", SafeSettingsLoader.construct_whole_number)


def read_word(key: Key, text: str) -> Any:
    """Parse the text after `key=`. Lists and mappings are parsed as YAML; all other kinds of values stay text.

    Plain YAML would read a run named 1e3 as a number, wandb=off as False and seed=010 as 8.
    """
    text = text.strip()
    if "${" in text:
        raise ValueError("References such as ${...} are not supported; write the value itself")
    if key.optional and text.lower() in _NOTHING:
        return None
    if key.kind in ("list", "mapping"):
        return read_data(key, parse_yaml(text))
    if key.kind == "text":
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    if key.kind == "choice" and "off" in key.choices:
        return _AS_SWITCH.get(text.lower(), text)
    if key.kind in ("int", "float") and not _is_number(text):
        raise ValueError("")
    if key.kind == "int" or (key.kind == "choice" and isinstance(key.choices[0], int)):
        return _whole(text)
    return text


def read_data(key: Key, value: Any) -> Any:
    """Convert a value from a settings file, already parsed as YAML, to the kind of its key."""
    if isinstance(value, bool) and key.kind != "bool":
        if "off" in key.choices:  # YAML reads a bare on or off as true or false
            return "on" if value else "off"
        raise ValueError("Put the value in quotes" if key.kind == "text" else "")
    if isinstance(value, list) and any(isinstance(item, bool) for item in value):
        raise ValueError("")  # pydantic would count true as 1
    if isinstance(value, int | float) and key.kind == "text":
        raise ValueError("Put the value in quotes")
    if isinstance(value, str) and key.kind not in ("list", "mapping", "text"):
        return read_word(key, value)
    return value


def parse_yaml(text: str) -> Any:
    """Parse a list, a mapping or a single value; raise ValueError for duplicate keys and for errors from `check_yaml`."""
    check_yaml(text)
    try:
        return yaml.load(text, Loader=SafeSettingsLoader)
    except (yaml.YAMLError, ValueError, OverflowError) as error:
        raise ValueError(explain_yaml(error)) from error


def check_yaml(text: str) -> bool:
    """Raise ValueError for references, aliases, tags and deep nesting. Return whether the text is a mapping.

    The check reads parser events before any object is built, so an alias bomb or deep nesting cannot exhaust memory.
    """
    depth, root = 0, None
    try:
        for event in yaml.parse(text, Loader=SafeSettingsLoader):
            root = root or (event if isinstance(event, yaml.NodeEvent) else None)
            where = f"Line {event.start_mark.line + 1}"
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise ValueError(f"{where}: nested deeper than {MAX_DEPTH} levels")
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"{where}: aliases (*{printable(event.anchor)}) are not allowed in settings")
            tag = getattr(event, "tag", None)
            if tag not in (None, "!"):
                raise ValueError(f"{where}: tags ({printable(tag)}) are not allowed in settings")
            if isinstance(event, yaml.ScalarEvent) and "${" in event.value:
                found = printable(event.value, 40)
                raise ValueError(f"{where}: references such as {found} are not supported; write the value itself")
    except yaml.YAMLError as error:
        raise ValueError(explain_yaml(error)) from error
    return isinstance(root, yaml.MappingStartEvent)


def explain_yaml(error: Exception) -> str:
    """Return PyYAML's message as one line: "Line 3: found duplicate key lr"."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"Line {error.problem_mark.line + 1}: {printable(error.problem or 'not YAML', 120)}"
    return printable(str(error).splitlines()[0], 120) if str(error) else "not YAML"


def _is_number(text: str) -> bool:
    """Whether Python reads this as a number: 64, 1e6, 1_000_000. Non-ASCII digits are rejected."""
    try:
        float(text)
    except ValueError:
        return False
    return text.isascii()


def _whole(text: str) -> int | str:
    """Convert a whole number such as 64 or 1e6 to int; other text stays unchanged, and pydantic rejects it."""
    try:
        number = float(text)
    except ValueError:
        return text
    if "e" in text.lower() and number.is_integer() and abs(number) < 2**63:
        return int(number)
    return int(text) if text.lstrip("+-").replace("_", "").isdecimal() and len(text) < 30 else text
