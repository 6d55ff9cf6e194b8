"""`ablate audit`: each commit of a chain against the one before, on fresh seeds."""

import json
import shutil
from pathlib import Path

import pytest
from repository import COMMAND, commit, git, start, step

from ablate.cli.audit import HARMFUL, NO_RESULT, OPEN, REAL, SAME, main, status_of_effect
from ablate.program.history import kept_commits

WORDS = ["metric=val_bpb"]
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def committed(tmp_path_factory) -> Path:
    """A session of six kept edits: real, a comment, luck, harmful, one that crashes, its repair."""
    folder = tmp_path_factory.mktemp("session")
    start(folder)
    git(folder, "tag", "begun")
    step(folder, 0.10, 1, "real")
    with (folder / "train.py").open("a") as file:
        file.write("# a comment\n")
    commit(folder, "comment")
    step(folder, 0.10, 2, "luck")
    step(folder, 0.02, 3, "harmful")
    (folder / "train.py").write_text("raise SystemExit('broken')\n")
    commit(folder, "broken")
    step(folder, 0.02, 4, "repaired")
    git(folder, "checkout", "--quiet", "-b", "side", "begun")
    step(folder, 0.5, 9, "aside")
    git(folder, "checkout", "--quiet", "main")
    return folder


@pytest.fixture
def session(committed, tmp_path, monkeypatch) -> Path:
    """A copy of that session, as the current folder."""
    folder = shutil.copytree(committed, tmp_path / "session")
    monkeypatch.chdir(folder)
    return folder


def steps(capsys: Capture, *words: str, source: str = "begun..main") -> dict[str, dict]:
    """The steps of an audit by the subjects of their commits."""
    assert main([source, COMMAND, *WORDS, *words, "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    return {step["subject"]: step for step in printed["result"]["steps"]}


def test_each_step_is_what_it_is(session, capsys):
    found = steps(capsys, "seeds=8")
    expected = {"real": REAL, "comment": SAME, "luck": OPEN, "harmful": HARMFUL, "broken": NO_RESULT}
    assert {name: found[name]["status"] for name in expected} == expected
    assert found["broken"]["without_result"] == 8
    assert found["repaired"]["status"] == NO_RESULT


def test_seeds_are_fresh(session, capsys):
    assert main(["main~1..main", COMMAND, *WORDS, "seeds=2", "--json"]) == 0
    study = json.loads(next(Path("results/studies").glob("*/manifest.json")).read_text())
    assert study["seeds"] == [101, 102]


def test_the_chain_is_the_last_commit_against_the_first(session, capsys):
    assert main(["begun..main~2", COMMAND, *WORDS, "--json"]) == 0
    chain = json.loads(capsys.readouterr().out)["result"]["chain"]
    assert chain["mean"] == pytest.approx(-0.02, abs=0.02) and chain["low"] < chain["mean"] < chain["high"]


def test_a_table_of_a_session_names_the_kept_commits_once(session):
    first, second, *_, last = git(session, "log", "--reverse", "--format=%H").split()
    rows = [f"{first}\tkeep", f"{second[:7]}\tdiscard", f"{second}\tcrash", f"{first[:7]}\tkeep", f"{last[:9]}\tkeep"]
    (session / "results.tsv").write_text("\n".join(["commit\tstatus", *rows, "\tkeep", "x"]))
    assert kept_commits("results.tsv", session) == ([first[:10], last[:10]], [])


def test_a_commit_that_changes_no_file_is_no_step(session):
    git(session, "commit", "--quiet", "--allow-empty", "--message", "nothing")
    before, _ = kept_commits("begun..main~1", session)
    assert kept_commits("begun..main", session) == (before, [])


def test_a_revert_is_a_step(session, capsys):
    git(session, "checkout", "--quiet", "-b", "reverted", "begun")
    step(session, 0.1, 1, "real")
    step(session, 0.0, 0, "reverted")
    found = steps(capsys, "seeds=3", source="begun..reverted")
    assert found["real"]["mean"] == pytest.approx(-found["reverted"]["mean"])


@pytest.mark.parametrize(
    ("source", "words", "message"),
    [
        ("main...begun", [], "git does not know main...begun"),
        ("nothing..main", [], "git does not know nothing..main"),
        ("main..begun", [], "oldest first"),
        ("lacks.tsv", [], "cannot be read"),
        ("begun..main", ["code=main"], "code: is set by the audit"),
        ("begun..main", ["seeds=auto"], "seeds: auto begins with"),
        ("begun..main", ["lr=1,2"], "lr: has several values"),
        ("side..main", [], "does not begin on the line"),
        ("begun..main", ["design=grid"], "design: is set by the audit"),
    ],
)
def test_a_mistake_is_one_line(source, words, message, session, capsys):
    assert main([source, COMMAND, *WORDS, *words]) == 2
    said = capsys.readouterr().err.strip()
    assert message in said and "\n" not in said


def test_a_look_at_fewer_seeds_is_said(session, capsys):
    words = ["main~5..main~4", COMMAND, *WORDS]
    main([*words, "seeds=3"])
    assert "unadjusted" not in capsys.readouterr().out
    main([*words, "seeds=4"])
    assert "unadjusted" in capsys.readouterr().out


def test_a_step_without_a_result_says_why(session, capsys):
    main(["main~2..main", COMMAND, *WORDS, "seeds=2"])
    lines = capsys.readouterr().out
    assert "2 runs failed: " in lines and "broken" in lines and "nothing to compare with" in lines


def test_an_edit_that_fails_with_some_seeds_is_not_called_unchanged():
    effect = {"n": 2, "mean": 0.0, "sd": 0.0, "failed": 3, "missing": 0, "verdict": "undecided"}
    assert status_of_effect(effect) == OPEN
    assert status_of_effect(effect | {"failed": 0}) == SAME
    assert status_of_effect(effect | {"n": 0, "mean": float("nan")}) == NO_RESULT
