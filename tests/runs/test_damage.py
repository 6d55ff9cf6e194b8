"""Damage is noticed: what is not as it was written is named, is no number in any table, and is trained again."""

import errno
import json
import random
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SHAPE, STEPS, latest
from fake_studies import fabricate
from one_run import rows_of, train, write_plan
from safetensors.torch import load_file, save_file

from ablate import load
from ablate.cli import clean, status
from ablate.config.errors import Corrupt, Unreadable
from ablate.config.files import read_regular
from ablate.planning.plan import plan_study
from ablate.runs import files
from ablate.runs.files import write_atomic, write_json
from ablate.runs.folder import Run
from ablate.runs.manifest import read_manifest, renew_manifest, study_folder
from ablate.runs.study import load_study

STUDY = "damaged"


def flip(file: Path, at: int, bit: int = 0) -> None:
    """Change one bit of a file."""
    data = bytearray(file.read_bytes())
    data[at] ^= 1 << bit
    file.write_bytes(data)


def edit(file: Path, change: Callable[[dict], object]) -> None:
    """Change a JSON file by hand, as its layout was."""
    content = json.loads(file.read_text())
    change(content)
    file.write_text(json.dumps(content, indent=1))


@pytest.fixture(scope="module")
def command(text) -> tuple[str, ...]:
    one = ["norm=bn", "seeds=1", f"study={STUDY}", "eval.lengths=[8]"]
    return (*SHAPE, *STEPS, "data=text", f"data.path={text}", *one)


@pytest.fixture(scope="module")
def whole(command, tmp_path_factory) -> Path:
    """The results of a study of one run with batch statistics, tested at another length."""
    results = tmp_path_factory.mktemp("whole") / "results"
    plan = plan_study((*command, f"results_dir={results}"))
    write_plan(plan)
    assert train(plan)[0] == "done"
    return results


@pytest.fixture
def results(whole, tmp_path) -> Path:
    return shutil.copytree(whole, tmp_path / "results")


@pytest.fixture
def planned(command, results):
    """Plans the study's command again, as a new process would."""

    def plan():
        return plan_study((*command, f"results_dir={results}"))

    return plan


def only(results: Path) -> Run:
    [run] = read_manifest(results, STUDY).runs
    return Run(results, run.path)


DAMAGES = {
    "an edited score": ("result.json", lambda file: edit(file, lambda told: told["final"].update({"test/loss": 1.0}))),
    "a bit of a logged step": ("metrics.jsonl", lambda file: flip(file, 60)),
    "an edited setting": ("config.yaml", lambda file: file.write_text(file.read_text().replace("0.003", "0.004"))),
}


@pytest.mark.parametrize("what", DAMAGES)
def test_it_is_named_everywhere_and_trained_again(what, whole, results, planned, capsys):
    run, (name, harm), there = only(results), DAMAGES[what], ["--results-dir", str(results)]
    harm(run.folder / name)
    study = load_study(results, STUDY)
    assert study.runs["status"].tolist() == ["missing"]
    assert "test/loss" not in study.runs or study.runs["test/loss"].isna().all()
    assert len([note for note in study.notes if name in note]) == 1
    assert status.main([STUDY, *there]) == 0 and f"/{name} is " in capsys.readouterr().out
    with pytest.raises(Corrupt, match=name):
        load(run.folder)
    again = planned()
    assert again.todo == [run.path] and any(f"/{name} is " in note and "trained again" in note for note in again.notes)
    assert train(again)[0] == "done"
    [line] = [line for line in capsys.readouterr().err.splitlines() if "trained again" in line]
    assert f"/{name} is " in line and "set aside as" in line and list(run.folder.glob("*.corrupt"))
    assert run.result().final == only(whole).result().final and rows_of(run) == rows_of(only(whole))
    assert not planned().todo


def test_no_bit_of_a_result_changes_a_number_in_silence(results):
    file, pick = only(results).result_file, random.Random(0)
    data, told, noticed = file.read_bytes(), only(results).result(), 0
    for at in pick.sample(range(len(data)), 150):
        flip(file, at, pick.randrange(8))
        run = only(results)
        try:
            assert run.result() == told
        except Corrupt:
            noticed += 1
        file.write_bytes(data)
    assert noticed > 120  # the others hit the space between its entries, or the checksum's name


@pytest.mark.parametrize("most", [10, 9_000])
def test_a_file_that_cannot_be_written_to_its_end_leaves_the_last_one_and_the_reason(most, tmp_path):
    file = tmp_path / "file.bin"
    write_atomic(file, b"old")
    limits = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (most, limits[1]))
    try:
        with pytest.raises(OSError, match=r"File too large: .*file.bin"):
            write_atomic(file, bytes(50_000))
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    assert file.read_bytes() == b"old" and list(tmp_path.iterdir()) == [file]


def test_damaged_weights_are_not_loaded(results):
    run = only(results)
    flip(run.weights_file, 3000)
    with pytest.raises(Corrupt, match=r"weights\.safetensors is damaged"):
        load(run.folder).model()
    assert run.weights_file.exists(), "reading in a notebook removes nothing"


