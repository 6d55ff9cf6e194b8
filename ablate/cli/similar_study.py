"""The study on disk that is nearest to a new one, and the settings in which they differ."""

from pathlib import Path
from typing import Any

from ablate.config.schema import NO_NUMBERS, STUDY_KEYS
from ablate.formatting import flat, is_number, listed, show
from ablate.runs import naming
from ablate.runs.manifest import readable, studies
from ablate.runs.records import Cell, Manifest
from ablate.runs.tables import class_name

OF_STUDIES = ("design", "zip", "match", "tune", "margin", "tier")  # keys that change no numbers of a run
NEAR = 3  # a study is similar to another one if at most so many settings differ
ABSENT = "absent"
Change = tuple[Any, Any]  # the old and the new value of a setting


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
        changes = [change_text(key, change) for key, change in changed_settings(other, manifest).items()]
        if len(changes) < fewest:
            fewest = len(changes)
            how = f"but for {listed(changes)}" if changes else "in all settings"
            nearest = f"like {other.study} {how}"
    return nearest


def changed_settings(old: Manifest, new: Manifest) -> dict[str, Change]:
    """The settings that differ between the cells of two studies with equal levels, or between the first cells if no
    levels are equal.  Of a component with another class only the class, as `norm._target_`."""
    old_cells = {levels_text(cell): cell for cell in reversed(old.cells)}
    pairs = [(old_cells[levels_text(cell)], cell) for cell in new.cells if levels_text(cell) in old_cells]
    changes: dict[str, Change] = {}
    for before, after in pairs or [(old.cells[0], new.cells[0])]:
        for key, change in changes_of(before, after).items():
            changes.setdefault(key, change)
        if before.task != after.task and not any(key.startswith("data.") for key in changes):
            changes.setdefault("data", (task_text(old, before), task_text(new, after)))
    other_classes = {key.partition(".")[0] for key in changes if key.endswith("._target_")}
    for key in list(changes):
        if key.partition(".")[0] in other_classes and not key.endswith("._target_"):
            del changes[key]
    return changes


def levels_text(cell: Cell) -> str:
    """A cell's levels as a text that does not depend on the order of the factors."""
    return str(sorted(cell.levels.items()))


def changes_of(old: Cell, new: Cell) -> dict[str, Change]:
    """The settings of two cells that differ and count."""
    before = flat(old.planned_config.as_json())
    after = flat(new.planned_config.as_json())
    changes = {}
    for key in dict.fromkeys([*before, *after]):
        old_value = before.get(key, ABSENT)
        new_value = after.get(key, ABSENT)
        if old_value == new_value or not counts(key):
            continue
        if key.endswith("._target_") and class_name(old_value) == class_name(new_value):
            continue  # its code has moved
        changes[key] = (old_value, new_value)
    return changes


def counts(key: str) -> bool:
    """Whether a setting changes the numbers of a run, or how a study compares them."""
    section = key.partition(".")[0]
    if section in OF_STUDIES:
        return True
    return section not in STUDY_KEYS and key not in NO_NUMBERS


def task_text(manifest: Manifest, cell: Cell) -> str:
    """The name of a cell's task with the start of its fingerprint."""
    return f"{manifest.tasks[cell.task].name} ({cell.task[:8]})"


def change_text(key: str, change: Change) -> str:
    """A changed setting: "optim.lr 0.001 → 0.003"."""
    old, new = change
    if key.endswith("._target_"):
        return f"{key.removesuffix('._target_')} {class_name(old)} → {class_name(new)}"
    return f"{key} {value_text(old)} → {value_text(new)}"


def value_text(value: Any) -> str:
    """A setting's value, a large number with commas."""
    if is_number(value) and abs(value) >= 1000 and float(value).is_integer():
        return f"{int(value):,}"
    return show(value)
