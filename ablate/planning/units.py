"""What a launcher is handed of a plan: one job per unit, and for each the file that says which runs it is."""

from __future__ import annotations

from ablate.planning.runs import Plan
from ablate.results.manifest import renew_manifest
from ablate.results.records import UnitRun
from ablate.results.tables import as_planned
from ablate.results.unit_file import write_unit


def write_plan(plan: Plan) -> None:
    """Write the manifest, and what each unit's job reads."""
    renew_manifest(plan.results, plan.manifest)
    cells = {cell.id: cell for cell in plan.manifest.cells}
    runs = {
        run.path: UnitRun(cell=as_planned(cells[run.cell], run), seed=run.seed, tuned=run.tuned, path=run.path)
        for run in plan.manifest.runs
    }
    for unit in units_to_do(plan):
        write_unit(plan.results, plan.manifest.study, unit, [runs[path] for path in plan.manifest.units[unit]])


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
