"""Tamper with a checkpoint as an attacker would."""

import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any


def reseal(path: Path, change: Callable[[dict[str, Any]], Any] = lambda manifest: None) -> None:
    """Rewrite a manifest with correct checksums, after applying `change` to it."""
    file = path / "manifest.json"
    manifest = json.loads(file.read_text())
    manifest.pop("sha256")
    for name, entry in manifest["files"].items():
        data = (path / name).read_bytes()
        entry.update(bytes=len(data), sha256=hashlib.sha256(data).hexdigest())
    change(manifest)
    text = json.dumps(manifest, indent=1, sort_keys=True) + "\n"
    manifest["sha256"] = hashlib.sha256(text.encode()).hexdigest()
    file.write_text(json.dumps(manifest, indent=1, sort_keys=True) + "\n")
