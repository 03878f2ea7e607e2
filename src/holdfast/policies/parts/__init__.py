"""Layers shared by plain and component policies. Each is implemented once, so that both compute the same results."""
