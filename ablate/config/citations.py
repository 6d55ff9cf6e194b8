"""The papers that variants may cite: keys in their YAMLs, `# cite: zhang2019root`, and entries in `papers.bib`."""

import functools
from collections.abc import Iterable
from pathlib import Path

from ablate.config.choices import names_of, variant_of
from ablate.config.errors import PlanError, Problem
from ablate.config.groups import CONF, Groups, noted
from ablate.formatting import nearest, visible

FILE = "papers.bib"  # in the same folder as the groups; the user's folder may have another one

Entry = dict[str, str]  # BibTeX fields by name; `ENTRYTYPE` is article, misc, …


@functools.cache
def entries(folder: Path) -> dict[str, Entry]:
    """The entries of a folder's `papers.bib` by key; empty without such a file.  Raises `PlanError`."""
    from pybtex.database import parse_file
    from pybtex.exceptions import PybtexError

    file = folder / FILE
    if not file.is_file():
        return {}
    try:
        parsed = parse_file(str(file), "bibtex", encoding="utf-8").entries
    except (PybtexError, UnicodeDecodeError) as error:
        raise PlanError([Problem("", f"{file} cannot be read ({error})")]) from None
    people = {key: {role: " and ".join(map(str, who)) for role, who in e.persons.items()} for key, e in parsed.items()}
    return {key: {"ENTRYTYPE": entry.type, **people[key], **dict(entry.fields)} for key, entry in parsed.items()}


def papers(choices: Iterable[dict[str, str]], groups: Groups) -> dict[str, dict[str, Entry]]:
    """The entries that the variants of these choices cite, by group=variant.  Raises `PlanError` for unknown keys."""
    found, known = groups.variants, entries(CONF) | (entries(Path(groups.folder)) if groups.folder else {})
    chosen = {(group, choice) for each in choices for group, choice in each.items() if group in found}
    used = sorted({(group, variant_of(name)) for group, choice in chosen for name in names_of(choice, found[group])})
    files = {f"{group}={name}": found[group][name] for group, name in used if name in found[group]}
    keys = {variant: noted(file, "cite") for variant, file in files.items()}
    lost = [(variant, key) for variant, named in keys.items() for key in named if key not in known]
    problems = []
    for variant, key in lost:
        how = f"write @misc{{{key}, author = …, title = …, year = …}} there"
        hint = f"; or did you mean {near}?" if (near := nearest(key, known)) else ""
        file, bib = files[variant], files[variant].parents[1] / FILE
        problems.append(Problem(variant, f"{file} cites {key}, but {bib} has no such entry: {how}{hint}"))
    if problems:
        raise PlanError(problems)
    return {variant: {key: known[key] for key in named} for variant, named in keys.items() if named}


def short(entry: Entry) -> str:
    """A short citation: "Zhang & Sennrich 2019", "Vaswani et al. 2017"; the raw fields if they are invalid."""
    from pybtex.bibtex.utils import split_tex_string
    from pybtex.database import Person
    from pybtex.exceptions import PybtexError
    from pybtex.richtext import Text

    author, year = entry.get("author", "anonymous"), entry.get("year", "")
    try:
        people = [" ".join(Person(name).last_names) for name in split_tex_string(author, r"\s+and\s+")]
        who = " & ".join(people) if len(people) < 3 and "others" not in people else f"{people[0]} et al."
        return visible(str(Text.from_latex(f"{who} {year}".strip())))
    except (PybtexError, UnicodeError, RecursionError):
        return visible(f"{author[:40]} {year[:40]}")
