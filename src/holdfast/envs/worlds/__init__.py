"""One file per world: its settings, and how it is built. A new file here is found without being listed anywhere.

These files are imported to read settings, so they import gymnasium, mettagrid and numpy only inside functions.
"""
