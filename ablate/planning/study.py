"""A checked study: its cells, its settings and claims, and the notes and manifest entries that go with it."""

from __future__ import annotations

import dataclasses
import hashlib
import json
from pathlib import Path
from typing import Any

from ablate.config.claim_relations import Claim, Criterion
from ablate.config.schema import Config
from ablate.planning.cells import Cells
from ablate.results.records import ClaimEntry
from ablate.results.run_key import settings


@dataclasses.dataclass(frozen=True)
class CheckedStudy:
    """One round of a command: all that a plan needs but seeds, runs and what is on disk."""

    command: str  # as it is typed
    settings: Config  # the configuration that holds the study's own keys, its name among them
    cells: Cells
    entries: dict[str, Any] = dataclasses.field(default_factory=dict)  # further entries of the manifest
    claims: dict[str, Claim] = dataclasses.field(default_factory=dict)  # as written; of no placebos
    replicated: Criterion | None = None
    written: dict[str, ClaimEntry] = dataclasses.field(default_factory=dict)  # claims in the tuning's manifest
    notes: list[str] = dataclasses.field(default_factory=list)  # printed before it trains
    looks: list[int] = dataclasses.field(default_factory=list)  # of seeds=auto: all numbers of seeds it looks at
    more: bool = False  # whether another round of the same command comes after this one

    @property
    def base(self) -> str:
        """The name that the command gives."""
        return str(self.settings.study)

    @property
    def name(self) -> str:
        """What it is called on disk: a confirmation has a name of its own."""
        confirm = self.settings.confirm
        return f"{self.base}-confirm-{confirm}" if confirm else self.base

    @property
    def tuning_name(self) -> str:
        """The study that tuning is for: a confirmation is tuned anew where each seed is."""
        return self.name if self.settings.tune.per_seed else self.base

    @property
    def results(self) -> Path:
        """The results folder."""
        return Path(self.settings.results_dir).absolute()

    def set(self, **settings: Any) -> CheckedStudy:
        """The same study with other settings of its own."""
        return dataclasses.replace(self, settings=dataclasses.replace(self.settings, **settings))

    def companion(self, name: str, cells: Cells, note: str, entries: dict[str, Any], **settings: Any) -> CheckedStudy:
        """A study that this one needs: of some of its cells, with other seeds, without claims."""
        own: dict[str, Any] = {"study": name, "confirm": None, "match": "none", "design": "grid", "zip": []}
        entries = entries | {"aliases": {}, "remarks": []}
        keys = dataclasses.replace(self.settings, **own | settings)
        return CheckedStudy(self.command, keys, cells, entries, notes=[note], more=True)


def study_name(own: Config, cells: Cells) -> str:
    """The name of a study that is given none: the factors and a hash of everything but the seeds, before any tuning.

    `own` holds the study's own keys.
    """
    content = [[row.name, settings(row.config), row.task] for row in cells.rows]
    design = [own.design] * (own.design != "grid")
    tune = [dataclasses.asdict(own.tune)] * (own.tune.key is not None)  # never what it will choose
    text = json.dumps([cells.factors, cells.reference, own.match, content, *design, *tune])
    head = "-".join(key.replace("/", "_").replace("+", "-") for key in cells.factors) or "single"
    return f"{head[:60]}-{hashlib.sha256(text.encode()).hexdigest()[:6]}"
