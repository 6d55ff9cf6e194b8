"""`python -m ablate.catalogue`."""

from ablate.cli.catalogue import main as main
from ablate.format.streams import exit_with

if __name__ == "__main__":
    exit_with(main)
