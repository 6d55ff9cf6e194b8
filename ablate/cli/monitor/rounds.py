"""Where a study stands, in words: its rounds on disk, what runs, what failed, what it does not compare."""

from __future__ import annotations

import contextlib
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from rich.console import Group, RenderableType
from rich.text import Text

from ablate.cli.monitor.state import STATES, Runs, RunState, runs_of
from ablate.cli.monitor.view import printable, table
from ablate.config.errors import Corrupt
from ablate.config.groups import groups
from ablate.format import counted
from ablate.results.choose import manifest_of, refusing, studies
from ablate.results.manifest import read_manifest

NAMED = 4  # failed and damaged runs that are spelled out
ROUNDS = {
    "tunes": "tuning",
    "placebo_of": "placebos",
    "exchange_of": "exchange runs",
}  # key of a manifest that names the study it belongs to


class Round(NamedTuple):
    """A study on disk and what it is to the one that was asked for: its tuning, placebos, exchange runs, or itself."""

    kind: str
    manifest: dict[str, Any]
    runs: Runs


def base_of(manifest: dict[str, Any]) -> str:
    """The study that a manifest is a round of: the one that it tunes for, or holds placebos of say, else itself."""
    return str(next((manifest[key] for key in ROUNDS if manifest.get(key)), manifest["study"]))


def readable(results: Path, study: str) -> dict[str, Any] | None:
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
            kind = next((words for key, words in ROUNDS.items() if manifest.get(key)), "study")
            with refusing(results, name):
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
    looks = manifest.get("sequential") or {}
    more = bool(looks) and len(manifest["seeds"]) < max(looks.get("looks", []), default=0)
    there = [one.manifest["seeds"] for one in rounds if one.manifest.get("exchange_of") == manifest["study"]]
    asked = manifest["cells"][0]["config"].get("exchange")  # by this command, not by an earlier one
    return more or (bool(asked and manifest.get("exchange")) and manifest["seeds"] not in there)


def report(rounds: list[Round], width: int, height: int = 1000) -> Group:
    """Where a study stands, for a terminal of this size."""
    everything = together(rounds)
    found = everything.by_state()
    above = [_title(rounds[-1].manifest), *_by_round(rounds), progress(everything)]
    below = [*_failures(found.get("failed", [])), *_damages(everything.runs)]
    if "running" not in found and not over(rounds):
        below.append(
            f"nothing is running; unless a launcher is about to, go on with: {rounds[-1].manifest.get('command', '')}"
        )
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


def forgotten(manifest: dict[str, Any]) -> str:
    """The variants on disk, the user's own included, of each component factor that a study does not compare."""
    known, parts = groups(_config_dir(manifest.get("command", ""))), []
    for factor in manifest["components"]:
        missing = [variant for variant in known.get(factor, {}) if variant not in manifest["factors"].get(factor, [])]
        parts += [f"{factor}: {', '.join(missing)}"] if missing else []
    return f"not compared: {'; '.join(parts)}" if parts else ""


def _title(manifest: dict[str, Any]) -> str:
    factors = " ".join(f"{key}={','.join(map(str, levels))}" for key, levels in manifest["factors"].items())
    cells, seeds = len(manifest["cells"]), len(manifest["seeds"])
    tasks = ", ".join(dict.fromkeys(task.get("title", key) for key, task in manifest["tasks"].items()))
    size = f"{counted(cells, 'cell')} × {counted(seeds, 'seed')}"
    looks = (manifest.get("sequential") or {}).get("looks", [])
    auto = f"looks at {', '.join(map(str, looks))} seeds" * bool(looks)
    return "; ".join(filter(None, [f"{base_of(manifest)}: {factors}".rstrip(": "), size, auto, tasks]))


def _by_round(rounds: list[Round]) -> list[str]:
    if len(rounds) == 1 and planned(rounds):
        return []
    lines = [f"{one.kind} ({one.manifest['study']}): {progress(one.runs)}" for one in rounds]
    return lines if planned(rounds) else [*lines, "the study itself is planned when this has ended"]


def _failures(failed: list[RunState]) -> list[str]:
    lines = [f"failed: {run.name}: {run.error().splitlines()[0]} · {run.run.result_file}" for run in failed[:NAMED]]
    return [*lines, f"and {len(failed) - NAMED} more failed"] if len(failed) > NAMED else lines


def _damages(runs: list[RunState]) -> list[str]:
    lines = [f"damaged: {run.damage}; the run is trained again" for run in runs if run.damage]
    return [*lines[:NAMED], f"and {len(lines) - NAMED} more damaged"] if len(lines) > NAMED else lines


def _config_dir(command: str) -> str | None:
    with contextlib.suppress(ValueError):  # no such word, or a quotation that does not end
        words = shlex.split(command)
        return words[words.index("--config-dir", 0, -1) + 1]
    return None
