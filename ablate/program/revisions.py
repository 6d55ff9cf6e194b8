"""Git revisions as values of `code=`: found when a study is planned, checked out once each, shared by its runs.

    results/trees/COMMIT        the working tree of a revision, a git worktree
    results/trees/COMMIT.json   written last: the tree is complete, links and `setup=` included
    results/trees/COMMIT.lock   held by each run in the tree, and alone by whoever makes, restores or removes it

git's hooks do not run here.
"""

import contextlib
import dataclasses
import fcntl
import json
import os
import shutil
import subprocess
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from ablate.config.errors import Problem
from ablate.config.typed_json import Record
from ablate.formatting import first_of, instead
from ablate.runs.files import digest, write_atomic
from ablate.runs.lock import take

TREES = "trees"  # the folder of all trees, in the results folder
WORKING_TREE = "."
LOCK_FILES = ["uv.lock", "poetry.lock", "pdm.lock", "Pipfile.lock", "conda-lock.yml", "environment.yml"]
LOCK_FILES += ["requirements.txt", "constraints.txt"]
LFS_POINTER = "version https://git-lfs.github.com/spec/"
# The commit of a working tree has the same name whenever its content and parent are the same.
IDENTITY = {f"GIT_{who}_{what}": "ablate" for who in ("AUTHOR", "COMMITTER") for what in ("NAME", "EMAIL")}
IDENTITY |= {"GIT_AUTHOR_DATE": "2000-01-01T00:00:00Z", "GIT_COMMITTER_DATE": "2000-01-01T00:00:00Z"}
SHOWN = 5  # files that a message names
WAIT = 0.1  # seconds between two looks at a tree that another process may be making
# What hooks and aliases of git set.
OF_ONE_REPOSITORY = {"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_PREFIX", "GIT_COMMON_DIR"}
OF_ONE_REPOSITORY |= {"GIT_OBJECT_DIRECTORY", "GIT_ALTERNATE_OBJECT_DIRECTORIES", "GIT_CONFIG_PARAMETERS"}


class GitError(RuntimeError):
    """What git says of a command that failed."""


@dataclasses.dataclass(frozen=True)
class Revision:
    """A revision of a repository.

    name     as it was written: main, v1.2, 3f2a91c, or . for the working tree
    commit   its hash; of a working tree with changes, that of a commit which no branch has
    tree     the hash of its files
    subject  the first line of its message
    """

    name: str
    commit: str
    tree: str
    subject: str


class Setup(Record):
    """What is done once in a tree: links to ignored paths of the repository, submodules, and a shell command."""

    links: list[str] = dataclasses.field(default_factory=list)
    submodules: bool = False
    command: str = ""


class Tree(Record):
    """The tree that a run is started in, and the folder of it."""

    repository: str
    commit: str
    folder: str
    setup: Setup


def git(folder: Path, *arguments: str, environment: Mapping[str, str] | None = None, stdin: str = "") -> str:
    """The output of a git command without its last line break.  Raises GitError."""
    options = [f"core.hooksPath={os.devnull}", "advice.detachedHead=false", "color.ui=false", "log.showSignature=false"]
    command = ["git", *(word for option in options for word in ("-c", option)), *arguments]
    ended = subprocess.run(
        command,
        cwd=folder,
        env=without_repository() | dict(environment or {}),
        input=stdin,
        capture_output=True,
        text=True,
        errors="surrogateescape",
    )
    if ended.returncode:
        lines = ended.stderr.strip().splitlines() or ["git failed"]
        raise GitError(lines[-1].removeprefix("fatal: "))
    return ended.stdout.rstrip("\n")


def without_repository() -> dict[str, str]:
    """The environment without variables such as GIT_DIR, which would name another repository."""
    return {name: value for name, value in os.environ.items() if name not in OF_ONE_REPOSITORY}


def git_paths(folder: Path, command: str, *arguments: str) -> list[str]:
    """The paths that a git command lists, whatever characters they have.  Raises GitError."""
    return [path for path in git(folder, command, "-z", *arguments).split("\0") if path]


