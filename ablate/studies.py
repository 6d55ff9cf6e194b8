"""`python -m ablate.studies`."""

from ablate.cli.main import main

if __name__ == "__main__":
    main("studies")
