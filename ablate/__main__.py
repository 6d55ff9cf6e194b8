"""`python -m ablate`, the command `ablate`."""

from ablate.cli.main import main

if __name__ == "__main__":
    main()
