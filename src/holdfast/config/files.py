"""Settings files: the ready-made ones, a user's own, and the config.yaml of a run."""

from __future__ import annotations

import io
from pathlib import Path
from typing import Any

import yaml
from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException

from holdfast.config.nearest import did_you_mean
from holdfast.config.settings import Settings
from holdfast.config.values import check_yaml, explain_yaml, printable
from holdfast.errors import SettingsError

READY = Path(__file__).parent / "ready"
MAX_BYTES = 100_000


def ready_names() -> list[str]:
    return sorted(path.stem for path in READY.glob("*.yaml"))


def describe_ready() -> dict[str, str]:
    """The ready-made settings files by name, with the first line of each: what it trains."""
    firsts = {name: (READY / f"{name}.yaml").read_text("utf-8").split("\n", 1)[0] for name in ready_names()}
    return {name: first.lstrip("# ") for name, first in firsts.items()}


def find_settings_file(text: str) -> Path:
    """A ready-made name, or a path: anything with a slash in it or ending in .yaml."""
    text = text.strip()
    if "/" in text or text.endswith((".yaml", ".yml")):
        return Path(text).expanduser()
    if text not in ready_names():
        raise SettingsError(
            f"settings={printable(text)}: no such settings file.{did_you_mean(text, ready_names())}\n"
            f"Ready-made: {', '.join(ready_names())}. A file of your own ends in .yaml."
        )
    return READY / f"{text}.yaml"


def read_tree(path: Path) -> dict[str, Any]:
    """The mapping a settings file holds. Nothing in it is resolved, expanded or run."""
    name = printable(str(path), 200)
    try:
        with path.open("rb") as file:
            raw = file.read(MAX_BYTES + 1)
        if len(raw) > MAX_BYTES:
            raise ValueError(f"larger than {MAX_BYTES} bytes, which no settings file is")
        text = raw.decode("utf-8")
        if not check_yaml(text):
            raise ValueError("needs keys and values such as `seed: 1`")
        config = OmegaConf.load(io.StringIO(text))
    except FileNotFoundError as error:
        raise SettingsError(
            f"settings file {name}: no such file.{did_you_mean(path.stem, ready_names())}\n"
            f"Ready-made, written without .yaml: {', '.join(ready_names())}."
        ) from error
    except UnicodeDecodeError as error:
        raise SettingsError(f"settings file {name}: not a text file in UTF-8.") from error
    except OSError as error:
        raise SettingsError(f"settings file {name}: cannot be read: {error.strerror or error}.") from error
    except (yaml.YAMLError, OmegaConfBaseException) as error:
        raise SettingsError(f"settings file {name}: {explain_yaml(error)}.") from error
    except ValueError as error:
        raise SettingsError(f"settings file {name}: {error}.") from error
    tree: Any = OmegaConf.to_container(config, resolve=False)
    return tree


def settings_to_yaml(settings: Settings) -> str:
    """Every setting, complete: `load_run_settings` reads back an equal Settings."""
    return OmegaConf.to_yaml(OmegaConf.create(settings.model_dump()))
