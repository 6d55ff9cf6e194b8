"""The studies in a results folder: lists and deletes them.

Exit codes: 0 done or shown; 1 something could not be removed; 2 refused, with a one-line message.
"""

import functools
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from ablate import formatting
from ablate.cli.clean import ORPHANS, STUDIES, Item, in_use, listing, remove, report, size_of, survey, total
from ablate.cli.status import printable
from ablate.config.errors import Refused
from ablate.config.removed import removed
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting.streams import say
from ablate.runs.folder import Run, stamp
from ablate.runs.manifest import choose_study, readable, studies, study_folder
from ablate.runs.progress import Round, base_of, progress, rounds_of, together
from ablate.runs.records import Manifest

FIGURES, EVENTS, ALONE = "figures", "tensorboard", "runs of no other study"
LEVELS = 4  # of each factor that the list names
DAY = 86400.0  # seconds
OTHER_WORDS = {"remove": "delete", "rm": "delete"}


def main(arguments: list[str] | None = None) -> int:
    """List studies or act on them; returns the exit code."""
    parser = Parser("ablate studies", "List the studies in the results folder, or delete some.")
    parser.add_argument("words", nargs="*", metavar="ACTION", help="delete NAME ...; without one, the list")
    parser.add_argument("--yes", action="store_true", help="of delete: remove it; without this nothing is touched")
    given = parser.parse_intermixed_args(arguments)
    if given.yes and given.words[:1] != ["delete"]:
        parser.error("--yes goes with delete; leave it out")
    return conclude(parser.prog, given.json, lambda: act(given.results_dir, given.words, given.yes))


def act(results: Path, words: list[str], sure: bool) -> Outcome:
    """Carry out the words of a command.  Raises Refused."""
    match words:
        case []:
            return show_list(results)
        case ["delete", _, *_]:
            return delete(results, words[1:], sure)
    if gone := removed(f"ablate studies {words[0]}"):
        raise Refused(f"{words[0]} {gone}")
    near = formatting.nearest(words[0], ("delete",), OTHER_WORDS)
    meant = "write delete NAME ...; a study file is trained by ablate +experiment=NAME"
    raise Refused(f"{' '.join(words)}: {f'did you mean {near}?' if near not in (None, words[0]) else meant}")


def show_list(results: Path) -> Outcome:
    """Print a line for each study, the newest first."""
    found, wrong = list[dict[str, Any]](), list[str]()
    rows = [("study", "factors", "configurations × seeds", "state", "size", "age")]
    size = functools.cache(size_of)  # several studies may share a run
    for base, rounds in every(results):
        if isinstance(rounds, Refused):
            wrong.append(f"{base}: {rounds}")
            continue
        manifest, runs = rounds[-1].manifest, together(rounds)
        held = total(item for one in rounds for item in _own(results, one.manifest.study))
        held += sum(map(size, {run.run.folder for run in runs}))
        one = {"study": base, "factors": manifest.factors, "cells": len(manifest.cells), "seeds": len(manifest.seeds)}
        one["states"] = {state: len(those) for state, those in runs.by_state().items()}
        found.append(one | {"bytes": held, "updated": manifest.updated})
        old = time.time() - (study_folder(results, manifest.study) / "manifest.json").stat().st_mtime
        age = f"{old / DAY:.0f} days" if old >= 2 * DAY else formatting.duration(max(0.0, old))
        factors, shape = _factors(manifest.factors, LEVELS), f"{one['cells']} × {one['seeds']}"
        rows.append((base, factors, shape, progress(runs), decimal(held), age))
    print("\n".join(map(printable, formatting.columns(rows))))
    for line in wrong:
        say(line)
    return Outcome(0, found, wrong)


def every(results: Path) -> Iterator[tuple[str, list[Round] | Refused]]:
    """Each study on disk with its rounds, or why they cannot be read; the newest first.  Raises Refused."""
    choose_study(results, None)
    newest = sorted(studies(results), key=lambda name: stamp(study_folder(results, name) / "manifest.json") or (0, 0))
    newest.reverse()
    manifests = {name: readable(results, name) for name in newest}
    bases = [base_of(manifest) if manifest else name for name, manifest in manifests.items()]
    for base in dict.fromkeys(bases):
        try:
            yield base, rounds_of(results, base)
        except Refused as error:
            yield base, error


def delete(results: Path, names: list[str], sure: bool) -> Outcome:
    """Show what goes with these studies, and remove it if `sure`: runs first, the studies last, so that the same call
    continues after an interruption."""
    known = _known(results)
    if torn := [name for name in names if choose_study(results, name) not in known]:
        raise Refused(f"{study_folder(results, torn[0])} has no manifest that can be read; remove it by hand")
    beside = {other for name, each in known.items() if name not in names for other in each.beside().values()}
    rounds = [name for name in known if base_of(known[name]) in names and name not in {*names, *beside}]
    gone = [*rounds, *dict.fromkeys(names)]
    _refuse_in_use(results, (known[name] for name in gone))
    theirs = {run.path for name in gone for run in known[name].runs}
    found, untouched = survey(results, without=gone)
    orphans = [item for item in found if item.kind == ORPHANS and item.run and item.run.path in theirs]
    runs = [item._replace(kind=ALONE) for item in orphans]
    own = [item for name in gone for item in _own(results, name)]
    left = (remove(runs) or remove(own)) if sure else []
    done = [item for item in [*runs, *own] if not (sure and item.path.exists())]
    lines = listing(results, done, (STUDIES, FIGURES, EVENTS, ALONE), sure)
    later = "runs of no other study stay for now; when nothing is in use, ablate clean --orphans removes them"
    others = {run.path for name, each in known.items() if name not in gone for run in each.runs}
    untouched += [later] * bool(theirs - others and not runs)
    return Outcome(1 if left else 0, {"studies": gone} | report(lines, done, left, untouched, sure))


def _known(results: Path) -> dict[str, Manifest]:
    """The readable manifests in a results folder, by the name of their study."""
    return {name: found for name in studies(results) if (found := readable(results, name))}


def _refuse_in_use(results: Path, manifests: Iterable[Manifest]) -> None:
    """Raise Refused if a run of these studies is being trained, or one of them lies elsewhere."""
    for manifest in manifests:
        if study_folder(results, manifest.study).is_symlink():
            raise Refused(f"{study_folder(results, manifest.study)} is a link; go to where it leads")
        for path in dict.fromkeys(run.path for run in manifest.runs):
            if in_use(run := Run(results, path)):
                raise Refused(f"{manifest.study} has a run in use, {run.folder}; stop its command, or wait for its end")


def _own(results: Path, name: str) -> list[Item]:
    """The folders of a study itself: its figures, its event files and its manifest."""
    folders = {kind: results / kind / name for kind in (FIGURES, EVENTS, STUDIES)}
    there = {kind: path for kind, path in folders.items() if path.is_dir() and not path.is_symlink()}
    return [Item(kind, path, size_of(path)) for kind, path in there.items()]


def _factors(factors: dict[str, list[Any]], most: int | None = None) -> str:
    """Factors with their levels, as on a command line; of each factor at most so many."""
    shown = {key: [formatting.show(level) for level in levels] for key, levels in factors.items()}
    return " ".join(f"{key}={','.join(all[:most])}{',…' * (len(all) > len(all[:most]))}" for key, all in shown.items())
