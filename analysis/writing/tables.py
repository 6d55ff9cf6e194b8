"""Tables of a study for reading: each is one DataFrame of texts, which Markdown, HTML and LaTeX show as it is.

The CSV files beside them hold every column and digit, with the keys of the command line.
"""

import re
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

import pandas

from ablate import evidence, formatting
from ablate.evidence.claim_text import claim_formula, claim_label, edited_and_withdrawn
from ablate.formatting import decimals, number, p_text, span
from ablate.runs import naming
from ablate.runs.files import write_atomic
from ablate.runs.records import Manifest
from ablate.runs.study import Study
from ablate.runs.tables import named_rows
from analysis.case import Case

# Columns of runs that runs.csv leaves out.
RUN_FIELDS = ["steps", "device", "torch", "ended", "commit", "dirty"]
EMPTY = ("", "–", "0")  # texts that say nothing if a whole column has them
NUMBER = re.compile(r"[<+−×]?\s?[\d,]*\.?\d+(e[-−]?\d+)?( %)?")
MOST_LISTED = 12  # runs that a remark names
LONG = 40  # rows of a table that a page folds
COLUMNS_OF_A_PAGE = 8
Row = dict[str, str]


class Table(NamedTuple):
    """A table of texts.

    `rows` has all columns, `main` names those that a page shows (all if it is empty), and `paper` holds what a paper
    shows, with `caption`, sentences after the title.  `notes` are sentences for below the table.
    """

    name: str  # of its files
    title: str
    rows: pandas.DataFrame
    notes: list[str] = []  # noqa: RUF012
    main: list[str] = []  # noqa: RUF012
    paper: pandas.DataFrame | None = None
    caption: list[str] = []  # noqa: RUF012

    @property
    def shown(self) -> pandas.DataFrame:
        """The columns for a page."""
        return self.rows[[name for name in self.main if name in self.rows]] if self.main else self.rows

    @property
    def is_long(self) -> bool:
        """Whether a page shows the table folded."""
        return len(self.rows) > LONG or self.shown.shape[1] > COLUMNS_OF_A_PAGE


def numeric_columns(rows: pandas.DataFrame) -> list[bool]:
    """Which columns of texts hold only numbers, so that they are aligned on the right."""
    numeric = []
    for place in range(rows.shape[1]):
        texts = [text for text in rows.iloc[:, place] if text not in ("", "–")]
        numeric.append(bool(texts) and all(NUMBER.fullmatch(text) for text in texts))
    return numeric


def frame(rows: list[Row]) -> pandas.DataFrame:
    """Rows of texts as a table without the columns that say nothing."""
    table = pandas.DataFrame(rows, dtype=object).fillna("")
    return table.loc[:, ~table.isin(EMPTY).all()]


def write(case: Case, folder: Path) -> list[Path]:
    """Write every table: NAME.csv with all columns and the keys, NAME.md for reading."""
    files = []
    for name, table in csv_tables(case.plain or case).items():
        files.append(write_csv(table, folder / f"{name}.csv"))
    for table in tables(case):
        files.append(write_atomic(folder / f"{table.name}.md", markdown(table).encode()))
    return files


def write_csv(table: pandas.DataFrame, file: Path) -> Path:
    """Write a table as CSV with every digit of its numbers; returns the file."""
    return write_atomic(file, csv_text(table).encode())


def csv_text(table: pandas.DataFrame) -> str:
    """A table as CSV, with texts that a spreadsheet would run as a formula quoted."""
    safe = table.rename(columns=formatting.quoted)
    for name in safe.columns:
        if not pandas.api.types.is_numeric_dtype(safe[name].dtype):
            safe[name] = safe[name].map(formatting.quoted)
    return str(safe.to_csv(index=False, lineterminator="\n"))


def csv_tables(case: Case) -> dict[str, pandas.DataFrame]:
    """The tables that are written as CSV, by file name."""
    by_name = {"runs": runs_csv(case.study), "cells": scored_cells(case), "effects": case.effects, **case.further}
    if len(case.claims):
        by_name["claims"] = case.claims
    return by_name


def runs_csv(study: Study) -> pandas.DataFrame:
    """A row per run: configuration, seed, status, factors, budget, metrics, path.  Configurations are in the study's
    order, so that programs that take the first level as the reference take the study's."""
    return study.runs.drop(columns=RUN_FIELDS, errors="ignore")


