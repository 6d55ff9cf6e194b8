"""ablate diff: what it finds between cells and runs, how they can be named, how it refuses."""

import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml
from fake_studies import edit_json, fabricate

from ablate.cli.diff import Row, compare, find, main
from ablate.config.schema import NO_NUMBERS, STUDY_KEYS, Tune
from ablate.results.atomic import write_json
from ablate.results.manifest import read_manifest
from ablate.results.run import Run

GRID: dict[str, list[Any]] = {"ffn": ["mlp", "swiglu"], "optim.lr": [1e-3, 3e-3]}


@pytest.fixture
def results(tmp_path: Path) -> Path:
    """A study whose runs have configurations and provenance, as a sweep leaves them."""
    fabricate(tmp_path, GRID, seeds=(0, 1))
    manifest = read_manifest(tmp_path, "fabricated")
    cells = {cell.id: cell for cell in manifest.cells}
    for planned in manifest.runs:
        run, cell = Run(tmp_path, planned.path), cells[planned.cell]
        run.config_file.write_text(yaml.safe_dump(cell.config.with_value("seeds", [planned.seed]).as_json()))
        code = {"ablate.model.ffn.MLP": "a" * 64, "ablate.model.norm.LayerNorm": "b" * 64}
        if cell.levels["ffn"] == "swiglu":
            code = {"ablate.model.ffn.SwiGLU": "c" * 64, "ablate.model.norm.LayerNorm": "b" * 64}
        provenance = {"numbers": run.path, "versions": {"torch": "2.6.0"}, "data": "f0", "definitions": code}
        write_json(run.folder / "provenance.json", provenance)
    return tmp_path


def differences(first: str, second: str, results: Path) -> list[Row]:
    return compare(find(results, first), find(results, second))


def rewrite(run: Run, **changes: Any) -> None:
    edit_json(run.result_file, lambda result: result.update(changes))


def test_cells_differ_by_configuration_and_size(results: Path) -> None:
    assert differences("mlp + 0.001", "swiglu + 0.003", results) == [
        Row("configuration", "ffn", "mlp", "swiglu"),
        Row("configuration", "optim.lr", 0.001, 0.003),
        Row("size", "params", 123_456, 123_756, f"{100 * 300 / 123_456:+.1f} %"),
    ]
    assert differences("mlp + 0.001", "mlp + 0.001", results) == []


def test_runs_differ_by_seed_code_and_metrics_too(results: Path) -> None:
    first, second = find(results, "mlp + 0.001 s0"), find(results, "swiglu + 0.001 s1")
    assert first.result and second.result
    rows = {(row.section, row.key): row for row in compare(first, second)}
    assert rows["configuration", "seed"][2:4] == (0, 1)
    assert rows["provenance", "code of ablate.model.ffn.MLP"][2:4] == ("a" * 8, "absent")
    assert rows["provenance", "code of ablate.model.ffn.SwiGLU"][2:4] == ("absent", "c" * 8)
    assert ("provenance", "code of ablate.model.norm.LayerNorm") not in rows and ("provenance", "data") not in rows
    metric = rows["result", "test/loss"]
    assert float(metric.change.replace("−", "-")) == pytest.approx(
        second.result.final["test/loss"] - metric.first, rel=1e-3
    )


def two_seeds(results: Path) -> list[Run]:
    return [Run(results, run.path) for run in read_manifest(results, "fabricated").runs[:2]]


def test_versions_data_machine_commit_status_and_keys_without_effect(results: Path) -> None:
    first, second = two_seeds(results)
    config = yaml.safe_load(second.config_file.read_text())
    config["train"]["parallel"] = 4
    second.config_file.write_text(yaml.safe_dump(config | {"keep": "all", "seeds": [0]}))
    write_json(second.folder / "provenance.json", {"versions": {"torch": "2.7.0"}, "data": "f1", "code": ""})
    rewrite(first, host="a", git={"commit": "1" * 40, "dirty": False})
    commit = {"commit": "1" * 40, "dirty": True}
    rewrite(second, host="b", git=commit, status="diverged", final={}, device="cpu x86_64")
    rows = {(row.section, row.key): row[2:4] for row in differences(first.path, second.path, results)}
    assert rows["without effect on numbers", "train.parallel"] == ("auto", 4)
    assert rows["without effect on numbers", "keep"] == ("weights", "all")
    assert rows["provenance", "version of torch"] == ("2.6.0", "2.7.0") and rows["provenance", "data"] == ("f0", "f1")
    assert rows["provenance", "host"] == ("a", "b")
    assert rows["provenance", "commit"] == ("1" * 8, "1" * 8 + " with changes")
    assert ("provenance", "device") not in rows, "of the first one it is not known"
    assert rows["result", "status"] == ("done", "diverged") and rows["result", "test/loss"][1] == "unknown"
    assert not any(section == "configuration" for section, _ in rows)


