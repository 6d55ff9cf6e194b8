"""The commits that a session kept, in order: a range of git's, or the table that autoresearch writes."""

import csv
from pathlib import Path

from ablate.config.errors import Problem
from ablate.program.revisions import GitError, git


def kept_commits(source: str, repository: Path) -> tuple[list[str], list[Problem]]:
    """The short names of the commits to audit, each a step from the one before; the first is where the session began.
    Commits with the files of the one before leave nothing to test, and are left out."""
    try:
        is_table = source.endswith((".tsv", ".csv"))
        commits = commits_of_table(Path(source)) if is_table else commits_of_range(source, repository)
    except ValueError as error:
        return [], [Problem("range", str(error))]
    names: list[str] = []
    tree = ""
    for commit in commits:
        try:
            name = git(repository, "rev-parse", "--verify", "--end-of-options", f"{commit}^{{commit}}")[:10]
            next_tree = git(repository, "rev-parse", f"{name}^{{tree}}")
        except GitError:  # it stays as it is written, and is refused by its name
            name = commit
            next_tree = ""
        if next_tree != tree or not tree:
            names.append(name)
        tree = next_tree
    if len(names) < 2:
        return [], [Problem("range", f"{source} has fewer than two commits with other files, oldest first: no step")]
    return names, []


def commits_of_range(text: str, repository: Path) -> list[str]:
    """The commits of START..END along first parents, START first.  Raises ValueError."""
    start, _, end = text.partition("..")
    advice = "write START..END, as in main~12..main, two commits of one line"
    try:
        base = git(repository, "rev-parse", "--verify", "--end-of-options", f"{start}^{{commit}}")
        last = git(repository, "rev-parse", "--verify", "--end-of-options", f"{end or 'HEAD'}^{{commit}}")
        lines = git(repository, "log", "--first-parent", "--reverse", "--format=%H %P", last, f"^{base}").splitlines()
    except GitError:
        raise ValueError(f"git does not know {text}; {advice}") from None
    if lines and lines[0].split()[1:2] != [base]:
        raise ValueError(f"{text} does not begin on the line of its end; {advice}")
    return [base, *(line.split()[0] for line in lines)]


def commits_of_table(path: Path) -> list[str]:
    """The commits of a table with columns `commit` and `status` whose status is keep, in its order.  Raises
    ValueError."""
    try:
        text = path.read_text(encoding="utf-8-sig", errors="replace")
    except OSError as error:
        raise ValueError(f"{path} cannot be read: {error.strerror}") from None
    if "\t" in text:  # whose descriptions are not quoted
        rows = list(csv.DictReader(text.splitlines(), delimiter="\t", quoting=csv.QUOTE_NONE))
    else:
        rows = list(csv.DictReader(text.splitlines()))
    if not rows or not {"commit", "status"} <= rows[0].keys():
        raise ValueError(f"{path} lacks a column commit or status, as autoresearch writes them")
    kept = [(row["commit"] or "").strip() for row in rows if (row["status"] or "").strip().lower() == "keep"]
    return [commit for commit in kept if commit]
