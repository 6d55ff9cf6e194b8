"""`python -m ablate.sync`."""

from ablate.cli.main import main

if __name__ == "__main__":
    main("sync")
