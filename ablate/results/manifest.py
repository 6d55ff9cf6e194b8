"""A study's manifest on disk: where it is, how it is read, renewed, and how looks are logged in it."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.config.errors import Corrupt
from ablate.results.atomic import no_link, read_json, write_json
from ablate.results.atomic import set_aside as set_aside
from ablate.results.atomic import write_atomic as write_atomic
from ablate.results.lease import take
from ablate.results.manifest_checks import flaw, outside
from ablate.results.metrics_writer import MetricsWriter as MetricsWriter
from ablate.results.tables import as_planned as as_planned
from ablate.results.tables import parse_lines as parse_lines
from ablate.results.tables import planned_cells as planned_cells

if TYPE_CHECKING:
    pass


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


BESIDE = ("placebos", "exchange")  # entries of a manifest that name a study which belongs to it
