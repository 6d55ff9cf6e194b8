"""`--json`: one document on standard output, for every command."""

import importlib
import json
import math
import os
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pandas
import pytest
from conftest import ROOT, latest
from fake_studies import draw_effects_alone, fabricate
from one_run import here

from ablate.cli import main, status
from ablate.config.subcommands import SCHEMA, Outcome, conclude, document, plain

PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")


def document_of(printed: str) -> Any:
    """The document that a command printed; nothing else stands beside it."""
    content = json.loads(printed)
    assert content.keys() == {"schema", "command", "exit_code", "remarks", "result"}
    assert content["schema"] == SCHEMA
    return content


class Pair(NamedTuple):
    first: object
    second: object


PLAIN = [
    (pandas.DataFrame({"a": [1], "b": [math.nan], "c": ["x"]}), [{"a": 1, "b": None, "c": "x"}]),
    (Pair(Path("a/b"), np.float64("inf")), {"first": "a/b", "second": None}),
    ({"n": np.int64(3), "t": (True, None)}, {"n": 3, "t": [True, None]}),
]


@pytest.mark.parametrize(("value", "expected"), PLAIN)
def test_values_are_those_of_json(value, expected):
    assert plain(value) == expected
    assert document_of(document("it", Outcome(0, value)))["result"] == expected


def print_and_start_a_child() -> Outcome:
    print("a table")
    os.system("echo a child")
    return Outcome(1, [1])


def test_nothing_else_comes_to_standard_output(capfd):
    assert conclude("it", True, print_and_start_a_child) == 1
    assert document_of(capfd.readouterr().out)["result"] == [1]


# The words of each command, and the keys of its result, or of each of its rows.
COMMANDS = {
    "status": "study round path name state step steps",
    "studies": "study factors cells seeds states bytes updated",
    "studies delete fabricated": "studies removed removable not_removed",
    "clean": "removed removable not_removed kept",
    "sync": "study lines",
    "analyse export": "study files notes",
    "analyse": "study cells effects claims replicated notes folder files",
}


@pytest.fixture(scope="module")
def results(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    fabricate(folder, {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]})
    draw_effects_alone(folder)
    return folder


@pytest.mark.parametrize("words", COMMANDS)
def test_a_command_has_the_keys_that_are_documented(words, results, capfd):
    name, *arguments = words.split()
    module = importlib.import_module(main.COMMANDS[name])
    assert module.main([*arguments, "--results-dir", str(results), "--json"]) == 0
    content = document_of(capfd.readouterr().out)
    assert content["command"].startswith(f"ablate {name}")
    rows = content["result"] if isinstance(content["result"], list) else [content["result"]]
    section = PAGE.partition(f"`ablate {words.removesuffix(' fabricated')}`")[2].partition("\n| `ablate")[0]
    for row in rows:
        assert row.keys() == set(COMMANDS[words].split())
    for key in rows[0]:
        assert f"`{key}`" in section, key


def test_a_plan_has_its_cells_runs_and_remarks(small, untried, capfd):
    words = latest(*small, "model.layers=2", "seeds=1", "attention=window+mha", "attention.window=5", "norm=ln,rms")
    assert main.command(["-m", *words, "dry_run=true", "--json"]) == 0
    document = document_of(capfd.readouterr().out)
    plan = document["result"]
    assert [cell["levels"] for cell in plan["cells"]] == [{"norm": "ln"}, {"norm": "rms"}]
    assert len(plan["todo"]) == 2
    assert "attention.window reaches window, not mha" in document["remarks"]


def test_a_study_has_its_runs_and_effects(small, untried, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr("ablate.api.run_plan", here)
    assert main.command(["-m", "norm=ln,rms", "seeds=1", *small, "--json"]) == 0
    study = document_of(capfd.readouterr().out)["result"]
    assert [run["status"] for run in study["runs"]] == ["done", "done"]
    assert study["effects"][0]["verdict"] == "undecided"
    assert status.main(["--json", "--results-dir", str(tmp_path / "results")]) == 0
    runs = document_of(capfd.readouterr().out)["result"]
    assert [(run["step"], run["steps"]) for run in runs] == [(6, 6), (6, 6)]


def test_a_mistake_is_in_the_document_and_on_standard_error(small, capfd):
    assert main.command(["norm=rmss", *small, "--json"]) == 2
    printed = capfd.readouterr()
    content = document_of(printed.out)
    assert (content["exit_code"], content["result"]) == (2, None)
    assert [f"{content['command']}: {line}" for line in content["remarks"]] == printed.err.splitlines()
