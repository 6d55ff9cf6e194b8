"""`docs/gallery.md`, every figure with its answer and the command that made it; and the two that the README shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ablate import evidence
from analysis.gallery.answers import answer
from analysis.gallery.kept import FIGURES, RESULTS, StudyFile, Trained, lacking
from analysis.gallery.pictures import COMMAND, tables
from analysis.writing.sheet import inline, paragraph

# The studies with the most telling figures, which the README shows: of each the one that mirrors the paper's.
FRONT = ("xiong_warmup", "alibi_extrapolation")
WRITTEN = "<!-- written by `make figures` from experiments/results/: nothing here is edited by hand -->"
GALLERY = f"""\
# Gallery

Every figure of the studies in [experiments/](../experiments), drawn from their committed tables by `{COMMAND}`
(`make figures`). Points and bars are means over seeds, intervals hold simultaneously; what each study found, in words:
[findings](../experiments/FINDINGS.md)."""


def gallery(files: Iterable[StudyFile]) -> str:
    """The whole page."""
    files = list(files)
    shown = [part for file in files for each in file.trained for part in _study(file, each)]
    missing = [inline(file.name) for file in files if not file.trained]
    more = [f"Not run yet: {', '.join(missing)}."] if missing else []
    return "\n\n".join([WRITTEN, GALLERY, *shown, *more]) + "\n"


def _study(file: StudyFile, trained: Trained) -> Iterator[str]:
    manifest = trained.manifest
    yield f"## {inline(trained.name)}"
    yield from filter(None, [paragraph(manifest.question or file.question)])
    overall = evidence.replication(manifest, trained.case.claims)
    yield from [paragraph(overall.sentence)] if overall else []
    for name, table in tables(trained.case).items():
        yield paragraph(answer(trained.case, name))
        yield _picture(trained, name, "../")
        yield "  \n".join(paragraph(line) for line in table.attrs["caption"] if line)
    if lacks := lacking(manifest.factors):
        yield f"No cell of {paragraph(lacks)}."
    link = f"../experiments/FINDINGS.md#{trained.name}"
    yield f"Trained by `{trained.command}`, drawn by `{COMMAND}`; [what it found]({link})."


def front(files: Iterable[StudyFile]) -> str:
    """The block of the README: the figures of `FRONT`, each with its question and overall verdict, or else answer."""
    trained = {each.name: (file, each) for file in files for each in file.trained}
    parts = []
    for file, each in [trained[study] for study in FRONT if study in trained]:
        first = next(iter(tables(each.case)))
        question = each.manifest.question or file.question
        parts += [f"**{paragraph(question)}**"] * bool(question)
        overall = evidence.replication(each.manifest, each.case.claims)
        told = f"Replicated: {overall.verdict}; {overall.why}." if overall else answer(each.case, first)
        parts += [_picture(each, first, ""), paragraph(told)]
    every = "All figures of the studies in `experiments/`: [gallery](docs/gallery.md); in words: "
    return "\n\n".join([*parts, f"{every}[findings](experiments/FINDINGS.md)."])


def _picture(trained: Trained, name: str, up: str) -> str:
    study = trained.name
    return f"![{inline(f'{study}: {name}')}]({up}{RESULTS.as_posix()}/{study}/{FIGURES}/{name}.png)"
