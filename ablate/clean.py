"""Frees space in a results folder: says what it would remove, and removes it with --yes alone.

    python -m ablate.clean [--yes] [--weights] [--orphans] [--cache] [--results-dir DIR]

Removes what nothing needs: checkpoints of ended runs, leftovers of interrupted writes, files set aside as corrupt, unit
files of studies with nothing left to do.  Runs that are being trained and studies that cannot be read stay untouched.
Exit codes: 0 shown or removed; 1 something could not be removed; 2 there is no results folder.
"""

from __future__ import annotations

from pathlib import Path

from ablate.command import Parser, conclude
from ablate.litter import ALWAYS, CACHE, ORPHANS, WEIGHTS, Item, look, remove
from ablate.streams import exit_with

ASKED = {
    ORPHANS: "--orphans removes them: their results, too, are lost",
    WEIGHTS: "--weights removes them: such runs cannot be tested at new lengths any more, nor their models loaded",
    CACHE: "--cache removes them: they are made again when a study needs them",
}
NAMED = 3  # things of a kind that are spelled out
UNITS = ("bytes", "kB", "MB", "GB", "TB")


def main(arguments: list[str] | None = None) -> int:
    """Show, or remove; the exit code."""
    parser = Parser("python -m ablate.clean", "Free space: shows what it would remove; --yes removes it.")
    parser.add_argument("--yes", action="store_true", help="remove it; without this nothing is touched")
    parser.add_argument("--weights", action="store_true", help="trained weights, too: no tests at new lengths then")
    parser.add_argument("--orphans", action="store_true", help="runs that no study refers to, too, with their results")
    parser.add_argument("--cache", action="store_true", help="tokenised corpora, too")
    given = parser.parse_args(arguments)
    asked = {WEIGHTS: given.weights, ORPHANS: given.orphans, CACHE: given.cache}
    kinds = [*ALWAYS, *(kind for kind, wanted in asked.items() if wanted)]
    return conclude(parser.prog, lambda: clean(given.results_dir, kinds, given.yes))


def clean(results: Path, kinds: list[str], sure: bool) -> int:
    """Show what there is of these kinds and of others, and remove these where `sure`; the exit code."""
    found = look(results)
    chosen = [item for item in found.items if item.kind in kinds]
    whole = {item.path for item in chosen if item.kind == ORPHANS}
    chosen = [item for item in chosen if item.path in whole or not whole.intersection(item.path.parents)]
    left = remove(chosen) if sure else []
    gone = [item for item in chosen if item not in left]
    lines = [f"{results}: {'removed' if sure else 'would remove'} {human(gone) if gone else 'nothing'}"]
    lines += [line for kind in kinds for line in _kind([item for item in gone if item.kind == kind], results)]
    for kind, how in ASKED.items():
        some = [item for item in found.items if item.kind == kind and kind not in kinds]
        where = f" in {some[0].path.parent}" if some and kind == CACHE else ""
        lines += [f"kept: {kind}{where}: {len(some)}, {human(some)}; {how}"] if some else []
    lines += [f"not removed, in use or not writable: {item.path}" for item in left]
    lines += [f"untouched: {reason}" for reason in found.untouched]
    print("\n".join(lines + ["nothing was removed; add --yes to remove it"] * bool(gone and not sure)))
    return 1 if left else 0


def human(items: list[Item]) -> str:
    """The size of things in words: 612 bytes, 1.2 GB."""
    size, unit = float(sum(item.size for item in items)), 0
    while size >= 999.5 and unit < len(UNITS) - 1:
        size, unit = size / 1000, unit + 1
    return f"{size:.1f} {UNITS[unit]}" if unit and size < 99.95 else f"{size:.0f} {UNITS[unit]}"


def _kind(items: list[Item], results: Path) -> list[str]:
    if not items:
        return []
    paths = [item.path.relative_to(results) if results in item.path.parents else item.path for item in items]
    lines = [f"  {items[0].kind}: {len(items)}, {human(items)}", *(f"    {path}" for path in paths[:NAMED])]
    return lines + [f"    and {len(paths) - NAMED} more"] * (len(paths) > NAMED)


if __name__ == "__main__":
    exit_with(main)
