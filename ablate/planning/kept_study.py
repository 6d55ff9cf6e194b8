"""Checked studies kept on disk, so that a finished one starts again without torch: nothing of it is left to check.

A study is kept by everything that it was made of: the words, the files that they are read from, the code, libraries.
Its data are made anew each time, and its runs planned anew: where anything is left to train, it is checked again.
"""

from __future__ import annotations

import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy

from ablate.config.citations import Entry
from ablate.config.claim_relations import Claim, Criterion, Level, Levels
from ablate.config.components import bind
from ablate.config.designs import Aliases
from ablate.config.errors import BadComponent, PlanError
from ablate.config.groups import CONF, EXPERIMENTS
from ablate.config.regular_files import read_regular
from ablate.config.schema import typed
from ablate.config.typed_json import Record, optional, parse, record
from ablate.planning.cells import Cells
from ablate.planning.checks.kept import kept_file, read_kept, write_kept
from ablate.planning.rounds import has_other_cells, next_round
from ablate.planning.runs import Plan
from ablate.planning.study import CheckedStudy
from ablate.results.checksum import digest
from ablate.results.code_hash import KNOWN, Code, code_of
from ablate.results.manifest import study_folder
from ablate.results.records import Cell, TaskFacts
from ablate.results.run_key import code_parts
from ablate.results.stored_targets import is_foreign

DRY = "dry_run=true"
READ = ("*.yaml", "*/*.yaml", "*.bib")  # of a folder of variants
VARIABLES = ("HOME", "ABLATE_RESULTS", "CUDA_VISIBLE_DEVICES")  # variables that planning reads


@record
class KeptCode(Record):
    """What was found of the code of some cells, by their parts; it takes half a second to find."""

    parts: dict[str, str]
    content: str
    definitions: dict[str, str]


@record
class KeptStudy(Record):
    """A checked study as its file holds it."""

    command: str
    settings: dict[str, Any]  # as they were composed: `auto` is what no stored configuration has
    factors: dict[str, list[Level]]
    reference: Levels
    rows: list[Cell]
    at: list[int]
    tasks: dict[str, TaskFacts]
    found: list[str]  # notes on its cells
    notes: list[str]
    asked: dict[str, str | None]  # entries of the manifest from a study file
    aliases: Aliases
    remarks: list[str]
    papers: dict[str, dict[str, Entry]]
    claims: dict[str, Claim]
    replicated: Criterion | None = optional()
    code: list[KeptCode]

    def study(self) -> CheckedStudy:
        """The study, without what its cells were made of, which only other cells than its own would need."""
        cells = Cells(self.factors, self.reference, self.rows, [], [], self.at, self.tasks, self.found)
        beside = {"aliases": self.aliases, "remarks": self.remarks, "papers": self.papers}
        settings = typed(self.settings | {"user": []})
        asked = self.claims, self.replicated
        return CheckedStudy(self.command, settings, cells, self.asked | beside, *asked, notes=self.notes)


def finished(words: Sequence[str], config_dir: str | None) -> Plan | None:
    """The plan of a command whose study is kept and leaves nothing to train, or of a dry run of it; else None."""
    known = read_kept(place([word for word in words if word != DRY], config_dir))
    try:
        kept = parse(KeptStudy, known)
        study = kept.study().set(dry_run=DRY in words)
        if not study_folder(study.results, study.name).exists() or not all(map(has_its_data, distinct(kept))):
            return None
        KNOWN.update({tuple(sorted(one.parts.items())): Code(one.content, one.definitions) for one in kept.code})
        plan = next_round(study)
    except (ValueError, PlanError):  # what is kept is of another release, or what is on disk goes against the study
        return None
    return plan if not plan.todo else None


def keep(place: Path, study: CheckedStudy) -> None:
    """Keep a study that can be known again: one without code from outside, and without rounds of other cells."""
    settings, cells, entries = study.settings, study.cells, dict(study.entries)
    if settings.user or has_other_cells(settings) or any(is_foreign(row.config) for row in cells.rows):
        return
    kept = KeptStudy(
        command=study.command,
        settings=settings.as_json(),
        factors=cells.factors,
        reference=cells.reference,
        rows=cells.rows,
        at=cells.at,
        tasks=cells.tasks,
        found=cells.notes,
        notes=study.notes,
        aliases=entries.pop("aliases"),
        remarks=entries.pop("remarks"),
        papers=entries.pop("papers"),
        asked=entries,
        claims=study.claims,
        replicated=study.replicated,
        code=[KeptCode(parts=parts, **code_of(parts)._asdict()) for parts in distinct_parts(cells.rows)],
    )
    write_kept(place, kept.as_json())


def place(words: Sequence[str], config_dir: str | None) -> Path:
    """Where the study of a command is kept, by all that it depends on but its data."""
    folders = [CONF, EXPERIMENTS, *([Path(config_dir)] if config_dir else [])]
    files = sorted({file for folder in folders for pattern in READ for file in folder.glob(pattern)})
    read = [[str(file), content(file)] for file in files]
    libraries = [platform.python_version(), numpy.__version__, *map(version, ("hydra-core", "omegaconf", "msgspec"))]
    variables = (
        dict(os.environ) if any("${" in word for word in words) else {key: os.environ.get(key) for key in VARIABLES}
    )
    machine = [os.getcwd(), variables, *sorted(map(str, Path("/dev").glob("nvidia[0-9]*")))]
    return kept_file("study", [list(words), config_dir, read, libraries, machine])


def content(file: Path) -> str | None:
    """Hash of a file; None of one that cannot be read, such as an editor's link to nowhere, of which checks tell."""
    try:
        return digest(read_regular(file))
    except OSError:
        return None


def distinct(kept: KeptStudy) -> list[tuple[Cell, str]]:
    """A cell for each of the data of a study, and the kind of its task."""
    cells = {json.dumps([row.config.data, row.task]): row for row in kept.rows}
    return [(row, kept.tasks[row.task].kind) for row in cells.values()]


def distinct_parts(rows: list[Cell]) -> list[dict[str, str]]:
    """What the code of cells is found by, each once."""
    found = (code_parts(row.config) for row in rows)
    return list({json.dumps(parts, sort_keys=True): parts for parts in found}.values())


def has_its_data(known: tuple[Cell, str]) -> bool:
    """Whether the data of a cell are there and what they were."""
    row, kind = known
    try:
        return bool(bind("data", row.config.data, {"kind": kind})().fingerprint == row.task)
    except (BadComponent, ValueError, OSError):
        return False
