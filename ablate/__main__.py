"""`python -m ablate`, the command `ablate`."""

from ablate.cli.main import main
from ablate.format.streams import exit_with

if __name__ == "__main__":
    exit_with(main)
