"""A study on disk, read as tables.  Layout of results:

    results/runs/<cell>/s<seed>-<key>/  config.yaml metrics.jsonl result.json checkpoint.pt weights.safetensors
                                        evaluation.json provenance.json
    results/studies/<study>/            manifest.json

Nothing in this module needs torch.
"""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.config.errors import Corrupt
from ablate.formatting import counted
from ablate.runs import tables
from ablate.runs.folder import Run, noted
from ablate.runs.manifest import newer, read_manifest
from ablate.runs.records import ClaimVerdict, Documents, Manifest

if TYPE_CHECKING:
    import pandas


@dataclasses.dataclass(frozen=True)
class Study:
    """A study as tidy tables.

    runs    one row per planned run: cell, label, seed, one column per factor, status (done, diverged, failed, or
            missing: not ended), params, flops_per_token, batches (cells with equal values saw equal batches), path,
            error, facts about the run (steps, seconds, device, torch, ended, commit, dirty), and the metrics of the
            last step (`test/loss`, ...; NaN unless the run is done) with those added later (`test/loss@128`); in a
            timed study also `train/step_seconds` and `train/tokens_per_second`
    curves  one row per logged step: cell, label, seed, path, one column per factor (`step_variant` for the factor
            `step`), and what was logged (step, tokens, `val/loss`, ...)
    notes   what was found damaged or missing, a sentence each
    beside  the accompanying studies by role (`exchange`), with their runs only

    documents  one row per held-out document, one column per finished run (cell, seed): mean test losses

    results    the folder that holds its runs; None for a study read from elsewhere

    verdicts   how claims were judged when its tables were written, by name; empty for a study with runs

    figures    the contents of figures that were drawn then and cannot be computed any more, by name
    """

    manifest: Manifest
    runs: pandas.DataFrame
    curves: pandas.DataFrame
    notes: list[str]
    beside: dict[str, Study] = dataclasses.field(default_factory=dict)
    documents: pandas.DataFrame = dataclasses.field(default_factory=lambda: tables.by_document({}))
    results: Path | None = None
    verdicts: dict[str, ClaimVerdict] = dataclasses.field(default_factory=dict)
    figures: dict[str, pandas.DataFrame] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        """One line, as a whole manifest would fill screens."""
        held = ", ".join(field.name for field in dataclasses.fields(self))
        runs, cells = counted(len(self.runs), "run"), counted(len(self.manifest.cells), "configuration")
        return f"<Study {self.manifest.study}: {runs} of {cells}; {held}>"

    @property
    def time_column(self) -> str:
        """The column of runs with the time that they cost: `cpu_seconds`, or off the CPU `seconds`; "" for runs of
        other programs, where such names can mean anything."""
        if self.manifest.source or not {"device", "cpu_seconds", "seconds"} <= {*self.runs}:
            return ""
        return "cpu_seconds" if all("cpu" in device for device in self.runs["device"].dropna()) else "seconds"


def load_study(results: Path, study: str, manifest: Manifest | None = None, curves: bool = True) -> Study:
    """Read a study from disk, by its own manifest unless another is given.  Raises FileNotFoundError and `Corrupt`.
    Without `curves`, neither learning curves nor losses by document are read."""
    import pandas

    manifest = manifest or read_manifest(results, study)
    cells = {cell.id: cell for cell in manifest.cells}
    planned = list({(run.cell, run.seed): run for run in manifest.runs}.values())
    twice = len(manifest.runs) - len(planned)
    notes = [f"{counted(twice, 'planned run')} with the cell and seed of another; the last counts"] * bool(twice)
    rows, steps, checked = [], [], tables.Planned()
    tested, without_steps = dict[tables.CellSeed, Documents](), 0
    for one in planned:
        cell, run = cells[one.cell], Run(results, one.path)
        result, result_notes = noted(run.result)
        if result and (why := checked.other(cell, one.seed, result, run.config_file)):
            result, result_notes = None, [f"{run.result_file} is of another run: {why}; left out"]
        evaluation, evaluation_notes = noted(run.evaluation) if result else (None, [])
        read, metrics_notes = noted(run.metrics) if curves and (result or not run.result_file.exists()) else (None, [])
        logged, torn = read or ([], 0)
        torn_notes = [f"{run.metrics_file}: {counted(torn, 'torn line')} skipped"] * bool(torn)
        notes += [*result_notes, *metrics_notes, *torn_notes, *evaluation_notes]
        owner = {"cell": one.cell, "label": cell.label, "seed": one.seed, "path": one.path}
        rows.append(owner | tables.run_row(cell, result, evaluation) | tables.speed_of(manifest, result))
        without_steps += bool(curves and not logged and result and result.status != "failed")
        test = (result.documents or {}).get("test") if curves and result and result.status == "done" else None
        if test and test.name and len(test.name) == len(test.tokens) == len(test.loss):
            tested[one.cell, one.seed] = test
        if logged:
            owner |= {tables.curve_column(name): level for name, level in cell.levels.items()}
            steps.append((owner, tables.by_column(logged)))
    runs, timing_notes = tables.in_one_sitting(pandas.DataFrame(rows))
    order = ["cell", "label", "seed", "status", *manifest.factors]
    runs = runs[order + [column for column in runs if column not in order]]
    beside, lost = dict[str, Study](), []
    for role, name in manifest.beside().items():
        try:
            beside[role] = load_study(results, name, curves=False)
        except (OSError, Corrupt) as error:
            lost.append(f"{role} cannot be read ({error})")
    unlogged = f"{counted(without_steps, 'ended run')} without logged steps: no learning curve of them is shown"
    notes += [*timing_notes, *[unlogged] * bool(without_steps)]
    notes += [*checked.notes, *tables.mixed(runs), *lost, *newer(manifest)]
    return Study(manifest, runs, tables.curves_of(steps), notes, beside, tables.by_document(tested), results)
