"""Records are the JSON of their files: nothing is lost between reading and writing."""

import json
from pathlib import Path

import pytest
from conftest import ROOT
from fake_studies import edit_manifest, fabricate

from ablate.config.typed_json import parse
from ablate.runs.files import read_json
from ablate.runs.manifest import manifest_in, newer, read_manifest, study_folder, write_manifest
from ablate.runs.records import FORMAT, Manifest
from ablate.runs.study import load_study

COMMITTED = sorted((ROOT / "experiments" / "results").glob("*/manifest.json"))


@pytest.fixture
def results(tmp_path) -> Path:
    fabricate(tmp_path, {"norm": ["ln", "rms"], "optim.lr": [1, 0.5]}, seeds=(0, 1))
    return tmp_path


def test_what_is_read_is_written_as_it_was(results):
    file = study_folder(results, "fabricated") / "manifest.json"
    write_manifest(results, read_manifest(results, "fabricated"))
    once = file.read_bytes()
    write_manifest(results, read_manifest(results, "fabricated"))
    assert file.read_bytes() == once
    written = read_json(file)
    assert json.dumps(parse(Manifest, written).as_json()) == json.dumps(written), "1 stays 1, and .5 stays .5"


@pytest.mark.parametrize("name", [folder.parent.name for folder in COMMITTED])
def test_the_manifest_of_a_committed_study_is_read(name):
    manifest = manifest_in(ROOT / "experiments" / "results" / name / "manifest.json")
    assert manifest.runs and newer(manifest) == []
    assert all(cell.config and cell.user_code is None for cell in manifest.cells)


def test_a_manifest_of_a_newer_version_is_read_and_noted(results):
    def later(manifest):
        manifest["format"] = FORMAT + 1
        manifest["colour"] = "red"

    edit_manifest(results, "fabricated", later)
    assert load_study(results, "fabricated").notes == ["the manifest of fabricated was written by a newer ablate"]
