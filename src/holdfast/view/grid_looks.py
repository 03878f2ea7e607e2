"""What objects of a grid world look like, by the names of their types: the same on pages and in pictures."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

AGENT_COLORS = ("#2f7fc1", "#d9730d", "#14967a", "#b5599c", "#8a6fd1", "#b58a00", "#4d8f2f", "#c4504e")
OBJECT_COLORS = (
    *("#d9a400", "#2aa198", "#c2569b", "#6c8f1f", "#8a6fd1"),
    *("#d2603a", "#3f8fd6", "#9c7a52", "#5f7f8c", "#b3486a"),
)
WALL_COLOR, HAZARD_COLOR = "#7d8894", "#c8202c"
ARROWS = {"left": "←", "west": "←", "right": "→", "east": "→"} | {"up": "↑", "north": "↑", "top": "↑"}
ARROWS |= {"down": "↓", "south": "↓", "bottom": "↓"}

# Each glyph with the beginnings of words that it stands for; of several, the first. `assets/glyphs.js` and `drawing/glyphs.py` draw them.
GLYPHS = {
    "wall": "wall|brick|rock|stone|block|obstacle",
    "agent": "agent|player|cog$",
    "altar": "altar|shrine|heart",
    "mine": "mine|extractor|ore|deposit|crystal|gem|carbon|oxygen|germanium|silicon",
    "generator": "generator|converter|charger|battery|power|solar",
    "chest": "chest|box|crate|storage|store|vault|hub|depot",
    "door": "door|gate|portal|exit",
    "cue": "cue|sign|hint|signal|flag|marker|beacon",
    "goal": "goal|target|finish|reward|star",
    "key": "key",
    "factory": "factory|assembler|lasery|armory|armoury|lab|temple|workshop|forge|station",
    "button": "switch|button|lever|plate",
    "food": "food|apple|berry|fruit|water|plant",
    "hazard": "lava|hazard|trap|fire|spike|enemy|danger",
}
OTHER = "other"  # the glyph of all other types


@dataclass(frozen=True)
class Look:
    """glyph: a key of GLYPHS, or OTHER. mark: one or two letters or an arrow on it; "": none."""

    name: str
    glyph: str
    color: str
    mark: str


def looks_of(names: Sequence[str]) -> list[Look]:
    """Return the look of each type. Up to ten types of objects have different colours."""
    glyphs = [_glyph_of(name) for name in names]
    used: set[int] = set()
    looks = []
    for name, glyph in zip(names, glyphs, strict=True):
        repeated = glyphs.count(glyph) > 1
        looks.append(Look(name, glyph, _color_of(name, glyph, used), _mark_of(name, glyph, repeated)))
    return looks


def mark_of_vibe(vibe: str) -> str:
    """Return what an agent or object shows to others, as an arrow or its first letters."""
    return ARROWS.get(vibe.lower(), vibe[:2])


def _words(name: str) -> str:
    """Return the words of a name in lower case with spaces between them: RedDoor_2 gives "red door 2"."""
    return re.sub(r"[\W_]+", " ", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name)).lower().strip()


def _glyph_of(name: str) -> str:
    words = _words(name)
    return next((glyph for glyph, pattern in GLYPHS.items() if re.search(rf"\b(?:{pattern})", words)), OTHER)


def _color_of(name: str, glyph: str, used: set[int]) -> str:
    """Return the colour of a type; it depends on the name and on the types before it."""
    if glyph in ("wall", "agent"):
        return WALL_COLOR if glyph == "wall" else AGENT_COLORS[0]
    if glyph == "hazard":
        return HAZARD_COLOR
    first = 7
    for letter in name:
        first = (first * 31 + ord(letter)) % 9973
    order = [(first + k) % len(OBJECT_COLORS) for k in range(len(OBJECT_COLORS))]
    found = next((color for color in order if color not in used), order[0])
    used.add(found)
    return OBJECT_COLORS[found]


def _mark_of(name: str, glyph: str, repeated: bool) -> str:
    """Return the mark that tells types with the same glyph apart."""
    if glyph in ("wall", "agent"):
        return ""
    *before, last = _words(name).split() or [""]
    if last in ARROWS:
        return ARROWS[last]
    if glyph == OTHER:
        return name[:2]
    if glyph == "hazard" and not repeated:
        return "!"
    return last[0].upper() if repeated and before else ""
