"""Layers that both families of agents are built from. Each has one implementation, so that the families cannot differ."""
