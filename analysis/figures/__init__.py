"""The figures of a study, chosen by what it contains; each kind is a table and a function that draws it."""

from __future__ import annotations

from pathlib import Path

import matplotlib

from analysis.case import Case
from analysis.figures import curves, effects, seeds, style
from analysis.figures.kind import Kind, Page

KINDS: tuple[Kind, ...] = ()  # in the order in which a reader wants them


def write(case: Case, folder: Path) -> list[Path]:
    """Draw what the study contains as PDF and PNG."""
    study = case.study
    with matplotlib.rc_context(style.RC):
        drawn = {"curves": curves.draw(study), "effects": effects.draw(study, case.effects), "seeds": seeds.draw(study)}
        page = Page(study.manifest, style.WIDTH)
        tables = {kind: kind.table(case) for kind in KINDS}
        drawn |= {kind.name: kind.draw(table, page) for kind, table in tables.items() if table is not None}
        return [file for name, figure in drawn.items() for file in style.save(figure, folder, name)]
