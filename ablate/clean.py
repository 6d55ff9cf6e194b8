"""`python -m ablate.clean`."""

from ablate.cli.main import main

if __name__ == "__main__":
    main("clean")
