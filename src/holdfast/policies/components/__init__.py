"""The component family: agents as graphs of named components, written in YAML."""
