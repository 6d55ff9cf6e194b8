"""The revisions of a command's setting `code`: found when it is planned, with what a user should know of them."""

import dataclasses
from pathlib import Path

from ablate.config.errors import Problem
from ablate.config.program_keys import CODE
from ablate.formatting import first_of
from ablate.program.revisions import (
    SHOWN,
    GitError,
    difference,
    find_revisions,
    hazards,
    ignored_paths,
    lock_of,
    repository_of,
    uncommitted,
)
from ablate.program.words import Request


def with_revisions(request: Request, results: Path) -> tuple[Request, list[Problem]]:
    """A request with the revisions that its setting `code` names, and what is wrong with them."""
    if CODE not in request.settings:
        return request, []
    here = Path.cwd()
    try:
        repository = repository_of(here)
    except GitError:
        return request, [Problem(CODE, f"names revisions of git, and {here} is in no repository; go to its folder")]
    revisions, problems = find_revisions(request.settings[CODE], repository, results.absolute(), request.is_chain)
    for link in request.setup.links:
        if not (repository / link).exists():
            problems.append(Problem("link", f"{link} is not in {repository}"))
    by_name = {revision.name: revision for revision in revisions}
    subfolder = str(here.resolve().relative_to(repository.resolve()))
    return dataclasses.replace(request, revisions=by_name, repository=str(repository), subfolder=subfolder), problems


def uncommitted_note(request: Request, results: Path) -> list[str]:
    """A note on files that were changed and are in no revision, if there are any."""
    if not request.revisions or "." in request.revisions:
        return []
    changed = uncommitted(Path(request.repository), results.absolute())
    if not changed:
        return []
    advice = "commit them" if request.is_chain else f"add . to {CODE}= to compare them"
    return [f"uncommitted changes are in no revision: {first_of(changed, SHOWN)}; {advice}"]


def revision_notes(request: Request, results: Path) -> list[str]:
    """What trees lack or share, and which revisions pin other libraries."""
    repository = Path(request.repository)
    results = results.absolute()
    reference, *others = request.revisions.values()
    notes = []
    lacking = [path for path in ignored_paths(repository, results) if path not in request.setup.links]
    if "out" in request.fields:  # such a folder is what the program writes into without it
        lacking = [path for path in lacking if not Path(path).name.startswith("out")]
    if lacking:
        text = f"files that git ignores are in no revision: {first_of(lacking, SHOWN)}"
        links = ",".join([*request.setup.links, *lacking[:SHOWN]])
        notes.append(f"{text}; does the program read them? Then write link={links}")
    for revision in request.revisions.values():
        notes += hazards(repository, revision, request.setup)
    reference_lock = lock_of(repository, reference)
    for revision in others:
        if lock_of(repository, revision) != reference_lock:
            text = f"{revision.name} pins other libraries than {reference.name}"
            notes.append(f"{text}; let each have its own, as with uv run, or setup=")
    return notes


def revision_facts(request: Request, name: str) -> list[str]:
    """What a revision is, and what it changes against the first one, or in a chain against the one before."""
    revisions = list(request.revisions.values())
    revision = request.revisions[name]
    place = revisions.index(revision)
    shown = name if revision.commit.startswith(name) else f"{name} ({revision.commit[:10]})"
    facts = [f"{shown}: {revision.subject}"]
    if place > 0:
        base = revisions[place - 1] if request.is_chain else revisions[0]
        facts.append(f"{name} against {base.name}: {difference(Path(request.repository), base, revision)}")
    return facts
