"""One file per world, with its settings and rules. New files in this folder are found automatically.

These files are imported to read settings, so they import gymnasium, mettagrid and numpy only inside functions.
"""
