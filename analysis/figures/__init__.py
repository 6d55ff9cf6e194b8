"""The figures of a study, chosen by its content; each kind is a table and a function that draws it."""

import dataclasses
import math
from importlib import import_module
from pathlib import Path
from typing import Any

import matplotlib
import pandas
from matplotlib.figure import Figure

from ablate import evidence, formatting
from ablate.config.errors import Refused
from ablate.formatting import instead, visible
from ablate.runs.files import write_atomic
from ablate.runs.records import Manifest
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.case.figures_yaml import FILE, Edits, edits_of, shown_cells, write_defaults
from analysis.figures.draw import style
from analysis.figures.kind import Kind, Page, page_of
from analysis.figures.stamp import metadata, stamp_of

__all__ = ["KINDS", "Edits", "Kind", "Page", "edits", "plot", "tables", "write"]

# In the order of the report.
ORDER = "ladder effects claims mirror waterfall interactions divergence seeds curves solved sensitivity"
ORDER += " extrapolation depth width pareto diagnostics"
KINDS: dict[str, Kind] = {name: import_module(f"analysis.figures.kinds.{name}").KIND for name in ORDER.split()}
NEVER_HIDDEN = (*evidence.DECIDED, "withheld")


def edits(case: Case) -> Edits:
    """The user's figures.yaml of a study.  Raises `Refused`."""
    return edits_of(case.folder / FILE, case.study.manifest, list(KINDS), case.words)


def tables(case: Case, given: Edits | None = None) -> dict[str, pandas.DataFrame]:
    """The table of each figure of a study, by name, with the user's subset and order.  Raises `Refused`."""
    given = given or edits(case)
    chosen = {name: kind for name, kind in KINDS.items() if given.figures is None or name in given.figures}
    found = {name: kind.table(case) for name, kind in chosen.items()}
    return {name: select(table, case, given, chosen[name].most) for name, table in found.items() if table is not None}


def plot(case: Case, name: str) -> Figure:
    """One figure of a study.  Raises `Refused` for an unknown kind, and if the study has no data for it."""
    if name not in KINDS:
        raise Refused(f"{name}: no such figure; {instead(name, KINDS)}")
    given = dataclasses.replace(edits(case), figures=[name])
    with matplotlib.rc_context(style.RC):
        drawn = tables(case, given)
        if name not in drawn:
            there = tables(case, dataclasses.replace(given, figures=None))
            needs = f", which needs {KINDS[name].needs}" if KINDS[name].needs else ""
            raise Refused(f"{case.study.manifest.study} has no data for the figure {name}{needs}; {instead('', there)}")
        return KINDS[name].draw(drawn[name], page_of(case.study.manifest, given))


def write(case: Case, folder: Path) -> list[Path]:
    """Draw all figures of a study as PDF and PNG, with a text file for each caption.  Raises `Refused`."""
    given = edits(case)
    manifest, files = case.study.manifest, []
    page = page_of(manifest, given)
    with matplotlib.rc_context(style.RC):
        case.drawn.update(tables(case, given))
        write_defaults(case.folder / FILE, manifest, case.drawn, style.colours(manifest), case.words)
        for name, table in case.drawn.items():
            drawn = KINDS[name].draw(table, page)
            files += style.save(drawn, folder, name, metadata(stamp_of(name, table, page, case.study)))
            text = "\n".join(map(visible, [table.attrs["title"], *table.attrs["caption"], ""]))
            files.append(write_atomic(folder / f"{name}.txt", text.encode()))
    return files


def select(table: pandas.DataFrame, case: Case, given: Edits, most: int) -> pandas.DataFrame:
    """The rows that are shown, in the user's order; the caption says what is left out."""
    shown, left_out = table, ""
    if "cell" in table:
        shown, left_out = _some_cells(table, case, given, most)
    elif "level" in table:
        shown, left_out = _some_effects(table, case.study.manifest, given, most)
    ordered = shown.iloc[_order(shown, case.study.manifest, given)] if given.order or given.sort else shown
    if left_out and case.study.manifest.design == "ladder":
        left_out += "; other learning rates are in the tables"
    result = ordered.reset_index(drop=True)
    title = table.attrs.get("title") or style.title(case.study.manifest)
    caption = [line for line in [*table.attrs.get("caption", []), left_out] if line]
    result.attrs = table.attrs | {"title": title, "caption": caption}
    return result