def repository_of(folder: Path) -> Path:
    """The top of the repository that a folder is in.  Raises GitError."""
    return Path(git(folder, "rev-parse", "--show-toplevel"))


def find_revisions(
    names: Sequence[str], repository: Path, results: Path, are_chain: bool = False
) -> tuple[list[Revision], list[Problem]]:
    """The revisions with these names, and a problem for each name that git does not know, or whose files are those of
    an earlier one; in a chain, of the one before."""
    revisions: list[Revision] = []
    problems = []
    for name in names:
        try:
            revision = find_revision(name, repository, results)
        except GitError:
            known = git(repository, "for-each-ref", "--format=%(refname:short)").splitlines()
            message = f"{name} is no revision of {repository}: no branch, tag or commit; {instead(name, known)}"
            problems.append(Problem("code", message))
            continue
        for earlier in revisions[-1:] if are_chain else revisions:
            if earlier.tree == revision.tree:
                problems.append(Problem("code", f"{name} and {earlier.name} have the same files; leave one out"))
        revisions.append(revision)
    return revisions, problems


def find_revision(name: str, repository: Path, results: Path) -> Revision:
    """The revision with a name.  Raises GitError."""
    if name == WORKING_TREE:
        commit = commit_of_working_tree(repository, results)
    else:
        commit = git(repository, "rev-parse", "--verify", "--quiet", "--end-of-options", f"{name}^{{commit}}")
    tree, subject = git(repository, "show", "--no-patch", "--format=%T%n%s", commit).split("\n", 1)
    return Revision(name, commit, tree, subject)


def commit_of_working_tree(repository: Path, results: Path) -> str:
    """A commit of the working tree as it is: with changed and new files, without ignored ones and the results folder.
    It is HEAD if nothing is changed.  The index and the branches stay as they are."""
    head = git(repository, "rev-parse", "--verify", "HEAD")
    everything = [".", *pathspec_without_results(repository, results)]
    index = repository / git(repository, "rev-parse", "--git-path", f"ablate-index-{os.getpid()}")
    own_index = {"GIT_INDEX_FILE": str(index)}
    try:
        git(repository, "read-tree", "HEAD", environment=own_index)
        git(repository, "add", "--all", "--", *everything, environment=own_index)
        tree = git(repository, "write-tree", environment=own_index)
    finally:
        index.unlink(missing_ok=True)
    if tree == git(repository, "rev-parse", "HEAD^{tree}"):
        return head
    message = "the working tree, with uncommitted changes"
    return git(repository, "commit-tree", tree, "-p", head, "-m", message, environment=IDENTITY)


def pathspec_without_results(repository: Path, results: Path) -> list[str]:
    """The pathspec that leaves out a results folder inside the repository; git refuses one for ignored folders."""
    if not results.resolve().is_relative_to(repository.resolve()):
        return []
    folder = results.resolve().relative_to(repository.resolve())
    try:
        git(repository, "check-ignore", "--quiet", str(folder))
    except GitError:
        return [f":(exclude){folder}"]
    return []


def uncommitted(repository: Path, results: Path) -> list[str]:
    """Changed and new files of the working tree, which no revision but `.` has."""
    changed = git_paths(repository, "diff", "--name-only", "HEAD")
    return outside(results, repository, [*changed, *untracked(repository)])


def ignored_paths(repository: Path, results: Path) -> list[str]:
    """Files and folders of the working tree that git ignores, which no tree has; without caches and environments."""
    return outside(results, repository, [path for path in ignored(repository) if not is_cache(path)])


def outside(results: Path, repository: Path, paths: list[str]) -> list[str]:
    """The paths of a repository that are not in the results folder."""
    return [path for path in paths if not (repository / path).resolve().is_relative_to(results.resolve())]


def is_cache(path: str) -> bool:
    """Whether a path is one that programs make anew by themselves."""
    name = Path(path).name
    return name.startswith((".", "__pycache__")) or name.endswith((".pyc", ".egg-info")) or name in ("venv", "wandb")


