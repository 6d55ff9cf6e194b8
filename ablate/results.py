"""Studies and runs on disk: where they are, how they are written so that a kill loses nothing, how they are read.

    results/runs/<cell>/<key>/      config.yaml metrics.jsonl result.json checkpoint.pt weights.safetensors
                                    evaluation.json provenance.json
    results/studies/<study>/        manifest.json

Nothing in this module needs torch.
"""

from __future__ import annotations

import contextlib
import dataclasses
import datetime
import functools
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.damage import unsealed, verify, verify_kept
from ablate.files import Corrupt, no_link, read_json, read_sealed, write_json
from ablate.files import set_aside as set_aside
from ablate.files import write_atomic as write_atomic
from ablate.lease import Lease, holder, take
from ablate.logged import MetricsWriter as MetricsWriter
from ablate.manifests import flaw, outside
from ablate.tidy import Columns, Planned, mixed, run_row
from ablate.tidy import as_planned as as_planned
from ablate.tidy import parse_lines as parse_lines
from ablate.tidy import planned_cells as planned_cells

if TYPE_CHECKING:
    import pandas

ENDED = ("done", "diverged", "failed")


def now() -> str:
    """The time as manifests and results keep it, UTC."""
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


class Run:
    """One run on disk: a cell trained with one seed.  `path` is `<cell>/<key>` below `results/runs`."""

    def __init__(self, results: Path, path: str):
        self.path = path
        self.folder = Path(results) / "runs" / path
        self.config_file = self.folder / "config.yaml"
        self.provenance_file = self.folder / "provenance.json"
        self.metrics_file = self.folder / "metrics.jsonl"
        self.result_file = self.folder / "result.json"
        self.evaluation_file = self.folder / "evaluation.json"
        self.checkpoint_file = self.folder / "checkpoint.pt"
        self.weights_file = self.folder / "weights.safetensors"
        self.lease_file = self.folder / "lease.json"
        self.lease: Lease | None = None  # while this process holds it
        self.sealed = True  # whether checksums vouch for the result that was read, and for what came after it

    def result(self) -> dict[str, Any] | None:
        """What the run ended with, or None while it has not ended.

        Raises `Corrupt` where it is damaged, or a file is that it was written with.
        """
        try:
            result, self.sealed = read_sealed(self.result_file)
        except FileNotFoundError:
            return None
        if result.get("status") not in ENDED:
            raise Corrupt(f"{self.result_file} has no status of {', '.join(ENDED)}")
        told = (result.get(name) for name in ("error", "versions", "git", "seconds"))
        if not isinstance(result.get("final"), dict) or not all(isinstance(entry, dict | None) for entry in told):
            raise Corrupt(f"{self.result_file} is no result: its entries are not what a run writes")
        for file in (self.config_file, self.metrics_file):
            verify(result, file)
        verify_kept(result, self.weights_file)
        return result

    def evaluation(self, whose: dict[str, Any] | None = None) -> dict[str, Any]:
        """Metrics of the trained model that came after its result, at other lengths say; raises `Corrupt`.

        With `whose` (versions, data), those of other ones count for nothing.
        """
        try:
            found, sealed = read_sealed(self.evaluation_file)
        except FileNotFoundError:
            return {}
        metrics = found.get("metrics")
        # No other name: what training wrote is vouched for by the result, and nothing beside it may replace that.
        if not isinstance(metrics, dict) or not all("@" in name for name in metrics):
            raise Corrupt(f"{self.evaluation_file} holds other things than metrics at lengths, such as test/loss@8")
        self.sealed = self.sealed and sealed
        return metrics if whose is None or whose.items() <= found.items() else {}

    def metrics(self) -> tuple[list[dict[str, Any]], int]:
        """The logged steps in order, and how many torn lines were passed over."""
        try:
            lines = self.metrics_file.read_bytes().split(b"\n")
        except FileNotFoundError:
            return [], 0
        return parse_lines(lines)

    def holder(self) -> dict[str, Any] | None:
        """Which process trains the run now (host, pid, device, started), or None."""
        return holder(self.lease_file)

    @contextlib.contextmanager
    def lock(self, wait: Callable[[], bool], device: str = "cpu") -> Iterator[bool]:
        """Hold the run, asked for again and again while `wait()`; yields False when another process has it.

        A lock keeps out the processes of this host, a lease those of others.
        """
        self.folder.mkdir(parents=True, exist_ok=True)
        with open(self.folder / "lock", "w", opener=no_link) as file:
            locked = take(file, wait)
            lease = Lease(self.lease_file, device)
            if locked is False or not lease.acquire(wait, alone=locked is True):
                yield False
                return
            self.lease = lease
            try:
                for left in self.folder.glob(".*.tmp"):  # by a process that was killed while it wrote
                    left.unlink(missing_ok=True)
                yield True
            finally:
                self.lease = None
                lease.release()

    def check(self) -> None:
        """Raise Lost where another process has taken over what this one held."""
        if self.lease:
            self.lease.check()


