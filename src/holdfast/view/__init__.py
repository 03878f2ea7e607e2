"""See what an agent remembers: pages, pictures, and a local server of runs."""
