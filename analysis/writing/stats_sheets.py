"""The tables of `analysis.stats` for reading."""

from collections.abc import Callable

import pandas

from ablate import evidence, formatting
from ablate.evidence.equivalence import SEEDS
from ablate.results.tables import named_rows
from analysis.writing.sheet import Sheet, sheet_of


def sheets(found: dict[str, pandas.DataFrame], effects: pandas.DataFrame) -> list[Sheet]:
    """A sheet for each table of `analysis.stats.tables`; `effects` holds the intervals over seeds."""
    return [SHOWN[name](table, effects) for name, table in found.items()]


def _documents(table: pandas.DataFrame, effects: pandas.DataFrame) -> Sheet:
    seeds, rows = {row.label: row for row in named_rows(effects)}, []
    for row in named_rows(table):
        both = seeds[row.label], row
        places = formatting.decimals([(each.high - each.low) / 2 for each in both])
        over = [formatting.span(each.mean, each.low, each.high, places) for each in both]
        texts = {"effect": row.label, "over seeds": over[0], "over documents": over[1]}
        rows.append(texts | {"documents": str(row.documents)})
    notes = (
        "The interval over seeds says what other runs would give on this text; the one over documents, clustered "
        "(CR2, Satterthwaite's degrees of freedom), what these runs would give on other text of its kind. Neither "
        "covers both."
    )
    return sheet_of("documents", "Effects over seeds and over documents", rows, [notes])


def _tasks(table: pandas.DataFrame, _: pandas.DataFrame) -> Sheet:
    rows = []
    for row in named_rows(table):
        places = formatting.decimals([(row.high - row.low) / 2])
        gain, others = (formatting.number(value, places, signed=True) for value in (row.gain, row.others))
        texts = {"variant": row.variant, "task": row.task, "n": str(row.n), "gain": gain, "mean gain elsewhere": others}
        texts |= {"difference [95 %]": formatting.span(row.mean, row.low, row.high, places)}
        rows.append(texts | {"p (Holm)": formatting.p_text(row.p_holm)})
    notes = [
        "Gains over the reference variant in shares of the way from guessing to perfect; exploratory, intervals are "
        f"simultaneous over the rows, none below {SEEDS} seeds. No gain where the two lost different numbers of runs "
        "to divergence.",
        "A difference that is not zero says that the effect depends on the task.",
    ]
    return sheet_of("tasks", "Variants by tasks", rows, notes)


def _ranks(table: pandas.DataFrame, _: pandas.DataFrame) -> Sheet:
    shown = table.rename(columns={"mean_rank": "mean rank"})
    shown = shown.astype({name: float for name in shown if name != "variant"})
    rows = shown.map(lambda value: f"{value:.3g}" if isinstance(value, float) else value).to_dict("records")
    notes = "Ranks of mean scores, 1 the best, ties shared; variants rank behind those with fewer diverged runs."
    notes += " One without any number on a task ranks last there."
    return sheet_of("ranks", "Ranks on each task", rows, [notes])


def _aggregate(table: pandas.DataFrame, _: pandas.DataFrame) -> Sheet:
    places = formatting.decimals((table["high"] - table["low"]) / 2)
    lost = bool(table["diverged"].any())
    rows = []
    for row in named_rows(table):
        span = formatting.number(row.iqm, places)
        if row.low <= row.high:
            span += f" [{formatting.ends(row.low, row.high, places)}]"
        texts = {"variant": row.variant, "runs": str(row.runs), "interquartile mean [95 %]": span}
        rows.append(texts | ({"diverged": str(row.diverged)} if lost else {}))
    notes = [
        f"Over {table['tasks'].iloc[0]} tasks: the mean of the middle half of all runs, in shares of the way from "
        "guessing to perfect, with a bootstrap that draws runs within each task (Agarwal et al. 2021), widened for "
        "few runs."
    ]
    notes += ["Diverged runs have no score and are not part of the mean."] * lost
    return sheet_of("aggregate", "All tasks together", rows, notes)


def _solved(table: pandas.DataFrame, _: pandas.DataFrame) -> Sheet:
    rows = []
    for row in named_rows(table):
        share = f"{row.share:.0%} [{row.share_low:.0%}, {row.share_high:.0%}]".replace("%", " %")
        saved = formatting.span(row.saved, row.saved_low, row.saved_high, 0) if row.saved == row.saved else ""
        median = f"{row.median:,.0f}" if row.median == row.median else "not reached"
        p = formatting.p_text(row.p_bh) if row.p_bh == row.p_bh else ""
        texts = {"cell": row.label, "solved": f"{row.solved} of {row.n}", "share [95 %]": share, "median steps": median}
        texts |= {"mean steps": f"{row.restricted:,.0f}", "steps saved [95 %]": saved}
        rows.append(texts | {"log-rank p (BH)": p})
    notes = [
        "Solved: at least 0.99 of the task's first metric on the validation split, at the first evaluation with it. "
        "A run that has not solved its task is censored at the end of its schedule, a diverged one, too.",
        f"Mean steps are restricted to {', '.join(f'{steps:,}' for steps in sorted(set(table['within'])))}; the median "
        "is Kaplan and Meier's. Where both cells saw the same batches, the log-rank test compares them within "
        "seeds (Jung 1999), else over all choices of runs. Exploratory.",
    ]
    return sheet_of("solved", "Runs that solved their task", rows, notes)


def _speed(table: pandas.DataFrame, _: pandas.DataFrame) -> Sheet:
    rows, places = [], formatting.decimals((table["high"] - table["low"]) / 2)
    for row in named_rows(table):
        found = "–" if row.verdict == "withheld" else formatting.span(row.mean, row.low, row.high, places)
        texts = {"effect": row.label, "n": str(row.n), "seconds per step, difference [95 %]": found}
        texts |= {"p": formatting.p_text(row.p_holm if row.family else row.p_bh)}
        rows.append(texts | {"verdict": formatting.verdict(row) + evidence.assuming(row)})
    notes = (
        "Runs were trained one at a time, a seed's cells in turn, every other seed backwards; they pair by seed. "
        "Seconds are means over training steps after the first few, without evaluations and compiling; better is "
        "faster, on this machine. These rows are a family of their own."
    )
    return sheet_of("speed", "Effects on the seconds of a training step", rows, [notes])


SHOWN: dict[str, Callable[[pandas.DataFrame, pandas.DataFrame], Sheet]] = {
    "documents": _documents,
    "tasks": _tasks,
    "ranks": _ranks,
    "aggregate": _aggregate,
    "solved": _solved,
    "speed": _speed,
}
