"""`docs/gallery.md`, every figure with its answer and the command that made it; and the two that the README shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from ablate import format
from analysis.gallery.answers import answer
from analysis.gallery.kept import FIGURES, RESULTS, StudyFile, Trained
from analysis.gallery.pictures import COMMAND, tables
from analysis.writing.sheet import inline, paragraph

# The most telling figures, which the README shows: a study's name, and which of its figures.
FRONT = {"xiong_warmup": "sensitivity", "alibi_extrapolation": "extrapolation"}
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
    missing = [f"`{each}`" for file in files for each in file.missing]
    more = [f"Not run yet: {format.listed(missing)}."] if missing else []
    return "\n\n".join([WRITTEN, GALLERY, *shown, *more]) + "\n"


def _study(file: StudyFile, trained: Trained) -> Iterator[str]:
    manifest = trained.manifest
    yield f"## {inline(manifest.study)}"
    yield from filter(None, [paragraph(manifest.question or file.question)])
    for name, table in tables(trained.case).items():
        yield paragraph(_first_up(answer(trained.case, name)))
        yield _picture(trained, name, "../")
        yield "  \n".join(paragraph(line) for line in table.attrs["caption"] if line)
    study = manifest.study
    link = f"../experiments/FINDINGS.md#{study}"
    yield f"Trained by `{trained.command}`, drawn by `{COMMAND}`; [what it found]({link})."


def front(files: Iterable[StudyFile]) -> str:
    """The block of the README: the figures of `FRONT` that there are, each with its answer."""
    trained = {each.manifest.study: each for file in files for each in file.trained}
    parts = []
    for study, name in FRONT.items():
        if study in trained and name in tables(trained[study].case):
            parts += [_picture(trained[study], name, ""), paragraph(_first_up(answer(trained[study].case, name)))]
    every = "All figures of the studies in `experiments/`: [gallery](docs/gallery.md); in words: "
    return "\n\n".join([*parts, f"{every}[findings](experiments/FINDINGS.md)."])


def _picture(trained: Trained, name: str, up: str) -> str:
    study = trained.manifest.study
    return f"![{inline(f'{study}: {name}')}]({up}{RESULTS.as_posix()}/{study}/{FIGURES}/{name}.png)"


def _first_up(text: str) -> str:
    return text[:1].upper() + text[1:]
