"""Hydra's door into `ablate`: a launcher for one machine."""
