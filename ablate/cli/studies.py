"""The studies in a results folder: lists and deletes them.

Exit codes: 0 done or shown; 1 something could not be removed; 2 refused, with a one-line message.
"""

import dataclasses
import functools
from pathlib import Path
from typing import Any

from rich.filesize import decimal

from ablate import formatting
from ablate.cli.clean import ORPHANS, Item, item_of, remove, report, size_of, survey
from ablate.cli.status import one_line
from ablate.config.errors import Refused
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting.streams import echo, say
from ablate.runs.folder import Run
from ablate.runs.manifest import choose_study, readable, studies, study_folder
from ablate.runs.progress import base_of, progress, rounds_of, together
from ablate.runs.records import Manifest

FOLDERS = ("figures", "tensorboard", "studies")  # of a study, in the order in which they are removed
ALONE = "runs of no other study"
LEVELS = 4  # of each factor that the list names


def main(arguments: list[str] | None = None) -> int:
    """List studies or delete some; returns the exit code."""
    parser = Parser("ablate studies", "List the studies in the results folder, or delete some.")
    parser.add_argument("action", nargs="?", choices=["delete"], metavar="delete", help="without it, the list")
    parser.add_argument("names", nargs="*", metavar="NAME", help="the studies to delete")
    parser.add_argument("--yes", action="store_true", help="of delete: remove it; without this nothing is touched")
    options = parser.parse_intermixed_args(arguments)
    if options.action and not options.names:
        parser.error("delete: which one? write delete NAME ...")
    if options.action:
        return conclude(parser.prog, options.json, lambda: delete(options.results_dir, options.names, options.yes))
    if options.yes:
        parser.error("--yes goes with delete; leave it out")
    return conclude(parser.prog, options.json, lambda: show_list(options.results_dir))


def show_list(results: Path) -> Outcome:
    """Print a line for each study, the newest first.  Raises Refused."""
    choose_study(results, None)
    entries: list[dict[str, Any]] = []
    unreadable: list[str] = []
    rows = [("study", "factors", "configurations × seeds", "state", "size")]
    size_of_run = functools.cache(size_of)  # several studies may share a run
    for base in newest_first(results):
        try:
            rounds = rounds_of(results, base)
        except Refused as error:
            unreadable.append(f"{base}: {error}")
            continue
        manifest = rounds[-1].manifest
        runs = together(rounds)
        size = sum(size_of_run(folder) for folder in {run.run.folder for run in runs})
        for one_round in rounds:
            size += sum(item.size for item in folders_of(results, one_round.manifest.study))
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
        rows.append((base, factors_text(manifest), shape, progress(runs), decimal(size)))
    echo("\n".join(one_line(line) for line in formatting.columns(rows)))
    for line in unreadable:
        say(line)
    return Outcome(0, entries, unreadable)


def newest_first(results: Path) -> list[str]:
    """The studies on disk, without the rounds of others, by when their manifests were last written."""
    times: dict[str, float] = {}
    for name in studies(results):
        manifest = readable(results, name)
        base = base_of(manifest) if manifest else name
        written = (study_folder(results, name) / "manifest.json").stat().st_mtime
        times[base] = max(written, times.get(base, 0.0))
    return sorted(times, key=lambda base: times[base], reverse=True)


def factors_text(manifest: Manifest) -> str:
    """Factors with their first levels, as on a command line."""
    words = []
    for key, levels in manifest.factors.items():
        texts = [formatting.show(level) for level in levels[:LEVELS]]
        if len(levels) > LEVELS:
            texts.append("…")
        words.append(f"{key}={','.join(texts)}")
    return " ".join(words)


def delete(results: Path, names: list[str], sure: bool) -> Outcome:
    """Show what goes with these studies, and remove it if `sure`: runs first, the studies last, so that the same call
    continues after an interruption.  While other runs are in use or another study is unreadable, runs are spared: they
    become orphans, which `ablate clean` removes later.  Raises Refused."""
    manifests = {name: manifest for name in studies(results) if (manifest := readable(results, name))}
    for name in names:
        if choose_study(results, name) not in manifests:
            raise Refused(f"{study_folder(results, name)} has no manifest that can be read; remove it by hand")
    deleted = with_rounds(manifests, names)
    paths: set[str] = set()
    for name in deleted:
        refuse_in_use(results, manifests[name])
        paths.update(run.path for run in manifests[name].runs)
    items, untouched = survey(results, without=deleted)
    runs = []
    for item in items:
        if item.kind == ORPHANS and item.run and item.run.path in paths:
            runs.append(dataclasses.replace(item, kind=ALONE))
    folders = [folder for name in deleted for folder in folders_of(results, name)]
    if sure:
        were_removed = [remove(run) for run in runs]
        if all(were_removed):
            for folder in folders:
                remove(folder)
    return report(results, [*runs, *folders], sure, untouched, studies=deleted)


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


def refuse_in_use(results: Path, manifest: Manifest) -> None:
    """Raise Refused if a run of a study is being trained, or the study lies elsewhere."""
    folder = study_folder(results, manifest.study)
    if folder.is_symlink():
        raise Refused(f"{folder} is a link; go to where it leads")
    for path in dict.fromkeys(run.path for run in manifest.runs):
        run = Run(results, path)
        if run.holder() is not None:
            raise Refused(f"{manifest.study} has a run in use, {run.folder}; stop its command, or wait for its end")


def folders_of(results: Path, name: str) -> list[Item]:
    """The folders of a study itself: its figures, its event files and its manifest."""
    items = []
    for kind in FOLDERS:
        path = results / kind / name
        if path.is_dir() and not path.is_symlink():
            items.append(item_of(kind, path))
    return items
