"""references.bib: the papers that a study's variants cite, and the citation marks in sentences."""

import re
from collections.abc import Callable

from ablate.config.citations import Entry, short
from ablate.formatting import grouped
from ablate.runs.records import Manifest
from analysis.writing.latex import escape

# Fields that need no escaping: text, balanced braces, accents and escaped signs.
HARMLESS = re.compile(
    r"(?:[^\\{}$%#&_~^]|\\[`'\"^~=.&%_#$-]|\\(?:[uvHcdbkr]|ss|ae|AE|oe|OE|aa|AA|[oOlLij])(?![A-Za-z])|[{}])*"
)
KEY = re.compile(r"[\w.:+-]+")
TYPE = re.compile(r"[a-z]+")


def citations(manifest: Manifest) -> dict[str, dict[str, Entry]]:
    """The papers of each variant of a study: by group=variant, entries by key."""
    papers = manifest.papers.items()
    return {name: {key: each for key, each in found.items() if KEY.fullmatch(key)} for name, found in papers}


def mention(manifest: Manifest, *variants: str) -> str:
    """The mark " [@KEY; @KEY]" for the papers of variants, given as group=variant or as group; "" without papers."""
    named = citations(manifest).items()
    keys = [key for name, papers in named if {name, name.partition("=")[0]} & {*variants} for key in papers]
    return f" [{'; '.join(dict.fromkeys(f'@{key}' for key in keys))}]" if keys else ""


def cite(manifest: Manifest, text: str, write: Callable[[dict[str, Entry]], str]) -> str:
    """A text with the marks of `mention` replaced by `write`; marks of unknown papers stay as text."""
    known = {key: entry for papers in citations(manifest).values() for key, entry in papers.items()}

    def replaced(match: re.Match[str]) -> str:
        keys = match[1].replace("@", "").split("; ")
        return write({key: known[key] for key in keys}) if known.keys() >= {*keys} else match[0]

    return re.sub(r" \[(@[^\]]+)\]", replaced, text)


def names(manifest: Manifest) -> dict[str, str]:
    """The author-year name of each paper, by key; "Mikolov et al. 2013a" if two would be equal.  Letters follow the
    order of all authors, then of titles, as in author-year styles of BibTeX."""
    entries = {key: entry for papers in citations(manifest).values() for key, entry in papers.items()}
    plain = {key: short(entry) for key, entry in entries.items()}

    def order(key: str) -> list[str]:  # as BibTeX sorts fields: lower-case letters, digits and spaces
        return [re.sub(r"[^\w ]", "", entries[key].get(field, "")).lower() for field in ("author", "title")] + [key]

    alike = grouped((plain[key], key) for key in sorted(plain, key=order))
    letters = {key: chr(ord("a") + i) for keys in alike.values() if len(keys) > 1 for i, key in enumerate(keys)}
    return {key: name + letters.get(key, "") for key, name in plain.items()}


def bibliography(manifest: Manifest) -> str:
    """The papers of a study's variants as BibTeX, each once, with the variants that cite it."""
    cited, found = citations(manifest).items(), []
    entries = {key: entry for _, papers in cited for key, entry in papers.items()}
    # BibTeX starts an entry at any @.
    variants = grouped((key, re.sub(r"[\s@]+", " ", variant)) for variant, papers in cited for key in papers)
    for key, entry in sorted(entries.items()):
        fields = {name: str(text) for name, text in entry.items() if TYPE.fullmatch(name)}
        if "eprint" in fields and "howpublished" not in fields:
            fields["howpublished"] = f"arXiv:{fields['eprint']}"  # old BibTeX styles ignore eprint
        kind = entry.get("ENTRYTYPE", "misc")
        found += [f"% {', '.join(variants[key])}", f"@{kind if TYPE.fullmatch(kind) else 'misc'}{{{key},"]
        found += [*(f"  {name} = {{{_harmless(text)}}}," for name, text in fields.items()), "}", ""]
    return "\n".join(found)


def _harmless(text: str) -> str:
    """A field unchanged if TeX can typeset it safely, else without braces and fully escaped."""
    plain = re.sub(r"\\.", "", text)
    depths = [plain[: i + 1].count("{") - plain[: i + 1].count("}") for i in range(len(plain))]
    balanced = not depths or (min(depths) >= 0 and depths[-1] == 0)
    return text if balanced and HARMLESS.fullmatch(text) else escape(re.sub("[{}]", "", text))
