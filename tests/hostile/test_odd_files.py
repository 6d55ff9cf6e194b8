"""Files that never end, tags that make objects of plain data, nesting without end: a line each, never a hang."""

import dataclasses
import json
import os
from pathlib import Path

import pytest
import torch

from ablate import load
from ablate.cli.main import command
from ablate.config.errors import Corrupt
from ablate.config.files import MOST_TEXT, parse_json, parse_plain, read_plain, read_regular
from ablate.runs.folder import Run
from ablate.training.checkpoint import Checkpointer, Progress
from ablate.training.vectors import load_vectors
from analysis.cli.main import main as analyse
from hostile.conftest import STUDY, Tried


def pipe_at(file: Path) -> None:
    """A pipe that nobody writes into, in place of a file."""
    file.unlink(missing_ok=True)
    os.mkfifo(file)


@pytest.mark.usefixtures("undrawn")
def test_a_pipe_in_place_of_a_runs_file_keeps_nobody_waiting(place: Path, folders: list[Path], tried: Tried) -> None:
    """In each run of some of what it wrote, and of one file that holds it."""
    for folder, names in zip(folders, (("result.json", "lock"), ("metrics.jsonl", "lease.json")), strict=True):
        for name in (*names, "evaluation.json", "config.yaml"):
            pipe_at(folder / name)
    found = tried()
    assert "result.json" in found["analysis export"][1] and "metrics.jsonl" in found["analysis export"][1], found
    for folder in folders:
        (folder / "result.json").unlink(missing_ok=True)
        with pytest.raises(Corrupt, match=r"config\.yaml is gone or damaged"):
            load(folder)


@pytest.mark.parametrize("name", ["checkpoint.pt", "metrics.jsonl"])
def test_a_pipe_that_came_after_a_run_was_looked_at_keeps_it_no_longer(name: str, place: Path) -> None:
    """`complete_run` has set aside those that were there before."""
    run = Run(place, "cell/s0")
    run.folder.mkdir(parents=True)
    torch.save({"run": "s0", "progress": dataclasses.asdict(Progress(offset=1))}, run.checkpoint_file)
    pipe_at(run.folder / name)
    with pytest.raises(OSError, match=r"it is no file"):
        Checkpointer(run, {}, 0).load(torch.device("cpu"))


def test_a_pipe_in_place_of_a_variant_is_a_line(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "conf" / "norm").mkdir(parents=True)
    pipe_at(place / "conf" / "norm" / "odd.yaml")
    for words, code in ((["--help"], 0), (["dry_run=true"], 2)):
        assert command(["--config-dir", str(place / "conf"), *words]) == code
        assert code == 0 or "odd.yaml" in capsys.readouterr().err


def test_devices_and_pipes_are_not_read(tmp_path: Path) -> None:
    (tmp_path / "zero").symlink_to("/dev/zero")
    pipe_at(tmp_path / "pipe")
    (tmp_path / "large").write_bytes(b"12345")
    for name, why in (("zero", "no file"), ("pipe", "no file"), ("large", "more than 4 bytes"), ("", "directory")):
        with pytest.raises(OSError, match=why):
            read_regular(tmp_path / name, most=4)
    assert read_regular(tmp_path / "large") == b"12345" and load_vectors(tmp_path / "pipe") is None


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("a: !!timestamp 2020-01-01", "!!timestamp is more than plain data"),
        ("a: !mine 1", "!mine is more than plain data"),
        (f"a: {'[' * 900}{']' * 900}", "more than 50 levels deep"),
        ("? [a, b]\n: c", "unhashable"),
    ],
)
def test_yaml_is_plain_data(text: str, why: str) -> None:
    with pytest.raises(Corrupt, match=f"f.yaml is not readable as YAML .*{why}") as error:
        parse_plain(text, "f.yaml")
    assert "\n" not in str(error.value)


DEEP = {"brackets": "[", "braces": "{", "keys": "{a: ", "lines": "- ", "questions": "? "}


@pytest.mark.parametrize("what", DEEP)
def test_yaml_nested_too_deep_is_refused_before_it_is_composed(what: str) -> None:
    with pytest.raises(Corrupt, match=r"f\.yaml is not readable as YAML .*more than 50 levels deep"):
        parse_plain(DEEP[what] * 30_000, "f.yaml")


