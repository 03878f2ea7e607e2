"""The plain family: agents written in PyTorch around one recurrent core."""
