"""`python -m ablate.studies`."""

from ablate.cli.main import exit_after_training
from ablate.cli.studies import main as main

if __name__ == "__main__":
    exit_after_training(main)
