"""Tables of a study as CSV, with every digit, and as Markdown, to be read."""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path

import pandas

from ablate import evidence, words
from ablate.results import Study


def write(study: Study, table: pandas.DataFrame, folder: Path) -> list[Path]:
    """Write runs.csv, cells.csv, cells.md, effects.csv and effects.md; `table` holds the effects."""
    cells = evidence.cells(study).assign(**beside(study))
    files = []
    for name, frame in (("runs", runs_table(study)), ("cells", cells), ("effects", table)):
        files.append(folder / f"{name}.csv")
        frame.to_csv(files[-1], index=False, lineterminator="\n")
    for name, text in (("cells", cells_markdown(study, cells)), ("effects", effects_markdown(study, table))):
        files.append(folder / f"{name}.md")
        files[-1].write_text(text, encoding="utf-8")
    return files


def beside(study: Study) -> dict[str, list[float]]:
    """Means over done seeds of every other test metric: of other lengths, other statistics, other scores."""
    metrics = evidence.measures(study.manifest)
    split = metrics[0].split("/")[0]  # of a tuning study the validation split: its test scores are nobody's business
    known = [name for name in study.runs if name.startswith(f"{split}/") and study.runs[name].notna().any()]
    others = [name for name in known if metrics != [name]]
    return {name: list(evidence.cells(study, name)["mean"]) for name in others}


def runs_table(study: Study) -> pandas.DataFrame:
    """A row per run, with what was chosen for its cell where cells were matched."""
    chosen = {cell["id"]: evidence.matched(study.manifest, cell) for cell in study.manifest["cells"]}
    rows = [chosen[cell] for cell in study.runs["cell"]]
    return study.runs.join(pandas.DataFrame(rows, index=study.runs.index))


def cells_markdown(study: Study, cells: pandas.DataFrame) -> str:
    """The cells with mean ± SD over done seeds, the share of runs that diverged, and the budget."""
    metrics, places = evidence.measures(study.manifest), words.decimals([cells["sd"].max()])
    several = ["metric"] * (len(metrics) > 1)
    others = [name for name in cells if "/" in name]
    head = [
        "cell",
        *several,
        f"{'' if several else f'{metrics[0]}, '}mean ± SD",
        "n",
        "diverged [Wilson 95 %]",
        "failed",
        "missing",
        "parameters",
        "to reference",
        *matching(cells),
        *([f"{cells['tuned'][0]}, tuned"] if "tuned" in cells else []),
        *others,
    ]
    rows = [
        [
            row.name,
            *([row.metric] if several else []),
            _score(row, places),
            f"{row.n} of {row.runs}",
            _share(row),
            str(row.failed),
            str(row.missing),
            f"{row.params:,}",
            "" if row.reference else words.percent(row.params_vs_reference),
            *([str(row.chosen_value), words.remainder(row.match_difference)] if "match" in cells else []),
            *([words.setting(row.tuned_value)] if "tuned" in cells else []),
            *(words.number(value, places) if math.isfinite(value) else "" for value in also),
        ]
        for row, also in zip(cells.itertuples(), cells[others].to_numpy(float), strict=True)
    ]
    return _page(_markdown(head, rows), [*dict.fromkeys(filter(None, cells["notes"])), *remarks(study)])


def matching(cells: pandas.DataFrame) -> list[str]:
    """The heads of the columns that say how cells were matched; none where they were not."""
    return [cells["chosen"][0], f"match={cells['match'][0]}, left"] if "match" in cells else []


def _score(row: object, places: int) -> str:
    mean, sd, n = (getattr(row, name) for name in ("mean", "sd", "n"))
    spread = f" ± {words.number(sd, places)}" if n > 1 else " (one seed)" if n else ""
    return words.number(mean, places) + spread


def _share(row: object) -> str:
    diverged, done, low, high = (getattr(row, name) for name in ("diverged", "done", "diverged_low", "diverged_high"))
    ended = diverged + done
    return f"{diverged} of {ended} [{low:.0%}, {high:.0%}]".replace("%", " %") if ended else "none ended"


def effects_markdown(study: Study, table: pandas.DataFrame) -> str:
    """The family's effects with simultaneous intervals, then the exploratory rows."""
    metrics = evidence.measures(study.manifest)
    how = [f"match={study.manifest['match']}, left at most"] if "match_difference" in table else []
    several = ["metric"] * (len(metrics) > 1)
    difference = f"{'' if several else f'{metrics[0]}, '}difference [95 %]"
    head = ["effect", *several, "n", difference, "p (Holm; exploratory: BH)", "verdict", "role", *how]
    places = words.decimals((table["high"] - table["low"]) / 2)
    rows = [
        [
            row.label,
            *([row.metric] if several else []),
            str(row.n),
            "–" if row.verdict == "withheld" else words.span(row.mean, row.low, row.high, places),
            words.p_text(row.p_holm if row.family else row.p_bh),
            words.verdict(row),
            "family" if row.family else "exploratory",
            *([words.remainder(row.match_difference)] if how else []),
        ]
        for row in table.itertuples()
    ]
    family = int(table["family"].sum())
    over = f"simultaneous over the {words.counted(family, 'row')} of the family (Bonferroni-t)"
    said = f"Intervals are {over} and cover seeds only; exploratory rows have a false coverage rate of 5 %."
    return _page(
        _markdown(head, rows),
        [said * bool(len(rows)), evidence.standing(study, table) or "", *at_common_values(study), *remarks(study)],
    )


def at_common_values(study: Study) -> list[str]:
    """Of a tuned study, each effect with all cells at the same value."""
    heading, rows = evidence.common_rows(study.manifest) if study.manifest.get("tuning") else ("", [])
    return [f"{heading}:"] * bool(rows) + [f"{label}: {', '.join(values)}" for label, *values in rows]


def remarks(study: Study) -> list[str]:
    """What a reader of any table must know: looks, a single seed, runs without a number, damage."""
    lines = [
        words.role(study.manifest),
        *study.manifest.get("remarks", []),
        words.matched(study.manifest),
        evidence.unadjusted(study.manifest) or "",
    ]
    if len(study.manifest["seeds"]) == 1:
        lines.append("one seed: no interval and no verdict; a single seed can conclude nothing")
    for status in ("diverged", "failed", "missing"):
        runs = study.runs[study.runs["status"] == status]
        named = ", ".join(f"{run.label} seed {run.seed}" for run in runs.head(12).itertuples()) + ", …" * (
            len(runs) > 12
        )
        lines.append(f"{words.counted(len(runs), 'run')} {status}: {named}" if len(runs) else "")
    return [line for line in [*lines, *(f"damaged: {note}" for note in study.notes)] if line]


def _page(table: str, lines: Iterable[str]) -> str:
    return table + "".join(f"\n{line}\n" for line in lines if line)


def _markdown(head: list[str], rows: list[list[str]]) -> str:
    escaped = [[cell.replace("|", "\\|").replace("\n", " ") for cell in row] for row in [head, *rows]]
    lines = ["| " + " | ".join(row) + " |" for row in escaped]
    return "\n".join([lines[0], "|" + " --- |" * len(head), *lines[1:]]) + "\n"
