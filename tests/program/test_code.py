"""`code=`: revisions of git as values of a setting, through the command line."""

import shutil
from pathlib import Path

import pytest
from repository import COMMAND, change, git, start, step
from small_program import errors, results

import ablate
from ablate.cli.clean import main as clean
from ablate.cli.program import main
from ablate.config.errors import PlanError
from ablate.runs.manifest import newest_study, read_manifest

WORDS = ["code=main,idea", "metric=val_bpb"]


@pytest.fixture(scope="module")
def committed(tmp_path_factory) -> Path:
    """A branch `idea` that gains 0.05, and main checked out."""
    folder = tmp_path_factory.mktemp("repository")
    start(folder)
    git(folder, "checkout", "--quiet", "-b", "idea")
    step(folder, 0.05, 1, "an idea")
    git(folder, "checkout", "--quiet", "main")
    return folder


@pytest.fixture
def repository(committed, tmp_path, monkeypatch) -> Path:
    """A copy of that repository, as the current folder."""
    folder = shutil.copytree(committed, tmp_path / "repository")
    monkeypatch.chdir(folder)
    return folder


def run(*words: str) -> int:
    return main([COMMAND, *WORDS, *words])


def test_a_branch_is_compared_with_the_first_one(repository):
    assert run() == 0
    study = ablate.command(COMMAND, *WORDS)
    [effect] = study.effects.to_dict("records")
    assert effect["label"] == "code: idea − main" and effect["verdict"] == "better"
    assert effect["mean"] == pytest.approx(-0.05, abs=0.02)


def test_the_working_tree_is_a_revision_and_runs_again_after_an_edit(repository):
    program = repository / "train.py"
    program.write_text(program.read_text().replace("GAIN = 0.0", "GAIN = 0.1"))
    main([COMMAND, "code=main,.", "metric=val_bpb", "seeds=2"])
    assert len(results()) == 4
    program.write_text(program.read_text().replace("GAIN = 0.1", "GAIN = 0.2"))
    main([COMMAND, "code=main,.", "metric=val_bpb", "seeds=2"])
    assert len(results()) == 6  # those of main are used again


def test_what_a_revision_changes_is_in_the_manifest(repository):
    run("seeds=2")
    manifest = read_manifest(Path("results"), newest_study(Path("results")))
    [facts, change] = manifest.cells[1].notes
    assert facts.startswith("idea (") and facts.endswith("an idea")
    assert change == "idea against main: 1 file changed, 2 insertions(+), 2 deletions(-)"


def test_a_dry_run_checks_nothing_out(repository, capsys):
    assert run("dry_run=true") == 0
    assert "(in " in capsys.readouterr().out
    assert not Path("results").exists() and "trees" not in git(repository, "worktree", "list")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["code=main,ideas"], "ideas is no revision .* did you mean idea?"),
        (["code=main,main~0"], "have the same files"),
        (["code=main,idea", "link=data"], "link: data is not in"),
        (["link=data"], "write code=main,my-idea too"),
        (["code=main,idea", "submodules=yes"], "submodules: is true or false"),
    ],
)
def test_a_mistake_is_refused(words, message, repository):
    with pytest.raises(PlanError, match=message):
        ablate.command(COMMAND, "metric=val_bpb", *words)


def test_a_folder_without_a_repository_is_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(PlanError, match="is in no repository"):
        ablate.command(COMMAND, *WORDS)


def test_uncommitted_changes_and_ignored_files_are_named(repository, capsys):
    (repository / "new.py").write_text("")
    (repository / "meta.bin").write_text("")
    run("seeds=2")
    said = capsys.readouterr().err
    assert "uncommitted changes are in no revision: new.py" in said and "link=meta.bin" in said


def test_a_folder_of_output_is_no_missing_file(repository, capsys):
    (repository / "meta.bin").write_text("")
    (repository / "out.bin").write_text("")
    run("seeds=2", "dry_run=true")
    with_both = capsys.readouterr().out
    main([f"{COMMAND} --out={{out}}", *WORDS, "seeds=2", "dry_run=true"])
    assert "out.bin" in with_both and "out.bin" not in capsys.readouterr().out
    assert "pass {out}" not in with_both


def test_a_branch_that_has_moved_is_another_study(repository):
    run("seeds=2")
    first = newest_study(Path("results"))
    change(repository, "idea", {"new.py": ""})
    run("seeds=2")
    assert newest_study(Path("results")) != first


def test_a_revision_without_the_program_fails_alone(repository):
    change(repository, "idea", {"train.py": None})
    assert run("seeds=2") == 1
    assert all("train.py" in error for error in errors())
    assert sum(result["status"] == "done" for result in results()) == 2


def test_a_module_of_the_revision_is_imported(repository):
    program = (repository / "train.py").read_text().replace("GAIN = 0.0", "from part.helper import GAIN")
    change(repository, "main", {"run/train.py": program, "part/helper.py": "GAIN = 0.0\n"})
    git(repository, "branch", "next")
    change(repository, "next", {"part/helper.py": "GAIN = 0.7\n"})
    study = ablate.command(COMMAND.replace("train.py", "run/train.py"), "code=main,next", "metric=val_bpb", "seeds=2")
    assert study.effects["mean"][0] < -0.6


def test_two_runs_at_a_time_share_a_tree(repository):
    assert run("seeds=4", "parallel=4") == 0
    assert len(list(Path("results/trees").glob("*.json"))) == 2


def test_clean_removes_the_trees(repository, capsys):
    run("seeds=2")
    assert clean(["--yes"]) == 0
    assert not [path for path in Path("results/trees").iterdir() if path.is_dir()]
    assert run("seeds=3") == 0
    assert len(results()) == 6


def test_a_revision_that_writes_into_its_tree_is_named_and_changes_nothing_else(repository, capfd):
    text = (repository / "train.py").read_text()
    writes = "open('train.py', 'a').write('# again')\nopen('last.pt', 'w').write('')\n"
    change(repository, "idea", {"train.py": text + writes})
    assert run("seeds=2") == 0
    assert ": train.py and last.pt; they are put back once no run uses them" in capfd.readouterr().err
    assert (repository / "train.py").read_text() == text and not (repository / "last.pt").exists()


def test_a_revision_that_pins_other_libraries_is_named(repository, capsys):
    change(repository, "idea", {"uv.lock": "torch 2.6"})
    run("seeds=2")
    assert "idea pins other libraries than main" in capsys.readouterr().err
