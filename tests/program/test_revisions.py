"""Revisions of git: found by name, checked out once, with what their trees lack or share said in a line."""

import shutil
from pathlib import Path

import pytest
from repository import change, commit, git

from ablate.program.revisions import (
    GitError,
    Revision,
    Setup,
    Tree,
    changed_files,
    find_revision,
    hazards,
    ignored_paths,
    lock_of,
    remove_tree,
    remove_unused_tree,
    uncommitted,
    use_tree,
)


@pytest.fixture(scope="module")
def committed(tmp_path_factory) -> Path:
    """main with one file, a branch that changes it, and an ignored data file."""
    folder = tmp_path_factory.mktemp("repository")
    git(folder, "init", "--quiet")
    (folder / ".gitignore").write_text("*.bin\nresults\n")
    (folder / "train.py").write_text("print(1)\n")
    commit(folder, "first")
    git(folder, "branch", "idea")
    change(folder, "idea", {"train.py": "print(2)\n"})
    (folder / "meta.bin").write_text("ignored")
    return folder


@pytest.fixture
def repository(committed, tmp_path) -> Path:
    return shutil.copytree(committed, tmp_path / "repository")


@pytest.fixture
def results(repository) -> Path:
    return repository / "results"


@pytest.mark.parametrize("name", ["idea", "main~0", "HEAD"])
def test_a_revision_is_found_by_any_name_of_git(name, repository, results):
    found = find_revision(name, repository, results)
    assert found.commit == git(repository, "rev-parse", name)
    assert found.tree == git(repository, "rev-parse", f"{name}^{{tree}}")


def test_a_working_tree_has_its_changed_and_new_files_and_its_repository_is_as_before(repository, results):
    (repository / "train.py").write_text("print(3)\n")
    (repository / "new.py").write_text("")
    results.mkdir()
    (results / "runs.csv").write_text("")
    before = git(repository, "status", "--porcelain"), git(repository, "for-each-ref")
    found = find_revision(".", repository, results)
    assert found == find_revision(".", repository, results)
    assert git(repository, "ls-tree", "-r", "--name-only", found.commit).split() == [".gitignore", "new.py", "train.py"]
    assert before == (git(repository, "status", "--porcelain"), git(repository, "for-each-ref"))
    assert uncommitted(repository, results) == ["train.py", "new.py"]


@pytest.mark.parametrize("place", ["results", "out"])
def test_a_working_tree_without_changes_is_head_wherever_results_are(place, repository):
    (repository / place).mkdir()
    (repository / place / "runs.csv").write_text("")
    assert find_revision(".", repository, repository / place).commit == git(repository, "rev-parse", "HEAD")


def tree_of(repository: Path, results: Path, name: str = "idea", **setup: object) -> Tree:
    commit = find_revision(name, repository, results).commit
    return Tree(repository=str(repository), commit=commit, folder=".", setup=Setup(**setup))


def test_a_tree_in_use_is_not_removed_and_later_is_removed_whole(repository, results):
    with use_tree(tree_of(repository, results), results) as folder:
        assert not remove_unused_tree(folder) and folder.exists()
    assert remove_unused_tree(folder) and not folder.exists()
    assert "results" not in git(repository, "worktree", "list")


@pytest.mark.parametrize("damage", ["unfinished", "{", "", "removed"])
def test_a_damaged_tree_is_made_anew(damage, repository, results):
    tree = tree_of(repository, results)
    with use_tree(tree, results) as folder:
        record = folder.with_suffix(".json")
        (folder / "train.py").unlink()
        if damage == "unfinished":
            record.unlink()
        elif damage != "removed":
            record.write_text(damage)
    if damage == "removed":
        shutil.rmtree(folder)
    with use_tree(tree, results) as folder:
        assert (folder / "train.py").exists()


@pytest.mark.parametrize(
    ("name", "is_committed"),
    [("train.py", True), ("train.py", False), ("é.txt", False), ('a "quoted" name', False), ("out.bin", False)],
)
def test_what_a_run_wrote_is_gone_for_the_next(name, is_committed, repository, results):
    tree = tree_of(repository, results)
    with use_tree(tree, results) as folder:
        (folder / name).write_text("print(5)\n")
        if is_committed:
            commit(folder, "by a run")
    with use_tree(tree, results) as folder:
        assert sorted(path.name for path in folder.iterdir()) == [".git", ".gitignore", "train.py"]
        assert (folder / "train.py").read_text() == "print(2)\n"


