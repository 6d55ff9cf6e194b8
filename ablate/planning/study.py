"""A study before its runs: its cells, settings, claims, notes and manifest entries.  Needs no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from ablate.config.claims import Claim, Criterion, Level, Levels
from ablate.config.compose import Draft
from ablate.config.errors import Problem
from ablate.config.schema import Config
from ablate.config.typed_json import Record
from ablate.formatting import scientific
from ablate.program.words import Request
from ablate.runs.key import settings
from ablate.runs.records import Cell, ClaimEntry, TaskFacts

NAMED = 3  # cells that a note spells out
CHECK = 1  # inspect the settings of cells
MATCH = 2  # and match their budgets
TRY = 3  # and try out what they build
AT_ONCE = 5  # seeds of `auto` before the first look


class Inspection(Record):
    """What is found of a study's cells: their rows of the manifest, or what is wrong with them."""

    rows: list[Cell] = dataclasses.field(default_factory=list)
    tasks: dict[str, TaskFacts] = dataclasses.field(default_factory=dict)  # of all cells that passed, by fingerprint
    problems: list[Problem] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)


def runs_of(drafts: list[Draft], settings: Config) -> int:
    """The number of runs that can train at once, if there are workers for all."""
    seeds = settings.seeds
    if isinstance(seeds, list):
        seeds = len(seeds)
    return len(drafts) * (seeds if isinstance(seeds, int) else AT_ONCE)


@dataclasses.dataclass(frozen=True)
class PlannedStudy:
    """A round of a command, without its seeds and runs: composed, then checked, then with its name and its claims."""

    command: str  # as typed
    settings: Config  # the configuration with the study's own keys
    factors: dict[str, list[Level]]
    reference: Levels  # the reference level of each compared factor
    drafts: list[Draft]
    rows: list[Cell] = dataclasses.field(default_factory=list)  # the drafts as manifests have them, once checked
    tasks: dict[str, TaskFacts] = dataclasses.field(default_factory=dict)  # by fingerprint
    entries: dict[str, Any] = dataclasses.field(default_factory=dict)  # further entries of the manifest
    claims: dict[str, Claim] = dataclasses.field(default_factory=dict)  # as written
    replicated: Criterion | None = None
    written: dict[str, ClaimEntry] = dataclasses.field(default_factory=dict)  # claims in the tuning's manifest
    notes: list[str] = dataclasses.field(default_factory=list)  # printed before training
    looks: list[int] = dataclasses.field(default_factory=list)  # with seeds=auto: the number of seeds at each look
    more: bool = False  # whether another round of the same command follows
    request: Request | None = None  # how a program is run; the `choices` of its drafts are values of its settings

    @property
    def swept(self) -> list[str]:
        """The swept keys; of a zipped factor all."""
        return [key for name in self.factors for key in name.split("+")]

    @property
    def base(self) -> str:
        """The name that the command gives."""
        return str(self.settings.study)

    @property
    def name(self) -> str:
        """The name on disk; a confirmation has a separate one."""
        confirm = self.settings.confirm
        return f"{self.base}-confirm-{confirm}" if confirm else self.base

    @property
    def results(self) -> Path:
        """The results folder."""
        return Path(self.settings.results_dir).absolute()


def comparison_notes(study: PlannedStudy) -> list[str]:
    """Notes on warm-ups that never end, and on optimisers compared at one learning rate."""
    notes = []
    configs = [row.planned_config for row in study.rows]
    endless = [(config.optim.warmup, config.train.steps) for config in configs]
    endless = sorted((warmup, steps) for warmup, steps in endless if warmup >= steps)
    if endless:
        warmup, steps = endless[0]
        note = f"optim.warmup={warmup} lasts for all of train.steps={steps}: the learning rate never stops rising; "
        notes.append(f"{note}for a tenth of the steps write optim.warmup={max(1, steps // 10)}")
    rates = {config.optim.lr for config in configs}
    if "optim" in study.swept and "optim.lr" not in (*study.swept, study.settings.tune.key) and len(rates) == 1:
        note = f"optimisers are compared at one learning rate, {scientific(rates.pop())}, which can suit one and not "
        notes.append(f"{note}another; tune.key=optim.lr 'tune.values=[1e-3,3e-3,1e-2]', say, gives each its own")
    return notes


def in_float32_on_cpu(config: Config) -> bool:
    """Whether a configuration has float32 products on a CPU, for which there is more than one library."""
    return config.train.device != "cuda" and config.train.precision != "bf16"


def study_name(study: PlannedStudy) -> str:
    """The default name of a study: its factors and a hash of all but the seeds."""
    keys = study.settings
    rows = [[row.name, settings(row.planned_config), row.task] for row in study.rows]
    content: list[Any] = [study.factors, study.reference, keys.match, rows]
    if keys.design != "grid":
        content.append(keys.design)
    if keys.tune.key is not None:
        content.append(dataclasses.asdict(keys.tune))  # not the chosen value
    digest = hashlib.sha256(json.dumps(content).encode()).hexdigest()
    head = "-".join(key.replace("/", "_").replace("+", "-") for key in study.factors) or "single"
    return f"{head[:60]}-{digest[:6]}"
