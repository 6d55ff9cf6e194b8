"""Damage is noticed: what is not as it was written is named, is no number in any table, and is trained again."""

import errno
import json
import os
import resource
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from conftest import SHAPE, STEPS, latest
from corpora import flip
from fake_studies import edit_json
from one_run import after, rows_of, train_runs, write_plan

from ablate import load
from ablate.cli import status
from ablate.config.errors import Corrupt, Unreadable
from ablate.config.files import read_regular
from ablate.execution.train_run import train_run
from ablate.execution.worker import carry_out
from ablate.planning.plan import Plan, plan_study
from ablate.runs import files
from ablate.runs import lock as leases
from ablate.runs.files import SEAL, write_atomic
from ablate.runs.folder import Run
from ablate.runs.manifest import read_manifest, renew_manifest, study_folder
from ablate.runs.study import load_study

STUDY = "damaged"


def truncate(file: Path, other: Path) -> None:
    content = file.read_bytes()
    file.write_bytes(content[: len(content) * 2 // 3])


def replace_by(make: Callable[[Path], object]) -> Callable[[Path, Path], None]:
    """Harm that puts something else in the place of a file."""

    def harm(file: Path, other: Path) -> None:
        file.unlink(missing_ok=True)
        make(file)

    return harm


def huge(file: Path) -> None:
    """A file of 8 GB that takes no space."""
    file.touch()
    os.truncate(file, 2**33)


HARM: dict[str, Callable[[Path, Path], object]] = {
    "truncated": truncate,
    "a flipped bit": lambda file, other: flip(file),
    "empty": replace_by(Path.touch),
    "that of another run": lambda file, other: shutil.copyfile(other, file),
    "nested 30,000 deep": replace_by(lambda file: file.write_bytes(b"[" * 30_000)),
    "huge": replace_by(huge),
    "a directory": replace_by(Path.mkdir),
    "a link to a device": replace_by(lambda file: file.symlink_to("/dev/zero")),
    "a pipe": replace_by(os.mkfifo),
}
LENGTHS = "eval.lengths=[8]"
SEEDS = ["norm=ln", f"seeds={len(HARM)}", f"study={STUDY}"]  # a run for each kind of harm


@pytest.fixture(scope="module")
def several(text, tmp_path_factory) -> Callable[..., Plan]:
    """Plans a study of a run for each kind of harm, with these further words."""
    words = [*SHAPE, *STEPS, "data=text", f"data.path={text}", *SEEDS, LENGTHS]

    def plan(results: Path, *more: str) -> Plan:
        return plan_study(latest(*words, *more, f"results_dir={results}"))

    return plan


@pytest.fixture(scope="module")
def ended(several, tmp_path_factory) -> Path:
    """The results of a study whose runs have ended."""
    results = tmp_path_factory.mktemp("ended") / "results"
    planned = several(results)
    write_plan(planned)
    assert set(train_runs(planned)) == {"done"}
    return results


@pytest.fixture(scope="module")
def interrupted(several, tmp_path_factory) -> Path:
    """The results of a study whose runs were interrupted after three steps."""
    results = tmp_path_factory.mktemp("interrupted") / "results"
    planned = several(results)
    write_plan(planned)
    for order in planned.orders():
        assert train_run(order, after(4)) == "interrupted"
    return results


@pytest.fixture
def results(ended, tmp_path) -> Path:
    """A copy of the study whose runs have ended."""
    return shutil.copytree(ended, tmp_path / "results")


def harm_each(results: Path, name: str) -> dict[str, Run]:
    """Harm the file of this name in each run of a study, in another way in each."""
    runs = [Run(results, run.path) for run in read_manifest(results, STUDY).runs]
    contents = [(run.folder / name).read_bytes() for run in runs]
    for i, (run, harm) in enumerate(zip(runs, HARM, strict=True)):
        other = results / "of another run"
        other.write_bytes(contents[i - 1])
        HARM[harm](run.folder / name, other)
    return dict(zip(HARM, runs, strict=True))


def check_whole(runs: dict[str, Run], ended: Path, results: Path) -> None:
    """Each run has the numbers of one whose files were never harmed."""
    for harm, run in runs.items():
        undisturbed = Run(ended, run.path)
        assert run.result().final == undisturbed.result().final, harm
        assert run.evaluation().items() >= undisturbed.evaluation().items(), harm
        assert rows_of(run) == rows_of(undisturbed), harm
        assert load(run.folder).weights().keys() == load(undisturbed.folder).weights().keys(), harm
        assert not list(run.folder.glob(".*")), harm


ENDED = ["result.json", "config.yaml", "provenance.json", "metrics.jsonl", "evaluation.json", "weights.safetensors"]


@pytest.mark.parametrize("name", ENDED)
def test_each_harm_to_a_file_of_an_ended_run_is_named_and_mended_by_the_same_command(
    name, ended, results, several, capfd
):
    runs = harm_each(results, name)
    # Weights are read where they are tested at further lengths.
    further = ["eval.lengths=[8,24]"] if name == "weights.safetensors" else []
    again = several(results, *further)
    assert again.todo == [run.path for run in runs.values()]
    answers = [carry_out(order, lambda: False) for order in again.orders()]
    assert {answer.status for answer in answers} == {"done"}
    said = capfd.readouterr().err.splitlines()
    for harm, run in runs.items():
        lines = [line for line in said if str(run.folder / name) in line]
        assert lines and "set aside" in lines[0], (harm, said)
        assert list(run.folder.glob("*.corrupt")), harm
    assert "Traceback" not in "".join(said)
    check_whole(runs, ended, results)
    assert not several(results, *further).todo


STARTED = ["checkpoint.pt", "metrics.jsonl", "config.yaml", "provenance.json", "lease.json", "lock"]


@pytest.mark.parametrize("name", STARTED)
def test_each_harm_to_a_file_of_an_interrupted_run_is_mended_or_refused_in_a_line(
    name, ended, interrupted, several, tmp_path, capfd, monkeypatch
):
    results = shutil.copytree(interrupted, tmp_path / "results")
    for run in read_manifest(results, STUDY).runs:  # as a process of another host that was killed leaves it
        (results / "runs" / run.path / "lease.json").write_text('{"host": "another", "pid": 7}')
        (results / "runs" / run.path / "lock").write_text("nothing is read here")
    monkeypatch.setattr(leases, "STALE", -1)
    runs = harm_each(results, name)
    again = several(results)
    assert again.todo == [run.path for run in runs.values()]
    refused = {}
    for order, (harm, run) in zip(again.orders(), list(runs.items()), strict=True):
        answer = carry_out(order, lambda: False)
        said = capfd.readouterr().err
        assert "Traceback" not in said
        if answer.status != "done":
            assert said.count("\n") == 1 and f"{run.folder / name} cannot be used: " in said, said
            refused[harm] = runs.pop(harm)
        elif name in ("checkpoint.pt", "metrics.jsonl"):
            assert f"{run.folder / name} " in said and "set aside as" in said, (harm, said)
    assert set(refused) == REFUSED.get(name, set())
    check_whole(runs, ended, results)


REFUSED = {"lock": {"a directory", "a link to a device", "a pipe"}, "lease.json": {"a directory"}}


def with_a_file_of_another(results: Path, name: str) -> Run:
    """The first run of a study, with the file of this name that its second run has."""
    runs = [Run(results, run.path) for run in read_manifest(results, STUDY).runs]
    shutil.copyfile(runs[1].folder / name, runs[0].folder / name)
    return runs[0]


@pytest.mark.parametrize("name", ["result.json", "config.yaml", "provenance.json", "metrics.jsonl"])
def test_a_run_with_a_file_of_another_is_in_no_table_and_named_by_every_reader(name, results, capsys):
    run = with_a_file_of_another(results, name)
    study = load_study(results, STUDY)
    assert study.runs["status"].tolist() == ["missing"] + ["done"] * (len(HARM) - 1)
    assert study.runs["test/loss"].isna().tolist() == [True] + [False] * (len(HARM) - 1)
    assert [str(run.folder / name) in note for note in study.notes] == [True]
    assert status.main([STUDY, "--results-dir", str(results)]) == 0
    assert f"{run.folder / name} is " in capsys.readouterr().out
    with pytest.raises(Corrupt, match=name):
        load(run.folder)


def test_another_run_s_tests_at_lengths_are_in_no_table(results):
    run = with_a_file_of_another(results, "evaluation.json")
    study = load_study(results, STUDY)
    assert set(study.runs["status"]) == {"done"}
    assert study.runs["test/loss@8"].isna().tolist() == [True] + [False] * (len(HARM) - 1)
    assert [f"{run.evaluation_file} is of another run, s1-" in note for note in study.notes] == [True]
    with pytest.warns(UserWarning, match=r"evaluation\.json is of another run, s1-.*; skipped"):
        load(run.folder)


def test_another_run_s_steps_are_in_no_curve_of_a_run_that_has_not_ended(interrupted, tmp_path):
    results = shutil.copytree(interrupted, tmp_path / "results")
    run = with_a_file_of_another(results, "metrics.jsonl")
    study = load_study(results, STUDY)
    assert set(study.curves["seed"]) == {*range(1, len(HARM))}
    assert [f"{run.metrics_file} is of another run, s1-" in note for note in study.notes] == [True]


def test_weights_of_another_run_are_not_loaded_though_no_checksum_is_listed(results):
    run = with_a_file_of_another(results, "weights.safetensors")
    edit_json(run.result_file, lambda result: result.pop("files"))
    with pytest.raises(Corrupt, match=r"weights\.safetensors is of another run, s1-"):
        load(run.folder).weights()


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


def failing_for(name: str) -> Callable[..., bytes]:
    """`read_regular`, for which the disk has an error at files of this name."""

    def read(path: Path, *most: int) -> bytes:
        if path.name == name:
            raise OSError(errno.EIO, "Input/output error", str(path))
        return read_regular(path, *most)

    return read


def test_a_result_that_cannot_be_read_now_is_not_set_aside(results, several, monkeypatch, capsys):
    further = several(results, "eval.lengths=[8,24]")
    with monkeypatch.context() as failing:
        failing.setattr(files, "read_regular", failing_for("result.json"))
        assert set(train_runs(further)) == {"failed"}
    assert "result.json cannot be read (Input/output error)" in capsys.readouterr().err
    assert not list(results.glob("runs/*/*/*.corrupt")) and not several(results).todo


def test_a_manifest_that_cannot_be_read_now_is_not_replaced(results, several, monkeypatch):
    file = study_folder(results, STUDY) / "manifest.json"
    before = file.read_bytes()
    plan = several(results)
    monkeypatch.setattr(files, "read_regular", failing_for("manifest.json"))
    with pytest.raises(Unreadable, match=r"manifest\.json cannot be read"):
        renew_manifest(results, plan.manifest)
    assert file.read_bytes() == before


@pytest.mark.parametrize("is_sealed", [True, False])
def test_an_edited_manifest_is_named_and_written_anew(is_sealed, results, several, capsys):
    """Whether its checksum is another's or was taken out."""
    file = study_folder(results, STUDY) / "manifest.json"
    content = json.loads(file.read_text())
    content["cells"][0]["notes"] = ["another"]
    if not is_sealed:
        del content[SEAL]
    file.write_text(json.dumps(content))
    assert status.main([STUDY, "--results-dir", str(results)]) == 2
    assert "manifest.json is damaged" in capsys.readouterr().err
    again = several(results)
    assert any("manifest.json is damaged" in note for note in again.notes)
    write_plan(again)
    assert read_manifest(results, STUDY).cells[0].notes != ["another"]
