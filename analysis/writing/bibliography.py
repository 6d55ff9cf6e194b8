"""references.bib: the papers that a study's variants cite, and the citation marks in sentences."""

import re
from collections.abc import Callable

from ablate.config.citations import Entry, short
from ablate.runs.records import Manifest
from analysis.writing.latex import escape

# Fields that need no escaping: text, balanced braces, accents and escaped signs.
HARMLESS = re.compile(
    r"(?:[^\\{}$%#&_~^]|\\[`'\"^~=.&%_#$-]|\\(?:[uvHcdbkr]|ss|ae|AE|oe|OE|aa|AA|[oOlLij])(?![A-Za-z])|[{}])*"
)
KEY = re.compile(r"[\w.:+-]+")
TYPE = re.compile(r"[a-z]+")
MARK = re.compile(r" \[(@[^\]]+)\]")


def citations(manifest: Manifest) -> dict[str, dict[str, Entry]]:
    """The papers of each variant of a study: by group=variant, entries by key."""
    cited = {}
    for variant, papers in manifest.papers.items():
        cited[variant] = {key: entry for key, entry in papers.items() if KEY.fullmatch(key)}
    return cited


def entries(manifest: Manifest) -> dict[str, Entry]:
    """All papers of a study by key."""
    return {key: entry for papers in citations(manifest).values() for key, entry in papers.items()}


def mention(manifest: Manifest, *variants: str) -> str:
    """The mark " [@KEY; @KEY]" for the papers of variants, given as group=variant or as group; "" without papers."""
    keys: list[str] = []
    for name, papers in citations(manifest).items():
        if name in variants or name.partition("=")[0] in variants:
            keys += papers
    return f" [{'; '.join(dict.fromkeys(f'@{key}' for key in keys))}]" if keys else ""


def cite(manifest: Manifest, text: str, write: Callable[[list[str]], str]) -> str:
    """A text with the marks of `mention` replaced by what `write` makes of their keys; marks of unknown papers stay."""
    papers = entries(manifest)

    def replaced(match: re.Match[str]) -> str:
        keys = match[1].replace("@", "").split("; ")
        return write(keys) if papers.keys() >= {*keys} else match[0]

    return MARK.sub(replaced, text)


def names(manifest: Manifest) -> dict[str, str]:
    """The author-year name of each paper, by key."""
    return {key: short(entry) for key, entry in entries(manifest).items()}


def bibliography(manifest: Manifest) -> str:
    """The papers of a study's variants as BibTeX, each once."""
    lines = []
    for key, entry in sorted(entries(manifest).items()):
        fields = {name: str(text) for name, text in entry.items() if TYPE.fullmatch(name)}
        if "eprint" in fields and "howpublished" not in fields:
            fields["howpublished"] = f"arXiv:{fields['eprint']}"  # old BibTeX styles ignore eprint
        kind = entry.get("ENTRYTYPE", "misc")
        lines.append(f"@{kind if TYPE.fullmatch(kind) else 'misc'}{{{key},")
        lines += [f"  {name} = {{{harmless(text)}}}," for name, text in fields.items()]
        lines += ["}", ""]
    return "\n".join(lines)


def harmless(text: str) -> str:
    """A field unchanged if TeX can typeset it safely, else without braces and fully escaped."""
    return text if HARMLESS.fullmatch(text) else escape(re.sub("[{}]", "", text))
