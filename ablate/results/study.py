"""Studies and runs on disk: where they are, how they are written so that a kill loses nothing, how they are read.

    results/runs/<cell>/<key>/      config.yaml metrics.jsonl result.json checkpoint.pt weights.safetensors
                                    evaluation.json provenance.json
    results/studies/<study>/        manifest.json

Nothing in this module needs torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.config.errors import Corrupt
from ablate.results.atomic import set_aside as set_aside
from ablate.results.atomic import write_atomic as write_atomic
from ablate.results.damage import unsealed
from ablate.results.metrics_writer import MetricsWriter as MetricsWriter
from ablate.results.tables import Columns, Planned, mixed, run_row
from ablate.results.tables import as_planned as as_planned
from ablate.results.tables import parse_lines as parse_lines
from ablate.results.tables import planned_cells as planned_cells

if TYPE_CHECKING:
    import pandas
from ablate.results.manifest import BESIDE, read_manifest
from ablate.results.run import Run, noted


@dataclasses.dataclass
class Study:
    """A study as tidy tables.

    runs    one row per planned run: cell, label, seed, one column per factor, status (done, diverged, failed, or
            missing: not ended), params, flops_per_token, batches (cells with equal values saw equal batches), path,
            error, what the run knows of itself (steps, seconds, device, torch, ended, commit, dirty), and the metrics
            of the last step (`test/loss`, ...; NaN where the run did not end as done) with those that came after it
            (`test/loss@128`)
    curves  one row per logged step: cell, label, seed, path, and what was logged (step, tokens, `val/loss`, ...)
    notes   what was found damaged or missing, a sentence each
    beside  the studies that belong to it, by what they are to it (`placebos`, `exchange`), without curves
    """

    manifest: dict[str, Any]
    runs: pandas.DataFrame
    curves: pandas.DataFrame
    notes: list[str]
    beside: dict[str, Study] = dataclasses.field(default_factory=dict)


def load_study(results: Path, study: str, manifest: dict[str, Any] | None = None, curves: bool = True) -> Study:
    """Read a study from disk, by its manifest there, or by another.  Raises FileNotFoundError and `Corrupt`."""
    import pandas

    manifest = manifest or read_manifest(results, study)
    cells = {cell["id"]: cell for cell in manifest["cells"]}
    rows, whose, steps, checked = [], [], Columns(), Planned()
    notes: list[str] = []
    bare = old = 0
    for (name, seed), planned in _once(manifest["runs"], notes).items():
        path = planned["path"]
        cell, run = as_planned(cells[name], planned), Run(results, path)
        result = noted(functools.partial(_own, checked, run, cell, seed), notes)
        logged, torn = run.metrics() if curves and (result or not run.result_file.exists()) else ([], 0)
        if torn:
            notes.append(f"{run.metrics_file}: {torn} torn line{'s' * (torn > 1)} passed over")
        who = {"cell": name, "label": cell["label"], "seed": seed, "path": path}
        rows.append(who | run_row(cell, result, noted(run.evaluation, notes) if result else None))
        old += not run.sealed
        bare += bool(curves and not logged and result and result["status"] != "failed")
        if logged:
            whose.append(who)
            steps.add(logged)
    if old:
        notes.append(unsealed(old))
    if bare:
        notes.append(f"{bare} ended run{'s' * (bare > 1)} without logged steps: no learning curve of them is shown")
    order = ["cell", "label", "seed", "status", *manifest["factors"]]
    runs = pandas.DataFrame(rows)
    runs = runs[order + [column for column in runs if column not in order]]
    logged_steps = steps.frame(whose) if whose else pandas.DataFrame(columns=["cell", "seed", "step"])
    notes += [*checked.notes, *mixed(runs)]
    return Study(manifest, runs, logged_steps, notes, _beside(results, manifest, notes))


def _once(planned: list[dict[str, Any]], notes: list[str]) -> dict[tuple[str, int], dict[str, Any]]:
    """Each planned run by cell and seed; one that is planned twice is noted, the last counts."""
    found = {(run["cell"], run["seed"]): run for run in planned}
    if twice := len(planned) - len(found):
        notes.append(f"{twice} planned run{'s' * (twice > 1)} with the cell and seed of another; the last counts")
    return found


def _own(checked: Planned, run: Run, cell: dict[str, Any], seed: int) -> dict[str, Any] | None:
    """The result of a run; raises `Corrupt` where it is that of another run than the planned one."""
    result = run.result()
    if result is None:
        return None
    text = None
    with contextlib.suppress(OSError):
        text = run.config_file.read_bytes()
    if why := checked.other(cell, seed, result, text, str(run.config_file)):
        raise Corrupt(f"{run.result_file} is of another run: {why}; left out")
    return result


def _beside(results: Path, manifest: dict[str, Any], notes: list[str]) -> dict[str, Study]:
    found = {}
    for role in BESIDE:
        if manifest.get(role):
            try:
                found[role] = load_study(results, manifest[role], curves=False)
            except (OSError, Corrupt) as error:
                notes.append(f"{role} cannot be read ({error})")
    return found
