"""A study that shows itself, with its effects and its runs at hand."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from ablate import evidence, formatting
from ablate.formatting.columns import columns
from ablate.formatting.suggest import instead
from ablate.python.html import note, table
from ablate.results import naming
from ablate.results import study as tables
from ablate.results.records import Manifest
from ablate.training.load import LoadedRun, load_run

if TYPE_CHECKING:
    import pandas

SHOWN = 16  # rows; all are in the tables


@dataclasses.dataclass(frozen=True, repr=False)
class Study(tables.Study):
    """A study as `ablate.run` and `ablate.load` return it: see `ablate.results.study.Study` for its tables.

    effects  one row per contrast of the design, with its interval and verdict: `ablate.evidence.effects`
    """

    @classmethod
    def of(cls, study: tables.Study) -> Study:
        """A study as one that shows itself."""
        return cls(**{field.name: getattr(study, field.name) for field in dataclasses.fields(study)})

    @functools.cached_property
    def effects(self) -> pandas.DataFrame:
        """The effects in the study's own metric, one row per contrast, with a column for each factor.

        A factor's column holds the level that all cells on the level's side have; None where they differ in it.
        """
        found = evidence.effects(self)
        levels = _levels(self.manifest)
        return found.assign(**{name: column for name, column in levels.items() if name not in found})

    def run(self, cell: str, seed: int, user: Iterable[str] = ()) -> LoadedRun:
        """A run by its cell's label or id, and its seed: its configuration, steps, result, and `model()`.

        `user` names the packages of your own that its model may be built from.  Raises KeyError where the study has no
        such run, FileNotFoundError where it has not begun, or the study was read from kept tables.
        """
        labels = {one.id: one.label for one in self.manifest.cells}
        found = [run for run in self.manifest.runs if cell in (run.cell, labels[run.cell]) and run.seed == seed]
        if not found:
            there = dict.fromkeys(labels.values()) if cell not in (*labels, *labels.values()) else self.manifest.seeds
            raise KeyError(f"no run of {cell} with seed {seed}; {instead(str(cell), map(str, there))}")
        if self.results is None:
            raise FileNotFoundError(f"{self.manifest.study} was read from kept tables, which hold no runs")
        return load_run(self.results / "runs" / found[0].path, user)

    def __repr__(self) -> str:
        cells = evidence.cells(self)
        places = formatting.decimals([cells["sd"].max()])
        rows = [("cell", evidence.endpoint(self.manifest)), *(_scored(row, places) for row in _rows(cells))]
        return "\n".join([self._title(), *columns(rows), *_more(len(cells)), *self._also()])

    def _repr_html_(self) -> str:
        """The verdicts: on claims, then on effects."""
        shown = evidence.headline(self.effects)
        places = formatting.decimals((shown["high"] - shown["low"]) / 2)
        rows = [(row.label, _span(row, places), formatting.over(row), formatting.verdict(row)) for row in _rows(shown)]
        heads = ("effect", f"difference in {evidence.endpoint(self.manifest)}", "over", "verdict")
        said = evidence.claim_lines(self.manifest, evidence.claims(self))
        return note([self._title(), *said]) + table(heads, rows) + note([*_more(len(shown)), *self._also()])

    def _title(self) -> str:
        status = self.runs["status"].value_counts()
        ended = ", ".join(f"{count} {name}" for name, count in status.items())
        return f"{naming.title(self.manifest)}: {formatting.counted(len(self.manifest.cells), 'cell')}, {ended}"

    def _also(self) -> list[str]:
        return [f"{formatting.counted(len(self.notes), 'note')} of what is damaged or missing: .notes"] * bool(
            self.notes
        )


def _levels(manifest: Manifest) -> dict[str, list[Any]]:
    """By factor, a level for each contrast."""
    cells = {cell.id: cell.levels for cell in manifest.cells}
    sides = [[cells[cell] for cell in contrast.side(1)] for contrast in evidence.contrasts(manifest)]
    return {name: [_shared([levels.get(name) for levels in side]) for side in sides] for name in manifest.factors}


def _shared(levels: list[Any]) -> Any:
    return levels[0] if levels and all(level == levels[0] for level in levels) else None


def _rows(found: pandas.DataFrame) -> list[Any]:
    return list(found.head(SHOWN).itertuples())


def _scored(row: Any, places: int) -> tuple[str, str]:
    """A cell's line: its mean, and its SD over seeds."""
    mean = formatting.number(row.mean, places) if row.n else ""
    spread = f" ± {formatting.number(row.sd, places)} SD (n = {row.n})" if row.n > 1 else ""
    return row.name, ", ".join(filter(None, [mean + spread, *formatting.lost(row)]))


def _span(row: Any, places: int) -> str:
    return "" if row.verdict == "withheld" else formatting.span(row.mean, row.low, row.high, places)


def _more(rows: int) -> list[str]:
    return [f"… {rows - SHOWN} more"] * (rows > SHOWN)
