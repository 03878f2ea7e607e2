"""The plain family: agents as PyTorch classes around one recurrent core."""
