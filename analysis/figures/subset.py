"""The rows of a kind's table that its figure shows: the user's subset and order, limited to what fits."""

import math
from typing import Any

import pandas

from ablate import evidence, formatting
from ablate.results.records import Manifest
from ablate.results.tables import named_rows
from analysis.case import Case
from analysis.case.figures_yaml import Edits, shown_cells
from analysis.figures.draw import style

NEVER_HIDDEN = (*evidence.DECIDED, "withheld")


def select(table: pandas.DataFrame, case: Case, edits: Edits, most: int) -> pandas.DataFrame:
    """The rows that are shown, in the user's order; the caption says what is left out."""
    attrs = dict(table.attrs)
    shown, left_out = table, ""
    if "cell" in table:
        shown, left_out = _some_cells(table, case, edits, most)
    elif "level" in table:
        shown, left_out = _some_effects(table, edits, most)
    ordered = shown.iloc[_order(shown, case.study.manifest, edits)] if edits.order or edits.sort else shown
    result = ordered.reset_index(drop=True)
    result.attrs = attrs | {
        "title": attrs.get("title") or style.title(case.study.manifest),
        "caption": [line for line in [*attrs.get("caption", []), left_out] if line],
    }
    return result


def _some_cells(table: pandas.DataFrame, case: Case, edits: Edits, most: int) -> tuple[pandas.DataFrame, str]:
    there = list(dict.fromkeys(table["cell"].dropna()))
    left = set(shown_cells(case.study.manifest, edits))
    kept = [cell for cell in there if cell in left]
    how = "" if len(kept) <= most else "; the reference and those with the best score"
    if how:
        manifest = case.study.manifest
        sign = 1 if evidence.lower_is_better(manifest, evidence.endpoint(manifest)) else -1
        known = case.cells.set_index("cell")
        score = {cell: sign * mean if math.isfinite(mean) else math.inf for cell, mean in known["mean"].items()}
        kept = sorted(kept, key=lambda cell: (not known.loc[cell, "reference"], score[cell]))[:most]
        how += "; cells.csv has all, subset in figures.yaml chooses"
    left_out = f"{len(kept)} of {len(there)} cells shown{how}" if len(kept) < len(there) else ""
    return table[table["cell"].isin(kept) | table["cell"].isna()], left_out


def _some_effects(table: pandas.DataFrame, edits: Edits, most: int) -> tuple[pandas.DataFrame, str]:
    whose = [name for name in ("facet", "stratum", "kind", "factor", "level") if name in table]
    pairs = map(_pairs, named_rows(table))
    kept = table[[all(level in edits.levels.get(factor, [level]) for factor, level in each) for each in pairs]]
    one, how = kept.drop_duplicates(whose), ""
    if len(one) > most:
        # Family rows come first, and in it the decided and withheld ones.
        rank = one.assign(family=~one["family"].astype(bool)) if "family" in one else one
        rank = rank.assign(verdict=~rank["verdict"].isin(NEVER_HIDDEN)) if "verdict" in rank else rank
        by = [name for name in ("family", "verdict", "p") if name in rank]
        one = (rank.sort_values(by, kind="stable") if by else rank).head(most)
        kept = kept.merge(one[whose])
        how = "; what is decided or withheld, then the smallest p" * ("p" in by) + "; effects.csv has all"
    there = len(table.drop_duplicates(whose))
    noun = "effects" if "p" in table else "levels"
    return kept, f"{len(one)} of {there} {noun} shown{how}" if len(one) < there else ""


def _pairs(row: Any) -> list[tuple[str, str]]:
    return list(zip(str(row.factor).split(" x "), str(row.level).split(", "), strict=False))


def _order(table: pandas.DataFrame, manifest: Manifest, edits: Edits) -> list[int]:
    """The indices of the rows in the user's order; rows that it does not mention stay where they are."""
    if "cell" in table:
        cells = {cell.id: cell.levels for cell in manifest.cells}
        names = sorted(manifest.factors, key=lambda name: name in manifest.reference)  # first what is not compared
        keys = {
            cell: tuple(_place(formatting.show(levels[name]), name, manifest, edits) for name in names)
            for cell, levels in cells.items()
        }
        return sorted(range(len(table)), key=lambda i: keys.get(table["cell"].iloc[i], ()))
    if "level" not in table:
        return list(range(len(table)))
    first: dict[tuple[Any, ...], int] = {}
    columns = [name for name in ("facet", "family", "stratum", "kind", "factor") if name in table]
    groups = [tuple(row) for row in table[columns].to_numpy()]
    start = [first.setdefault(group, i) for i, group in enumerate(groups)]
    at = {(factor, level): i for factor, levels in edits.order.items() for i, level in enumerate(levels)}
    places = [
        tuple(at.get(pair, math.inf if pair[0] in edits.order else 0) for pair in _pairs(row))
        for row in named_rows(table)
    ]
    effects = table["mean"].fillna(math.inf).tolist() if edits.sort and "mean" in table else [0.0] * len(table)
    return sorted(range(len(table)), key=lambda i: (start[i], places[i], effects[i]))


def _place(level: str, factor: str, manifest: Manifest, edits: Edits) -> float:
    """A level's position: in the user's list, or after it in the study's order."""
    listed = edits.order.get(factor, [])
    there = [formatting.show(each) for each in manifest.factors[factor]]
    return listed.index(level) if level in listed else len(listed) + there.index(level)
