"""`python -m ablate.catalogue`."""

from ablate.cli.catalogue import renew
from ablate.config.groups import PACKAGE

if __name__ == "__main__":
    renew(PACKAGE.parent / "README.md")
