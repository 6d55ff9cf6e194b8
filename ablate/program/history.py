"""The commits that a session kept, in order: a range of git's, or the table that autoresearch writes."""

import csv
from pathlib import Path

from ablate.config.errors import Problem
from ablate.program.revisions import GitError, git

COMMIT = "commit"  # columns of the table
STATUS = "status"
KEPT = "keep"


def kept_commits(source: str, repository: Path) -> tuple[list[str], list[Problem]]:
    """The commits to audit, each a step from the one before; the first is where the session began."""
    if source.endswith((".tsv", ".csv")):
        return commits_of_table(Path(source), repository)
    return commits_of_range(source, repository)


def commits_of_range(text: str, repository: Path) -> tuple[list[str], list[Problem]]:
    """The commits of START..END along first parents, START's side first; equal trees in a row count once."""
    start, dots, end = text.partition("..")
    if not dots or not start or "..." in text:
        return [], [Problem("range", f"{text} is no range of commits; write START..END, as in main~12..main")]
    try:
        base = git(repository, "rev-parse", "--verify", "--end-of-options", f"{start}^{{commit}}")
        last = git(repository, "rev-parse", "--verify", "--end-of-options", f"{end or 'HEAD'}^{{commit}}")
        options = ["--first-parent", "--reverse", "--format=%H %T", "--no-commit-header"]
        lines = git(repository, "rev-list", *options, last, f"^{base}").splitlines()
        tree = git(repository, "rev-parse", f"{base}^{{tree}}")
    except GitError:
        return [], [Problem("range", f"git does not know {text}; write START..END, as in main~12..main")]
    commits = [base[:10]]
    for line in lines:
        commit, next_tree = line.split()
        if next_tree != tree:  # else the commit has no files of its own to test
            commits.append(commit[:10])
        tree = next_tree
    if len(commits) < 2:
        return [], [Problem("range", f"{text} changes no file; write START..END with the older commit first")]
    return commits, []


def commits_of_table(path: Path, repository: Path) -> tuple[list[str], list[Problem]]:
    """The commits of a table with columns `commit` and `status` whose status is keep, in its order."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        return [], [Problem("range", f"{path} cannot be read: {error.strerror}")]
    if "\t" in text:  # whose descriptions are not quoted
        rows = list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
    else:
        rows = list(csv.DictReader(text.splitlines()))
    if not rows or COMMIT not in rows[0] or STATUS not in rows[0]:
        return [], [Problem("range", f"{path} lacks a column {COMMIT} or {STATUS}, as autoresearch writes them")]
    commits = [row[COMMIT].strip() for row in rows if (row[STATUS] or "").strip().lower() == KEPT]
    if len(commits) < 2:
        return [], [Problem("range", f"{path} has fewer than two commits with {STATUS} {KEPT}: nothing to audit")]
    return [short_name(commit, repository) for commit in dict.fromkeys(commits)], []


def short_name(commit: str, repository: Path) -> str:
    """A commit as a range names it, so that its runs are found again; as it is written if git does not know it."""
    try:
        return git(repository, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}")[:10]
    except GitError:
        return commit
