"""The gallery, and the block in the README."""

from collections.abc import Iterable

from ablate.formatting import listed
from analysis.writing.tables import inline, paragraph
from gallery.findings import WRITTEN, picture
from gallery.studies import RESULTS, StudyFile

FRONT = ("worth_in_steps", "alibi_extrapolation")  # studies in the README, in this order
GALLERY = """\
# Gallery

Each study's question, its answer and one figure. Points and bars are means over seeds; the intervals of a study hold
together. A study's page has all its figures, claims and effects. The [findings](../experiments/FINDINGS.md) are an
index."""


def gallery(files: list[StudyFile]) -> str:
    """A question, an answer and a figure for each study."""
    parts = [WRITTEN, GALLERY]
    for file in files:
        for study in file.trained:
            parts.append(f"## {paragraph(study.manifest.question or file.question or study.name)}")
            link = f"[{inline(study.name)}](../experiments/findings/{study.name}.md)"
            parts.append(f"{paragraph(study.answer)} ({link})")
            figures = list(study.plotted)
            if figures:
                parts.append(picture(study, figures[0], f"../{RESULTS}"))
    missing = [inline(file.name) for file in files if not file.trained]
    if missing:
        parts.append(f"Not run yet: {listed(missing)}.")
    return "\n\n".join(parts) + "\n"


def front(files: Iterable[StudyFile]) -> str:
    """The block in the README: the figures of `FRONT`, each with its question and answer."""
    blocks = {}
    for file in files:
        for study in file.trained:
            if study.name in FRONT and study.plotted:
                question = study.manifest.question or file.question
                figure = picture(study, next(iter(study.plotted)), str(RESULTS))
                blocks[study.name] = [f"**{paragraph(question)}**", figure, paragraph(study.answer)]
    parts = []
    for name in FRONT:
        parts += blocks.get(name, [])
    parts.append("All studies: [gallery](docs/gallery.md); in words: [findings](experiments/FINDINGS.md).")
    return "\n\n".join(parts)
