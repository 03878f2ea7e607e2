"""Colours and type of every page that Holdfast writes or serves."""

from pathlib import Path

LOOK_CSS = Path(__file__).with_name("look.css")
