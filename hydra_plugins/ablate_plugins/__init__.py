"""Hydra's doors into `ablate`: a sweeper that plans a study and a launcher for one machine."""
