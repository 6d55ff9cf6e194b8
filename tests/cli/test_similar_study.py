"""The study on disk that a plan names as nearest to a new one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_studies import edit_json, fabricate

from ablate.cli.similar_study import changed_settings, similar_study
from ablate.config.schema import NO_NUMBERS, STUDY_KEYS, Tune
from ablate.runs.manifest import read_manifest, study_folder
from ablate.runs.records import Manifest

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


def with_steps(results: Path, study: str, steps: int) -> None:
    """A study of the same factors with another number of steps."""
    fabricate(results, GRID, study=study)
    file = study_folder(results, study) / "manifest.json"
    edit_json(file, lambda content: [cell["config"]["train"].update(steps=steps) for cell in content["cells"]])


def new(results: Path, study: str) -> Manifest:
    """The manifest of a study that is not on disk, with the settings of one that is."""
    return replace(read_manifest(results, study), study="new")


def test_the_nearest_study_and_what_differs_are_named(tmp_path: Path) -> None:
    fabricate(tmp_path, GRID, study="s")
    with_steps(tmp_path, "longer", 1200)
    long = new(tmp_path, "longer")
    assert similar_study(tmp_path, long) == "like longer in all settings"
    (study_folder(tmp_path, "longer") / "manifest.json").unlink()
    assert similar_study(tmp_path, long) == "like s but for train.steps 800 → 1,200"


def test_a_study_on_disk_and_other_factors_have_none(tmp_path: Path) -> None:
    fabricate(tmp_path, GRID, study="s")
    assert similar_study(tmp_path, read_manifest(tmp_path, "s")) == ""
    assert similar_study(tmp_path, replace(new(tmp_path, "s"), factors={"norm": ["ln", "rms"]})) == ""


def test_the_order_of_factors_and_levels_does_not_count(tmp_path: Path) -> None:
    fabricate(tmp_path, GRID, study="s")
    other = new(tmp_path, "s")
    factors = dict(reversed(other.factors.items()))
    cells = [replace(cell, levels=dict(reversed(cell.levels.items()))) for cell in other.cells]
    turned = replace(other, factors=factors, cells=cells[::-1])
    assert changed_settings(read_manifest(tmp_path, "s"), turned) == []


def test_of_another_class_only_the_class_is_named(tmp_path: Path) -> None:
    fabricate(tmp_path, {"optim.lr": [1e-3, 3e-3]}, study="s")
    old = read_manifest(tmp_path, "s")
    rms = {"_target_": "ablate.model.norm.RMSNorm", "eps": 1e-5}
    one = replace(old, cells=[replace(cell, config=cell.config.with_value("norm", rms)) for cell in old.cells])
    scaled = {"_target_": "ablate.model.norm.ScaleNorm", "eps": 1e-6}
    other = replace(old, cells=[replace(cell, config=cell.config.with_value("norm", scaled)) for cell in old.cells])
    assert changed_settings(one, other) == ["norm RMSNorm → ScaleNorm"]


def test_other_data_of_equal_settings_are_a_difference(tmp_path: Path) -> None:
    fabricate(tmp_path, {"norm": ["ln", "rms"]})
    one = read_manifest(tmp_path, "fabricated")
    task = next(iter(one.tasks.values()))
    cells = [replace(cell, task="0123456789") for cell in one.cells]
    other = replace(one, cells=cells, tasks={"0123456789": replace(task, name="mine")})
    [change] = changed_settings(one, other)
    assert change.startswith("data.fingerprint ") and change.endswith(" → mine (01234567)")
    assert changed_settings(one, one) == []


@pytest.mark.parametrize("key", [*STUDY_KEYS, *NO_NUMBERS])
def test_the_keys_said_to_have_no_effect_have_none(plan: Callable[..., Any], key: str) -> None:
    from ablate.runs.key import numbers

    [cell] = plan("seeds=1").manifest.cells
    changed = cell.config.with_value(key, Tune(seeds=9) if key == "tune" else "other")
    assert numbers(changed) == numbers(cell.config)
