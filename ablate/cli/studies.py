"""The studies in a results folder: lists and deletes them.

Exit codes: 0 done or shown; 1 something could not be removed; 2 refused, with a one-line message.
"""

import dataclasses
import functools
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from ablate import formatting
from ablate.cli.clean import ORPHANS, STUDIES, Item, in_use, item_of, listing, remove, report, size_of, survey, total
from ablate.cli.status import printable
from ablate.config.errors import Refused
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting.streams import echo, say
from ablate.runs.folder import Run, stamp
from ablate.runs.manifest import choose_study, readable, studies, study_folder
from ablate.runs.progress import Round, base_of, progress, rounds_of, together
from ablate.runs.records import Manifest

FIGURES = "figures"
EVENTS = "tensorboard"
ALONE = "runs of no other study"
LEVELS = 4  # of each factor that the list names
DAY = 86400.0  # seconds
OTHER_WORDS = {"remove": "delete", "rm": "delete"}


def main(arguments: list[str] | None = None) -> int:
    """List studies or act on them; returns the exit code."""
    parser = Parser("ablate studies", "List the studies in the results folder, or delete some.")
    parser.add_argument("words", nargs="*", metavar="ACTION", help="delete NAME ...; without one, the list")
    parser.add_argument("--yes", action="store_true", help="of delete: remove it; without this nothing is touched")
    options = parser.parse_intermixed_args(arguments)
    if options.yes and options.words[:1] != ["delete"]:
        parser.error("--yes goes with delete; leave it out")
    return conclude(parser.prog, options.json, lambda: act(options.results_dir, options.words, options.yes))


def act(results: Path, words: list[str], sure: bool) -> Outcome:
    """Carry out the words of a command.  Raises Refused."""
    if not words:
        return show_list(results)
    action, *names = words
    if action == "delete" and names:
        return delete(results, names, sure)
    near = formatting.nearest(action, ["delete"], OTHER_WORDS)
    if near and near != action:
        raise Refused(f"{' '.join(words)}: did you mean {near}?")
    raise Refused(f"{' '.join(words)}: write delete NAME ...; a study file is trained by ablate +experiment=NAME")


def show_list(results: Path) -> Outcome:
    """Print a line for each study, the newest first."""
    entries: list[dict[str, Any]] = []
    unreadable: list[str] = []
    rows = [("study", "factors", "configurations × seeds", "state", "size", "age")]
    size_of_run = functools.cache(size_of)  # several studies may share a run
    for base, rounds in every(results):
        if isinstance(rounds, Refused):
            unreadable.append(f"{base}: {rounds}")
            continue
        manifest = rounds[-1].manifest
        runs = together(rounds)
        size = sum(size_of_run(folder) for folder in {run.run.folder for run in runs})
        for one_round in rounds:
            size += total(folders_of(results, one_round.manifest.study))
        entries.append(
            {
                "study": base,
                "factors": manifest.factors,
                "cells": len(manifest.cells),
                "seeds": len(manifest.seeds),
                "states": {state: len(those) for state, those in runs.by_state().items()},
                "bytes": size,
                "updated": manifest.updated,
            }
        )
        shape = f"{len(manifest.cells)} × {len(manifest.seeds)}"
        file = study_folder(results, manifest.study) / "manifest.json"
        rows.append((base, factors_text(manifest), shape, progress(runs), decimal(size), age_of(file)))
    echo("\n".join(printable(line) for line in formatting.columns(rows)))
    for line in unreadable:
        say(line)
    return Outcome(0, entries, unreadable)


def factors_text(manifest: Manifest) -> str:
    """Factors with their first levels, as on a command line."""
    words = []
    for key, levels in manifest.factors.items():
        texts = [formatting.show(level) for level in levels[:LEVELS]]
        if len(levels) > LEVELS:
            texts.append("…")
        words.append(f"{key}={','.join(texts)}")
    return " ".join(words)


def age_of(file: Path) -> str:
    """How long ago a file was written."""
    seconds = max(0.0, time.time() - file.stat().st_mtime)
    return f"{seconds / DAY:.0f} days" if seconds >= 2 * DAY else formatting.duration(seconds)


def every(results: Path) -> Iterator[tuple[str, list[Round] | Refused]]:
    """Each study on disk with its rounds, or why they cannot be read; the newest first.  Raises Refused."""
    choose_study(results, None)
    newest = sorted(studies(results), key=lambda name: stamp(study_folder(results, name) / "manifest.json") or (0, 0))
    newest.reverse()
    bases = []
    for name in newest:
        manifest = readable(results, name)
        bases.append(base_of(manifest) if manifest else name)
    for base in dict.fromkeys(bases):
        try:
            yield base, rounds_of(results, base)
        except Refused as error:
            yield base, error


def delete(results: Path, names: list[str], sure: bool) -> Outcome:
    """Show what goes with these studies, and remove it if `sure`: runs first, the studies last, so that the same call
    continues after an interruption."""
    manifests = {name: manifest for name in studies(results) if (manifest := readable(results, name))}
    for name in names:
        if choose_study(results, name) not in manifests:
            raise Refused(f"{study_folder(results, name)} has no manifest that can be read; remove it by hand")
    gone = with_rounds(manifests, names)
    refuse_in_use(results, [manifests[name] for name in gone])
    paths = {run.path for name in gone for run in manifests[name].runs}
    paths_of_others = {run.path for name, manifest in manifests.items() if name not in gone for run in manifest.runs}
    items, untouched = survey(results, without=gone)
    runs = []
    for item in items:
        if item.kind == ORPHANS and item.run and item.run.path in paths:
            runs.append(dataclasses.replace(item, kind=ALONE))
    folders = [folder for name in gone for folder in folders_of(results, name)]
    failed: list[Item] = []
    if sure:
        failed = remove(runs) or remove(folders)
    done = [item for item in [*runs, *folders] if not (sure and item.path.exists())]
    if paths - paths_of_others and not runs:
        later = "when nothing is in use, ablate clean --orphans removes them"
        untouched.append(f"runs of no other study stay for now; {later}")
    lines = listing(results, done, (STUDIES, FIGURES, EVENTS, ALONE), sure)
    return Outcome(1 if failed else 0, {"studies": gone} | report(lines, done, failed, untouched, sure))


def with_rounds(manifests: dict[str, Manifest], names: list[str]) -> list[str]:
    """Studies after the other rounds of their commands, such as tuning, that no other study needs."""
    needed: set[str] = set()
    for name, manifest in manifests.items():
        if name not in names:
            needed.update(manifest.beside().values())
    rounds = []
    for name, manifest in manifests.items():
        if base_of(manifest) in names and name not in names and name not in needed:
            rounds.append(name)
    return [*rounds, *dict.fromkeys(names)]


def refuse_in_use(results: Path, manifests: Iterable[Manifest]) -> None:
    """Raise Refused if a run of these studies is being trained, or one of them lies elsewhere."""
    for manifest in manifests:
        if study_folder(results, manifest.study).is_symlink():
            raise Refused(f"{study_folder(results, manifest.study)} is a link; go to where it leads")
        for path in dict.fromkeys(run.path for run in manifest.runs):
            run = Run(results, path)
            if in_use(run):
                raise Refused(f"{manifest.study} has a run in use, {run.folder}; stop its command, or wait for its end")


def folders_of(results: Path, name: str) -> list[Item]:
    """The folders of a study itself: its figures, its event files and its manifest."""
    items = []
    for kind in (FIGURES, EVENTS, STUDIES):
        path = results / kind / name
        if path.is_dir() and not path.is_symlink():
            items.append(item_of(kind, path))
    return items