def difference(repository: Path, reference: Revision, revision: Revision) -> str:
    """What a revision changes, in short: 2 files changed, 5 insertions(+), 1 deletion(-)."""
    return git(repository, "diff", "--shortstat", reference.commit, revision.commit).strip() or "no files changed"


def lock_of(repository: Path, revision: Revision) -> str:
    """A digest of the files that fix a revision's environment; "" if it has none."""
    entries = git(repository, "ls-tree", revision.commit, "--", *LOCK_FILES)
    return digest(entries.encode()) if entries else ""


def hazards(repository: Path, revision: Revision, setup: Setup) -> list[str]:
    """What a tree of a revision will lack, or share with others, in a line each."""
    links = []
    submodules = []
    for line in git_paths(repository, "ls-tree", "-r", revision.commit):
        facts, path = line.split("\t", 1)
        mode, _, blob = facts.split()
        if mode == "160000":
            submodules.append(path)
        elif mode == "120000":
            target = git(repository, "cat-file", "blob", blob)
            if os.path.isabs(target) or os.path.normpath(os.path.join(os.path.dirname(path), target)).startswith(".."):
                links.append(path)
    notes = []
    if links:
        notes.append(f"{first_of(links, SHOWN)} of {revision.name} lead out of the tree, to files that revisions share")
    if submodules and not setup.submodules:
        text = f"{first_of(submodules, SHOWN)} of {revision.name} are submodules and will be empty"
        notes.append(f"{text}; write submodules=true")
    with contextlib.suppress(GitError):  # there are no pointers
        lines = git_paths(repository, "grep", "--name-only", f"^{LFS_POINTER}", revision.commit)
        if shutil.which("git-lfs") is None:
            pointers = first_of([line.partition(":")[2] for line in lines], SHOWN)
            notes.append(f"{pointers} of {revision.name} will be pointers of Git LFS, which is not installed")
    return notes


@contextlib.contextmanager
def use_tree(tree: Tree, results: Path) -> Iterator[Path]:
    """The folder of a tree, which nobody restores or removes meanwhile.  The first process makes it while others wait,
    and a run that is alone in it finds it as it was made.  Raises GitError."""
    trees = results / TREES
    trees.mkdir(parents=True, exist_ok=True)
    folder = trees / tree_name(tree)
    with open(folder.with_suffix(".lock"), "w") as lock:
        while True:
            if take(lock, lambda: False):
                if is_complete(folder):
                    restore_tree(folder, tree.commit)
                else:
                    make_tree(folder, tree)
            # From exclusive to shared another process may come between, and remove the tree: it is looked for again.
            take(lock, lambda: True, fcntl.LOCK_SH)
            if folder.with_suffix(".json").exists():
                break
            fcntl.flock(lock, fcntl.LOCK_UN)
            time.sleep(WAIT)
        yield folder


def is_complete(folder: Path) -> bool:
    """Whether a tree was made to its end, and is still a worktree of its repository."""
    try:
        state_of(folder)
        git(folder, "rev-parse", "--verify", "HEAD")
    except (OSError, ValueError, GitError):
        return False
    return (folder / ".git").exists()


def state_of(folder: Path) -> dict[str, Any]:
    """What a tree was when it was made: its repository, new and ignored files, and what setup changed in git's files.
    Raises OSError and ValueError."""
    state: dict[str, Any] = json.loads(folder.with_suffix(".json").read_text(encoding="utf-8"))
    return state


def make_tree(folder: Path, tree: Tree) -> None:
    """Check a tree out and set it up; what is left of an earlier try goes.  Raises GitError."""
    repository = Path(tree.repository)
    remove_tree(folder)
    git(repository, "worktree", "add", "--force", "--detach", str(folder.resolve()), tree.commit)
    set_up(repository, folder, tree.setup)
    state = {
        "repository": tree.repository,
        "files": untracked(folder),
        "ignored": ignored(folder),
        "changes": git(folder, "diff", "--binary", tree.commit),
    }
    write_atomic(folder.with_suffix(".json"), json.dumps(state).encode())


