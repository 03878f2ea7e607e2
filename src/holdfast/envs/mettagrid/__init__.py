"""MettaGrid games as worlds. The games are in `envs/worlds/`; mettagrid is imported (by `api`) when a game is built."""
