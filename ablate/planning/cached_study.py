"""Checked studies, cached, so that a finished one starts again without loading torch: nothing is left to check.

A study depends on the words, the files that they are read from, the code and libraries.  Its data are made anew each
time, and its runs planned anew: where anything is left to train, it is checked again.
"""

from __future__ import annotations

import dataclasses
import json
import os
import platform
from collections.abc import Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy

from ablate.config.claim_relations import Claim, Criterion, Level, Levels
from ablate.config.components import bind
from ablate.config.errors import BadComponent, PlanError
from ablate.config.groups import CONF, EXPERIMENTS
from ablate.config.regular_files import read_regular
from ablate.config.schema import typed
from ablate.config.typed_json import Record, optional, parse, record
from ablate.planning.checks.cache import cache_file, read_cached, write_cached
from ablate.planning.rounds import has_other_cells, next_round
from ablate.planning.runs import Plan
from ablate.planning.study import Cells, CheckedStudy
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
class CachedStudy(Record):
    """A checked study as its file holds it, without what its cells were made of, which only other cells would need."""

    command: str
    settings: dict[str, Any]  # as they were composed: `auto` is what no stored configuration has
    factors: dict[str, list[Level]]
    reference: Levels
    rows: list[Cell]
    at: list[int]
    tasks: dict[str, TaskFacts]
    cell_notes: list[str]
    notes: list[str]
    entries: dict[str, Any]  # of the manifest
    claims: dict[str, Claim]
    replicated: Criterion | None = optional()
    code: list[tuple[dict[str, str], Code]]  # of cells, by what it is found by; it takes half a second to find

    def study(self) -> CheckedStudy:
        """The study."""
        cells = Cells(self.factors, self.reference, self.rows, [], [], self.at, self.tasks, self.cell_notes)
        settings = typed(self.settings | {"user": []})
        made = CheckedStudy(self.command, settings, cells, self.entries, self.claims, self.replicated)
        return dataclasses.replace(made, notes=self.notes)


def finished(words: Sequence[str], config_dir: str | None) -> Plan | None:
    """The plan of a command whose study is cached and leaves nothing to train, or of a dry run of it; else None."""
    try:
        cached = parse(CachedStudy, read_cached(place([word for word in words if word != DRY], config_dir)))
        study = cached.study().set(dry_run=DRY in words)
        by_data = {json.dumps([row.config.data, row.task]): row for row in cached.rows}
        unchanged = (_has_its_data(row, cached.tasks[row.task].kind) for row in by_data.values())
        if not study_folder(study.results, study.name).exists() or not all(unchanged):
            return None
        KNOWN.update({tuple(sorted(parts.items())): code for parts, code in cached.code})
        plan = next_round(study)
    except (ValueError, PlanError):  # the cache is of another release, or what is on disk goes against the study
        return None
    return plan if not plan.todo else None


def keep(file: Path, study: CheckedStudy) -> None:
    """Write a study to the cache: one without user code, and without rounds of other cells."""
    settings, cells = study.settings, study.cells
    if settings.user or has_other_cells(settings) or any(is_foreign(row.config) for row in cells.rows):
        return
    found = (code_parts(row.config) for row in cells.rows)
    parts = {json.dumps(each, sort_keys=True): each for each in found}.values()
    cached = CachedStudy(
        command=study.command,
        settings=settings.as_json(),
        factors=cells.factors,
        reference=cells.reference,
        rows=cells.rows,
        at=cells.at,
        tasks=cells.tasks,
        cell_notes=cells.notes,
        notes=study.notes,
        entries=study.entries,
        claims=study.claims,
        replicated=study.replicated,
        code=[(each, code_of(each)) for each in parts],
    )
    write_cached(file, cached.as_json())


def place(words: Sequence[str], config_dir: str | None) -> Path:
    """The file of a command's study, by all that it depends on but its data."""
    folders = [CONF, EXPERIMENTS, *([Path(config_dir)] if config_dir else [])]
    files = sorted({file for folder in folders for pattern in READ for file in folder.glob(pattern)})
    read = [[str(file), _content(file)] for file in files]
    libraries = [platform.python_version(), numpy.__version__, *map(version, ("hydra-core", "omegaconf", "msgspec"))]
    names = os.environ.keys() if any("${" in word for word in words) else VARIABLES
    variables = {key: os.environ.get(key) for key in names}
    machine = [os.getcwd(), variables, *sorted(map(str, Path("/dev").glob("nvidia[0-9]*")))]
    return cache_file("study", [list(words), config_dir, read, libraries, machine])


def _content(file: Path) -> str | None:
    """Hash of a file; None of one that cannot be read, such as an editor's dangling link, which the checks report."""
    try:
        return digest(read_regular(file))
    except OSError:
        return None


def _has_its_data(row: Cell, kind: str) -> bool:
    """Whether the data of a cell are there and unchanged."""
    try:
        return bool(bind("data", row.config.data, {"kind": kind})().fingerprint == row.task)
    except (BadComponent, ValueError, OSError):
        return False
