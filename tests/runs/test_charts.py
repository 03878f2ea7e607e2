"""The picture: well-formed SVG with every curve and its label, inside the plot, whatever the names and values are."""

import re
import xml.etree.ElementTree as ET

import pytest

from holdfast.runs.charts import DARK, DASHES, LEFT, LIGHT, PLOT, RIGHT, TOP, WIDTH, Line, draw_curves, ticks
from holdfast.runs.curves import Curve

SVG = "{http://www.w3.org/2000/svg}"


def drawn(lines, metric="episode_return"):
    return ET.fromstring(draw_curves("a title", metric, lines))


def curve(values, last=1000):
    return Curve([(i + 1) * last // len(values) for i in range(len(values))], values, last)


def curves_in(root):
    """The lines in the plot; those of the legend have two points below it."""
    found = []
    for line in root.iter(f"{SVG}polyline"):
        points = [tuple(map(float, point.split(","))) for point in line.get("points").split()]
        if points[0][1] <= TOP + PLOT:
            found.append((line, points))
    return found


def test_curves_are_where_their_values_are():
    root = drawn([Line("a", curve([0.0, 10.0])), Line("b", curve([5.0] * 4, last=500))])
    (_, b), (_, a) = curves_in(root)  # the first is drawn last, on top
    assert a[1][0] == WIDTH - RIGHT
    assert b[-1][0] == pytest.approx(LEFT + (WIDTH - LEFT - RIGHT) / 2)
    assert a[0][1] > b[0][1] > a[1][1], "higher values are further up"
    assert all(TOP <= y <= TOP + PLOT for _, points in curves_in(root) for _, y in points)
    texts = [text.text for text in root.iter(f"{SVG}text")]
    assert {"a title", "agent steps", "episode_return", "a", "b"} <= set(texts)


def test_runs_of_a_mean_are_drawn_thinly():
    root = drawn([Line("mean", curve([1.0, 2.0]), [curve([0.0, 1.0]), curve([2.0, 3.0])])])
    opacities = [line.get("opacity") for line, _ in curves_in(root)]
    assert opacities == ["0.35", "0.35", None]


def test_names_are_text_whatever_they_are():
    names = ['<script>"&', "a\x1b[31m\u202e", "x" * 5000, "é日本"]
    text = draw_curves(names[0], names[1], [Line(name, curve([1.0, 2.0])) for name in names])
    root = ET.fromstring(text)
    assert all(c.isprintable() or c == "\n" for c in text)
    assert len(list(root.iter(f"{SVG}script"))) == 0
    assert max(len(t.text or "") for t in root.iter(f"{SVG}text")) <= 110


def test_many_curves_have_kinds_of_their_own_and_the_rest_is_grey():
    root = drawn([Line(f"run {i}", curve([float(i), i + 1.0])) for i in range(30)])
    kinds = [(line.get("class"), line.get("stroke-dasharray")) for line, _ in curves_in(root)]
    assert len(set(kinds) - {("other", None)}) == len(LIGHT) * len(DASHES) == 24
    assert kinds.count(("other", None)) == 6
    assert "6 more" in [text.text for text in root.iter(f"{SVG}text")]


@pytest.mark.parametrize("values", [[], [3.0], [3.0, 3.0], [-1e9, 1e9], [1e-9, 2e-9], [0.0, 0.0]])
def test_any_values(values):
    root = drawn([Line("a", curve(values) if values else Curve([], [], 0))])
    numbers = re.findall(r'[xyr]\d?="(-?[\d.e+]+|nan|inf)"', ET.tostring(root).decode())
    assert numbers
    assert all(-100 <= float(number) <= 2000 for number in numbers)
    assert drawn([]) is not None


def test_long_curves_are_thinned():
    text = draw_curves("t", "m", [Line("a", curve([float(i % 7) for i in range(100_000)], last=10**6))])
    assert len(text) < 20_000


def test_light_and_dark_pages_are_legible():
    """Every colour has a contrast of at least 3 to its page, as WCAG asks for graphics."""

    def luminance(colour):
        parts = [int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)]
        linear = [x / 12.92 if x <= 0.03928 else ((x + 0.055) / 1.055) ** 2.4 for x in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    def contrast(one, two):
        low, high = sorted((luminance(one), luminance(two)))
        return (high + 0.05) / (low + 0.05)

    assert all(contrast(colour, "#ffffff") >= 3 for colour in LIGHT)
    assert all(contrast(colour, "#14171a") >= 3 for colour in DARK)
    assert len(LIGHT) == len(DARK)


def test_ticks():
    assert ticks(0, 100, 5) == [0, 20, 40, 60, 80, 100]
    assert ticks(-0.3, 0.3, 6) == pytest.approx([-0.3, -0.2, -0.1, 0, 0.1, 0.2, 0.3])
    assert ticks(0, 300_000, 6) == [0, 50_000, 100_000, 150_000, 200_000, 250_000, 300_000]
