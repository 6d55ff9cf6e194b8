"""The study on disk that is nearest to a new one, and the settings in which they differ."""

from pathlib import Path

from ablate.config.schema import NO_NUMBERS, STUDY_KEYS
from ablate.formatting import flat, is_number, listed, show
from ablate.runs import naming
from ablate.runs.manifest import readable, studies
from ablate.runs.records import Manifest
from ablate.runs.tables import class_name

OF_STUDIES = ("design", "zip", "match", "tune", "margin", "tier")  # keys that change no numbers of a run
NEAR = 3  # a study is similar to another one if at most so many settings differ


def similar_study(results: Path, manifest: Manifest) -> str:
    """The study on disk with the factors of a new one and the fewest other settings: "like X but for optim.lr 0.001 →
    0.003"; empty if the study is not new, or none is near."""
    names = studies(results)
    if manifest.study in names or naming.role(manifest):
        return ""
    nearest = ""
    fewest = NEAR + 1
    for name in names:
        other = readable(results, name)
        if other is None or other.factors != manifest.factors or naming.role(other):
            continue
        changes = changed_settings(other, manifest)
        if len(changes) < fewest:
            fewest = len(changes)
            how = f"but for {listed(changes)}" if changes else "in all settings"
            nearest = f"like {other.study} {how}"
    return nearest


def changed_settings(old: Manifest, new: Manifest) -> list[str]:
    """The settings in which the references of two studies differ: "optim.lr 0.001 → 0.003".  Of a component of another
    class only the class: "norm RMSNorm → ScaleNorm"."""
    before = reference_settings(old)
    after = reference_settings(new)
    differing = [key for key in {**before, **after} if before.get(key) != after.get(key)]
    other_classes = {key for key in differing if "." not in key}
    changes = []
    for key in differing:
        group = key.partition(".")[0]
        if key in other_classes or group not in other_classes:
            changes.append(f"{key} {before.get(key, 'absent')} → {after.get(key, 'absent')}")
    return changes


def reference_settings(manifest: Manifest) -> dict[str, str]:
    """The settings of the reference that change numbers or how a study compares them, as texts; a component's class by
    the component's name, and the data with their fingerprint."""
    cell = next((cell for cell in manifest.cells if cell.reference), manifest.cells[0])
    settings = {"data.fingerprint": f"{manifest.tasks[cell.task].name} ({cell.task[:8]})"}
    for key, value in flat(cell.planned_config.as_json()).items():
        group, _, name = key.partition(".")
        is_of_study = group in OF_STUDIES
        if not is_of_study and (group in STUDY_KEYS or key in NO_NUMBERS):
            continue
        if name == "_target_":
            settings[group] = class_name(value)  # its code may have moved
        elif is_number(value) and abs(value) >= 1000 and float(value).is_integer():
            settings[key] = f"{int(value):,}"
        else:
            settings[key] = show(value)
    return settings
