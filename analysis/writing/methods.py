"""What was done, as a methods paragraph: every sentence is read off the manifest and the runs, and none says more."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ablate import evidence, format
from ablate.config.citations import Entry
from ablate.config.depth import names_of
from ablate.config.schema import BY_STEPS, PLACED
from ablate.format import listed, ranged, said_metric
from ablate.results import naming
from ablate.results.records import Cell, Manifest
from ablate.results.tables import planned_cells
from analysis.case import Case
from analysis.writing import assumptions, methods_training, tables
from analysis.writing.bibliography import cite, mention, names
from analysis.writing.latex import escape

DESIGNS = {
    "grid": "in all combinations",
    "fractional": "in a fractional factorial design",
    "one_at_a_time": "one at a time",
    "leave_one_out": "by leaving out one at a time",
    "cumulative": "by adding one after the other",
}
COMPARED = {
    "grid": "main effects and two-way interactions",
    "fractional": "main effects and two-way interactions",
    "one_at_a_time": "differences of each changed cell from the reference",
    "leave_one_out": "differences of each changed cell from the reference",
    "cumulative": "differences of each step from the one before it",
}


def methods(case: Case) -> list[str]:
    """The sentences of the paragraph in order, papers as the marks of `bibliography.mention`."""
    parts = [_design, _also, methods_training.model, methods_training.data, methods_training.loop, _matching, _tuning]
    parts += [_seeds, _endpoint, _statistics, _looks, _losses, _noise, _caveats, methods_training.machine]
    return [said for part in parts for said in part(case) if said]


def markdown(case: Case) -> str:
    """The paragraph as plain text, papers by author and year in brackets."""
    named = names(case.study.manifest)

    def in_brackets(papers: dict[str, Entry]) -> str:
        return f" ({'; '.join(named[key] for key in papers)})"

    return cite(case.study.manifest, " ".join(methods(case)), in_brackets) + "\n"


def latex(case: Case) -> str:
    """The paragraph as LaTeX; \\cite needs references.bib."""
    marked = [cite(case.study.manifest, text, lambda papers: f"\0{','.join(papers)}\0") for text in methods(case)]
    lines = [_escaped(text) for text in marked]
    return "\\paragraph{Methods.}\n{\\emergencystretch=5em\n" + "\n".join(lines) + "\\par}\n"


def _escaped(text: str) -> str:
    parts = text.split("\0")  # texts and the keys between them in turn
    return "".join(rf"~\cite{{{part}}}" if i % 2 else escape(part) for i, part in enumerate(parts))


def _design(case: Case) -> Iterator[str]:
    manifest = case.study.manifest
    if manifest.source:
        yield f"The runs were read from {manifest.source}; what they share is taken from there."
    factors = manifest.factors
    if not factors:
        yield "One configuration was trained, so that nothing is compared."
        yield from map(_sentence, manifest.remarks)
        return
    varied = [
        f"{listed(_cited(manifest, name, level) for level in levels)} as {naming.named(manifest, name)}"
        for name, levels in factors.items()
    ]
    how = f", {DESIGNS[manifest.design]}" if len(factors) > 1 else ""
    named = ", and ".join([*[", ".join(varied[:-1])] * (len(varied) > 1), varied[-1]])
    yield f"We compared {named}{how}: {format.counted(len(manifest.cells), 'cell')}."
    reference = ", ".join(naming.assigned(manifest, *each) for each in manifest.reference.items())
    within = [naming.named(manifest, name) for name in factors if name not in manifest.reference]
    yield f"The reference is {reference}" + f", within each level of {listed(within)}" * bool(within) + "."
    yield from map(_sentence, manifest.remarks)


def _also(case: Case) -> Iterator[str]:
    for line in evidence.also_lines(case.study.manifest):
        change, _, others = line.partition(", also: ")
        yield f"With {change}, the two sides differ in more than that; also: {others}."


def _cited(manifest: Manifest, factor: str, level: Any) -> str:
    shown = format.show(level)
    parts = [shown, *names_of(shown)] if factor in PLACED else [shown]  # of a pattern each variant has its papers
    return naming.named(manifest, level) + mention(manifest, *(f"{factor}={part}" for part in parts))


def _matching(case: Case) -> Iterator[str]:
    manifest = case.study.manifest
    held = naming.matched(manifest)
    if held:
        chosen = "numbers of steps" if manifest.match in BY_STEPS else "FFN widths"
        how = ", by the seconds of a step, measured before the study began" * (manifest.match == "seconds")
        quantity, _, within = held.partition(": ")[2].partition(" within ")
        yield f"The cells' {chosen} were chosen so that {quantity} are within {within} of the reference's{how}."


def _tuning(case: Case) -> Iterator[str]:
    manifest = case.study.manifest
    tuned = manifest.tuning
    rates = {cell.config.optim.lr for cell in planned_cells(manifest) if cell.config.known}
    if tuned:
        values = listed(map(format.setting, tuned.values))
        seeds = format.counted(tuned.seeds, "seed")
        anew = ", anew for each scored seed and with seeds of its own" * tuned.per_seed
        yield (
            f"{tuned.key} was tuned for each cell alike{anew}, over {values} with {seeds} each, by the validation "
            "split; these seeds are not scored."
        )
        if anew:
            yield "Intervals include what tuning chooses by chance."
        if given := evidence.given(manifest):
            yield f"Verdicts compare variants {given}: tuning was not repeated, and no interval has its chance in it."
        edges = sum(cell.edge for cell in tuned.cells.values())
        if edges:
            yield f"For {format.counted(edges, 'cell')} the best value is at the edge of what was tried."
    if len(rates) == 1 and (tuned is None or tuned.key != "optim.lr"):
        yield "The learning rate was not tuned: all cells share it."


def _seeds(case: Case) -> Iterator[str]:
    manifest, table = case.study.manifest, case.effects
    seeds, cells = manifest.seeds, manifest.cells
    shown = ranged([str(seed) for seed in seeds])
    yield f"Every cell was trained with {format.counted(len(seeds), 'seed')} ({shown})."
    if manifest.confirms:
        yield f"These seeds had not been scored in {manifest.confirms}, which this study confirms."
    if manifest.source:
        yield "Comparisons are " + ("paired by seed." if len(table) and table["paired"].all() else "unpaired (Welch).")
    elif len(table) and table["paired"].all():
        yield f"{_batches(cells)}, so that seeds pair."
    elif len(table) and table["paired"].any():
        yield "Seeds pair where cells see the same batches in the same order; other comparisons are unpaired (Welch)."
    elif len(table):
        yield "The cells see different batches, so that comparisons are unpaired (Welch)."
    shared = [cell.shared_draws for cell in cells if not cell.reference and format.known(cell.shared_draws)]
    if shared and not manifest.source:
        span = ranged([f"{share:.0%}".replace("%", " %") for share in sorted({min(shared), max(shared)})])
        span = span.replace(", ", " to ")
        yield f"{_drawn(cells)}: cells share {span} of theirs with the reference."


def _batches(cells: list[Cell]) -> str:
    """What cells that pair share of their data, where seed.data may hold it fixed."""
    held = {cell.config.seed.data for cell in cells}
    if len(held) == 1 and held != {None}:
        return f"All runs see the same batches in the same order, those of seed {held.pop()}"
    return "For a given seed, cells that are compared see the same batches in the same order"


def _drawn(cells: list[Cell]) -> str:
    """What initial draws are keyed by, where seed.init may hold them fixed."""
    held = {cell.config.seed.init for cell in cells}
    if held == {None}:
        return "Initial draws are keyed by seed and parameter name"
    if len(held) == 1:
        return f"Initial draws are keyed by parameter name alone and are those of seed {held.pop()} in every run"
    return "Initial draws are keyed by parameter name and seed, in some cells by one that is held fixed (seed.init)"


def _endpoint(case: Case) -> Iterator[str]:
    manifest = case.study.manifest
    found = evidence.measures(manifest)
    metrics = [said_metric(metric) + _unit(manifest, metric) for metric in found]
    if len(found) > 1:
        metrics = [f"{said} of {_tasks(manifest, metric)}" for said, metric in zip(metrics, found, strict=True)]
    sizes = sorted({cell.config.eval.tokens for cell in manifest.cells if cell.config.known})
    about = f", over up to {ranged([f'{size:,}' for size in sizes])} positions of held-out data" if sizes else ""
    yield f"The endpoint is {listed(metrics)} at the last step{about}."


def _tasks(manifest: Manifest, metric: str) -> str:
    """The tasks whose cells are compared by a metric."""
    by_cell = evidence.endpoints(manifest)
    tasks = dict.fromkeys(cell.task for cell in manifest.cells if by_cell[cell.id] == metric)
    return listed(manifest.tasks[task].name for task in tasks)


def _unit(manifest: Manifest, metric: str) -> str:
    unit = naming.unit(manifest, metric).removeprefix(",").strip()
    return f" ({unit})" if unit else ""


def _statistics(case: Case) -> Iterator[str]:
    manifest, table = case.study.manifest, case.effects
    if len(manifest.seeds) == 1:
        yield "One seed gives no interval and no verdict: nothing can be concluded from this study."
        return
    if naming.no_evidence(manifest):
        yield _sentence(f"{naming.role(manifest)}; no verdict is given")
        return
    yield from _claims(case)
    yield tables.families(case)
    solved = table["metric"].map(evidence.is_solved).astype(bool)
    family, judged = int(table["family"].sum()) if len(table) else 0, not evidence.described(manifest)
    if len(table):
        several = len(set(manifest.factors) & set(manifest.reference)) > 1
        which = COMPARED[manifest.design] if several else "differences of each level from the reference"
        yield f"Effects are {which}" + ", computed within each seed" * bool(table["paired"].all()) + "."
        yield from _crossed(case)
    if family:
        yield (
            f"Intervals are simultaneous 95 % {'' if solved.all() else 't '}intervals over seeds (Bonferroni, "
            f"{format.counted(family, 'effect')}); "
            "p-values are corrected after Holm for the same effects"
            + ", and the interval decides each verdict." * judged
            + "." * (not judged)
        )
    if solved.any():
        yield (
            "A share of runs solved is compared by exact intervals, from Clopper and Pearson's bounds on both "
            "discordant counts of paired seeds or on both shares of unpaired ones; a run that diverged did not solve "
            "its task."
        )
    if judged and len(table) > family:
        yield (
            "All other comparisons are exploratory: p-values after Benjamini and Hochberg, intervals with a false "
            "coverage rate of 5 %; what they decide is said to look better or worse."
        )
    margin = evidence.margin_words(manifest)
    if margin and judged:
        late = "" if evidence.margin_of(manifest).registered else ", which was written after results,"
        yield f"Differences within a margin of {margin}{late} count as negligible or equivalent, from five seeds on."
    yield from assumptions.normality(table)
    yield from assumptions.collapse(table, case.claims)


def _crossed(case: Case) -> Iterator[str]:
    """Which settings effects are crossed with, and the axes of trends."""
    manifest, trends = case.study.manifest, case.effects[case.effects["kind"] == "trend"]
    found = dict.fromkeys(each.setting for each in evidence.crossings(manifest))
    known = {name for factor in case.effects["factor"] for name in str(factor).split(" x ")}
    if crossed := [naming.named(manifest, name) for name in found if name in known]:
        yield f"They are given at each level of {listed(crossed)}, with differences between levels as interactions."
    units = dict.fromkeys(zip(trends["factor"].str.split(" x ").str[-1], trends["level"], strict=True))
    axes = dict.fromkeys(f"{level.split(', ')[-1]} of {naming.named(manifest, name)}" for name, level in units)
    if axes:
        yield f"Trends are least-squares slopes of an effect over the levels: {listed(axes)}."


def _claims(case: Case) -> Iterator[str]:
    if case.claims.empty:
        return
    before = int(case.claims["registered"].sum())
    yield (
        f"The study file makes {format.counted(len(case.claims), 'claim')}, of which {before or 'none'} "
        f"{'were' if before != 1 else 'was'} registered: written before any seed had results on both sides."
    )
    if before:
        yield (
            "Intervals of registered claims are simultaneous 95 % intervals (Bonferroni) and their p-values corrected "
            "after Holm; the interval decides each verdict."
        )
    if before < len(case.claims):
        yield "Claims written after results are judged after Benjamini and Hochberg."


def _looks(case: Case) -> Iterator[str]:
    manifest = case.study.manifest
    sequence, note = manifest.sequential, evidence.unadjusted(manifest)
    if sequence:
        at = listed(map(str, sequence.looks))
        yield f"Seeds were added at looks planned at {at} seeds; intervals and p-values allow for every look."
    if note:
        yield _sentence(note)


def _losses(case: Case) -> Iterator[str]:
    study = case.study
    counts = study.runs["status"].value_counts()
    lost = [f"{counts[name]} {name}" for name in ("diverged", "failed", "missing") if counts.get(name)]
    bare = int(counts.get("done", 0) - case.cells["n"].sum())
    lost += [f"{bare} done without the endpoint"] * (bare > 0)
    if not study.manifest.source:
        yield (
            "A run counts as diverged where its loss is not finite, or its training loss stays more than 10 % above "
            "its value at the first step, over a tenth of the steps or to the end; overfitting is no divergence."
        )
    said = evidence.overfitting(study).removeprefix("overfits: ")
    yield _sentence(f"overfitting was seen in {said}") if said else ""
    total = format.counted(len(study.runs), "run")
    every = f"All {total}" if len(study.runs) > 1 else "The one run"
    solved = counts.get("diverged") and any(map(evidence.is_solved, evidence.measures(study.manifest)))
    given = "those that diverged count as unsolved" if solved else "none of them is given a number"
    yield f"Of {total}, {listed(lost)}; {given}." if lost else f"{every} ended with a number."
    if (case.effects["verdict"].eq("withheld") & ~case.effects["p_normal"].lt(evidence.LEVEL)).any():
        yield "Where the two sides of an effect lost different numbers of runs to divergence, the verdict is withheld."


def _noise(case: Case) -> Iterator[str]:
    placebos, exchange = case.study.beside.get("placebos"), case.study.beside.get("exchange")
    if placebos:
        cells = placebos.manifest.cells
        copied = next((f"{cell.label}, " for cell in cells if cell.reference), "")
        kinds = [cell.label.removeprefix(copied) for cell in cells if not cell.reference]
        seeds = format.counted(len(placebos.manifest.seeds), "seed")
        yield f"What noise alone makes was measured with copies of the reference cell, {seeds} each: {listed(kinds)}."
    if exchange:
        steps = sorted({cell.config.train.steps for cell in exchange.manifest.cells})
        at = listed(f"{count:,}" for count in steps)
        yield f"Effects are also given in training steps, by runs of the reference cells of {at} steps."


def _caveats(case: Case) -> Iterator[str]:
    notes = dict.fromkeys(note for cell in case.study.manifest.cells for note in cell.notes)
    yield from (_sentence(f"note: {note}") for note in notes)


def _sentence(text: str) -> str:
    """A remark as a sentence of its own; a key that it begins with stays as it is written."""
    said = f"Note: {text}" if {*"=._"} & {*text.partition(" ")[0]} else f"{text[:1].upper()}{text[1:]}"
    return f"{said.rstrip('.')}."