def stamp(file: Path) -> tuple[int, int] | None:
    """What tells whether a file has changed: time of its last change and size; None where there is none."""
    with contextlib.suppress(OSError):
        status = file.stat()
        return status.st_mtime_ns, status.st_size
    return None


def study_folder(results: Path, study: str) -> Path:
    """The folder of a study."""
    return Path(results) / "studies" / study


def unit_file(results: Path, study: str, unit: str) -> Path:
    """What a unit's job reads: its runs, each with its cell.  Named by content, so no other command can change it."""
    return study_folder(results, study) / "units" / f"{unit}.json"


def read_manifest(results: Path, study: str) -> dict[str, Any]:
    """A study's manifest, of which no more than its shape is known.  Raises FileNotFoundError and `Corrupt`."""
    path = study_folder(results, study) / "manifest.json"
    manifest = read_json(path)
    if wrong := flaw(manifest):
        raise Corrupt(f"{path} {wrong}")
    if leading := outside(Path(results), [run["path"] for run in manifest["runs"]]):
        raise Corrupt(f"{path} has a run {leading}, which a link leads out of {results}")
    manifest["study"] = study  # a copy of a study goes by the name of its folder
    return manifest


def write_manifest(results: Path, manifest: dict[str, Any]) -> None:
    """Write a study's manifest, atomically."""
    write_json(study_folder(results, manifest["study"]) / "manifest.json", manifest)


def renew_manifest(results: Path, manifest: dict[str, Any]) -> None:
    """Write the manifest of a new plan; a damaged one is set aside, and looks logged since it was planned stay."""
    folder = study_folder(results, manifest["study"])
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", opener=no_link) as file:
        take(file, lambda: True)
        try:
            known = read_manifest(results, manifest["study"])["looks"]
        except FileNotFoundError:
            known = []
        except Corrupt:
            known = []
            set_aside(folder / "manifest.json")
        manifest["looks"] += [look for look in known if "study" not in look and look not in manifest["looks"]]
        write_manifest(results, manifest)


def log_look(results: Path, manifest: dict[str, Any], when: str) -> None:
    """Remember in the manifest on disk that results of these seeds have been seen; they stay in the study from now on.

    Another command may have written the manifest since `manifest` was read: then what was seen is added to it.
    """
    folder = study_folder(results, manifest["study"])
    with open(folder / "lock", "w", opener=no_link) as file:
        take(file, lambda: True)
        current = read_manifest(results, manifest["study"])
        sequence = manifest.get("sequential")  # of seeds=auto: this look is one of its plan
        look = {"seeds": manifest["seeds"]} | ({"planned": sequence["looks"]} if sequence else {})
        if any(known | {"when": ""} == look | {"when": ""} for known in current["looks"]):
            return
        current["looks"].append(look | {"when": when})
        if sequence and (current.get("sequential") or {}).get("looks") == sequence["looks"]:
            current["sequential"]["at"] = max(sequence["at"], current["sequential"]["at"])
        current["seeds"] = sorted({*current["seeds"], *manifest["seeds"]})
        # A run that was planned anew meanwhile, of other code say, stands in place of this one.
        known = {(run["cell"], run["seed"]) for run in current["runs"]}
        current["runs"] += [run for run in manifest["runs"] if (run["cell"], run["seed"]) not in known]
        current["units"] |= manifest["units"]
        write_manifest(results, current)


def newest_study(results: Path) -> str | None:
    """The study whose manifest was written last, or None."""
    manifests = list((Path(results) / "studies").glob("*/manifest.json"))
    return max(manifests, key=lambda path: path.stat().st_mtime).parent.name if manifests else None


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


BESIDE = ("placebos", "exchange")  # entries of a manifest that name a study which belongs to it


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


def noted(read: Callable[[], dict[str, Any] | None], notes: list[str]) -> dict[str, Any] | None:
    """What a file holds, or None and a note where it is corrupt."""
    try:
        return read()
    except Corrupt as error:
        notes.append(str(error))
        return None
