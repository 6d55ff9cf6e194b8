"""Plans and studies with text and HTML representations for notebooks, and a progress bar for training."""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import io
import itertools
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from html import escape
from typing import TYPE_CHECKING, Any

from ablate import evidence, formatting
from ablate.cli.monitor import counts, follow
from ablate.cli.preview import heads, preview, row
from ablate.cli.summary import effect_lines
from ablate.formatting import instead
from ablate.planning import runs
from ablate.results import naming
from ablate.results import study as tables
from ablate.results.progress import Runs
from ablate.results.tables import named_rows
from ablate.training.load import LoadedRun, load_run

if TYPE_CHECKING:
    import pandas

FIRST = ["label", "mean", "low", "high", "n", "verdict"]  # columns of effects that are read first
SHOWN = 16  # the most rows in a representation; the tables have all


class Plan(runs.Plan):
    """The plan that `ablate.plan` returns: `manifest` has its cells and runs, `todo` the runs to train."""

    @classmethod
    def of(cls, plan: runs.Plan) -> Plan:
        """Convert a plan to this class."""
        return cls(**{field.name: getattr(plan, field.name) for field in dataclasses.fields(plan)})

    def __repr__(self) -> str:
        return preview(self)

    def _repr_html_(self) -> str:
        below = preview(self).partition("\n\n")[2].splitlines()
        return html_table(heads(self), [row(self, cell) for cell in self.manifest.cells]) + paragraph(below)


@dataclasses.dataclass(frozen=True, repr=False)
class Study(tables.Study):
    """The study that `ablate.run` and `ablate.load` return: see `ablate.results.study.Study` for its tables."""

    user: Sequence[str] = ()  # your packages that models of its runs may import

    @classmethod
    def of(cls, study: tables.Study, user: Sequence[str]) -> Study:
        """Convert a study to this class."""
        return cls(**{field.name: getattr(study, field.name) for field in dataclasses.fields(study)}, user=user)

    @functools.cached_property
    def effects(self) -> pandas.DataFrame:
        """The effects in the study's metric, one row per contrast, with a column for each factor.  A factor's column
        holds its level in all cells on the side of the contrast's level; None if they differ."""
        found, cells = evidence.effects(self), {cell.id: cell.levels for cell in self.manifest.cells}
        sides = [[cells[cell] for cell in contrast.side(1)] for contrast in evidence.contrasts(self.manifest)]
        columns = {}
        for factor in [name for name in self.manifest.factors if name not in found]:
            levels = [[cell.get(factor) for cell in side] for side in sides]
            columns[factor] = [each[0] if each and each.count(each[0]) == len(each) else None for each in levels]
        rest = found.columns.difference(FIRST, sort=False)
        return found.assign(**columns)[[*FIRST, *columns, *rest]]

    def run(self, cell: str, seed: int, user: Iterable[str] | None = None) -> LoadedRun:
        """A run by its cell's label or id and its seed, with its configuration, steps, result and `model()`.

        `user` names your packages that its model may import; without it, those of the study.  Raises KeyError if the
        study has no such run, and FileNotFoundError if the run has not begun or the study was read from tables without
        runs.
        """
        labels = {one.id: one.label for one in self.manifest.cells}
        found = [run for run in self.manifest.runs if cell in (run.cell, labels[run.cell]) and run.seed == seed]
        if not found:
            there = dict.fromkeys(labels.values()) if cell not in (*labels, *labels.values()) else self.manifest.seeds
            raise KeyError(f"no run of {cell} with seed {seed}; {instead(str(cell), map(str, there))}")
        if self.results is None:
            raise FileNotFoundError(f"{self.manifest.study} was read from kept tables, which hold no runs")
        return load_run(self.results / "runs" / found[0].path, self.user if user is None else user)

    def __repr__(self) -> str:
        cells = evidence.cells(self)
        places = formatting.decimals([cells["sd"].max()])
        rows = [("cell", evidence.endpoint(self.manifest))]
        for cell in _rows(cells):
            mean = formatting.number(cell.mean, places) if cell.n else ""
            spread = f" ± {formatting.number(cell.sd, places)} SD (n = {cell.n})" if cell.n > 1 else ""
            rows.append((cell.name, ", ".join(filter(None, [mean + spread, *formatting.lost(cell)]))))
        effects = [*evidence.claim_lines(self.manifest, evidence.claims(self)), *effect_lines(self.effects)]
        effects += filter(None, [evidence.families(self.manifest, int(self.effects["family"].sum()))])
        return "\n".join([self._title(), *formatting.columns(rows), *self._below(cells), *effects])

    def _repr_html_(self) -> str:
        shown = evidence.headline(self.effects)
        places = formatting.decimals((shown["high"] - shown["low"]) / 2)
        rows = []
        for effect in _rows(shown):
            span = formatting.span(effect.mean, effect.low, effect.high, places) * (effect.verdict != "withheld")
            rows.append((effect.label, span, formatting.over(effect), formatting.verdict(effect)))
        heads = ("effect", f"difference in {evidence.endpoint(self.manifest)}", "over", "verdict")
        above = [self._title(), *evidence.claim_lines(self.manifest, evidence.claims(self))]
        return paragraph(above) + html_table(heads, rows) + paragraph(self._below(shown))

    def _title(self) -> str:
        status = self.runs["status"].value_counts()
        ended = ", ".join(f"{count} {name}" for name, count in status.items())
        return f"{naming.title(self.manifest)}: {formatting.counted(len(self.manifest.cells), 'cell')}, {ended}"

    def _below(self, table: pandas.DataFrame) -> list[str]:
        """Lines with the number of rows left out and the number of notes."""
        lines = [f"… {len(table) - SHOWN} more"] * (len(table) > SHOWN)
        notes = formatting.counted(len(self.notes), "note")
        return lines + [f"{notes} of what is damaged or missing: .notes"] * bool(self.notes)


