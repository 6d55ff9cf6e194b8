"""`python -m analysis`."""

from ablate.format.streams import exit_with
from analysis.cli.main import main

if __name__ == "__main__":
    exit_with(main)
