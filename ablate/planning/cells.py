"""The cells of a study as its manifest keeps them: names, the reference of each, what they cost, what they share."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

from ablate.config.components import defaults_of
from ablate.config.errors import PlanError
from ablate.config.schema import COMPONENTS, Config, Seed
from ablate.model.init import shared_draws
from ablate.planning.budget_matching import match_cells, remark
from ablate.planning.checks.duplicate_cells import refuse_equal
from ablate.planning.checks.validate import Checked, Validator
from ablate.results.records import Cell, Matched, TaskFacts
from ablate.results.run_key import batches, cell_id
from ablate.training.length_eval import seen_in_training, seen_lengths


@dataclasses.dataclass(frozen=True)
class Cells:
    """Cells composed, checked and counted, beside the factors in whose levels they differ."""

    factors: dict[str, list[Any]]
    reference: dict[str, Any]  # the level of each factor that is compared
    rows: list[Cell]  # as manifests keep them, and in the same order
    checked: list[Checked]  # what they were made of
    raw: list[Config]  # their configurations as they were composed, before anything was resolved or matched
    at: list[int]  # which cell each one is compared with
    notes: list[str] = dataclasses.field(default_factory=list)  # what to tell the user before any of them trains
    step_seconds: list[float] = dataclasses.field(default_factory=list)  # of each, where they are matched in seconds

    @property
    def labels(self) -> list[str]:
        """What people call them."""
        return [row.label for row in self.rows]

    @property
    def references(self) -> list[tuple[Cell, Checked]]:
        """The reference of each stratum: its row, and what it was made of."""
        return [pair for pair in zip(self.rows, self.checked, strict=True) if pair[0].reference]


def describe_cells(
    checked: list[Checked],
    names: list[str],
    levels: list[dict[str, Any]],
    labels: list[str],
    at: list[int],
    matched: list[Matched | None],
    step_seconds: Sequence[float] = (),
) -> list[Cell]:
    """The manifest's rows of cells, each compared with the reference of its stratum, at `at`.

    `names` are those of the cells' folders, `labels` what people read, `step_seconds` what was measured of each, if
    anything was.
    """
    rows = []
    for i, cell in enumerate(checked):
        reference = checked[at[i]].budget
        rows.append(
            Cell(
                id=cell_id(names[i], cell.config, cell.task.fingerprint),
                name=names[i],
                label=labels[i],
                levels=levels[i],
                reference=levels[at[i]] == levels[i],
                params=cell.budget.params,
                params_vs_reference=cell.budget.params / reference.params - 1,
                flops_per_token=cell.budget.flops_per_token,
                shared_draws=shared_draws(cell.budget.shapes, reference.shapes),
                matched=matched[i],
                step_seconds=step_seconds[i] if step_seconds else None,
                tokens_per_step=cell.config.train.batch_size * cell.task.positions,
                batches=batches(cell.config, cell.task.fingerprint),
                task=cell.task.fingerprint,
                seen_lengths=(seen := seen_lengths(cell.config, cell.task)),
                notes=cell.task.notes
                + cell.budget.notes
                + held(cell.config.seed)
                + seen_in_training(seen)
                + remark(labels[i], matched[i]),
                defaults=filled_in(cell.config),
                config=cell.config,
            )
        )
    return rows


def filled_in(config: Config) -> dict[str, Any]:
    """The arguments that no YAML sets and constructors fill in, by dotted name."""
    found = {group: defaults_of(group, getattr(config, group), config.user) for group in COMPONENTS}
    return {f"{group}.{name}": value for group, values in found.items() for name, value in values.items()}


def recomposed(
    cells: Cells,
    settings: Config,
    factors: dict[str, list[Any]],
    reference: dict[str, Any],
    raw: list[Config],
    levels: list[dict[str, Any]],
    labels: list[str],
    at: list[int],
) -> Cells:
    """Cells, once or several times over, from other configurations.  Raises PlanError."""
    validator = Validator()
    checked, problems = validator.validate(raw)
    if problems:
        raise PlanError(problems)
    times = len(raw) // len(cells.rows)
    names, step_seconds = [row.name for row in cells.rows] * times, cells.step_seconds * times
    checked, matched = match_cells(settings.match, checked, labels, at, validator, step_seconds)
    rows = describe_cells(checked, names, levels, labels, at, matched, step_seconds)
    refuse_equal(rows, checked, settings.allow_duplicates)
    return Cells(factors, reference, rows, checked, raw, at, step_seconds=step_seconds)


def again(cells: Cells, settings: Config, raw: list[Config]) -> Cells:
    """The same cells from other configurations."""
    levels = [row.levels for row in cells.rows]
    made = recomposed(cells, settings, cells.factors, cells.reference, raw, levels, cells.labels, cells.at)
    return dataclasses.replace(made, notes=cells.notes)


def held(seed: Seed) -> list[str]:
    """What to say where one half of the randomness does not vary."""
    halves = {"init": (seed.init, "initialisation"), "data": (seed.data, "the order of the data")}
    fixed = [(half, *told) for half, told in halves.items() if told[0] is not None]
    return [f"seed.{half}={value} for every run: intervals do not cover {what}" for half, value, what in fixed]


def describe_task(task: Any) -> TaskFacts:
    """What the manifest keeps of a task."""
    keys = ("name", "title", "kind", "token", "metrics", "yardsticks", "train_tokens", "positions")
    return TaskFacts(**({key: getattr(task, key) for key in keys} | task.metric_facts()))


def slow_starts(configs: list[Config]) -> list[str]:
    """What to say about learning rates that are still warming up when training ends."""
    late = {(c.optim.warmup, c.train.steps) for c in configs if c.optim.warmup >= c.train.steps}
    said = [f"optim.warmup={warmup} is not over when training ends (train.steps={steps})" for warmup, steps in late]
    return sorted(said)[:1]
