"""Damaged, foreign and mixed results: named, counted and left out; never a crash, never a silent gap."""

import copy
import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from fake_studies import fabricate

from ablate import evidence
from ablate.config.errors import Refused
from ablate.runs.files import write_json
from ablate.runs.manifest import read_manifest, study_folder
from analysis import sources
from analysis.case import case_of
from analysis.cli import arguments
from analysis.sources import read
from analysis.writing.tables import remarks

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


@pytest.fixture
def results(tmp_path) -> Path:
    """A study of four cells and three seeds, with what runs know of themselves."""
    fabricate(tmp_path, GRID)
    for file in tmp_path.glob("runs/*/*/result.json"):
        told = json.loads(file.read_text())
        write_json(file, told | {"versions": {"torch": "2.13.0"}, "device": "cpu x86_64"})
    return tmp_path


def change(file: Path, **entries: Any) -> None:
    """Replace entries of a JSON file."""
    write_json(file, json.loads(file.read_text()) | entries)


def first(results: Path) -> Path:
    """The folder of the first planned run: ln + mlp, seed 0."""
    return results / "runs" / read_manifest(results, "fabricated").runs[0].path


@pytest.mark.parametrize(
    ("content", "said"),
    [
        ('{"status": "do', "is not readable as JSON"),
        ("[1, 2]", "holds no JSON object"),
        ({"status": "splendid"}, "cannot be read: Invalid enum value"),
    ],
)
def test_a_damaged_or_foreign_run_is_named_counted_and_left_out(results, content, said):
    run = first(results)
    if isinstance(content, str):
        (run / "result.json").write_text(content)
    else:
        change(run / "result.json", **content)
    study = read(results, None)
    (note,) = study.notes
    assert said in note
    assert str(run.relative_to(results)) in note
    assert str(results) not in note
    lost = study.runs.iloc[0]
    assert lost["status"] == "missing"
    assert np.isnan(lost["test/loss"])
    assert not ((study.curves["label"] == lost["label"]) & (study.curves["seed"] == 0)).any()
    assert evidence.effects(study)["n"].eq(2).all()  # each has this run on one side
    lines = remarks(study)
    assert f"note: {note}" in lines
    assert any("1 run missing: ln + mlp seed 0" in line for line in lines)


def test_logged_lines_that_are_torn_or_gone(results):
    run = first(results)
    lines = (run / "metrics.jsonl").read_text().splitlines()
    lines[3:6] = ['{"step": 3', '"seed": 0}', '{"step": 5} {"step": 6}']  # the first two together would be a line
    (run / "metrics.jsonl").write_text("\n".join(lines) + "\n[1]\n\n\x00\x00")
    (results / "runs" / read_manifest(results, "fabricated").runs[1].path / "metrics.jsonl").unlink()
    study = read(results, None)
    assert f"{run.relative_to(results)}/metrics.jsonl: 5 torn lines skipped" in study.notes
    assert (study.curves["path"] == "/".join(run.parts[-2:])).sum() == len(lines) - 3
    assert (study.runs["status"] == "done").all()  # what it ended with is whole


def test_runs_of_other_versions_and_devices_are_named_and_kept(results):
    change(first(results) / "result.json", versions={"torch": "2.6.0"}, device="cuda NVIDIA H200")
    study = read(results, None)
    assert study.notes == [
        "runs differ in the version of torch: 2.13.0 (11 runs), 2.6.0 (1 run)",
        "runs differ in the device: cpu (11 runs), cuda (1 run)",
    ]
    change(first(results) / "result.json", versions={"torch": "2.13.0"}, device="2 × cpu x86_64")
    assert read(results, None).notes == [], "how many devices a run was on is no difference"
    assert evidence.effects(study)["n"].eq(3).all()


def test_a_run_that_is_planned_twice_counts_once(results):
    manifest = study_folder(results, "fabricated") / "manifest.json"
    runs = json.loads(manifest.read_text())["runs"]
    change(manifest, runs=[*runs, runs[0]])
    study = read(results, None)
    assert len(study.runs) == 12 and evidence.effects(study)["n"].eq(3).all()


def test_no_runs_at_all(results):
    shutil.rmtree(results / "runs")
    study = read(results, None)
    assert any("12 runs missing: " in line for line in remarks(study)) and study.curves.empty
    assert set(case_of(study, results).effects["note"]) == {"no seed has every run it needs"}


def test_manifests_of_other_versions(tmp_path):
    """Whatever entry of a manifest or of its cells is missing or odd: the effects, or one line that names the file."""
    fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]}, seeds=(0, 1))
    file = study_folder(tmp_path, "fabricated") / "manifest.json"
    whole = json.loads(file.read_text())
    changed = [whole | {key: value} for key in whole for value in (None, "odd")]
    for entries in (whole, whole["cells"][0]):
        for key in list(entries):
            value = entries.pop(key)
            changed.append(copy.deepcopy(whole))
            entries[key] = value
    refusals = []
    for manifest in changed:
        write_json(file, manifest)
        try:
            arguments.case(sources.read(tmp_path, "fabricated"), tmp_path)
        except Refused as error:
            refusals.append(str(error))
    assert refusals
    assert all("manifest.json" in refusal and "\n" not in refusal for refusal in refusals)
