"""The cells of a study as the cache has them: the same plan, without torch, as long as nothing has changed."""

import subprocess
import sys

import pytest
from conftest import ROOT

from ablate.planning import cache
from ablate.planning.checks import inspect


@pytest.fixture
def inspected(monkeypatch, plan_cache) -> list[int]:
    """How many cells each plan inspects; the others it takes from an empty cache."""
    counts: list[int] = []
    real = inspect.inspect

    def counted(drafts, *more):
        counts.append(len(drafts))
        return real(drafts, *more)

    monkeypatch.setattr(inspect, "inspect", counted)
    return counts


def test_the_same_command_has_the_same_plan_and_inspects_nothing(plan, inspected):
    words = ("norm=ln,rms", "ffn=mlp,swiglu", "match=params", "eval.lengths=[8]", "seeds=2")
    first = plan(*words)
    again = plan(*words)
    assert inspected == [4]
    assert again.manifest.cells == first.manifest.cells and again.manifest.tasks == first.manifest.tasks
    assert again.todo == first.todo and again.notes == first.notes


def test_keys_of_the_study_alone_inspect_nothing_again_and_are_those_of_the_command(plan, inspected):
    first = plan("norm=ln,rms", "study=first", "dry_run=true", "seeds=3")
    again = plan("norm=ln,rms", "study=again", "keep=all", "seeds=4")
    assert inspected == [2]
    assert [cell.id for cell in again.manifest.cells] == [cell.id for cell in first.manifest.cells]
    assert {cell.config.keep for cell in again.manifest.cells} == {"all"}
    assert not any(cell.config.dry_run for cell in again.manifest.cells)


def test_a_wrong_key_of_the_study_is_found_although_its_cells_were_inspected(plan, refused, inspected):
    plan("norm=ln,rms", "keep=all")
    assert any("keep" in problem for problem in refused("norm=ln,rms", "keep=most"))


def test_a_smaller_limit_of_memory_refuses_what_was_planned_before(plan, refused, inspected, monkeypatch, tmp_path):
    plan("norm=ln,rms")
    limit = tmp_path / "memory.max"
    limit.write_text("300000000")
    monkeypatch.setattr(cache, "CGROUP_LIMIT", limit)
    problems = refused("norm=ln,rms")
    assert any("GB of the 0." in problem for problem in problems), problems
    assert inspected == [2, 2]


@pytest.mark.parametrize("change", ["configuration", "code", "data", "damage"])
def test_what_has_changed_is_inspected_anew(plan, inspected, tmp_path, text, monkeypatch, change):
    file = tmp_path / "text.txt"
    file.write_text(text.read_text())
    words = ["norm=ln,rms", f"data.path={file}"]
    first = plan(*words)
    if change == "configuration":
        words.append("norm.eps=1e-3")
    elif change == "code":
        monkeypatch.setattr(cache, "OWN_CODE", "edited")
    elif change == "data":
        file.write_text(text.read_text() + "one more line")
    else:
        for record in (tmp_path / "cache" / "preflight").iterdir():
            record.write_text(record.read_text()[:-20])
    again = plan(*words)
    assert inspected == [2, 2]
    same = again.manifest.cells == first.manifest.cells
    assert same == (change in ("code", "damage"))


def test_problems_are_found_each_time(refused, inspected):
    assert refused("norm=ln,rms", "residual=rezero") == refused("norm=ln,rms", "residual=rezero")
    assert inspected == [2, 2]


@pytest.mark.slow
def test_a_known_study_and_its_time_are_planned_without_torch(small, tmp_path):
    code = """
import sys
from ablate.cli.sweep import expected_cost
from ablate.planning.plan import plan_study
print(expected_cost(plan_study(sys.argv[1:])))
print("torch" in sys.modules)
"""
    command = [sys.executable, "-c", code, *small, "norm=ln,rms"]
    environment = {"PYTHONPATH": str(ROOT), "ABLATE_CACHE": str(tmp_path), "PATH": ""}
    outputs = [subprocess.run(command, capture_output=True, text=True, env=environment).stdout for _ in range(2)]
    first, again = [output.splitlines() for output in outputs]
    assert again[0] == first[0] and "a step of ln takes" in again[0]
    assert [first[1], again[1]] == ["True", "False"]


@pytest.mark.slow
def test_a_wrong_command_of_a_program_is_refused_without_torch():
    code = """
import sys
from ablate.cli.program import main
assert main(["python x.py --lr={lr} --seed={seed}", "lr=1,2", "metrik=loss"]) == 2
assert "torch" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": str(ROOT)})
