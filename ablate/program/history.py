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
    """The commits of START..END along first parents, START first."""
    start, dots, end = text.partition("..")
    if not dots or not start or "..." in text:
        return [], [Problem("range", f"{text} is no range of commits; write START..END, as in main~12..main")]
    end = end or "HEAD"
    try:
        base = git(repository, "rev-parse", "--verify", "--end-of-options", f"{start}^{{commit}}")
        last = git(repository, "rev-parse", "--verify", "--end-of-options", f"{end}^{{commit}}")
        lines = git(repository, "log", "--first-parent", "--reverse", "--format=%H %P", last, f"^{base}").splitlines()
    except GitError:
        return [], [Problem("range", f"git does not know {text}; write START..END, as in main~12..main")]
    if lines and lines[0].split()[1:2] != [base]:
        advice = f"write its own beginning, as git merge-base {start} {end} says"
        return [], [Problem("range", f"{text} does not begin on the line of its end; {advice}")]
    commits = without_equal_files([base, *(line.split()[0] for line in lines)], repository)
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
    kept = [(row[COMMIT] or "").strip() for row in rows if (row[STATUS] or "").strip().lower() == KEPT]
    commits = without_equal_files([commit for commit in kept if commit], repository)
    if len(commits) < 2:
        return [], [Problem("range", f"{path} has fewer than two commits with {STATUS} {KEPT}: nothing to audit")]
    return commits, []


def without_equal_files(commits: list[str], repository: Path) -> list[str]:
    """The short names of commits, without those whose files are those of the commit before: they leave nothing to test.
    Commits that git does not know stay as they are written."""
    names: list[str] = []
    tree = ""
    for commit in commits:
        try:
            name = git(repository, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}")[:10]
            next_tree = git(repository, "rev-parse", f"{name}^{{tree}}")
        except GitError:
            name = commit
            next_tree = ""
        if next_tree != tree or not tree:
            names.append(name)
        tree = next_tree
    return names
