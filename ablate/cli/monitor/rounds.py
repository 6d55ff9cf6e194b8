"""Where a study stands, in words: its rounds on disk, what runs, what failed, what it does not compare."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from ablate.cli.monitor.state import STATES, Runs, runs_of
from ablate.cli.monitor.view import printable, table
from ablate.config.errors import Corrupt, first_line
from ablate.config.groups import groups
from ablate.formatting import counted
from ablate.results.choose import manifest_of, refusing, studies
from ablate.results.manifest import read_manifest, study_folder
from ablate.results.records import Manifest

NAMED = 4  # failed and damaged runs that are spelled out
ROUNDS = {
    "tunes": "tuning",
    "placebo_of": "placebos",
    "exchange_of": "exchange runs",
}  # key of a manifest that names the study it belongs to


class Round(NamedTuple):
    """A study on disk and what it is to the one that was asked for: its tuning, placebos, exchange runs, or itself."""

    kind: str
    manifest: Manifest
    runs: Runs


def base_of(manifest: Manifest) -> str:
    """The study that a manifest is a round of: the one that it tunes for, or holds placebos of say, else itself."""
    return next(filter(None, (getattr(manifest, key) for key in ROUNDS)), manifest.study)


def readable(results: Path, study: str) -> Manifest | None:
    """A study's manifest, or None where it cannot be read."""
    try:
        return read_manifest(results, study)
    except (Corrupt, OSError):
        return None


def rounds_of(results: Path, base: str) -> list[Round]:
    """The rounds of a study that are on disk, in the order in which they are trained.  Raises Refused."""
    found = []
    for name in studies(results):
        if not name.startswith(base):  # a round's name begins with its study's
            continue
        manifest = manifest_of(results, name) if name == base else readable(results, name)
        if manifest and base_of(manifest) == base:
            kind = next((words for key, words in ROUNDS.items() if getattr(manifest, key)), "study")
            with refusing(study_folder(results, name)):
                found.append(Round(kind, manifest, runs_of(results, manifest)))
    return sorted(found, key=lambda one: [*ROUNDS.values(), "study"].index(one.kind))


def together(rounds: list[Round]) -> Runs:
    """The runs of all rounds."""
    return Runs([run for one in rounds for run in one.runs.runs])


def planned(rounds: list[Round]) -> bool:
    """Whether the study itself is on disk, and not only rounds that come before it."""
    return bool(rounds) and rounds[-1].kind == "study"


def over(rounds: list[Round]) -> bool:
    """Whether nothing is left to wait for."""
    return planned(rounds) and all(run.result for one in rounds for run in one.runs.runs)


def unsettled(rounds: list[Round]) -> bool:
    """Whether its command may add runs when all have ended: a look of seeds=auto before the last, exchange runs."""
    manifest = rounds[-1].manifest
    more = len(manifest.seeds) < max(manifest.sequential.looks if manifest.sequential else (), default=0)
    there = [one.manifest.seeds for one in rounds if one.manifest.exchange_of == manifest.study]
    asked = manifest.cells[0].config.step_equivalents  # by this command, not by an earlier one
    return more or (bool(asked and manifest.exchange) and manifest.seeds not in there)


def report(rounds: list[Round], width: int, height: int = 1000) -> Group:
    """Where a study stands, for a terminal of this size."""
    everything = together(rounds)
    found = everything.by_state()
    above = [_title(rounds[-1].manifest), *_by_round(rounds), progress(everything)]
    failed = [
        f"failed: {run.name}: {first_line(run.error())} · {run.run.result_file}" for run in found.get("failed", [])
    ]
    damaged = [f"damaged: {run.damage}; the run is trained again" for run in everything.runs if run.damage]
    below = [*_first(failed, "failed"), *_first(damaged, "damaged")]
    if "running" not in found and not over(rounds):
        below.append(f"nothing is running; unless a launcher is about to, go on with: {rounds[-1].manifest.command}")
    below += filter(None, [forgotten(rounds[-1].manifest)])
    free = height - len(above) - len(below)
    lines: list[RenderableType] = [Text(printable(line)) for line in above]
    running = [table(everything, width, free, bars=False)] if "running" in found else []
    return Group(*lines, *running, *(Text(printable(line)) for line in below))


def progress(runs: Runs) -> str:
    """How many runs are in each state, and the time left: a line."""
    number = {state: len(runs) for state, runs in runs.by_state().items()}
    parts = [f"{number.get(state, 0)} {state}" for state in STATES if state in number or state == "done"]
    left = "" if runs.ended() == len(runs.runs) else f", {runs.left() or 'time left unknown'}"
    return f"{counted(len(runs.runs), 'run')}: {', '.join(parts)}{left}"


def forgotten(manifest: Manifest) -> str:
    """The variants on disk, the user's own included, of each component factor that a study does not compare."""
    known, parts = groups(_config_dir(manifest.command)), []
    for factor in manifest.components:
        missing = [variant for variant in known.get(factor, {}) if variant not in manifest.factors.get(factor, [])]
        parts += [f"{factor}: {', '.join(missing)}"] if missing else []
    return f"not compared: {'; '.join(parts)}" if parts else ""


def _title(manifest: Manifest) -> str:
    factors = " ".join(f"{key}={','.join(map(str, levels))}" for key, levels in manifest.factors.items())
    cells, seeds = len(manifest.cells), len(manifest.seeds)
    tasks = ", ".join(dict.fromkeys(task.title or key for key, task in manifest.tasks.items()))
    size = f"{counted(cells, 'cell')} × {counted(seeds, 'seed')}"
    looks = manifest.sequential.looks if manifest.sequential else []
    auto = f"looks at {', '.join(map(str, looks))} seeds" * bool(looks)
    return "; ".join(filter(None, [f"{base_of(manifest)}: {factors}".rstrip(": "), size, auto, tasks]))


def _by_round(rounds: list[Round]) -> list[str]:
    if len(rounds) == 1 and planned(rounds):
        return []
    lines = [f"{one.kind} ({one.manifest.study}): {progress(one.runs)}" for one in rounds]
    return lines if planned(rounds) else [*lines, "the study itself is planned when this has ended"]


def _first(lines: list[str], kind: str) -> list[str]:
    """The first lines about runs of a kind, and how many more there are."""
    return [*lines[:NAMED], f"and {len(lines) - NAMED} more {kind}"] if len(lines) > NAMED else lines


def _config_dir(command: str) -> str | None:
    with contextlib.suppress(ValueError):  # no such word, or a quotation that does not end
        words = shlex.split(command)
        return words[words.index("--config-dir", 0, -1) + 1]
    return None
