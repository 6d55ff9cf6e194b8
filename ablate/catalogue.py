"""`python -m ablate.catalogue`."""

from ablate.cli.main import main

if __name__ == "__main__":
    main("catalogue")
