"""python -m analysis [STUDY]: figures and tables of a study, the newest by default.

Exit codes: 0 written; 2 nothing to analyse, or nowhere to write, said in one line.
"""

from __future__ import annotations

import sys
from pathlib import Path

from ablate import words
from ablate.command import Parser, Refused
from ablate.results import Study
from analysis import figures, report, tables, text
from analysis.case import case_of
from analysis.load import read


def main(arguments: list[str] | None = None) -> int:
    """Analyse one study; the exit code."""
    parser = Parser("python -m analysis", "Figures and tables of a study.")
    parser.add_argument("study", nargs="?", metavar="STUDY", help="its name; without one the newest")
    given = parser.parse_args(arguments)
    try:
        _analyse(read(given.results_dir, given.study), given.results_dir)
    except Refused as error:
        print(f"{parser.prog}: {error}", file=sys.stderr)
        return 2
    except OSError as error:
        print(f"{parser.prog}: cannot write {error.filename}: {error.strerror}", file=sys.stderr)
        return 2
    return 0


def _analyse(study: Study, results: Path) -> None:
    folder = results / "figures" / study.manifest["study"]
    folder.mkdir(parents=True, exist_ok=True)
    case = case_of(results, study)
    table = case.effects
    files = [*figures.write(case, folder), *tables.write(case, folder), *text.write(case, folder)]
    for file in [*files, *report.write(case, folder)]:
        print(file)
    places = words.decimals((table["high"] - table["low"]) / 2)
    for row in table[table["family"]].itertuples():
        print(f"{row.label}  {words.span(row.mean, row.low, row.high, places)}  {words.verdict(row)}")
    print("\n".join(tables.remarks(study)), end="\n" * bool(tables.remarks(study)))


if __name__ == "__main__":
    sys.exit(main())