def _some_cells(table: pandas.DataFrame, case: Case, given: Edits, most: int) -> tuple[pandas.DataFrame, str]:
    by_line = {"x", "label", "facet"} <= {*table}  # whole lines, which join cells, the same ones in every panel
    most = most // 2 if by_line and table["facet"].nunique() > 1 else most
    found = table.dropna(subset="cell").drop_duplicates("cell")
    line = {row.cell: row.label if by_line else row.cell for row in named_rows(found)}
    left = set(shown_cells(case.study.manifest, given))
    there, kept = list(line), [cell for cell in line if cell in left]
    how = "" if len({line[cell] for cell in kept}) <= most else "; the reference and those with the best score"
    if how:
        metrics, known = evidence.endpoints(case.study.manifest), case.cells.set_index("cell")
        measured = known.index.map(metrics)
        lower = measured.map(lambda metric: evidence.lower_is_better(case.study.manifest, metric))
        score = known["mean"].where(lower, -known["mean"]).groupby(measured).rank(na_option="bottom")
        kept = sorted(kept, key=lambda cell: (not known.loc[cell, "reference"], score[cell]))
        first = [*dict.fromkeys(line[cell] for cell in kept)][:most]
        kept = [cell for cell in kept if line[cell] in first]
        how += "; cells.csv has all, subset in figures.yaml chooses"
    left_out = f"{len(kept)} of {len(there)} configurations shown{how}" if len(kept) < len(there) else ""
    return table[table["cell"].isin(kept) | table["cell"].isna()], left_out


def _some_effects(table: pandas.DataFrame, manifest: Manifest, given: Edits, most: int) -> tuple[pandas.DataFrame, str]:
    whose = [name for name in ("facet", "stratum", "kind", "factor", "level") if name in table]

    cells = {*shown_cells(manifest, given)}
    hidden = {name for name, own in evidence.strata(manifest) if cells.isdisjoint(cell.id for cell in own)}

    def fits(factor: str, level: str) -> bool:
        return level in given.levels.get(factor, [level]) or level.startswith(formatting.PER)

    rows = [row for row in named_rows(table) if getattr(row, "stratum", "") not in hidden]
    kept = table.loc[[row.Index for row in rows if all(fits(*pair) for pair in _pairs(row))]]
    one, how = kept.drop_duplicates(whose), ""
    if len(one) > most:
        # Family rows come first, and in it the decided and withheld ones.
        rank = one.assign(family=~one["family"].astype(bool)) if "family" in one else one
        rank = rank.assign(verdict=~rank["verdict"].isin(NEVER_HIDDEN)) if "verdict" in rank else rank
        rank = rank.assign(role=rank["role"].ne("first")) if "role" in rank else rank  # what others are compared with
        by = [name for name in ("role", "family", "verdict", "p") if name in rank]
        one = (rank.sort_values(by, kind="stable") if by else rank).head(most)
        kept = kept.merge(one[whose])
        how = "; what is decided or withheld, then the smallest p" * ("p" in by) + "; effects.csv has all"
    bars = [rows[rows["role"].ne("first")] if "role" in rows else rows for rows in (one, table.drop_duplicates(whose))]
    left, there = map(len, bars)
    noun = "effects" if "p" in table else "levels"
    return kept, f"{left} of {there} {noun} shown{how}" if left < there else ""


def _pairs(row: Any) -> list[tuple[str, str]]:
    return list(zip(str(row.factor).split(" x "), formatting.levels_of(row), strict=False))


def _order(table: pandas.DataFrame, manifest: Manifest, given: Edits) -> list[int]:
    """The indices of the rows in the user's order; rows that it does not mention stay where they are."""
    if "cell" in table:
        ranked = {f: [*given.order.get(f, []), *map(formatting.show, levels)] for f, levels in manifest.factors.items()}
        names = sorted(ranked, key=lambda name: name in manifest.reference)  # first what is not compared
        keys = {c.id: [ranked[name].index(formatting.show(c.levels[name])) for name in names] for c in manifest.cells}
        return sorted(range(len(table)), key=lambda i: keys.get(table["cell"].iloc[i], []))
    if "level" not in table:
        return list(range(len(table)))
    first: dict[tuple[Any, ...], int] = {}
    columns = [name for name in ("facet", "family", "stratum", "kind", "factor") if name in table]
    groups = [tuple(row) for row in table[columns].to_numpy()]
    start = [first.setdefault(group, i) for i, group in enumerate(groups)]
    at = {(factor, level): i for factor, levels in given.order.items() for i, level in enumerate(levels)}
    pairs = map(_pairs, named_rows(table))
    places = [tuple(at.get(pair, math.inf if pair[0] in given.order else 0) for pair in each) for each in pairs]
    effects = table["mean"].fillna(math.inf).tolist() if given.sort and "mean" in table else [0.0] * len(table)
    return sorted(range(len(table)), key=lambda i: (start[i], places[i], effects[i]))