def test_yaml_with_too_many_values_is_refused_before_it_is_composed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("yaml.compose", lambda *_, **__: pytest.fail("it is composed"))
    with pytest.raises(Corrupt, match="more than a file can hold"):
        parse_plain("- 1\n" * 200_000, "f.yaml")


def test_a_yaml_file_that_is_too_large_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "f.yaml").write_bytes(b"#" * (MOST_TEXT + 1))
    with pytest.raises(Corrupt, match=r"f\.yaml cannot be read .it has more than"):
        read_plain(tmp_path / "f.yaml")


def test_json_nested_too_deep_is_an_error_of_its_text() -> None:
    with pytest.raises(ValueError, match="nested too deep"):
        parse_json("[" * 30_000)


NESTED = "a: " + "[" * 30_000


@pytest.mark.parametrize(("folder", "word"), [("experiment", "+experiment=deep"), ("norm", "norm=ln,deep")])
def test_a_deep_file_is_a_line(folder: str, word: str, place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "conf" / folder).mkdir(parents=True)
    (place / "conf" / folder / "deep.yaml").write_text(NESTED)
    assert command(["--config-dir", str(place / "conf"), word, "dry_run=true"]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert "deep.yaml is not readable as YAML (it is more than 50 levels deep" in line


def test_a_deep_word_is_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    assert command([f"norm={'[' * 30_000}{']' * 30_000}", "dry_run=true"]) == 2
    assert capsys.readouterr().err == "ablate: norm: its value is more than 50 levels deep; write a flatter one\n"


@pytest.mark.usefixtures("undrawn")
def test_a_deep_configuration_of_a_run_ends_no_command(place: Path, folders: list[Path], tried: Tried) -> None:
    for folder in folders:
        (folder / "config.yaml").write_text(NESTED)
        (folder / "lease.json").write_text("[" * 30_000)
    tried()


def test_a_deep_figures_file_is_a_line(place: Path, results: Path, tried: Tried) -> None:
    file = results / "figures" / STUDY / "figures.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(NESTED)
    code, said = tried("analysis")["analysis"]
    assert code == 2 and len(said.splitlines()) == 1 and "figures.yaml" in said and "50 levels deep" in said


@pytest.mark.parametrize("name", ["config.json", "config.yaml", "hparams.yaml", "trainer_state.json"])
def test_deep_files_of_other_programs_are_a_line(place: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    (place / "logs" / "a").mkdir(parents=True)
    state = {"log_history": [{"step": 1, "loss": 2.0}], "global_step": 1, "max_steps": 1}
    (place / "logs" / "a" / "trainer_state.json").write_text(json.dumps(state))
    (place / "logs" / "a" / name).write_text("[" * 30_000)
    assert analyse(["--runs", str(place / "logs")]) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert name in line and ("50 levels deep" in line or "nested too deep" in line)


@pytest.mark.parametrize("name", ["pipe.csv", "zero.csv"])
def test_runs_are_not_read_from_what_is_no_file(place: Path, name: str, capsys: pytest.CaptureFixture[str]) -> None:
    pipe_at(place / "pipe.csv")
    (place / "zero.csv").symlink_to("/dev/zero")
    assert analyse(["--runs", str(place / name)]) == 2
    assert capsys.readouterr().err == f"ablate analyse: {place / name}: it cannot be read (it is no file)\n"


def test_a_key_is_given_once_in_a_mapping() -> None:
    text = "a: &a {x: 1}\nb: &b {y: 2}\nc: {<<: *a, <<: *b, x: 3}\n1: d\n'1': e\nf: {x: 1}\n"
    assert parse_plain(text, "f.yaml")["c"] == {"x": 3, "y": 2} and len(parse_plain(text, "f.yaml")) == 6
    for twice in ("x: 1\ny: 2\nx: 3", "y: {z: 1,\n  x: 1,\n  x: 2}"):
        with pytest.raises(Corrupt, match=r"x is given twice, line 3"):
            parse_plain(twice, "f.yaml")


def test_a_date_is_a_text_as_hydra_reads_it() -> None:
    assert parse_plain("question: 2020-01-01", "f.yaml") == {"question": "2020-01-01"}
