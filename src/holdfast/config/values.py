"""One value of one key: from the text of a word, or the data of a settings file, to what pydantic checks.

A ValueError here carries only the reason; `load` adds the key, the value and what is allowed.
"""

from __future__ import annotations

from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from holdfast.config.describe import Key

MAX_DEPTH = 20
_LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)  # libyaml where PyYAML was built with it
_NOTHING = ("none", "null", "~")
_AS_SWITCH = {"true": "on", "yes": "on", "false": "off", "no": "off"}


def read_word(key: Key, text: str) -> Any:
    """The value a word gives to a key. Lists and mappings are YAML, everything else is the text itself.

    Plain YAML would read a run named 1e3 as a number, wandb=off as False, seed=010 as 8 and seed=1:30 as 90.
    """
    text = text.strip()
    if "${" in text:
        raise ValueError("References such as ${...} are not resolved: write the value itself")
    if key.optional and text.lower() in _NOTHING:
        return None
    if key.kind in ("list", "mapping"):
        return read_data(key, parse_yaml(text))
    if key.kind == "text":
        return text[1:-1] if len(text) > 1 and text[0] == text[-1] and text[0] in "'\"" else text
    if key.kind == "choice" and "off" in key.choices:
        return _AS_SWITCH.get(text.lower(), text)
    if key.kind == "int" or (key.kind == "choice" and isinstance(key.choices[0], int)):
        return _whole(text)
    return text


def read_data(key: Key, value: Any) -> Any:
    """The value a settings file gives to a key, already read as YAML."""
    if isinstance(value, bool) and key.kind != "bool":
        if "off" in key.choices:  # YAML reads a bare on or off as true or false
            return "on" if value else "off"
        raise ValueError("Put it in quotes" if key.kind == "text" else "")
    if isinstance(value, list) and any(isinstance(item, bool) for item in value):
        raise ValueError("")  # pydantic would count true as 1
    if isinstance(value, int | float) and key.kind == "text":
        raise ValueError("Put it in quotes")
    if isinstance(value, str) and key.kind not in ("list", "mapping", "text"):
        return read_word(key, value)
    return value


def read_any(text: str) -> Any:
    """The value of a key the schema knows nothing about, such as env.kwargs.gravity."""
    return None if text.strip() == "None" else parse_yaml(text)


def parse_yaml(text: str) -> Any:
    """A list, a mapping or a bare value as OmegaConf reads the value of a word."""
    check_yaml(text)
    try:
        tree: Any = OmegaConf.to_container(OmegaConf.from_dotlist([f"value={text}"]), resolve=False)
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise ValueError(explain_yaml(error)) from error
    return tree["value"]


def check_yaml(text: str) -> bool:
    """Refuse what settings never need and a hostile file would use: references, aliases, tags, deep nests.

    True if the text is a mapping.
    Looks at parser events, before anything is built: an alias bomb or a million nested lists cost nothing.
    """
    depth, root = 0, None
    try:
        for event in yaml.parse(text, Loader=_LOADER):
            root = root or (event if isinstance(event, yaml.NodeEvent) else None)
            where = f"Line {event.start_mark.line + 1}"
            depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
            if depth > MAX_DEPTH:
                raise ValueError(f"{where}: nested deeper than {MAX_DEPTH} levels")
            if isinstance(event, yaml.AliasEvent):
                raise ValueError(f"{where}: aliases (*{event.anchor}) are not used in settings")
            tag = getattr(event, "tag", None)
            if tag not in (None, "!"):
                raise ValueError(f"{where}: tags ({printable(tag)}) are not used in settings")
            if isinstance(event, yaml.ScalarEvent) and "${" in event.value:
                found = printable(event.value, 40)
                raise ValueError(f"{where}: references such as {found} are not resolved: write the value itself")
    except yaml.YAMLError as error:
        raise ValueError(explain_yaml(error)) from error
    return isinstance(root, yaml.MappingStartEvent)


def explain_yaml(error: Exception) -> str:
    """One line out of PyYAML's many: "Line 3: found duplicate key lr"."""
    if isinstance(error, yaml.MarkedYAMLError) and error.problem_mark is not None:
        return f"Line {error.problem_mark.line + 1}: {printable(error.problem or 'not YAML', 120)}"
    return printable(str(error).splitlines()[0], 120) if str(error) else "not YAML"


def printable(text: str, length: int = 60) -> str:
    """Text for an error message: one line, no control characters, not endless."""
    if not text.isprintable():
        text = text.encode("unicode_escape").decode("ascii")
    return text if len(text) <= length else text[: length - 3] + "..."


def _whole(text: str) -> int | str:
    """1e6 is a whole number to everybody but int(); what is not stays text, for the schema to refuse."""
    try:
        number = float(text)
    except ValueError:
        return text
    if "e" in text.lower() and number.is_integer() and abs(number) < 2**63:
        return int(number)
    return int(text) if text.lstrip("+-").isdecimal() and len(text) < 20 else text
