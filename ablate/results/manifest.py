"""A study's manifest on disk: where it is, how it is read, renewed, and how looks are logged in it."""

import dataclasses
from pathlib import Path

from ablate.config.errors import Corrupt
from ablate.config.schema import OWNED
from ablate.config.typed_json import parse, unread
from ablate.results.atomic import no_link, read_json, set_aside, write_json
from ablate.results.lease import take
from ablate.results.manifest_checks import flaws, outside
from ablate.results.records import FORMAT, Look, Manifest


def study_folder(results: Path, study: str) -> Path:
    """The folder of a study."""
    return Path(results) / "studies" / study


def read_manifest(results: Path, study: str) -> Manifest:
    """A study's manifest, checked.  Raises FileNotFoundError and `Corrupt`."""
    path = study_folder(results, study) / "manifest.json"
    manifest = manifest_in(path)
    if leading := outside(Path(results), [run.path for run in manifest.runs]):
        raise Corrupt(f"{path} has a run {leading}, which a link leads out of {results}")
    return dataclasses.replace(manifest, study=study)  # a copy of a study goes by the name of its folder


def manifest_in(file: Path) -> Manifest:
    """The manifest that a file holds, checked in itself.  Raises FileNotFoundError and `Corrupt`."""
    try:
        manifest = parse(Manifest, read_json(file))
    except ValueError as error:
        raise Corrupt(f"{file} {error}") from None
    for wrong in flaws(manifest):
        raise Corrupt(f"{file} {wrong}")
    return manifest


def newer(manifest: Manifest) -> list[str]:
    """What to say of a manifest that a newer version wrote, and of its entries that are passed over."""
    own = tuple(f"config.{section}" for section in OWNED)  # which may hold arguments of a user's classes
    names = ", ".join(name for name in unread(manifest) if not name.endswith(own))
    note = f"the manifest of {manifest.study} was written by a newer ablate" + f": {names} is passed over" * bool(names)
    return [note] * bool(names or (manifest.format or 0) > FORMAT)


def write_manifest(results: Path, manifest: Manifest) -> None:
    """Write a study's manifest, atomically."""
    write_json(study_folder(results, manifest.study) / "manifest.json", manifest.as_json())


def renew_manifest(results: Path, manifest: Manifest) -> None:
    """Write the manifest of a new plan; a damaged one is set aside, and looks logged since it was planned stay."""
    folder = study_folder(results, manifest.study)
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w", opener=no_link) as file:
        take(file, lambda: True)
        known: list[Look] = []
        try:
            known = read_manifest(results, manifest.study).looks
        except FileNotFoundError:
            pass
        except Corrupt:
            set_aside(folder / "manifest.json")
        since = [look for look in known if look.study is None and look not in manifest.looks]
        write_manifest(results, dataclasses.replace(manifest, looks=manifest.looks + since))


def log_look(results: Path, manifest: Manifest, when: str) -> None:
    """Remember in the manifest on disk that results of these seeds have been seen; they stay in the study from now on.

    Another command may have written the manifest since `manifest` was read: then what was seen is added to it.
    """
    with open(study_folder(results, manifest.study) / "lock", "w", opener=no_link) as file:
        take(file, lambda: True)
        current = read_manifest(results, manifest.study)
        sequence = manifest.sequential  # of seeds=auto: this look is one of its plan
        look = Look(seeds=manifest.seeds, planned=sequence.looks if sequence else None, when=when)
        if any(dataclasses.replace(known, when=when) == look for known in current.looks):
            return
        at = current.sequential
        if at and sequence and at.looks == sequence.looks:
            at = dataclasses.replace(at, at=max(at.at, sequence.at))
        # A run that was planned anew meanwhile, of other code say, stands in place of this one.
        known = {(run.cell, run.seed) for run in current.runs}
        renewed = dataclasses.replace(
            current,
            looks=[*current.looks, look],
            sequential=at,
            seeds=sorted({*current.seeds, *manifest.seeds}),
            runs=current.runs + [run for run in manifest.runs if (run.cell, run.seed) not in known],
        )
        write_manifest(results, renewed)


def newest_study(results: Path) -> str | None:
    """The study whose manifest was written last, or None."""
    manifests = list((Path(results) / "studies").glob("*/manifest.json"))
    return max(manifests, key=lambda path: path.stat().st_mtime).parent.name if manifests else None
