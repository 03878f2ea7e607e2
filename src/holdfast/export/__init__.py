"""Export a trained agent to be used without Holdfast."""
