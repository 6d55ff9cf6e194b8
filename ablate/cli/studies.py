"""The studies in a results folder: lists, renames, deletes and compares them.

Exit codes: 0 done or shown; 1 something could not be removed; 2 refused, with a one-line message.
"""

import dataclasses
import functools
import shlex
import shutil
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pandas
from rich.filesize import decimal

from ablate import evidence, formatting
from ablate.cli.clean import ORPHANS, STUDIES, Item, in_use, listing, remove, report, size_of, survey, total
from ablate.cli.diff import Row, describe, study_differences
from ablate.cli.status import every, printable
from ablate.cli.summary import effect_words
from ablate.config.errors import Refused
from ablate.config.key_checks import wrong_name
from ablate.config.overrides import quoted
from ablate.config.subcommands import Outcome, Parser, conclude
from ablate.formatting.streams import say
from ablate.results.manifest import choose_study, manifest_of, readable, refusing, studies, study_folder, write_manifest
from ablate.results.progress import ROUNDS, base_of, progress, together
from ablate.results.records import Manifest
from ablate.results.run import Run
from ablate.results.study import load_study
from ablate.results.tables import named_rows

FIGURES, EVENTS, ALONE = "figures", "tensorboard", "runs of no other study"
LEVELS = 4  # of each factor that the list names
DAY = 86400.0  # seconds
ACTIONS = "rename OLD NEW, delete NAME ..., or compare A B"
OTHER_WORDS = {"remove": "delete", "rm": "delete", "move": "rename", "mv": "rename", "diff": "compare"}


def main(arguments: list[str] | None = None) -> int:
    """List studies or act on them; returns the exit code."""
    parser = Parser("ablate studies", "List the studies in the results folder, or rename, delete or compare them.")
    parser.add_argument("words", nargs="*", metavar="ACTION", help=f"{ACTIONS}; without one, the list")
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
        case ["rename", old, new]:
            return rename(results, old, new)
        case ["delete", _, *_]:
            return delete(results, words[1:], sure)
        case ["compare", first, second]:
            return compare(results, first, second)
    near = formatting.nearest(words[0], ("rename", "delete", "compare"), OTHER_WORDS)
    meant = f"write {ACTIONS}; a study file is trained by ablate +experiment=NAME"
    raise Refused(f"{' '.join(words)}: {f'did you mean {near}?' if near not in (None, words[0]) else meant}")


def show_list(results: Path) -> Outcome:
    """Print a line for each study, the newest first."""
    found, wrong = list[dict[str, Any]](), list[str]()
    rows = [("study", "factors", "cells × seeds", "state", "size", "age")]
    size = functools.cache(size_of)  # several studies may share a run
    for base, rounds in reversed([*every(results)]):
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


def rename(results: Path, old: str, new: str) -> Outcome:
    """Rename a study and the studies named after it.  If this is interrupted, the same call continues: the new studies
    are written first, the old ones are removed when all are there."""
    known = _known(results)
    names = {name: _renamed(name, old, new) for name in known if _root(known, name) == old}
    members = sorted((name for name in names if name != names[name]), key=lambda name: name != old)
    if not members:
        manifest_of(results, choose_study(results, old))
        raise Refused(f"{old} goes with {_root(known, old)}; rename that" if old != new else f"{old} is its name")
    if wrong := wrong_name(new):
        raise Refused(wrong)
    _refuse_in_use(results, (known[name] for name in members))
    with refusing(study_folder(results, old)):  # of a command that is none
        renamed = {name: _with_names(known[name], old, new) for name in members}
    there = studies(results)
    if taken := [names[name] for name in members if names[name] in there and known.get(names[name]) != renamed[name]]:
        raise Refused(f"there is a study {taken[0]} already; write another name, or delete it first")
    for name in reversed(members):  # the study itself last
        folder = study_folder(results, names[name])
        folder.mkdir(exist_ok=True)
        for file in study_folder(results, name).iterdir():
            if file.is_file() and file.name not in ("manifest.json", "lock", "mirror.jsonl", "dashboard.json"):
                shutil.copy2(file, folder)
            elif file.is_dir():  # somebody's notes, say
                shutil.copytree(file, folder / file.name, dirs_exist_ok=True)
        write_manifest(results, renamed[name])
        shutil.copystat(study_folder(results, name) / "manifest.json", folder / "manifest.json")  # its age stays
        for own in (FIGURES, EVENTS):
            if (results / own / name).is_dir() and not (results / own / names[name]).exists():
                (results / own / name).rename(results / own / names[name])
    left = remove([Item(STUDIES, study_folder(results, name), 0) for name in members])
    print(f"renamed {', '.join(f'{name} to {names[name]}' for name in members)}")
    if any(cell.config.is_private for cell in known[members[0]].cells):
        say("its runs belong to the old name (reuse=none or timing=isolated): continuing it would train them again")
    for name in there:
        if name.startswith(f"{old}-") and name not in known:
            say(f"{name} keeps its name, as its manifest cannot be read")
    for item in left:
        say(f"not removed: {item.path}; the same command again removes it")
    return Outcome(1 if left else 0, {"renamed": {name: names[name] for name in members}})


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


