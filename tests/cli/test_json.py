"""`--json`: one document on standard output, for every command."""

import json
import math
import re
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

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
PAGE = (ROOT / "docs" / "json.md").read_text(encoding="utf-8")


class Pair(NamedTuple):
    first: object
    second: object


def told(shown: str) -> Any:
    """The document that a command printed; nothing else stood beside it."""
    found = json.loads(shown)
    assert found.keys() == {"schema", "command", "exit_code", "remarks", "result"} and found["schema"] == SCHEMA
    return found


def test_values_are_those_of_json() -> None:
    table = pandas.DataFrame({"a": [1, 2], "b": [math.nan, 0.5], "c": ["x", None]})
    assert plain(table) == [{"a": 1, "b": None, "c": "x"}, {"a": 2, "b": 0.5, "c": None}]
    assert plain(Pair(Path("a/b"), np.float64("inf"))) == {"first": "a/b", "second": None}
    assert f'"schema": {SCHEMA},' in PAGE
    assert json.loads(document("it", Outcome(0, {"n": np.int64(3), "t": (True, None)})))["result"] == {
        "n": 3,
        "t": [True, None],
    }


def test_nothing_else_comes_to_standard_output(capfd: pytest.CaptureFixture[str]) -> None:
    """Of the process, and of one that it starts."""

    def act() -> Outcome:
        import os

        print("a table")
        os.system("echo a child")
        return Outcome(1, [1])

    assert conclude("it", True, act) == 1
    assert told(capfd.readouterr().out)["result"] == [1]
    assert conclude("it", False, act) == 1
    assert sorted(capfd.readouterr().out.splitlines()) == ["a child", "a table"]


# By command, its words beside --results-dir, and the keys of its result, or of each of its rows.
COMMANDS = {
    "status": (["status"], {"study", "round", "path", "name", "state", "step", "steps"}),
    "studies": (["studies"], {"study", "factors", "cells", "seeds", "states", "bytes", "updated"}),
    "studies delete": (["studies", "delete", "fabricated"], {"studies", "removed", "removable", "not_removed"}),
    "clean": (["clean"], {"removed", "removable", "not_removed", "kept"}),
    "sync": (["sync"], {"study", "lines"}),
    "analyse export": (["analyse", "export"], {"study", "files", "notes"}),
    "analyse": (
        ["analyse"],
        {"study", "cells", "effects", "claims", "replicated", "notes", "folder", "files", "removed"},
    ),
}


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("results")
    fabricate(folder, GRID)
    draw_effects_alone(folder)
    return folder


@pytest.mark.parametrize("name", COMMANDS)
def test_a_command_says_in_json_what_its_page_says(name: str, results: Path, capfd: Any) -> None:
    words, keys = COMMANDS[name]
    module = __import__(main.COMMANDS[words[0]], fromlist=["main"])
    assert module.main([*words[1:], "--results-dir", str(results), "--json"]) == 0
    found = told(capfd.readouterr().out)
    assert found["command"] == f"ablate {name}" or words[0] == "studies"
    rows = found["result"] if isinstance(found["result"], list) else [found["result"]]
    assert rows and all(row.keys() == keys for row in rows)
    section = PAGE.partition(f"`ablate {name}`")[2].partition("\n| `ablate")[0]
    assert all(re.search(rf"`{key}`", section) for key in keys), f"docs/json.md says nothing of {keys}"


def test_a_plan_and_a_study(small, untried, tmp_path, monkeypatch, capfd) -> None:
    words = ["-m", "norm=ln,rms", "seeds=1", *small, "--json"]
    assert main.command([*words, "dry_run=true"]) == 0
    plan = told(capfd.readouterr().out)["result"]
    assert [cell["levels"] for cell in plan["cells"]] == [{"norm": "ln"}, {"norm": "rms"}] and len(plan["todo"]) == 2
    monkeypatch.setattr("ablate.api.run_plan", here)
    assert main.command(words) == 0
    study = told(capfd.readouterr().out)["result"]
    assert [run["status"] for run in study["runs"]] == ["done", "done"]
    assert study["effects"][0]["verdict"] == "undecided"
    assert status.main(["--json", "--results-dir", str(tmp_path / "results")]) == 0
    assert [(run["step"], run["steps"]) for run in told(capfd.readouterr().out)["result"]] == 2 * [(6, 6)]


def test_remarks_and_mistakes_are_in_the_document(small, untried, capfd) -> None:
    words = ["attention=window+mha", "attention.window=5", *latest(*small, "model.layers=2"), "dry_run=true", "--json"]
    assert main.command(words) == 0
    assert "attention.window reaches window, not mha" in told(capfd.readouterr().out)["remarks"]
    assert main.command(["norm=rmss", *small, "--json"]) == 2
    shown = capfd.readouterr()
    found = told(shown.out)
    assert found["exit_code"] == 2 and found["result"] is None
    assert [f"{found['command']}: {line}" for line in found["remarks"]] == shown.err.splitlines()
