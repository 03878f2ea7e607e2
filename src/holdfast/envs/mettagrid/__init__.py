"""MettaGrid games as worlds. The games are in `envs/worlds/`; `api` imports mettagrid, when a game is built."""
