"""Holdfast trains agents that have to remember, and keeps every agent's memory straight by construction."""

__version__ = "0.1.0"