def restore_tree(folder: Path, commit: str) -> None:
    """Undo what runs have done to a tree: commits, changed files, and files that they left, ignored ones too, but for
    caches."""
    state = state_of(folder)
    git(folder, "reset", "--quiet", "--hard", commit)
    if state["changes"]:
        git(folder, "apply", "--whitespace=nowarn", "-", stdin=state["changes"] + "\n")
    left = set(untracked(folder)) - set(state["files"])
    left |= {path for path in ignored(folder) if path not in state["ignored"] and not is_cache(path)}
    for path in left:
        remove_path(folder, path)


def untracked(folder: Path) -> list[str]:
    """Files of a tree that its revision lacks and git does not ignore."""
    return git_paths(folder, "ls-files", "--others", "--exclude-standard")


def ignored(folder: Path) -> list[str]:
    """Files and folders of a tree that git ignores."""
    paths = git_paths(folder, "ls-files", "--others", "--ignored", "--exclude-standard", "--directory")
    return [path.rstrip("/") for path in paths]


def remove_path(folder: Path, path: str) -> None:
    """Remove a file, a link or a folder of a tree, and the folders around it that are empty then."""
    place = folder / path
    if place.is_dir() and not place.is_symlink():
        shutil.rmtree(place)
    else:
        place.unlink(missing_ok=True)
    for parent in place.parents:
        if parent == folder or any(parent.iterdir()):
            break
        parent.rmdir()


def tree_name(tree: Tree) -> str:
    """The name of a tree's folder; trees that are set up in other ways have others."""
    if tree.setup == Setup():
        return tree.commit[:16]
    return f"{tree.commit[:16]}-{digest(repr(tree.setup).encode())[:8]}"


def set_up(repository: Path, tree: Path, setup: Setup) -> None:
    """Add submodules and links to a new tree, and run its command.  Raises GitError."""
    if setup.submodules:
        git(tree, "submodule", "update", "--init", "--recursive")
    for link in setup.links:
        place = tree / link
        if not place.resolve().is_relative_to(tree.resolve()):
            raise GitError(f"link={link}: leads out of the tree")
        if place.exists() or place.is_symlink():
            raise GitError(f"link={link}: {tree.name} has a file of that name")
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to((repository / link).resolve())
    if setup.command:
        ended = subprocess.run(
            ["/bin/sh", "-c", setup.command],
            cwd=tree,
            env=without_repository(),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            errors="replace",
        )
        if ended.returncode:
            lines = ended.stdout.strip().splitlines() or ["it printed nothing"]
            raise GitError(f"setup={setup.command!r} failed in {tree.name}: {lines[-1]}")


def trees_of(results: Path) -> list[Path]:
    """The folders of all trees in a results folder."""
    return sorted(path for path in (results / TREES).glob("*") if path.is_dir() and not path.is_symlink())


def remove_tree(folder: Path) -> None:
    """Remove a tree, whatever is left of it, and from git's list; links in it are removed, not what they lead to."""
    try:
        repository = Path(state_of(folder)["repository"])  # read before the file goes
        git(repository, "worktree", "remove", "--force", str(folder.resolve()))
    except (OSError, ValueError, KeyError, GitError):
        pass  # git does not know it any more
    folder.with_suffix(".json").unlink(missing_ok=True)
    if folder.exists():
        shutil.rmtree(folder)


def remove_unused_tree(folder: Path) -> bool:
    """Remove a tree unless a run is in it; returns whether it was removed."""
    with open(folder.with_suffix(".lock"), "w") as lock:
        if not take(lock, lambda: False):
            return False
        remove_tree(folder)
    return True


def changed_files(folder: Path, commit: str) -> list[str]:
    """Files of a tree that runs have changed or left there, but for caches and what git ignores."""
    state = state_of(folder)
    changed = git_paths(folder, "diff", "--name-only", commit)
    left = [path for path in untracked(folder) if path not in state["files"] and not is_cache(path)]
    return [path for path in [*changed, *left] if f" b/{path}\n" not in state["changes"]]  # those of setup
