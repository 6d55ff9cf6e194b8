"""Files that never end, tags that make objects of plain data, nesting without end: a line each, never a hang."""

import dataclasses
import io
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from one_run import train, write_plan

from ablate.cli.main import command
from ablate.config.errors import Corrupt
from ablate.config.files import parse_plain, read_regular
from ablate.execution.worker import handle_order
from ablate.results import lease as leases
from ablate.results.atomic import write_atomic
from ablate.results.run import Run
from ablate.training.checkpoint import DamagedCheckpoint, Progress, restore
from ablate.training.vectors import kept
from hostile.conftest import Tried


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
    assert any("config.yaml is gone or damaged" in said for _, said in found.values()), found


def test_a_run_with_pipes_in_it_is_trained(place: Path, plan: Any, capfd: pytest.CaptureFixture[str]) -> None:
    planned, names = plan("seeds=1"), ["metrics.jsonl", "checkpoint.pt", "result.json", "weights.safetensors"]
    folder = planned.results / "runs" / planned.manifest.runs[0].path
    folder.mkdir(parents=True)
    for name in names:
        pipe_at(folder / name)
    write_plan(planned)
    assert train(planned)[0] == "done"
    printed = capfd.readouterr().err
    for name in names:
        assert (folder / f"{name}.corrupt").is_fifo()
        assert f"{name} is no file; set aside as {name}.corrupt" in printed


@pytest.mark.parametrize(
    ("name", "put", "why"),
    [
        ("lock", os.mkdir, "Is a directory"),
        ("lock", os.mkfifo, "it is no file"),
        ("lease.json", os.mkdir, "Is a directory"),
    ],
)
def test_a_run_that_cannot_be_locked_is_a_line(name, put, why, place, plan, capfd, monkeypatch) -> None:
    planned = plan("seeds=1")
    folder = planned.results / "runs" / planned.manifest.runs[0].path
    folder.mkdir(parents=True)
    put(folder / name)
    monkeypatch.setattr(leases, "STALE", 0)
    os.utime(folder / name, (0, 0))
    answer = handle_order(planned.orders()[0], lambda: False)
    assert answer.status == "failed" and capfd.readouterr().err == f"ablate: {folder / name} cannot be used: {why}\n"


@pytest.mark.parametrize("name", ["checkpoint.pt", "metrics.jsonl"])
def test_a_pipe_that_came_after_a_run_was_looked_at_keeps_it_no_longer(name: str, place: Path) -> None:
    """`complete_run` has set aside those that were there before."""
    run = Run(place, "cell/s0")
    run.folder.mkdir(parents=True)
    torch.save({"progress": dataclasses.asdict(Progress(offset=1))}, packed := io.BytesIO())
    write_atomic(run.checkpoint_file, lambda file: file.write(packed.getvalue()))
    pipe_at(run.folder / name)
    with pytest.raises(DamagedCheckpoint, match=r"it is no file.*set aside as checkpoint.pt.corrupt"):
        restore(run, torch.device("cpu"), {})


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
    assert read_regular(tmp_path / "large") == b"12345" and kept(tmp_path / "pipe") is None


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


def test_a_key_is_given_once_in_a_mapping() -> None:
    text = "a: &a {x: 1}\nb: &b {y: 2}\nc: {<<: *a, <<: *b, x: 3}\n1: d\n'1': e\nf: {x: 1}\n"
    assert parse_plain(text, "f.yaml")["c"] == {"x": 3, "y": 2} and len(parse_plain(text, "f.yaml")) == 6
    for twice in ("x: 1\ny: 2\nx: 3", "y: {z: 1,\n  x: 1,\n  x: 2}"):
        with pytest.raises(Corrupt, match=r"x is given twice, line 3"):
            parse_plain(twice, "f.yaml")


def test_a_date_is_a_text_as_hydra_reads_it() -> None:
    assert parse_plain("question: 2020-01-01", "f.yaml") == {"question": "2020-01-01"}
