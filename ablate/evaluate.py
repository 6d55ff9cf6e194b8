"""`python -m ablate.evaluate`."""

from ablate.cli.evaluate import main as main
from ablate.format.streams import exit_with

if __name__ == "__main__":
    exit_with(main)
