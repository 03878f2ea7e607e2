"""Sweeps: many runs of one command, over lists and ranges of values. Each run is a process and an ordinary run folder."""
