"""ablate analyse gallery [FOLDER]: figures, findings and gallery of the committed studies, from their tables.

Reads experiments/results/*/ of a checkout.  Files that are up to date stay as they are, so a second call does nothing.
Exit codes: 0 everything is up to date; 2 a study or a page is damaged, and nothing was written.
"""

import argparse
from pathlib import Path

from ablate import formatting
from ablate.config.errors import Refused
from ablate.config.groups import CHECKOUT, PACKAGE
from ablate.config.subcommands import Outcome, PlainParser, conclude


def main(arguments: list[str] | None = None) -> int:
    """Write all files that are out of date; returns the exit code."""
    parser = PlainParser("ablate analyse gallery", "Figures, findings and gallery of committed studies.")
    meaning = "a checkout, with experiments/, docs/ and README.md (default: the one that this command is of)"
    parser.add_argument("folder", nargs="?", metavar="FOLDER", type=Path, help=meaning)
    given = parser.parse_args(arguments)
    return conclude(parser.prog, given.json, lambda: _gallery(given))


def _gallery(given: argparse.Namespace) -> Outcome:
    if given.folder is None and not CHECKOUT:
        raise Refused("an installed package has no experiments/; name a checkout")
    root = given.folder or PACKAGE.parent
    if not (root / "experiments").is_dir():
        raise Refused(f"{root} is no checkout: it has no folder experiments")
    from analysis.gallery.write import write  # slow to import, and not needed for error messages

    changes = write(root)
    for word, files in (("wrote", changes.written), ("removed", changes.removed)):
        print("".join(f"{word} {file}\n" for file in files), end="")
    print(f"{formatting.counted(changes.files, 'file')}, {len(changes.written)} of them written anew")
    return Outcome(0, changes)
