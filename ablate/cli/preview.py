"""The page of a plan: what will be trained, what else differs, what it costs, and which effects it can find."""

import shlex
from collections.abc import Iterable

from ablate import evidence
from ablate.config.depth import chosen_at
from ablate.config.key_checks import CHOSEN
from ablate.formatting import columns, counted, epochs, first_of, grouped, percent, remainder
from ablate.planning.runs import Plan
from ablate.runs import naming
from ablate.runs.records import Cell, Manifest

NAMED = 4  # configurations with the same note, and values, that are listed


def preview(plan: Plan, time: str = "") -> str:
    """A plan as text; `time` is the line on its expected cost."""
    manifest = plan.manifest
    page = [*trained(plan), "", *table_lines(plan), "", *differences(manifest)]
    if time:
        page.append(f"time: {time}")
    page += [*power(plan), *manifest.remarks, *notes(plan)]
    return "\n".join(page)


def trained(plan: Plan) -> list[str]:
    """What will be trained: runs, steps and data, the study with its question and claims."""
    manifest = plan.manifest
    cells = manifest.cells
    untested = sum(status == "untested" for status in plan.statuses.values())
    seeds = counted(len(manifest.seeds), "seed")
    if plan.further_seeds:
        seeds += ", twice as many on lower rungs"
    runs = counted(len(plan.statuses), "run")
    size = f"{counted(len(cells), 'configuration')} × {seeds} = {runs}, {len(plan.todo) - untested} to do"
    if untested:
        size += f", {untested} to test at new lengths"
    tasks = ", ".join(dict.fromkeys(task.title for task in manifest.tasks.values()))
    steps = several(f"{cell.planned_config.train.steps:,}" for cell in cells)
    tokens = several(f"{round(cell.tokens_per_step or 0):,}" for cell in cells)
    passes = several(epochs(manifest.passes(cell)) for cell in cells)
    lines = [size, f"{tasks}, {steps} steps of {tokens} tokens ({passes})"]
    lines.append(f"study {manifest.study} in {plan.folder}")
    if naming.role(manifest):
        lines.append(naming.role(manifest))
    lines += naming.question_lines(manifest)
    if manifest.claims:
        late = sum(not entry.registered for entry in manifest.claims.values())
        when = "registered: written before any seed had results on both sides"
        if late:
            when = f"{late} post hoc: written when there were results"
        lines.append(f"{counted(len(manifest.claims), 'claim')}, {when}")
    return lines


def several(values: Iterable[str]) -> str:
    """The first of different values."""
    return first_of(dict.fromkeys(values), NAMED)


def table_lines(plan: Plan) -> list[str]:
    """A line for each configuration: its size beside the reference's, and its runs."""
    manifest = plan.manifest
    heads = ["configuration", "parameters", "more parameters", "FLOPs/token", "more FLOPs", "shared initial weights"]
    if manifest.match != "none":
        heads += [CHOSEN[manifest.match][0], f"match={manifest.match}"]
    return columns([[*heads, "to do", "done"], *(row(plan, cell) for cell in manifest.cells)], numeric=True)


def row(plan: Plan, cell: Cell) -> list[str]:
    """The row of a configuration."""
    cells = plan.manifest.cells
    reference = cells[plan.study.drafts[cells.index(cell)].reference]
    label = f"{cell.label} (reference)" if cell.reference else cell.label
    texts = [label, *size(cell.params, reference.params), *size(cell.flops_per_token, reference.flops_per_token)]
    texts.append(f"{100 * (cell.shared_draws or 0):.0f} %")
    match = plan.manifest.match
    if match != "none":
        adjusted = CHOSEN[match][0].split(".")
        texts.append(str(chosen_at(cell.planned_config.as_json(), adjusted)))
        texts.append(remainder(cell.matched.difference) if cell.matched else "")
    statuses = [plan.statuses[run.path] for run in plan.manifest.runs if run.cell == cell.id]
    done = sum(status in ("done", "diverged", "untested") for status in statuses)
    return [*texts, str(len(statuses) - done), str(done)]


def size(value: float | None, reference: float | None) -> list[str]:
    """A number of parameters or FLOPs, and how many more these are than the reference's."""
    if value is None or not reference:
        return ["", ""]
    return [f"{value:,.0f}", percent(value / reference - 1)]


def differences(manifest: Manifest) -> list[str]:
    """What differs beside the factors, what changes together, and what is matched."""
    lines = evidence.also_lines(manifest) + evidence.same_setting_line(manifest)
    if manifest.zip:
        lines.append(f"zip: {', '.join(manifest.zip)} change together")
    lines += evidence.rung_lines(manifest)
    matched = [cell.matched.quantity for cell in manifest.cells if cell.matched]
    if matched:
        lines.append(f"match={manifest.match}: {matched[0]}")
    return lines


def power(plan: Plan) -> list[str]:
    """The smallest effect that the study can find, given the noise of its runs that are on disk."""
    from ablate.planning.rounds import results_of

    if plan.manifest.tunes or plan.manifest.exchange_of:  # rounds that are not compared
        return []
    return evidence.noise_lines(results_of(plan))


def notes(plan: Plan) -> list[str]:
    """The notes of configurations and of the plan; an equal one of several configurations once, with their labels."""
    labels = {cell.label for cell in plan.manifest.cells}
    pairs = []
    for note in plan.notes:
        label, _, text = note.partition(": ")
        pairs.append((text, label) if label in labels else (note, ""))
    lines = naming.notes(plan.manifest.cells)
    for text, names in grouped(pairs).items():
        lines.append(f"{first_of(names, NAMED)}: {text}" if all(names) else text)
    return lines


def next_step(plan: Plan) -> str:
    """The command that trains a plan."""
    nothing = "dry run: nothing was trained or written"
    if not plan.todo:
        return f"{nothing}; all runs have ended"
    words = [word for word in shlex.split(plan.manifest.command) if not word.startswith("dry_run=")]
    return f"{nothing}; to train the {counted(len(plan.todo), 'run')}: {shlex.join(words)}"
