"""A checked study: its cells, settings, claims, notes and manifest entries.  Needs no torch."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.config.claims import Claim, Criterion
from ablate.config.schema import Config
from ablate.formatting import first_of, scientific
from ablate.runs.key import settings
from ablate.runs.records import SOLVED, Cell, ClaimEntry, TaskFacts

if TYPE_CHECKING:
    from ablate.planning.checks.validate import Checked

NAMED = 3  # cells that a note spells out


@dataclasses.dataclass(frozen=True)
class Layout:
    """The factors of cells, and for each cell its folder's name, its label and its levels."""

    factors: dict[str, list[Any]]
    reference: dict[str, Any]  # the reference level of each compared factor
    names: list[str]
    labels: list[str]
    levels: list[dict[str, Any]]
    at: list[int]  # the index of the cell that each one is compared with

    @property
    def swept(self) -> list[str]:
        """The swept keys; of a zipped factor all."""
        return [key for name in self.factors for key in name.split("+")]


@dataclasses.dataclass(frozen=True)
class Cells(Layout):
    """Checked and counted cells."""

    rows: list[Cell]  # as in manifests
    checked: list[Checked]  # in the same order
    raw: list[Config]  # their composed configurations, before anything was resolved or matched
    tasks: dict[str, TaskFacts]  # by fingerprint
    notes: list[str] = dataclasses.field(default_factory=list)  # printed before training

    @property
    def references(self) -> list[tuple[Cell, Checked]]:
        """The row and the checked cell of each stratum's reference, without what matching found."""
        pairs = [pair for pair in zip(self.rows, self.checked, strict=True) if pair[0].reference]
        return [(row, cell._replace(matched=None)) for row, cell in pairs]


def describe_task(cell: Checked) -> TaskFacts:
    """The manifest's entry of a cell's task."""
    task, at = cell.task, cell.config.data.get("solved_at")
    keys = ("name", "title", "kind", "token", "metrics", "yardsticks", "train_tokens", "positions")
    found = {key: getattr(task, key) for key in keys} | task.metric_facts()
    if at is not None:
        first = next(iter(task.metrics))
        found["metrics"] = {SOLVED: "max"} | task.metrics
        found |= {"solved_at": at, "shares": [SOLVED, *found["shares"]], "beside": [first, *found["beside"]]}
    return TaskFacts(**found)


def comparison_notes(cells: Cells, tuned: str | None) -> Iterator[str]:
    """Notes on warm-ups that never end, cells with another task, and optimisers compared at one learning rate."""
    configs = [row.planned_config for row in cells.rows]
    if late := sorted({(c.optim.warmup, c.train.steps) for c in configs if c.optim.warmup >= c.train.steps}):
        (warmup, steps), *_ = late
        why = f"the learning rate never stops rising; for a tenth of the steps write optim.warmup={max(1, steps // 10)}"
        yield f"optim.warmup={warmup} lasts for all of train.steps={steps}: {why}"
    others = [row.label for row, at in zip(cells.rows, cells.at, strict=True) if row.task != cells.rows[at].task]
    why = "scored on another task than the reference, so that no effect between them will be shown"
    yield from [f"{first_of(others, NAMED)}: {why}"] * bool(others)
    rates = {config.optim.lr for config in configs}
    if "optim" in cells.swept and "optim.lr" not in (*cells.swept, tuned) and len(rates) == 1:
        rate = scientific(rates.pop())
        note = f"optimisers are compared at one learning rate, {rate}, which can suit one and not another"
        yield f"{note}; tune.key=optim.lr 'tune.values=[1e-3,3e-3,1e-2]', say, gives each its own"


@dataclasses.dataclass(frozen=True)
class CheckedStudy:
    """A round of a command, without its seeds and runs."""

    command: str  # as typed
    settings: Config  # the configuration with the study's own keys, including its name
    cells: Cells
    entries: dict[str, Any] = dataclasses.field(default_factory=dict)  # further entries of the manifest
    claims: dict[str, Claim] = dataclasses.field(default_factory=dict)  # as written
    replicated: Criterion | None = None
    written: dict[str, ClaimEntry] = dataclasses.field(default_factory=dict)  # claims in the tuning's manifest
    notes: list[str] = dataclasses.field(default_factory=list)  # printed before training
    looks: list[int] = dataclasses.field(default_factory=list)  # with seeds=auto: the number of seeds at each look
    more: bool = False  # whether another round of the same command follows

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

    def companion(self, name: str, cells: Cells, note: str, entries: dict[str, Any], **settings: Any) -> CheckedStudy:
        """A study that accompanies this one: other cells and seeds, no claims."""
        own: dict[str, Any] = {"study": name, "confirm": None, "match": "none", "design": "grid", "zip": []}
        entries = entries | {"remarks": []}
        keys = dataclasses.replace(self.settings, **own | settings)
        return CheckedStudy(self.command, keys, cells, entries, notes=[note], more=True)


def study_name(own: Config, cells: Cells) -> str:
    """The default name of a study: its factors and a hash of all but the seeds.  `own` holds the study's own keys."""
    content = [[row.name, settings(row.planned_config), row.task] for row in cells.rows]
    design = [own.design] * (own.design != "grid")
    tune = [dataclasses.asdict(own.tune)] * (own.tune.key is not None)  # not the chosen value
    text = json.dumps([cells.factors, cells.reference, own.match, content, *design, *tune])
    head = "-".join(key.replace("/", "_").replace("+", "-") for key in cells.factors) or "single"
    return f"{head[:60]}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
