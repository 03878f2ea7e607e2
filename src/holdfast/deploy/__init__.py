"""A trained agent outside of its run folder."""
