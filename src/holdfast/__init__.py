"""Holdfast trains recurrent policies with PPO over many environments, and audits recurrent policies for state bugs."""

__version__ = "0.1.0"