def scored_cells(case: Case) -> pandas.DataFrame:
    """The configurations with the mean over seeds of every other metric of the same split."""
    metrics = evidence.measures(case.study.manifest)
    split = metrics[0].split("/")[0]  # validation in tuning studies, whose test scores must stay unseen
    table = case.cells.copy()
    for name in case.study.runs:
        is_scored = name.startswith(f"{split}/") and metrics != [name] and case.study.runs[name].notna().any()
        if is_scored:
            table[name] = table["cell"].map(evidence.scores(case.study, name).mean())
    return table


def tables(case: Case) -> list[Table]:
    """All tables that the study has data for."""
    candidates = [claims_table(case), effects_table(case), cells_table(case)]
    candidates += [further_table(name, table) for name, table in case.further.items()]
    return [table for table in candidates if len(table.rows)]


# Effects and claims


def effects_table(case: Case) -> Table:
    """Every effect: the main comparisons with simultaneous intervals first, then the estimates."""
    manifest = case.study.manifest
    metric = naming.metric_name(manifest, *evidence.measures(manifest))
    effects = evidence.best_first(case.effects)
    rows = [effect_row(case, row) for row in named_rows(effects)]
    columns = ["effect", "metric", "difference [95 %]", "p (Bonferroni)", "verdict"]
    family = effects[effects["family"].astype(bool)]
    in_paper = family if len(family) else effects
    paper = []
    for row in named_rows(in_paper):
        verdict = "no verdict" if row.verdict == "withheld" else row.verdict
        paper.append(effect_row(case, row) | {"verdict": unadjusted_verdict(row, verdict)})
    meaning = simultaneous(family) or "Estimates only, with 95 % intervals that are not corrected."
    caption = [meaning, seeds_words(in_paper), sentence(evidence.margin_line(case.study)), *cautions(case.study)]
    return Table(
        name="effects",
        title=f"Effects on {metric}",
        rows=frame(rows),
        notes=effects_notes(case, effects),
        main=[*columns, "also differs in", "worth in steps"],
        paper=frame(paper).filter(columns),
        caption=[*filter(None, caption)],
    )


def simultaneous(family: pandas.DataFrame) -> str:
    """The intervals of the main comparisons as a sentence; "" if there are none."""
    if family.empty:
        return ""
    count = formatting.counted(len(family), "main comparison")
    return f"Intervals are simultaneous over the {count} ({evidence.interval_kind(family['metric'])})."


def seeds_words(table: pandas.DataFrame) -> str:
    """The number of seeds of all rows as a sentence; "" if they have different numbers."""
    if table["n"].nunique() != 1:
        return ""
    paired = "" if table["paired"].all() else " a side"
    return f"n = {formatting.counted(int(table['n'].iloc[0]), 'seed')}{paired}."


def cautions(study: Study) -> list[str]:
    """What belongs to every verdict of a study: that it is an interim look, or that looks are not allowed for."""
    return [sentence(text) for text in (unfinished(study), evidence.unadjusted(study.manifest)) if text]


def unfinished(study: Study) -> str:
    """That a study of ablate still lacks planned runs, so that its verdicts are an interim look; else ""."""
    missing = int(study.runs["status"].eq("missing").sum())
    if study.manifest.source or not missing:
        return ""
    return f"not finished: {formatting.counted(missing, 'run')} missing or running; an interim look"


def effect_row(case: Case, row: Any) -> Row:
    """All texts of an effect."""
    manifest = case.study.manifest
    several = len(evidence.measures(manifest)) > 1
    losses = row.failed + row.missing + row.diverged + row.diverged_reference
    worth = evidence.worth_words(row, "").removeprefix("worth ").strip()
    return {
        "effect": row.label,
        "metric": naming.metric_name(manifest, row.metric) if several else "",
        "difference [95 %]": difference(row),
        "p (Bonferroni)": p_text(row.p_bonferroni),
        "verdict": unadjusted_verdict(row, formatting.verdict(row)),
        "also differs in": row.also,
        "worth in steps": worth or "–",
        "role": "main comparison" if row.family else "estimate only",
        "seeds": f"{row.n} {'paired' if row.paired else 'unpaired'}",
        "SD of the difference": number(row.sd, decimals([row.sd])),
        "smallest effect found (80 % power)": number(row.smallest, decimals([row.smallest])),
        "margin": number(row.margin, decimals([row.margin])),
        "runs without result": str(int(losses)),
    }


