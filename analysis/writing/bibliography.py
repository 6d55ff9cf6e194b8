"""references.bib: the entries that a study's variants cite, and the marks by which sentences name them."""

import re
from collections.abc import Callable

from ablate.config.citations import Entry, short
from ablate.results.records import Manifest
from analysis.writing.latex import escape

# What a field may hold as it is: text, braces in pairs, accents and escaped signs; all else is escaped.
HARMLESS = re.compile(
    r"(?:[^\\{}$%#&_~^]|\\[`'\"^~=.&%_#$-]|\\(?:[uvHcdbkr]|ss|ae|AE|oe|OE|aa|AA|[oOlLij])(?![A-Za-z])|[{}])*"
)
KEY = re.compile(r"[\w.:+-]+")
TYPE = re.compile(r"[a-z]+")


def citations(manifest: Manifest) -> dict[str, dict[str, Entry]]:
    """The papers of each variant that a study uses, entries by key, by group=variant."""
    papers = manifest.papers.items()
    return {name: {key: each for key, each in found.items() if KEY.fullmatch(key)} for name, found in papers}


def mention(manifest: Manifest, *variants: str) -> str:
    """A mark, " [@KEY; @KEY]", for the papers of variants, by group=variant or by group alone; nothing without any."""
    named = citations(manifest).items()
    keys = [key for name, papers in named if {name, name.partition("=")[0]} & {*variants} for key in papers]
    return f" [{'; '.join(dict.fromkeys(f'@{key}' for key in keys))}]" if keys else ""


def cite(manifest: Manifest, text: str, write: Callable[[dict[str, Entry]], str]) -> str:
    """A text with the marks of `mention` as `write` puts them; a mark of a paper that is not the study's is text."""
    known = {key: entry for papers in citations(manifest).values() for key, entry in papers.items()}

    def replaced(match: re.Match[str]) -> str:
        keys = match[1].replace("@", "").split("; ")
        return write({key: known[key] for key in keys}) if known.keys() >= {*keys} else match[0]

    return re.sub(r" \[(@[^\]]+)\]", replaced, text)


def names(manifest: Manifest) -> dict[str, str]:
    """How sentences name each paper, by key; "Mikolov et al. 2013a" where others of a study would be named alike.

    Letters go by all authors, then the title, as in author-year styles of BibTeX.
    """
    entries = {key: entry for papers in citations(manifest).values() for key, entry in papers.items()}
    plain, alike = {key: short(entry) for key, entry in entries.items()}, dict[str, list[str]]()
    for key in sorted(
        plain, key=lambda key: [sorted_as(entries[key], "author"), sorted_as(entries[key], "title"), key]
    ):
        alike.setdefault(plain[key], []).append(key)
    letters = {key: chr(ord("a") + i) for keys in alike.values() if len(keys) > 1 for i, key in enumerate(keys)}
    return {key: name + letters.get(key, "") for key, name in plain.items()}


def sorted_as(entry: Entry, field: str) -> str:
    """A field as BibTeX sorts by it: letters, digits and spaces, small."""
    return re.sub(r"[^\w ]", "", entry.get(field, "")).lower()


def bibliography(manifest: Manifest) -> str:
    """The papers of a study's variants as BibTeX, each once, with the variants that cite it."""
    entries: dict[str, Entry] = {}
    variants: dict[str, list[str]] = {}
    for variant, papers in citations(manifest).items():
        for key, entry in papers.items():
            entries.setdefault(key, entry)
            variants.setdefault(key, []).append(variant)
    return "\n".join(_written(key, entries[key], variants[key]) for key in sorted(entries))


def _written(key: str, entry: Entry, variants: list[str]) -> str:
    fields = {name: str(text) for name, text in entry.items() if TYPE.fullmatch(name)}
    if "eprint" in fields and "howpublished" not in fields:
        fields["howpublished"] = f"arXiv:{fields['eprint']}"  # styles older than arXiv show no eprint
    kind = entry.get("ENTRYTYPE", "misc")
    used = ", ".join(re.sub(r"[\s@]+", " ", name) for name in variants)  # BibTeX reads an entry at any @
    lines = [f"  {name} = {{{_harmless(text)}}}," for name, text in fields.items()]
    return "\n".join([f"% {used}", f"@{kind if TYPE.fullmatch(kind) else 'misc'}{{{key},", *lines, "}", ""])


def _harmless(text: str) -> str:
    """A field as it is where TeX only sets it, else without braces and with every sign escaped."""
    plain = re.sub(r"\\.", "", text)
    depths = [plain[: i + 1].count("{") - plain[: i + 1].count("}") for i in range(len(plain))]
    balanced = not depths or (min(depths) >= 0 and depths[-1] == 0)
    return text if balanced and HARMLESS.fullmatch(text) else escape(re.sub("[{}]", "", text))
