"""Writes the King James Bible of Debian's package bible-kjv, a file per chapter, for the studies of a second corpus.

apt-get install bible-kjv && python tools/write_king_james.py king_james
"""

import argparse
import subprocess
from pathlib import Path

ALL = "gen1:1-rev22:21"


def main() -> None:
    """Write the chapters into a folder."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("folder", type=Path)
    folder = parser.parse_args().folder
    printed = subprocess.run(["bible", "-f", ALL], capture_output=True, text=True, check=True).stdout
    chapters: dict[str, list[str]] = {}
    for line in printed.splitlines():
        reference, verse = line.split(" ", 1)  # Ge1:2 And the earth was without form
        chapters.setdefault(reference.partition(":")[0], []).append(verse)
    folder.mkdir(parents=True, exist_ok=True)
    for chapter, verses in chapters.items():
        (folder / f"{chapter}.txt").write_text("\n".join(verses) + "\n", encoding="utf-8")
    print(f"{len(chapters)} chapters in {folder}")


if __name__ == "__main__":
    main()