def _rows(table: pandas.DataFrame) -> list[Any]:
    return list(named_rows(table.head(SHOWN)))


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of texts as an HTML table; texts are escaped."""
    lines = [("th", heads), *(("td", row) for row in rows)]
    cells = ("".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts) for tag, texts in lines)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def paragraph(lines: Iterable[str]) -> str:
    """Lines of text as an HTML paragraph."""
    return f"<p>{'<br>'.join(map(escape, lines))}</p>"


TICK = 0.5  # seconds between polls
FORMAT = "{percentage:3.0f} % {bar:30} {desc}"


class Bar:
    """A reporter for notebooks and terminals: a progress bar on standard error, and remarks as warnings."""

    def remark(self, text: str) -> None:
        """Issue a warning about the line that called ablate."""
        frames = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_stack(sys._getframe()))
        own = itertools.takewhile(lambda name: name.partition(".")[0] == "ablate", frames)
        warnings.warn(text, stacklevel=1 + len(list(own)))

    def training(self, plan: runs.Plan) -> AbstractContextManager[None]:
        """Show the progress bar on a terminal or in a notebook."""
        if not sys.stderr.isatty() and "ipykernel" not in sys.modules:  # nobody sees standard error
            return contextlib.nullcontext()
        return follow(plan.results, plan.manifest.study, plan.todo, _show)

    def ended(self, plan: runs.Plan, study: tables.Study, seconds: float | None) -> None:
        """Do nothing: the caller gets the study, which displays itself."""


def _show(runs: Runs, stop: threading.Event) -> None:
    from tqdm import tqdm

    last, file, cell = False, sys.stderr, None
    if "ipykernel" in sys.modules:  # a saved notebook would keep each state of a line on standard error
        from IPython.display import display

        file, cell = io.StringIO(), display({"text/plain": ""}, raw=True, display_id=True)
    with tqdm(total=sum(run.steps for run in runs), bar_format=FORMAT, file=file) as bar:
        while not last:
            last = stop.wait(TICK)
            runs.poll()
            bar.n = sum(run.steps if run.result else min(run.pace.step, run.steps) for run in runs)
            bar.set_description_str(counts(runs))
            if cell:
                cell.update({"text/plain": str(bar)}, raw=True)