def compare(results: Path, first: str, second: str) -> Outcome:
    """Print how the settings of two studies differ, and their effects side by side."""
    both, tables = [], []
    for name in (first, second):
        with refusing(study_folder(results, choose_study(results, name))):
            both.append(load_study(results, name, curves=False))
            tables.append(evidence.headline(evidence.effects(both[-1])))
    manifests = [study.manifest for study in both]
    facts = {"factors": [_factors(each.factors) for each in manifests]}
    facts["seeds"] = [formatting.ranged([*map(str, each.seeds)]) for each in manifests]
    facts["metric"] = [evidence.endpoint(each) for each in manifests]
    rows = [Row("study", name, a, b) for name, (a, b) in facts.items() if a != b] + study_differences(*manifests)
    effects = [{row.label: row for row in named_rows(table)} for table in tables]
    places = formatting.decimals((pandas.concat(tables)["high"] - pandas.concat(tables)["low"]) / 2)
    told, lines = [], list[tuple[str, ...]]()
    for label in dict.fromkeys(label for each in effects for label in each):
        found = [each.get(label) for each in effects]
        a, b = (row and {key: getattr(row, key) for key in ("mean", "low", "high", "n", "verdict")} for row in found)
        told.append({"label": label, "a": a, "b": b})
        for side, row in zip("AB", found, strict=True):
            words = effect_words(row, places) if row else ("not in this study", "", "")
            lines.append((label * (side == "A"), side, *words))
    shown = [f"A  {first}", f"B  {second}", *(describe(rows) or ["the same settings"])]
    shown += ["effects, each study's simultaneous 95 % intervals", *(f"  {line}" for line in formatting.columns(lines))]
    shown.append("no test of a difference: verdicts can differ where effects are equal")
    print("\n".join(shown if lines else shown[:-2]))
    notes = [f"{study.manifest.study}: {note}" for study in both for note in study.notes]
    for note in notes:
        say(note)
    return Outcome(0, {"a": first, "b": second, "differences": rows, "effects": told}, notes)


def _known(results: Path) -> dict[str, Manifest]:
    """The readable manifests in a results folder, by the name of their study."""
    return {name: found for name in studies(results) if (found := readable(results, name))}


def _root(known: dict[str, Manifest], name: str) -> str:
    """The study that another one is a round or a confirmation of, directly or not; else itself."""
    seen = set[str]()
    while name in known and name not in seen:
        seen.add(name)
        above = base_of(known[name])
        name = above if above != name else known[name].confirms or name
    return name


def _renamed(name: str, old: str, new: str) -> str:
    """A study's name, after `old` was renamed, if it is that one or begins with it."""
    return new + name.removeprefix(old) if name == old or name.startswith(f"{old}-") else name


def _with_names(manifest: Manifest, old: str, new: str) -> Manifest:
    """The manifest of a study, or of one named after it, after it was renamed; its command gives the new name."""
    words = [word for word in shlex.split(manifest.command) if not word.startswith("study=")]
    keys = [key for key in ("study", *ROUNDS, "confirms", "exchange") if getattr(manifest, key)]
    names: dict[str, Any] = {key: _renamed(getattr(manifest, key), old, new) for key in keys}
    return dataclasses.replace(manifest, command=shlex.join([*words, f"study={quoted(new)}"]), **names)


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