def unadjusted_verdict(row: Any, verdict: str) -> str:
    """A verdict, marked where its interval does not allow for interim analyses."""
    is_unadjusted = row.unadjusted and row.verdict in evidence.DECIDED
    return f"{verdict}, unadjusted" if is_unadjusted else verdict


def effects_notes(case: Case, effects: pandas.DataFrame) -> list[str]:
    """What the columns of the effects mean, and how they are judged."""
    study = case.study
    is_family = effects["family"].astype(bool)
    notes = [simultaneous(effects[is_family])]
    if not is_family.all():
        notes.append("Other rows are estimates only, with 95 % intervals that are not corrected.")
    if effects["worth"].notna().any():
        notes.append("Worth in steps: by how many per cent more (+) or fewer (−) steps the reference gains as much.")
    if not study.manifest.is_foreign:
        notes.append("The differences hold for one corpus and one size; intervals cover the choice of seeds.")
    notes += [families(case), evidence.sequential_state(study, effects, case.claims)]
    heading, values = evidence.common_rows(study.manifest)
    if values:
        notes.append(f"{heading}:")
        notes += [f"{name}: {', '.join(differences)}" for name, *differences in values]
    return [*filter(None, notes), *remarks(study)]


def families(case: Case) -> str:
    """A sentence on which verdicts share which 5 %, if there are claims as well as effects."""
    return sentence(evidence.families(case.study.manifest, int(case.effects["family"].sum())))


def claims_table(case: Case) -> Table:
    """The claims of the study file with their verdicts, corrected for their number."""
    manifest = case.study.manifest
    metrics = [claim_metric(manifest, row) for row in named_rows(case.claims)]
    usual = max(metrics, key=metrics.count, default="")
    rows = []
    paper = []
    for row, metric in zip(named_rows(case.claims), metrics, strict=True):
        is_multiplier = row.relation == "multiplier" and row.n
        judged = unadjusted_verdict(row, row.verdict)
        written = "registered" if row.registered else "post hoc"
        texts = {
            "claim": claim_label(manifest, row.name),
            "difference [95 %]": evidence.times(row, "mean") if is_multiplier else difference(row),
            "p (Holm)": p_text(row.p_holm),
            "verdict": f"{judged}: {row.note}" if row.note else judged,
            "written": f"{written}, edited" if row.edited else written,
            "seeds": str(row.n),
            "finding": row.says,
        }
        rows.append(texts)
        says = claim_formula(manifest, manifest.claims[row.name].claim, row)
        if metric != usual:
            says += f" ({metric})"
        in_paper = {"claim": texts["claim"], "says": says, "verdict": judged}
        paper.append(texts | in_paper)
    columns = ["claim", "says", "difference [95 %]", "p (Holm)", "verdict"]
    if case.claims["n"].nunique() > 1:
        columns.insert(3, "seeds")
    notes = [
        "Holm's step-down decides registered claims; their intervals are simultaneous, so that one may hold zero, or "
        "leave the margin, where the claim is decided. Registered: written before any seed had results on both sides."
    ]
    notes += filter(None, [edited_and_withdrawn(manifest), families(case)])
    main = ["claim", "difference [95 %]", "p (Holm)", "verdict", "written"]
    where = "" if len({*metrics}) == 1 else " where no other quantity is named"
    caption = [f"Differences are in {usual}{where}.", seeds_words(case.claims), *notes, *cautions(case.study)]
    notes += cautions(case.study)
    return Table("claims", "Claims", frame(rows), notes, main, frame(paper).filter(columns), [*filter(None, caption)])


def claim_metric(manifest: Manifest, row: Any) -> str:
    """What the difference of a claim is of, with its unit."""
    if row.relation == "multiplier":
        return "training compute"
    if row.relation == "diverges_more":
        return "share of diverged runs"
    words = naming.with_unit(manifest, row.metric, naming.metric_words(manifest, row.metric))
    return f"Spearman's ρ in {words}" if row.relation == "rank_correlates" else words


# Configurations and runs


def cells_table(case: Case) -> Table:
    """The configurations: mean ± SD over seeds, lost runs, budget, and every other metric."""
    manifest = case.study.manifest
    metric = naming.metric_name(manifest, *evidence.measures(manifest))
    table = scored_cells(case)
    rows = [cell_row(case, row, table) for row in named_rows(table)]
    notes = [*naming.notes(manifest.cells), *remarks(case.study)]
    full = frame(rows)
    paper = full.filter(["configuration", "mean ± SD", "seeds", "parameters"])
    return Table("cells", f"Configurations: {metric} over seeds", full, notes, [], paper)


