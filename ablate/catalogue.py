"""`python -m ablate.catalogue`."""

import sys

from ablate.cli.catalogue import main as main

if __name__ == "__main__":
    sys.exit(main())
