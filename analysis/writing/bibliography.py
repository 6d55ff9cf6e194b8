"""references.bib: the papers that a study's variants name, as BibTeX."""

from __future__ import annotations

import functools
import re
import unicodedata
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import yaml

from ablate.results.records import Manifest
from analysis.writing.latex import escape

WHO = r"(?:[^\W\d_a-z][\w'’-]* )?(?:\d )?(?:team|[^\W\d_a-z][\w'’-]*)(?: & [^\W\d_a-z][\w'’-]*)?"
NAMED = re.compile(rf"(?P<who>{WHO}) (?P<year>(?:19|20)\d\d)\b(?: \([^)]*\))?(?:, arXiv (?P<id>\d{{4}}\.\d{{4,5}}))?")
BARE = re.compile(r"arXiv (?P<id>\d{4}\.\d{4,5})")


class Paper(NamedTuple):
    """A paper as a variant names it: authors' surnames, year, arXiv id or nothing."""

    who: str
    year: str
    arxiv: str

    @property
    def key(self) -> str:
        """What \\cite takes, the same in every study: zhang2019-1910.07467."""
        plain = unicodedata.normalize("NFKD", self.who).encode("ascii", "ignore").decode().lower()
        names = [re.sub(r"[^a-z0-9]", "", name) for name in plain.split(" & ")]
        return f"{names[0]}{self.year}-{self.arxiv}" if self.arxiv else "-".join(names) + self.year


def papers(text: str) -> list[Paper]:
    """The papers in a variant's comment, in its order: "Zhang & Sennrich 2019, arXiv 1910.07467; …"."""
    found = {match.start(): Paper(match["who"], match["year"], match["id"] or "") for match in NAMED.finditer(text)}
    ids = {paper.arxiv for paper in found.values()}
    for match in BARE.finditer(text):
        if match["id"] not in ids:
            who = known().get(match["id"], {}).get("author", "arXiv").split(",")[0].strip("{}")
            found[match.start()] = Paper(who, f"20{match['id'][:2]}", match["id"])
    return [found[start] for start in sorted(found)]


@functools.cache
def known() -> dict[str, dict[str, str]]:
    """Authors and titles of papers by arXiv id, or by "Author year"."""
    read: dict[str, dict[str, str]] = yaml.safe_load(
        (Path(__file__).parent / "papers.yaml").read_text(encoding="utf-8")
    )
    return read


def citations(manifest: Manifest) -> dict[str, list[Paper]]:
    """The papers of each variant that a study uses, by group=variant; nothing of a study that names none."""
    named = {variant: papers(text) for variant, text in (manifest.papers or {}).items()}
    return {variant: found for variant, found in named.items() if found}


def mention(manifest: Manifest, *variants: str) -> str:
    """A mark, " [@KEY; @KEY]", for the papers of variants, by group=variant or by group alone; nothing without any."""
    named = citations(manifest).items()
    found = [paper for name, papers in named if {name, name.partition("=")[0]} & {*variants} for paper in papers]
    return f" [{'; '.join(dict.fromkeys(f'@{paper.key}' for paper in found))}]" if found else ""


def cite(manifest: Manifest, text: str, write: Callable[[list[Paper]], str]) -> str:
    """A text with the marks of `mention` as `write` puts them; a mark of a paper that is not the study's is text."""
    by_key = {paper.key: paper for found in citations(manifest).values() for paper in found}

    def replaced(match: re.Match[str]) -> str:
        keys = match[1].replace("@", "").split("; ")
        return write([by_key[key] for key in keys]) if all(key in by_key for key in keys) else match[0]

    return re.sub(r" \[(@[^\]]+)\]", replaced, text)


def bibliography(manifest: Manifest) -> str:
    """The papers of a study's variants as BibTeX, each once, with the variants that name it."""
    variants: dict[Paper, list[str]] = {}
    for variant, found in citations(manifest).items():
        for paper in found:
            variants.setdefault(paper, []).append(variant)
    entries = {paper.key: _entry(paper, names) for paper, names in variants.items()}
    return "\n".join(entries[key] for key in sorted(entries))


def _entry(paper: Paper, variants: list[str]) -> str:
    about = known().get(paper.arxiv) or known().get(f"{paper.who} {paper.year}") or {}
    fields = {"author": about.get("author") or _authors(paper.who), "title": escape(about.get("title", ""))}
    fields |= {"year": paper.year, "eprint": paper.arxiv, "archivePrefix": "arXiv" * bool(paper.arxiv)}
    fields["howpublished"] = f"arXiv:{paper.arxiv}" * bool(paper.arxiv)  # styles older than arXiv show no eprint
    fields["title"] = f"{{{fields['title']}}}" if fields["title"] else ""  # in braces of its own: capitals stay
    lines = [f"  {name} = {{{text}}}," for name, text in fields.items() if text]
    used = ", ".join(re.sub(r"[\s@]+", " ", name) for name in variants)  # BibTeX reads an entry at any @
    return "\n".join([f"% {used}", f"@misc{{{paper.key},", *lines, "}", ""])


def _authors(who: str) -> str:
    return " and ".join(f"{{{escape(name)}}}" if " " in name else escape(name) for name in who.split(" & "))
