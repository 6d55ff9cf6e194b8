"""`python -m ablate.evaluate`."""

from ablate.cli.main import main

if __name__ == "__main__":
    main("evaluate")
