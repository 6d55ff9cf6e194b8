"""Figures, findings and gallery of the committed studies, from their tables in `experiments/results/`.

    make figures
    PYTHONPATH=tools python -m gallery [CHECKOUT]

Files that are up to date stay as they are, so a second call does nothing.
Exit codes: 0 everything is up to date; 2 a study or a page is damaged, and nothing was written.
"""

import argparse
import sys
from pathlib import Path

from ablate import formatting
from ablate.config.errors import Refused
from ablate.config.subcommands import Outcome, conclude
from gallery.write import write

COMMAND = "make figures"


def main(arguments: list[str] | None = None) -> int:
    """Write all files that are out of date; returns the exit code."""
    parser = argparse.ArgumentParser(description="Figures, findings and gallery of committed studies.")
    here = Path(__file__).resolve().parents[2]
    meaning = "with experiments/, docs/ and README.md (default: this one)"
    parser.add_argument("root", nargs="?", metavar="CHECKOUT", type=Path, default=here, help=meaning)
    root = parser.parse_args(arguments).root
    return conclude(COMMAND, False, lambda: update(root))


def update(root: Path) -> Outcome:
    """Write what is out of date in a checkout, and print it.  Raises `Refused` and `Corrupt`."""
    if not (root / "experiments").is_dir():
        raise Refused(f"{root} is no checkout: it has no folder experiments")
    changes = write(root)
    for word, files in (("wrote", changes.written), ("removed", changes.removed)):
        print("".join(f"{word} {file}\n" for file in files), end="")
    print(f"{formatting.counted(changes.files, 'file')}, {len(changes.written)} of them written anew")
    return Outcome(0)


if __name__ == "__main__":
    sys.exit(main())