def cell_row(case: Case, row: Any, table: pandas.DataFrame) -> Row:
    """All texts of a configuration; `table` has the means of further metrics."""
    manifest = case.study.manifest
    places = decimals([table["sd"].max()])
    spread = ""
    if row.n > 1:
        spread = f" ± {number(row.sd, places)}"
    elif row.n:
        spread = " (one seed)"
    params = getattr(row, "params", None)
    change = getattr(row, "params_vs_reference", None)
    several = len(evidence.measures(manifest)) > 1
    texts = {
        "configuration": row.name,
        "metric": naming.metric_name(manifest, row.metric) if several else "",
        "mean ± SD": number(row.mean, places) + spread,
        "seeds": f"{row.n} of {row.runs}",
        "diverged [Wilson 95 %]": diverged_share(row) if table["diverged"].any() else "",
        "failed": str(row.failed),
        "missing": str(row.missing),
        "parameters": f"{int(params):,}" if formatting.known(params) else "–",
        "more parameters": formatting.percent(change) if formatting.known(change) and not row.reference else "",
    }
    if hasattr(row, "match"):
        texts[naming.key_name(manifest, row.chosen)] = str(row.chosen_value)
        texts[f"left by match={row.match}"] = formatting.remainder(row.match_difference)
    if hasattr(row, "tuned"):
        texts[f"{naming.key_name(manifest, row.tuned)}, tuned"] = formatting.setting(row.tuned_value)
    for name in table:
        if "/" in name:
            texts[naming.metric_name(manifest, name)] = number(table.at[row.Index, name], places)
    return texts


def diverged_share(row: Any) -> str:
    """The share of a configuration's ended runs that diverged, with its interval."""
    ended = row.diverged + row.done
    if not ended:
        return "none ended"
    return f"{row.diverged} of {ended} [{100 * row.diverged_low:.0f} %, {100 * row.diverged_high:.0f} %]"


def lost_table(study: Study) -> Table:
    """The runs without a result, with the reasons."""
    rows = []
    for run in study.runs[study.runs["status"] != "done"].to_dict("records"):
        row = {"configuration": run["label"], "seed": str(run["seed"]), "status": run["status"]}
        for name in ("path", "error"):
            row[name] = run[name] if isinstance(run[name], str) else "–"
        rows.append(row)
    return Table("lost", "Runs without a result", frame(rows))


def compared_table(manifest: Manifest) -> Table:
    """The name of each factor and level, with what the command line writes."""
    rows = []
    for factor, levels in manifest.factors.items():
        for level in levels:
            names = {"factor": naming.named(manifest, factor), "level": naming.named(manifest, level, factor)}
            rows.append({**names, "key": f"{factor}={formatting.show(level)}"})
    return Table("compared", "Names and keys", pandas.DataFrame(rows))


# Speed, ladders


def further_table(name: str, table: pandas.DataFrame) -> Table:
    """A further table of a case."""
    title, *notes = FURTHER[name]
    rows = []
    for row in named_rows(table):
        texts = {"variant": row.label} if hasattr(row, "label") else {}
        for column in table:
            if column in COLUMNS:
                heading, text_of = COLUMNS[column]
                texts[heading] = text_of(row)
        rows.append(texts)
    return Table(name, title, frame(rows), notes)


def difference(row: Any) -> str:
    """The difference of a row with its interval, or the difference alone."""
    return span(row.mean, row.low, row.high, decimals([(row.high - row.low) / 2]))


# Headings and texts of the columns that are shown, by their names.
COLUMNS: Mapping[str, tuple[str, Callable[[Any], str]]] = {
    "rung": ("rung", lambda row: str(row.rung)),
    "n": ("seeds", lambda row: str(row.n)),
    "runs": ("runs", lambda row: str(row.runs)),
    "compute": ("compute, FLOPs", lambda row: f"{row.compute:.1e}".replace("e+", "e")),
    "worth": ("worth in steps [95 %]", lambda row: evidence.worth_words(row, "").removeprefix("worth ") or "–"),
    "cost": ("cost", lambda row: f"×{number(row.cost, 2)}" if formatting.known(row.cost) else "–"),
    "multiplier": ("multiplier [95 %]", evidence.times),
    "trend": ("trend [95 %]", lambda row: span(row.trend, row.trend_low, row.trend_high, 2)),
    "mean": ("difference [95 %]", difference),
    "p_bonferroni": ("p (Bonferroni)", lambda row: p_text(row.p_bonferroni)),
    "verdict": ("verdict", formatting.verdict),
    "worth_note": ("note", lambda row: row.worth_note),
    "why": ("no trend because", lambda row: row.why),
    "rates": ("learning rates", lambda row: row.rates),
}
# Title and notes.
FURTHER = {
    "ladder": [
        "What changes are worth at each size",
        "Worth: how many per cent more (+) or fewer (−) training steps of the reference of that size bring as much; "
        "intervals are simultaneous over all worths and trends.",
        "Multiplier: the same in training compute, (1 + worth) / cost, with cost the change's compute for the same "
        "tokens over the reference's.",
        "Trend: change of log(1 + worth) per tenfold compute.",
    ],
    "speed": [
        "Effects on the seconds of a training step",
        "Runs were trained one at a time, the configurations of a seed in turn, every other seed backwards. "
        "Seconds are means over training steps after the first few, without evaluations and compiling; better is "
        "faster, on this machine. These rows are corrected by themselves.",
    ],
}


