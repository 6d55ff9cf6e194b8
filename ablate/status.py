"""`python -m ablate.status`."""

from ablate.cli.main import main

if __name__ == "__main__":
    main("status")