def test_what_has_no_provenance_is_unknown(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (two_seeds(results)[0].folder / "provenance.json").unlink()
    assert main(["mlp + 0.001 s0", "swiglu + 0.001 s0", "--results-dir", str(results)]) == 0
    shown = capsys.readouterr().out
    assert "code of A: unknown" in shown and "code of B" not in shown and "code of ablate" not in shown
    assert main(["mlp + 0.001 s1", "swiglu + 0.001 s1", "--results-dir", str(results)]) == 0
    assert "unknown" not in capsys.readouterr().out


def test_what_is_the_same_is_said_to_be(results: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = find(results, "mlp + 0.001 s0").name.split()[-1]
    folder = str(results / "runs" / path)

    def shown(first: str, second: str) -> str:
        assert main([first, second, "--results-dir", str(results)]) == 0
        return capsys.readouterr().out

    assert "A and B are the same run" in shown("mlp + 0.001 s0", folder)
    assert "A and B are the same\n" in shown("mlp + 0.001", "c0")
    assert "the same configuration\n" not in shown("mlp + 0.001 s0", "mlp + 0.001 s1")
    twin = Run(results, path + "-copy")
    twin.folder.mkdir()
    for file in ("config.yaml", "result.json", "provenance.json"):
        (twin.folder / file).write_bytes((results / "runs" / path / file).read_bytes())
    assert "A and B are the same, metrics and all\n" in shown(folder, str(twin.folder))
    rewrite(twin, final={"test/loss": 9.0})
    assert "the same configuration\n" in shown(folder, str(twin.folder))


def test_a_cell_or_run_has_many_names(results: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    manifest = read_manifest(results, "fabricated")
    cell, run = manifest.cells[0], manifest.runs[0]
    for text in ("mlp + 0.001", "mlp+0.001", cell.id, cell.name):
        assert find(results, text).run is None and find(results, text).name == "mlp + 0.001"
    monkeypatch.chdir(results / "runs")
    names = ("mlp + 0.001 s0", "c0 s0", "c0/s0", run.path, run.path[:-4], f"./{run.path}/")
    for text, study in itertools.product(names, (None, "fabricated")):
        found = find(results, text, study).run
        assert found and found.folder.samefile(results / "runs" / run.path), text


def test_a_run_that_has_not_begun_has_its_cells_configuration(tmp_path: Path) -> None:
    fabricate(tmp_path, GRID, seeds=(0, 1), status=lambda levels, seed: "missing" if seed else "running")
    rows = {row.key: row for row in differences("c0 s0", "c0 s1", tmp_path)}
    assert (rows["seed"].first, rows["seed"].second) == (0, 1) and "status" not in rows
    Run(tmp_path, str(find(tmp_path, "c0 s0").name.split()[-1])).checkpoint_file.write_text("")
    rows = {row.key: row for row in differences("c0 s0", "c0 s1", tmp_path)}
    assert (rows["status"].first, rows["status"].second) == ("interrupted", "not ended")


@pytest.mark.parametrize(
    ("arguments", "line"),
    [
        (["mlp+0.001", "swiglo + 0.001"], "swiglo + 0.001 is no cell of fabricated and no run in {folder}: did you"),
        (
            ["mlp+0.001", "gelu"],
            "gelu is no cell of fabricated and no run in {folder}: it is a cell of other; write --st",
        ),
        (
            ["other", "fabricated"],
            "other is no cell of fabricated and no run in {folder}: it is a study; write ablate studies compare other",
        ),
        (["c0", "ln-mlp-pre-rope-mha-gpt2-0/s"], "ln-mlp-pre-rope-mha-gpt2-0/s can be ln-mlp-pre-rope-mha-gpt2-0/s0"),
        (["c0 s0", "c1 s1"], "{folder}/runs/ln-mlp-pre-rope-mha-gpt2-1/s1-fabricated/result.json is not readable"),
        (["c0", "runs/ln-mlp-pre-rope-mha-gpt2-1/s0-fabricated"], "{cwd}/runs/ln-mlp-pre-rope-mha-gpt2-1/s0-fab"),
    ],
)
def test_mistakes_are_one_line(results: Path, arguments: list[str], line: str, monkeypatch, capsys) -> None:
    cell = results / "runs" / "ln-mlp-pre-rope-mha-gpt2-1"
    (cell / "s1-fabricated" / "result.json").write_text("{")
    (cell / "s0-fabricated" / "config.yaml").write_text("[")
    fabricate(results, {"ffn": ["gelu"]}, study="other", status=lambda *_: "missing")
    os.utime(results / "studies" / "other" / "manifest.json", (1e9, 1e9))
    monkeypatch.chdir(results)
    assert main([*arguments, "--results-dir", str(results)]) == 2
    shown = capsys.readouterr()
    assert shown.out == "" and shown.err.count("\n") == 1
    assert shown.err.startswith("ablate diff: " + line.format(folder=results, cwd=results))


def test_the_keys_said_to_have_no_effect_have_none(plan: Callable[..., Any]) -> None:
    from ablate.results.run_key import numbers

    [cell] = plan("seeds=1").manifest.cells
    for key in (*STUDY_KEYS, *NO_NUMBERS):
        changed = cell.config.with_value(key, Tune(seeds=9) if key == "tune" else "other")
        assert numbers(changed) == numbers(cell.config), key