def test_a_run_whose_weights_were_set_aside_is_trained_again(results, planned):
    run = only(results)
    run.weights_file.rename(run.folder / "weights.safetensors.corrupt")
    again = planned()
    assert again.todo == [run.path] and any("weights.safetensors was damaged" in note for note in again.notes)
    assert train(again)[0] == "done" and not planned().todo
    assert load(run.folder).model()


def test_damaged_weights_that_are_to_be_tested_are_set_aside_and_trained_again(results, command, capsys):
    run = only(results)
    flip(run.weights_file, 3000)
    further = plan_study(latest(*command, f"results_dir={results}", "eval.lengths=[8,24]"))
    assert further.todo == [run.path] and train(further)[0] == "done"
    [line] = [line for line in capsys.readouterr().err.splitlines() if "trained again" in line]
    assert "weights.safetensors is damaged" in line and "set aside as weights.safetensors.corrupt" in line
    assert "test/loss@24" in run.evaluation()


def test_removed_weights_are_not_explained_by_what_was_not_asked_for(results, planned):
    run = only(results)
    assert clean.main(["--weights", "--yes", "--results-dir", str(results)]) == 0
    with pytest.raises(FileNotFoundError, match="removed since, by ablate clean"):
        load(run.folder).model()
    again = planned()
    for said in again.notes:
        assert "removed since" in said and "keep=none" not in said
    assert not again.todo and len(again.notes) == 1


def failing_for(name: str) -> Callable[..., bytes]:
    """`read_regular`, for which the disk has an error at files of this name."""

    def read(path: Path, *most: int) -> bytes:
        if path.name == name:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read_regular(path, *most)

    return read


def test_a_result_that_cannot_be_read_now_is_not_set_aside(results, planned, command, monkeypatch, capsys):
    further = plan_study(latest(*command, f"results_dir={results}", "eval.lengths=[8,24]"))
    with monkeypatch.context() as failing:
        failing.setattr(files, "read_regular", failing_for("result.json"))
        assert train(further)[0] == "failed"
    assert "result.json cannot be read (Input/output error)" in capsys.readouterr().err
    assert not list(only(results).folder.glob("*.corrupt")) and not planned().todo


def test_a_manifest_that_cannot_be_read_now_is_not_replaced(results, planned, monkeypatch):
    file, plan = study_folder(results, STUDY) / "manifest.json", planned()
    before = file.read_bytes()
    monkeypatch.setattr(files, "read_regular", failing_for("manifest.json"))
    with pytest.raises(Unreadable, match=r"manifest\.json cannot be read"):
        renew_manifest(results, plan.manifest)
    assert file.read_bytes() == before


def test_lengths_that_cannot_be_read_now_are_not_replaced(results, command, monkeypatch):
    run = only(results)
    before = run.evaluation_file.read_bytes()
    further = plan_study(latest(*command, f"results_dir={results}", "eval.lengths=[8,24]"))
    with monkeypatch.context() as failing:
        failing.setattr(files, "read_regular", failing_for("evaluation.json"))
        assert train(further)[0] == "failed"
    assert run.evaluation_file.read_bytes() == before and not list(run.folder.glob("*.corrupt"))


def test_an_edited_manifest_is_named_and_written_anew(results, planned, capsys):
    file = study_folder(results, STUDY) / "manifest.json"
    edit(file, lambda manifest: manifest.update({"looks": []}) or manifest["cells"][0].update({"notes": ["another"]}))
    assert status.main([STUDY, "--results-dir", str(results)]) == 2
    assert "manifest.json is damaged" in capsys.readouterr().err
    again = planned()
    assert any("manifest.json is damaged" in note for note in again.notes)
    write_plan(again)
    assert read_manifest(results, STUDY).cells[0].notes != ["another"]


def test_what_came_after_a_result_replaces_nothing(tmp_path):
    name = fabricate(tmp_path, {"norm": ["ln", "rms"]})
    before = load_study(tmp_path, name).runs["test/loss"].tolist()
    run = Run(tmp_path, read_manifest(tmp_path, name).runs[0].path)
    write_json(run.evaluation_file, {"metrics": {"test/loss": 1.0}})
    study, said = load_study(tmp_path, name), "holds other things than metrics at lengths"
    assert study.runs["test/loss"].tolist() == before and [said in note for note in study.notes] == [True]


def test_a_missing_tensor_is_reported_and_edited_lengths_are_measured_again(results, planned):
    run = only(results)
    before = run.evaluation()
    edit(run.evaluation_file, lambda written: written["metrics"].update({"test/loss@8": 1.0}))
    study = load_study(results, STUDY)
    assert "test/loss@8" not in study.runs and any("evaluation.json is damaged" in note for note in study.notes)
    again = planned()
    assert again.statuses == {run.path: "untested"}
    assert train(again)[0] == "done" and run.evaluation() == before
    tensors = load_file(run.weights_file)
    del tensors["blocks.0.ffn.up.weight"]
    save_file(tensors, run.weights_file)
    result = json.loads(run.result_file.read_text())
    del result["files"], result["sha256"]
    write_json(run.result_file, result)
    missing = rf"{run.weights_file} has no blocks\.0\.ffn\.up\.weight, which the model needs.*command again"
    with pytest.raises(ValueError, match=missing):
        load(run.folder).model()
