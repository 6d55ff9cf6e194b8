"""The study on disk that a plan names as nearest to a new one."""

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_studies import edit_manifest, fabricate

from ablate.cli.similar_study import changed_settings, similar_study
from ablate.config.schema import NO_NUMBERS, STUDY_KEYS, Tune
from ablate.runs.key import numbers
from ablate.runs.manifest import read_manifest, study_folder
from ablate.runs.records import Manifest

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


@pytest.fixture
def study(tmp_path: Path) -> Manifest:
    """A study on disk."""
    return read_manifest(tmp_path, fabricate(tmp_path, GRID, study="s"))


def with_value(manifest: Manifest, key: str, value: Any) -> Manifest:
    """The manifest with another setting of all cells."""
    return replace(
        manifest, cells=[replace(cell, config=cell.config.with_value(key, value)) for cell in manifest.cells]
    )


def test_the_nearest_study_and_what_differs_are_named(tmp_path: Path, study: Manifest) -> None:
    fabricate(tmp_path, GRID, study="longer")
    edit_manifest(
        tmp_path, "longer", lambda told: [cell["config"]["train"].update(steps=1200) for cell in told["cells"]]
    )
    new = replace(read_manifest(tmp_path, "longer"), study="new")
    assert similar_study(tmp_path, new) == "like longer in all settings"
    (study_folder(tmp_path, "longer") / "manifest.json").unlink()
    assert similar_study(tmp_path, new) == "like s but for train.steps 800 → 1,200"


def test_a_study_of_other_factors_is_not_similar(tmp_path: Path, study: Manifest) -> None:
    assert similar_study(tmp_path, replace(study, study="new", factors={"norm": ["ln", "rms"]})) == ""


def test_of_another_class_only_the_class_is_named(tmp_path: Path) -> None:
    study = read_manifest(tmp_path, fabricate(tmp_path, {"optim.lr": [1e-3, 3e-3]}))
    rms = with_value(study, "norm", {"_target_": "ablate.model.norm.RMSNorm", "eps": 1e-5})
    scale = with_value(study, "norm", {"_target_": "ablate.model.norm.ScaleNorm", "eps": 1e-6})
    assert changed_settings(rms, scale) == ["norm RMSNorm → ScaleNorm"]


def test_other_data_of_equal_settings_are_a_difference(study: Manifest) -> None:
    [task] = study.tasks.values()
    cells = [replace(cell, task="0123456789") for cell in study.cells]
    other = replace(study, cells=cells, tasks={"0123456789": replace(task, name="mine")})
    [change] = changed_settings(study, other)
    assert change.startswith("data.fingerprint ") and change.endswith(" → mine (01234567)")


def test_the_keys_said_to_have_no_effect_have_none(plan: Callable[..., Any], untried: None) -> None:
    [cell] = plan("seeds=1").manifest.cells
    for key in (*STUDY_KEYS, *NO_NUMBERS):
        value = Tune(seeds=9) if key == "tune" else "other"
        assert numbers(cell.config.with_value(key, value)) == numbers(cell.config), key
