"""A picture that is drawn with twice the pixels and reduced at the end, so that edges are smooth."""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence
from functools import lru_cache

import numpy as np
from PIL import Image, ImageDraw, ImageFont

PAPER, CARD, INK, MUTED, LINE, GRID = "#ffffff", "#f6f7f9", "#1b1f24", "#59626d", "#d4d9df", "#eceff2"
BLUE, PALE_BLUE, ORANGE, ACCENT = "#17689c", "#b7cbdb", "#d9730d", "#c2185b"
SUPERSAMPLED = 2

Point = tuple[float, float]


class Canvas:
    """Draws in units of 1/zoom pixels of the finished picture."""

    def __init__(self, width: int, height: int, zoom: int = 1):
        self.scale = zoom * SUPERSAMPLED
        self.image = Image.new("RGB", (width * self.scale, height * self.scale), PAPER)
        self._draw = ImageDraw.Draw(self.image)

    def finished(self) -> Image.Image:
        return self.image.reduce(SUPERSAMPLED)

    def box(
        self,
        x: float,
        y: float,
        width: float,
        height: float,
        fill: str | None = None,
        outline: str | None = None,
        radius: float = 0,
        line: float = 1,
    ) -> None:
        left, top, right, bottom = self._corners(x, y, width, height)
        if right < left or bottom < top:
            return
        self._draw.rounded_rectangle(
            (left, top, right, bottom), round(radius * self.scale), fill, outline, self._width(line)
        )

    def disc(
        self, x: float, y: float, radius: float, fill: str | None, outline: str | None = None, line: float = 1
    ) -> None:
        corners = self._corners(x - radius, y - radius, 2 * radius, 2 * radius)
        self._draw.ellipse(corners, fill, outline, self._width(line))

    def polygon(self, points: Sequence[Point], fill: str) -> None:
        self._draw.polygon([(x * self.scale, y * self.scale) for x, y in points], fill)

    def line(self, points: Sequence[Point], color: str, width: float = 1) -> None:
        scaled = [(x * self.scale, y * self.scale) for x, y in points]
        self._draw.line(scaled, color, self._width(width), joint="curve")

    def text(
        self,
        x: float,
        y: float,
        text: str,
        size: float = 11,
        color: str = INK,
        anchor: str = "ls",
        bold: bool = False,
        width: float | None = None,
    ) -> None:
        """Write a line of text, cut at `width`. anchor: as in Pillow; "ls" is left, on the baseline."""
        font, text = _font(size * self.scale), _drawable(text)
        if width is not None:
            text = _cut(text, font, width * self.scale)
        stroke = size * self.scale / 64 if bold else 0
        self._draw.text(
            (x * self.scale, y * self.scale), text, color, font, anchor, stroke_width=stroke, stroke_fill=color
        )

    def text_width(self, text: str, size: float) -> float:
        return _font(size * self.scale).getlength(_drawable(text)) / self.scale

    def picture(self, image: Image.Image, x: float, y: float, width: float, height: float, smooth: bool = True) -> None:
        """Draw an image, stretched to this size."""
        left, top, right, bottom = self._corners(x, y, width, height)
        how = Image.Resampling.LANCZOS if smooth else Image.Resampling.NEAREST
        self.image.paste(image.resize((right - left + 1, bottom - top + 1), how), (left, top))

    def veil(self, x: float, y: float, width: float, height: float, amount: float, color: str = PAPER) -> None:
        """Lighten a part of the picture."""
        left, top, right, bottom = self._corners(x, y, width, height)
        if right < left or bottom < top:
            return
        area = (left, top, right + 1, bottom + 1)
        under = self.image.crop(area)
        self.image.paste(Image.blend(under, Image.new("RGB", under.size, color), amount), area)

    def _corners(self, x: float, y: float, width: float, height: float) -> tuple[int, int, int, int]:
        """Return the first and last pixels; neighbouring boxes neither overlap nor leave a gap."""
        s = self.scale
        return round(x * s), round(y * s), round((x + width) * s) - 1, round((y + height) * s) - 1

    def _width(self, line: float) -> int:
        return max(1, round(line * self.scale))


def readable_on(color: str) -> str:
    """Return the colour of text on this one, as on the page."""
    red, green, blue = _rgb(color)
    return INK if red * 0.299 + green * 0.587 + blue * 0.114 > 150 else PAPER


def diverging(values: np.ndarray) -> Image.Image:
    """Return an image [rows, columns] of numbers from -1 (blue) over 0 (near white) to 1 (orange), as on the page."""
    values = np.clip(values, -1, 1)[..., None]
    middle, low, high = (np.array(_rgb(color), np.float64) for color in (GRID, BLUE, ORANGE))
    shades = np.where(values < 0, middle + (low - middle) * -values, middle + (high - middle) * values)
    return Image.fromarray(np.round(shades).astype(np.uint8))


def _rgb(color: str) -> tuple[int, ...]:
    return tuple(int(color[i : i + 2], 16) for i in (1, 3, 5))


@lru_cache(64)
def _font(size: float) -> ImageFont.FreeTypeFont | ImageFont.ImageFont:
    return ImageFont.load_default(size)


def _drawable(text: str) -> str:
    """Return text without what the font lacks: accents are dropped, other letters become question marks."""
    if text.isascii() and text.isprintable():
        return text
    plain = "".join(c for c in unicodedata.normalize("NFKD", text) if not unicodedata.combining(c))
    return "".join(c if c.isascii() and c.isprintable() else "?" for c in plain)


def _cut(text: str, font: ImageFont.FreeTypeFont | ImageFont.ImageFont, width: float) -> str:
    if font.getlength(text) <= width:
        return text
    while text and font.getlength(text + "...") > width:
        text = text[:-1]
    return text.rstrip() + "..."
