"""Layers shared by the plain and the component family. One implementation each, so that both compute the same."""
