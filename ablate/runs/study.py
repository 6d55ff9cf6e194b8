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


@dataclasses.dataclass(frozen=True, repr=False)  # its tables would fill screens
class Study:
    """A study as tidy tables.

    - `runs`: one row per planned run: cell, label, seed, one column per factor, status (done, diverged, failed, or
      missing: not ended), params, flops_per_token, batches (cells with equal values saw equal batches), path, error,
      facts about the run (steps, seconds, device, torch, ended, commit, dirty), and the metrics of the last step
      (`test/loss`, ...; NaN unless the run is done) with those added later (`test/loss@128`); in a timed study also
      `train/step_seconds` and `train/tokens_per_second`
    - `curves`: one row per logged step: cell, label, seed, path, one column per factor (`step_variant` for the factor
      `step`), and what was logged (step, tokens, `val/loss`, ...)
    - `notes`: what was found damaged or missing, a sentence each
    - `beside`: the accompanying studies by role (`exchange`), with their runs only
    - `documents`: one row per held-out document, one column per finished run (cell, seed): mean test losses
    - `results`: the folder that holds its runs; None for a study read from elsewhere
    - `verdicts`: how claims were judged when its tables were written, by name; empty for a study with runs
    - `figures`: the contents of figures that were drawn then and cannot be computed any more, by name
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

    @property
    def time_column(self) -> str:
        """The column of runs with the time that they cost: `cpu_seconds`, or off the CPU `seconds`; "" for runs of
        other programs, where such names can mean anything."""
        if self.manifest.source or not {"device", "cpu_seconds", "seconds"} <= {*self.runs}:
            return ""
        devices = self.runs["device"].dropna()
        is_cpu = len(devices) > 0 and devices.str.contains("cpu").all()
        return "cpu_seconds" if is_cpu else "seconds"


def load_study(results: Path, study: str, manifest: Manifest | None = None, curves: bool = True) -> Study:
    """Read a study from disk, by its own manifest unless another is given.  Raises FileNotFoundError and `Corrupt`.
    Without `curves`, neither learning curves nor losses by document are read."""
    import pandas

    manifest = manifest or read_manifest(results, study)
    cells = {cell.id: cell for cell in manifest.cells}
    planned = {(run.cell, run.seed): run for run in manifest.runs}  # of code that was trained again, the last
    notes = []
    rows = []
    logs = []
    tested: dict[tables.CellSeed, Documents] = {}
    for cell_and_seed, planned_run in planned.items():
        cell = cells[planned_run.cell]
        run = Run(results, planned_run.path)
        result, damage = noted(run.result)
        evaluation, evaluation_damage = noted(run.evaluation) if result else (None, [])
        notes += [*damage, *evaluation_damage]
        owner = {"cell": cell.id, "label": cell.label, "seed": planned_run.seed, "path": planned_run.path}
        rows.append(owner | tables.run_row(cell, result, evaluation) | tables.speed_of(manifest, result))
        if not curves or damage:  # the log of a damaged result does not count
            continue
        logged, log_notes = read_log(run)
        notes += log_notes
        if logged:
            levels = {tables.curve_column(name): level for name, level in cell.levels.items()}
            logs.append((owner | levels, tables.table_of(logged)))
        documents = (result.documents or {}).get("test") if result and result.status == "done" else None
        if documents and documents.name:
            tested[cell_and_seed] = documents
    runs, timing_notes = tables.in_one_sitting(pandas.DataFrame(rows))
    first = ["cell", "label", "seed", "status", *manifest.factors]
    runs = runs[first + [column for column in runs if column not in first]]
    notes += [*timing_notes, *tables.mixed(runs), *newer(manifest)]
    beside = {}
    for role, name in manifest.beside().items():
        try:
            beside[role] = load_study(results, name, curves=False)
        except (OSError, Corrupt) as error:
            notes.append(f"{role} cannot be read ({error})")
    return Study(manifest, runs, tables.curves_of(logs), notes, beside, tables.by_document(tested), results)


def read_log(run: Run) -> tuple[list[tables.Row], list[str]]:
    """The logged steps of a run, and notes on what is damaged."""
    metrics, damage = noted(run.metrics)
    rows, torn = metrics or ([], 0)
    if torn:
        damage.append(f"{run.metrics_file}: {counted(torn, 'torn line')} skipped")
    return rows, damage
