"""The tables of a study that are kept without its runs: what is read back gives the same numbers, or is refused."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from fake_studies import edit_json, fabricate

from ablate.config.errors import Corrupt
from ablate.config.typed_json import parse
from ablate.runs.files import write_json
from ablate.runs.folder import Run
from ablate.runs.kept_tables import (
    as_csv,
    holds_tables,
    read_csv,
    read_tables,
    read_verdicts,
    texts_of,
    write_tables,
    write_verdicts,
)
from ablate.runs.manifest import read_manifest
from ablate.runs.records import StudyVerdicts
from ablate.runs.study import Study, load_study

GRID: dict[str, list[Any]] = {"ffn": ["mlp", "=glu, gated", "+ swiglu"], "optim.lr": [1e-05, 0.001]}


def sometimes(levels: dict[str, Any], seed: int) -> str:
    lost = {("mlp", 1): "diverged", ("=glu, gated", 2): "failed", ("+ swiglu", 3): "missing"}
    return "done" if levels["optim.lr"] == 1e-5 else lost.get((levels["ffn"], seed), "done")


def logged(run: Run, number: int) -> None:
    """Give a run what real ones log besides: training rows without an evaluation, diagnostics, documents, lengths."""
    rng = np.random.default_rng(number)
    rows = []
    for row in run.metrics()[0]:
        training = {"train/loss": rng.uniform(1, 2), "lr": rng.uniform()}
        rows.append(row | training | {f"diag/grad_norm/blocks.{i}": rng.uniform() for i in range(2)})
        rows += [{"step": row["step"] + i, "tokens": row["tokens"] + i} | training for i in (1, 2, 3)]
    run.metrics_file.write_text("\n".join(json.dumps(row) for row in rows[:-3]) + "\n")
    if not run.result_file.exists():
        return
    names = [f'a, {number % 2} "b"', "=1+1", "2021", "d\ne", "f"]
    losses = [None, *rng.uniform(1, 2, 4)]
    facts = {"versions": {"torch": "2.10"}, "git": {"commit": "1234567", "dirty": number % 2 == 0}, "device": "cpu x86"}
    facts["documents"] = {"test": {"name": names, "tokens": [64, 128, 64, 32, 1], "loss": losses}}
    edit_json(run.result_file, lambda result: result.update(facts))
    if number % 3:
        write_json(run.evaluation_file, {"metrics": {"test/loss@128": rng.uniform(1, 2)}})


@pytest.fixture(scope="module")
def study(tmp_path_factory) -> Study:
    """A study with studies beside it, tuning, lengths, diagnostics, documents, lost runs and awkward texts."""
    results = tmp_path_factory.mktemp("results")
    fabricate(results, {"train.steps": [800, 640, 1000]}, study="x-exchange", exchange_of="x")
    tuned = {"value": 0.001, "scores": [2.0, 1.9], "edge": True}
    tuning = {"key": "optim.beta", "values": [0.001, 0.01], "seeds": 2, "study": "x-tune"}
    tuning |= {"cells": {f"c{i}": tuned for i in range(6)}}
    text = {"less": [{"ffn": "+ swiglu"}, {"ffn": "mlp"}], "metric": "test/loss"}
    claims = {"gated": {"claim": text, "written": "2025-01-01T00:00:00+00:00", "registered": True}}
    beside = {"exchange": "x-exchange", "tuning": tuning, "claims": claims}
    fabricate(results, GRID, range(6), status=sometimes, study="x", **beside)
    for number, planned in enumerate(read_manifest(results, "x").runs):
        run = Run(results, planned.path)
        if run.folder.exists():
            logged(run, number)
    with open(next(results.glob("runs/*/s0-x/metrics.jsonl")), "a") as file:
        file.write('{"torn')
    return load_study(results, "x")


@pytest.fixture
def kept(study, tmp_path) -> Path:
    write_tables(study, tmp_path / "x")
    return tmp_path / "x"


def test_the_study_comes_back_to_the_last_bit(study, kept):
    again = read_tables(kept)
    pandas.testing.assert_frame_equal(again.runs, study.runs)
    pandas.testing.assert_frame_equal(again.documents, study.documents)
    assert again.manifest.as_json() == study.manifest.as_json()
    [role] = again.beside
    pandas.testing.assert_frame_equal(again.beside[role].runs, study.beside["exchange"].runs)
    assert any("torn line" in note for note in study.notes)
    assert [note.rpartition("runs/")[2] for note in again.notes] == [n.rpartition("runs/")[2] for n in study.notes]


def test_where_results_were_on_one_machine_is_not_kept(study, tmp_path):
    cells = [replace(cell, config=replace(cell.config, results_dir="/scratch/me")) for cell in study.manifest.cells]
    command = "ablate -m --config-dir /scratch/mine norm=ln,rms results_dir=/scratch/me 'seeds=[3,4]'"
    told = replace(study.manifest, cells=cells, command=command)
    write_tables(replace(study, manifest=told, notes=["/scratch/me/runs/a/s0/metrics.jsonl: torn"]), tmp_path / "x")
    assert not [file for file in (tmp_path / "x").rglob("*.*") if b"scratch" in file.read_bytes()]
    assert read_tables(tmp_path / "x").manifest.command == "ablate -m --config-dir mine norm=ln,rms 'seeds=[3,4]'"


def test_rows_without_an_evaluation_go_and_all_others_stay_as_they_are(study, kept):
    curves = read_tables(kept).curves
    whole = study.curves
    ends = ~whole.duplicated(["cell", "seed"]) | ~whole.duplicated(["cell", "seed"], keep="last")
    expected = whole[whole["diag/grad_norm/blocks.0"].notna() | ends].reset_index(drop=True)
    assert len(expected) < len(whole) / 3
    pandas.testing.assert_frame_equal(curves[list(whole)], expected)


FILES = ["manifest.json", "runs.csv", "curves.csv", "documents.csv", "tables.json"]
FILES += ["exchange/runs.csv", "exchange/tables.json", "exchange/manifest.json"]


def test_what_is_not_as_it_was_written_is_refused(kept):
    for file in (kept / name for name in FILES):
        data = file.read_bytes()
        place = next(i for i in range(len(data) // 2, len(data)) if data[i : i + 1].isdigit())
        for harmed in (data[:-20], data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :], None):
            file.write_bytes(harmed) if harmed else file.unlink()
            with pytest.raises(Corrupt) as refused:
                read_tables(kept)
            assert str(file) in str(refused.value) and "\n" not in str(refused.value)
            assert holds_tables(kept)
        file.write_bytes(data)


VERDICT = {"verdict": "supported", "note": "", "estimate": -0.1, "interval": [-0.2, None], "p": 0.01}
VERDICT |= {"method": "simultaneous interval (Bonferroni t)", "commit": "1234567"}


def test_verdicts_come_back_with_the_tables(kept):
    assert read_tables(kept).verdicts == {} and read_verdicts(kept) is None
    verdicts = parse(StudyVerdicts, {"overall": "met", "claims": {"gated": VERDICT}})
    write_verdicts(verdicts, kept)
    assert read_verdicts(kept) == verdicts
    assert read_tables(kept).verdicts["gated"].interval == (-0.2, None)


def test_numbers_and_texts_of_a_csv_come_back(tmp_path):
    texts = ["a", "1e5", "null", "", "x,y", 'say "no"', "two\nlines", "\r", "=1+1", "'=1", None]
    numbers = [0.1, 1 / 3, 1e-300, -0.0, 2.0**60, float("nan"), float("inf"), 5e-324, 1.0, 2.0, 3.0]
    given: dict[str, Any] = {"text": texts, "number": numbers, "int": range(11), "bool": [True] * 11}
    mixed = pandas.Series([True, None, 1, 0.5, *[np.nan] * 7], dtype=object)
    table = pandas.DataFrame(given | {"mixed": mixed, "none": [None] * 11, "-of": range(11)})
    data = as_csv(table)
    expected = table.assign(text=table["text"].replace({"": np.nan, "\r": "\n"}))
    (tmp_path / "table.csv").write_bytes(data)
    pandas.testing.assert_frame_equal(read_csv(tmp_path / "table.csv", texts_of(table)), expected)
    assert b"\n=1" not in data and b",=1" not in data and not data.startswith(b"=") and b",-of" not in data
