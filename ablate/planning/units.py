"""What a launcher is handed of a plan: one job per unit, and for each the file that says which runs it is."""

from __future__ import annotations

from ablate.planning.runs import Plan
from ablate.results.atomic import write_json
from ablate.results.manifest import renew_manifest, unit_file
from ablate.results.records import Cell, PlannedRun, Unit, UnitRun
from ablate.results.tables import as_planned


def record(plan: Plan) -> None:
    """Write the manifest, and what each unit's job reads."""
    name = plan.manifest.study
    renew_manifest(plan.results, plan.manifest)
    cells = {cell.id: cell for cell in plan.manifest.cells}
    runs = {run.path: with_cell(run, as_planned(cells[run.cell], run)) for run in plan.manifest.runs}
    for unit in units_to_do(plan):
        paths = plan.manifest.units[unit]
        write_json(unit_file(plan.results, name, unit), Unit(runs=[runs[path] for path in paths]).as_json())


def with_cell(run: PlannedRun, cell: Cell) -> UnitRun:
    """A run as the file of its unit holds it."""
    return UnitRun(cell=cell, seed=run.seed, tuned=run.tuned, path=run.path)


def units_to_do(plan: Plan) -> list[str]:
    """The units that hold a run to train."""
    todo = set(plan.todo)
    return [unit for unit, paths in plan.manifest.units.items() if todo.intersection(paths)]


def job_overrides(plan: Plan) -> list[list[str]]:
    """One job per unit that has something to do, as overrides."""
    from hydra.core.override_parser.types import Quote, QuotedString

    names = {"study": plan.manifest.study, "results_dir": str(plan.results)}
    common = [f"{key}={QuotedString(name, Quote.single).with_quotes()}" for key, name in names.items()]
    common.append(f"user=[{','.join(plan.user)}]")
    return [[f"unit={unit}", *common] for unit in units_to_do(plan)]
