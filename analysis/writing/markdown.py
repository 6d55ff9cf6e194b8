"""report.md: the report's sections as Markdown, figures by relative links."""

from collections.abc import Iterable, Iterator
from urllib.parse import quote

from ablate.results import naming
from analysis.case import Case
from analysis.writing import sheet
from analysis.writing.sections import Picture, Section, noise, sections
from analysis.writing.sheet import inline, paragraph


def report(case: Case, pictures: Iterable[Picture] = ()) -> str:
    """The text of report.md, which is written next to its figures."""
    found = sections(case, pictures)
    at = 1 + [section.name for section in found].index("verdicts")
    found[at:at] = [section for section in (noise(case),) if section.items]
    return page(naming.title(case.study.manifest), found)


def page(title: str, found: list[Section]) -> str:
    """A report's title and sections as Markdown."""
    parts = [f"# {inline(title)}", *(part for section in found for part in _parts(section))]
    return "\n\n".join(parts) + "\n"


def _parts(section: Section) -> Iterator[str]:
    yield f"## {inline(section.title)}"
    yield from map(paragraph, section.text)
    if section.facts:
        yield "\n".join(f"- **{inline(name)}**: {inline(text)}" for name, text in section.facts)
    if section.items:
        yield "\n".join(f"- {paragraph(item)}" for item in section.items)
    for each in section.sheets:
        if len(section.sheets) > 1:
            yield f"### {inline(each.title)}"
        yield sheet.markdown(each).rstrip("\n")
    for picture in section.pictures:
        yield f"![{inline(picture.name)}]({quote(picture.name)}.png)"
        yield "  \n".join(paragraph(line) for line in [picture.says, *picture.caption] if line)
