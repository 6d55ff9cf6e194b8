"""From a command line to a checked plan: cells, seeds, runs, and what is done already."""
