"""`python -m ablate.diff`."""

from ablate.cli.main import main

if __name__ == "__main__":
    main("diff")