# Remarks


def remarks(study: Study) -> list[str]:
    """Notes for the reader of any table: interim analyses, a single seed, runs without a result, damage."""
    manifest = study.manifest
    notes = [unfinished(study), naming.role(manifest), *manifest.remarks, naming.matched(manifest)]
    notes += [evidence.unadjusted(manifest), evidence.margin_line(study), evidence.overfitting(study)]
    if len(manifest.seeds) == 1:
        notes.append("one seed: no interval, no verdict")
    for status in ("diverged", "failed", "missing"):
        lost = study.runs[study.runs["status"] == status]
        if len(lost):
            names = formatting.first_of(lost["label"] + " seed " + lost["seed"].astype(str), MOST_LISTED)
            notes.append(f"{formatting.counted(len(lost), 'run')} {status}: {names}")
    return [*filter(None, notes), *damage(study)]


def damage(study: Study) -> list[str]:
    """What was damaged or lost in a study; of runs of other programs, what was left out."""
    return study.notes if study.manifest.source else [f"note: {note}" for note in study.notes]


def counts(study: Study) -> str:
    """The number of runs by status: "6 runs: 5 done, 1 diverged"."""
    by_status = study.runs["status"].value_counts(sort=False)
    order = [name for name in ("done", "diverged", "failed", "missing") if name in by_status]
    ended = ", ".join(f"{by_status[name]} {name}" for name in order)
    return f"{formatting.counted(len(study.runs), 'run')}: {ended}"


def sentence(text: str) -> str:
    """A remark as a sentence: capitalised, or after "Note:" if it begins with a key; "" stays ""."""
    if not text:
        return ""
    first = text.partition(" ")[0]
    begins_with_key = any(sign in first for sign in "=._")
    capitalised = f"Note: {text}" if begins_with_key else text[:1].upper() + text[1:]
    return f"{capitalised.rstrip('.')}."


# Markdown


def markdown(table: Table) -> str:
    """A table in Markdown, with all columns and its notes below."""
    parts = [markdown_rows(table.rows)] if len(table.rows) else []
    parts += [f"{paragraph(note)}\n" for note in table.notes]
    return "\n".join(parts)


def markdown_rows(rows: pandas.DataFrame) -> str:
    """A DataFrame of texts as a table in Markdown."""
    aligned = ["---:" if is_numeric else "---" for is_numeric in numeric_columns(rows)]
    lines = [markdown_row([str(name) for name in rows.columns]), f"| {' | '.join(aligned)} |\n"]
    lines += [markdown_row(row) for row in rows.to_numpy()]
    return "".join(lines)


def markdown_row(texts: Iterable[str]) -> str:
    """A row of a table in Markdown, whose cells may hold the sign that separates them."""
    escaped = [inline(text).replace("|", r"\|") for text in texts]
    return f"| {' | '.join(escaped)} |\n"


def inline(text: str) -> str:
    """Text escaped for use within a line of Markdown."""
    text = formatting.visible(re.sub(r"\s+", " ", text))
    return re.sub(r"([\\`*$]|<(?=[A-Za-z/!?])|(?<![A-Za-z0-9])_|_(?![A-Za-z0-9])|!(?=\[)|(?<=\])\()", r"\\\1", text)


def paragraph(text: str) -> str:
    """Text escaped for use as a Markdown paragraph, so that its start is no heading, list or quote."""
    return re.sub(r"^(?:(?=[#>]|[-+] )|(\d+)(?=[.)] ))", r"\1\\", inline(text))
