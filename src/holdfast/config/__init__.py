"""Typed settings, their limits, and how key=value words become them."""
