"""Rows of the manifest from checked cells: names, references, costs, shared random numbers."""

import dataclasses

from ablate.config.errors import PlanError
from ablate.config.schema import Config
from ablate.model.init import shared_draws
from ablate.planning.budget_matching import match_cells, remark, training_positions
from ablate.planning.checks.preflight import refuse_equal
from ablate.planning.checks.validate import Checked, Validator
from ablate.planning.study import Cells, Layout, describe_tasks
from ablate.results.records import Cell
from ablate.results.run_key import batches, cell_id
from ablate.training.length_eval import seen_in_training, seen_lengths


def describe_cells(checked: list[Checked], raw: list[Config], layout: Layout) -> Cells:
    """Checked cells with their rows of the manifest."""
    names, labels, levels, at = layout.names, layout.labels, layout.levels, layout.at
    rows = []
    for i, cell in enumerate(checked):
        reference, steps = checked[at[i]].budget, cell.config.train.steps
        positions, seen = training_positions(cell), seen_lengths(cell.config, cell.task)
        halves = {"init": "initialisation", "data": "the order of the data"}
        fixed = [(half, value) for half in halves if (value := getattr(cell.config.seed, half)) is not None]
        notes = [f"seed.{half}={n} for every run: intervals do not cover {halves[half]}" for half, n in fixed]
        notes = cell.task.notes + cell.budget.notes + notes + seen_in_training(seen) + remark(labels[i], cell.matched)
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
                matched=cell.matched,
                step_seconds=cell.step_seconds,
                tokens_per_step=positions / steps if positions % steps else positions // steps,
                batches=batches(cell.config, cell.task.fingerprint),
                task=cell.task.fingerprint,
                seen_lengths=seen,
                notes=notes,
                defaults=cell.defaults,
                config=cell.config,
            )
        )
    own = {field.name: getattr(layout, field.name) for field in dataclasses.fields(Layout)}
    return Cells(**own, rows=rows, checked=checked, raw=raw, tasks=describe_tasks(checked))


def recomposed(cells: Cells, settings: Config, raw: list[Config], layout: Layout) -> Cells:
    """Cells from other configurations, one or several for each of `cells`.  Raises PlanError."""
    validator = Validator()
    checked, problems = validator.validate(raw)
    if problems:
        raise PlanError(problems)
    known = cells.checked * (len(raw) // len(cells.rows))
    checked = [new._replace(step_seconds=old.step_seconds) for new, old in zip(checked, known, strict=True)]
    checked = match_cells(settings.match, checked, layout.labels, layout.at, validator)
    made = describe_cells(checked, raw, layout)
    refuse_equal(made.rows, checked, settings.allow_duplicates)
    return made


def reconfigured(cells: Cells, settings: Config, raw: list[Config]) -> Cells:
    """The same cells with other configurations.  Raises PlanError."""
    return dataclasses.replace(recomposed(cells, settings, raw, cells), notes=cells.notes)
