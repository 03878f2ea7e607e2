"""Layers that agents of both families are made of: one implementation each, so that the families cannot drift apart."""
