"""The papers that variants may cite: keys in their YAMLs, `# cite: zhang2019root`, and entries in `papers.bib`."""

import functools
from collections.abc import Iterable
from pathlib import Path

from ablate.config.choices import names_of, variant_of
from ablate.config.errors import PlanError, Problem
from ablate.config.groups import CONF, Groups, comment_words
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
    by_key = {}
    for key, entry in parsed.items():
        fields = {"ENTRYTYPE": entry.type}
        for role, persons in entry.persons.items():
            fields[role] = " and ".join(str(person) for person in persons)
        by_key[key] = fields | dict(entry.fields)
    return by_key


def papers(choices: Iterable[dict[str, str]], groups: Groups) -> dict[str, dict[str, Entry]]:
    """The entries that the variants of these choices cite, by group=variant.  Raises `PlanError` for unknown keys."""
    by_key = dict(entries(CONF))
    if groups.folder:
        by_key |= entries(Path(groups.folder))
    variants = set()
    for choice_of in choices:
        for group, choice in choice_of.items():
            names = {variant_of(text) for text in names_of(choice)}
            variants |= {(group, name) for name in names & groups.variants.get(group, {}).keys()}
    cited: dict[str, dict[str, Entry]] = {}
    problems = []
    for group, name in sorted(variants):
        file = groups.variants[group][name]
        for key in comment_words(file, "cite"):
            if key in by_key:
                cited.setdefault(f"{group}={name}", {})[key] = by_key[key]
                continue
            meant = nearest(key, by_key)
            hint = f"; did you mean {meant}?" if meant else ""
            problems.append(Problem(f"{group}={name}", f"cites {key}, which {file.parents[1] / FILE} lacks{hint}"))
    if problems:
        raise PlanError(problems)
    return cited


def short(entry: Entry) -> str:
    """A short citation: "Zhang & Sennrich 2019", "Vaswani et al. 2017"; the raw fields if they are invalid."""
    from pybtex.bibtex.utils import split_tex_string
    from pybtex.database import Person
    from pybtex.exceptions import PybtexError
    from pybtex.richtext import Text

    author = entry.get("author", "anonymous")
    year = entry.get("year", "")
    try:
        people = [" ".join(Person(name).last_names) for name in split_tex_string(author, r"\s+and\s+")]
        is_long = len(people) > 2 or "others" in people
        authors = f"{people[0]} et al." if is_long else " & ".join(people)
        return visible(str(Text.from_latex(f"{authors} {year}".strip())))
    except (PybtexError, UnicodeError, RecursionError):
        return visible(f"{author[:40]} {year[:40]}")