def test_a_run_finds_its_tree_as_it_was_made(repository, results):
    tree = tree_of(repository, results, command="echo made > made.txt")
    with use_tree(tree, results) as folder:
        (folder / "train.py").write_text("print(4)\n")
        (folder / "checkpoints").mkdir()
        (folder / "checkpoints" / "last.pt").write_text("")
        (folder / "__pycache__").mkdir()
        (folder / "__pycache__" / "train.pyc").write_text("")
        assert changed_files(folder, tree.commit) == ["train.py", "checkpoints/last.pt"], "a cache is no change"
    with use_tree(tree, results) as folder:
        assert sorted(path.name for path in folder.iterdir()) == [".git", ".gitignore", "made.txt", "train.py"]
        assert changed_files(folder, tree.commit) == []


def test_a_tree_in_use_is_not_restored(repository, results):
    tree = tree_of(repository, results)
    with use_tree(tree, results) as folder:
        (folder / "last.pt").write_text("")
        with use_tree(tree, results):
            assert (folder / "last.pt").exists()


def test_ignored_files_are_named_and_linked(repository, results):
    assert ignored_paths(repository, results) == ["meta.bin"]
    with use_tree(tree_of(repository, results, links=["meta.bin"]), results) as folder:
        assert (folder / "meta.bin").read_text() == "ignored"
    remove_tree(folder)
    assert (repository / "meta.bin").read_text() == "ignored"


@pytest.mark.parametrize(("link", "message"), [("../x", "leads out of the tree"), ("train.py", "has a file")])
def test_links_stay_in_the_tree_and_replace_nothing(link, message, repository, results):
    with pytest.raises(GitError, match=message), use_tree(tree_of(repository, results, links=[link]), results):
        pass


def test_setup_runs_once_in_a_tree(repository, results):
    tree = tree_of(repository, results, command="echo x >> count.bin")
    for _ in range(2):
        with use_tree(tree, results) as folder:
            assert (folder / "count.bin").read_text() == "x\n"


def test_the_last_line_of_a_setup_says_why_it_failed(repository, results):
    tree = tree_of(repository, results, command="echo no compiler; exit 3")
    for _ in range(2):
        with pytest.raises(GitError, match="no compiler"), use_tree(tree, results):
            pass


def test_hooks_do_not_run(repository, results):
    hook = repository / ".git" / "hooks" / "post-checkout"
    hook.write_text(f"#!/bin/sh\ntouch {repository}/ran.bin\n")
    hook.chmod(0o755)
    with use_tree(tree_of(repository, results), results):
        assert not (repository / "ran.bin").exists()


def hazards_of(repository: Path, results: Path, setup: Setup = Setup()) -> list[str]:  # noqa: B008
    return hazards(repository, find_revision("main", repository, results), setup)


def test_links_out_of_the_tree_are_named(repository, results):
    (repository / "inside").symlink_to("train.py")
    (repository / "up").symlink_to("../elsewhere")
    (repository / "data").symlink_to("/data")
    commit(repository, "links")
    [note] = hazards_of(repository, results)
    assert note.startswith("data and up of main lead out of the tree")


def test_pointers_of_lfs_are_named_where_it_is_not_installed(repository, results, monkeypatch):
    pointer = f"version https://git-lfs.github.com/spec/v1\noid sha256:{'0' * 64}\nsize 12345\n"
    (repository / "model.pt").write_text(pointer)
    commit(repository, "pointer")
    monkeypatch.setattr("shutil.which", lambda name: None)
    [note] = hazards_of(repository, results)
    assert note.startswith("model.pt of main will be pointers of Git LFS")


def test_submodules_are_named_unless_they_are_asked_for(repository, results, tmp_path):
    git(repository, "-c", "protocol.file.allow=always", "submodule", "add", "--quiet", str(repository), "part")
    commit(repository, "submodule")
    [note] = hazards_of(repository, results)
    assert note.startswith("part of main are submodules and will be empty")
    assert not hazards_of(repository, results, Setup(submodules=True))


def test_a_lock_file_is_part_of_the_environment(repository, results):
    before = find_revision("main", repository, results)
    (repository / "uv.lock").write_text("torch 2.6")
    commit(repository, "locked")
    after = find_revision("main", repository, results)
    assert lock_of(repository, before) == "" and lock_of(repository, after) != ""


def test_a_variable_of_git_names_no_other_repository(repository, results, monkeypatch, tmp_path):
    monkeypatch.setenv("GIT_DIR", str(tmp_path / "elsewhere"))
    assert isinstance(find_revision("idea", repository, results), Revision)


def test_what_setup_changed_in_files_of_the_revision_stays(repository, results):
    tree = tree_of(repository, results, command="echo 'print(6)' > train.py")
    for _ in range(2):
        with use_tree(tree, results) as folder:
            assert (folder / "train.py").read_text() == "print(6)\n"
            assert changed_files(folder, tree.commit) == []
