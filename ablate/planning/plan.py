"""From a command line to a study: its cells, checked before anything trains, its seeds, its runs, what is done."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import platform
import shlex
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from ablate.config.claims import applicable, fixed_by, metric_problems
from ablate.config.compose import COMPOSING, Composed, Composer
from ablate.config.errors import PlanError, Problem
from ablate.config.factors import BASE, Layout, arrange, cell_name, factors_of, is_component, labels_of, levels_of
from ablate.config.groups import papers, shadowed
from ablate.config.margin import without_unit
from ablate.config.overrides import Command, parse
from ablate.config.study_file import Asked, key_of, read_study
from ablate.config.study_keys import idle_problems, study_problems
from ablate.config.variant_files import damaged
from ablate.planning.budget_matching import contradictions, match_cells
from ablate.planning.cells import Draft, describe_cells, describe_task, references, slow_starts
from ablate.planning.checks.preflight import one_thread, try_out
from ablate.planning.checks.user_code import Failed
from ablate.planning.checks.validate import Checked, Gate
from ablate.planning.earlier_runs import (
    choose_seeds,
    companions,
    other_looks,
    read_earlier,
    same_runs,
    status_of,
    to_test,
    without_weights,
)
from ablate.planning.hold import hold_equal
from ablate.planning.registration import register, registered_margin
from ablate.planning.reuse import kept_apart, refuse_replacing, take_others, trained_again
from ablate.planning.rounds import rounds_of
from ablate.planning.rounds.sequential import looks_before, sequence_of
from ablate.results.records import Cell, Look, Manifest, PlannedRun, Tuning
from ablate.results.run import now
from ablate.results.run_key import FORMAT, run_key, settings, without_user
from ablate.results.tables import as_planned


@dataclasses.dataclass
class Plan:
    """A checked study: its manifest, as it will be written, the state of its runs, and what to tell the user."""

    results: Path
    manifest: Manifest
    statuses: dict[str, str]  # run path -> done, diverged, failed, missing, or untested: done but for eval.lengths
    notes: list[str]
    dry_run: bool
    user: list[str] = dataclasses.field(default_factory=list)  # the packages that the command line allows
    more: bool = False  # whether another round of the same command comes after this one
    ended: list[Plan] = dataclasses.field(default_factory=list)  # the rounds before it, with nothing left to train
    words: list[str] = dataclasses.field(default_factory=list)  # of the command line, as `ablate.plan` was given them
    config_dir: str | None = None

    @property
    def folder(self) -> Path:
        """The results folder as people name it: from where they are, if it lies below."""
        here = Path.cwd()
        return self.results.relative_to(here) if self.results.is_relative_to(here) else self.results

    @property
    def todo(self) -> list[str]:
        """Paths of the runs to train (those without a result, and failed ones again), or only to test."""
        return [path for path, status in self.statuses.items() if status in ("missing", "failed", "untested")]


def plan_study(overrides: Sequence[str], config_dir: str | None = None) -> Plan:
    """Compose and check a whole command line, and plan its next round; nothing is trained or written.

    Raises PlanError.  A round is a study of its own: tuning, placebos, the study that was asked for, its exchange runs.
    """
    with one_thread():
        return plan_rounds(draft_study(list(overrides), config_dir))


def plan_rounds(draft: Draft) -> Plan:
    """The next round of a study, behind those that have nothing left to train."""
    rounds = rounds_of(draft, draft.settings["study"] or study_name(draft))
    plan, ended = settle(next(rounds)), list[Plan]()
    while not plan.todo:
        try:
            following = settle(rounds.send(plan.manifest))
        except StopIteration:
            break
        if following.manifest.study != plan.manifest.study:
            ended.append(plan)
        plan = following
        ended = [other for other in ended if other.manifest.study != plan.manifest.study]
    return dataclasses.replace(plan, ended=ended)


def draft_study(overrides: list[str], config_dir: str | None) -> Draft:
    """The study that a command line asks for, every cell of it composed and checked.  Raises PlanError."""
    if unread := list(damaged(config_dir)) if config_dir else []:
        raise PlanError(unread)
    asked = read_study(overrides, config_dir)
    try:
        return draft_asked(asked, command_of(overrides, config_dir), config_dir)
    except PlanError as error:
        raise PlanError([asked.placed(problem) for problem in error.problems]) from None
    except Failed as error:  # of a part that ran before
        raise PlanError([Problem("", str(error))]) from None


def draft_asked(asked: Asked, typed: str, config_dir: str | None) -> Draft:
    """The study of plain overrides and of what a study file says beside them.  Raises PlanError."""
    cells, command, layout = compose_cells(asked, config_dir)
    levels, labels = [levels_of(cell, layout) for cell in cells], labels_of(cells, layout)
    factors, reference = factors_of(levels, layout)
    at = references(levels, reference)
    cells, held, wrongly_held = hold_equal(cells, at, [key for keys in layout.keys.values() for key in keys])
    settings, gate = cells[0].config, Gate()
    checked = [gate.admit(composed.config) for composed in cells]
    problems = gate.problems + wrongly_held + study_problems(settings) + about_metrics(asked, checked)
    problems += idle_problems({*map(key_of, asked.overrides)} - asked.of_file, settings)
    problems += contradictions(settings["match"], asked.overrides, list(command.swept))
    if wrong := without_unit(settings["margin"], (next(iter(cell.task.metrics)) for cell in checked if cell)):
        problems.append(Problem("margin", wrong))
    if problems:
        raise PlanError(problems)
    passed = [cell for cell in checked if cell is not None]
    passed, matched = match_cells(settings["match"], passed, labels, at, gate)
    if gate.problems:
        raise PlanError(gate.problems)
    names = [cell_name(composed.choices) for composed in cells]
    rows = describe_cells(passed, names, levels, labels, at, matched)
    notes = try_out(rows, passed, settings)
    claims, left = applicable(fixed_by(asked.claims, asked.at), rows)
    if left and not asked.changed:
        raise PlanError([Problem(f"{asked.file}: {problem.key}", problem.message) for problem in left])
    whole = ", ".join(f"{name}={level}" for name, level in levels[0].items())
    remarks = [*layout.notes, *held, *[f"{BASE} is {whole}"] * (labels[0] == BASE)]
    sources = papers((composed.choices for composed in cells), config_dir)
    return dataclasses.replace(
        Draft(typed, settings, factors, reference, rows, passed, [cell.config for cell in cells], at),
        extra=asked.kept | {"aliases": layout.aliases, "remarks": remarks, "papers": sources},
        claims=claims,
        notes=[*notes, *(f"{problem}, so this claim is left out" for problem in left)],
    )


def command_of(overrides: list[str], config_dir: str | None) -> str:
    """The command as it is typed."""
    swept = bool(parse(overrides, config_dir).swept)
    folder = ["--config-dir", config_dir] if config_dir else []
    return shlex.join(["python", "-m", "ablate", *(["-m"] * swept), *folder, *overrides])


def about_metrics(asked: Asked, checked: Iterable[Checked | None]) -> list[Problem]:
    """Problems of the metrics that claims name; nothing where no cell passed."""
    passed = [cell for cell in checked if cell]
    lengths = [length for cell in passed for length in cell.config["eval"]["lengths"]]
    found = metric_problems(asked.claims, [cell.task.metrics for cell in passed], lengths) if passed else []
    return [Problem(f"{asked.file}: {problem.key}", problem.message) for problem in found]


def compose_cells(asked: Asked, config_dir: str | None) -> tuple[list[Composed], Command, Layout]:
    """Every cell of a command, the command in its parts, and its design.  Raises PlanError."""
    command = parse(asked.overrides, config_dir)
    layout = arrange(command)
    problems = asked.problems + command.problems + layout.problems
    if config_dir is not None and not (config_dir and Path(config_dir).is_dir()):
        raise PlanError([Problem("--config-dir", f"{config_dir!r} is no folder")])
    for file in shadowed(config_dir) if config_dir else []:
        message = f"{file} has the name of a variant or a study of ablate's; give it another"
        problems.append(Problem("--config-dir", message))
    with Composer(config_dir) as composer:
        try:
            cells = [composer.compose(each) for each in layout.overrides(command)]
        except COMPOSING as error:
            found, rest = composer.blame(command, layout.overrides(command))
            cells = compose_rest(composer, rest)
            problems += found or [Problem("", str(error).strip().split("\n")[0])]
    if problems:  # what can be composed is checked all the same, so that every mistake is told at once
        gate = Gate()
        checked = [gate.admit(cell.config) for cell in cells]
        problems += gate.problems + about_metrics(asked, checked)
        raise PlanError(problems + (study_problems(cells[0].config) if cells else []))
    return cells, command, layout


def compose_rest(composer: Composer, command: Command) -> list[Composed]:
    """The cells of a command without its bad overrides, or none when those that are left do not go together."""
    try:
        return [composer.compose(each) for each in arrange(command).overrides(command)]
    except COMPOSING:
        return []


def settle(draft: Draft) -> Plan:
    """The plan of a draft: name, seeds, runs and units, beside what an earlier command of this study left."""
    settings, factors, rows, checked = draft.settings, draft.factors, draft.rows, draft.checked
    results = Path(settings["results_dir"]).absolute()
    base = settings["study"]
    name = f"{base}-confirm-{settings['confirm']}" if settings["confirm"] else base
    earlier, notes = read_earlier(results, name)
    notes += draft.notes
    refuse_replacing(name, earlier, rows)
    rows = kept_apart(name, rows) if settings["reuse"] == "none" else rows
    if settings["confirm"] and not (results / "studies" / base).exists():
        notes.append(f"{base} was never trained here, so there is nothing yet that this could confirm")
    seeds = choose_seeds(results, settings, base, earlier, [row.name for row in rows])
    own_looks, kept = looked_at(draft, earlier, seeds)
    if kept:
        notes.append(f"seeds {', '.join(map(str, kept))} were looked at before and stay in the study")
    seeds = sorted({*seeds, *kept})
    runs = [planned_run(row, seed, draft.extra.get("tuning")) for seed in seeds for row in rows]
    if settings["reuse"] == "any":
        runs, rows = take_others(results, runs, rows)
    beside, aside = companions(results, earlier, rows, runs, draft.extra)
    manifest = Manifest(
        format=FORMAT,
        study=name,
        created=earlier.created if earlier and earlier.created else now(),
        updated=now(),
        command=draft.command,
        versions={"python": platform.python_version(), "torch": torch.__version__},
        design=settings["design"],
        zip=settings["zip"],
        factors=factors,
        components=[name for name in factors if is_component(name.split("+"))],
        reference=draft.reference,
        match=settings["match"],
        tier=settings["tier"],
        seeds=seeds,
        sequential=sequence_of(draft.looks, settings["seeds"]),
        confirms=base if settings["confirm"] else None,
        looks=own_looks + other_looks(results, name, runs),
        tasks={cell.task.fingerprint: describe_task(cell.task) for cell in checked},
        cells=[dataclasses.replace(row, config=without_user(row.config)) for row in rows],
        runs=runs,
        units={unit_name([run.path]): [run.path] for run in runs},
        **(beside | draft.extra),
    )
    notes += aside
    if draft.looks:
        notes.append(f"seeds=auto: looks at {', '.join(map(str, draft.looks))}; now at {settings['seeds']}")
    notes += slow_starts([cell.config for cell in checked])
    found = {run.path: status_of(results, run.path) for run in runs}
    statuses = {path: status for path, (status, _) in found.items()}
    notes += [note for _, wrong in found.values() for note in wrong]
    notes += trained_again(results, earlier, runs, rows, statuses, settings["reuse"])
    if settings["keep"] != "none":
        notes += without_weights(results, statuses)
    lacking, told = to_test(results, manifest, statuses)
    statuses |= lacking
    notes += told
    manifest = registered(manifest, draft, results, earlier, statuses)
    return Plan(results, manifest, statuses, notes, settings["dry_run"], settings["user"], draft.more)


def planned_run(row: Cell, seed: int, tuning: Tuning | None) -> PlannedRun:
    """A cell's run with a seed, at the value that tuning chose for this seed where it did."""
    tuned = {tuning.key: tuning.cells[row.id].values[str(seed)]} if tuning and tuning.per_seed else None
    run = PlannedRun(cell=row.id, seed=seed, tuned=tuned, path="")
    return dataclasses.replace(run, path=f"{row.name}/{run_key(as_planned(row, run).config, seed, row.task)}")


def looked_at(draft: Draft, earlier: Manifest | None, seeds: list[int]) -> tuple[list[Look], list[int]]:
    """The looks that this study has had, and the seeds besides `seeds` that were seen in one of another plan."""
    looks = [look for look in earlier.looks if look.study is None] if earlier else []
    looks += looks_before(draft.looks, draft.settings["seeds"], looks)
    seen = {seed for look in looks if look.planned != draft.looks for seed in look.seeds}
    return looks, sorted(seen - set(seeds))


def registered(
    manifest: Manifest, draft: Draft, results: Path, earlier: Manifest | None, statuses: dict[str, str]
) -> Manifest:
    """The manifest with its claims and its margin, beside what the earlier one and the tuning's said of them."""
    before = (earlier.withdrawn if earlier else {}) | draft.written | (earlier.claims if earlier else {})
    margin, old = draft.settings["margin"], (earlier and earlier.margin) or draft.extra.get("margin")
    seen = scored(results, earlier, manifest.runs, statuses) if draft.claims or margin or old else {}
    entries = register(draft.claims, before, draft.rows, seen, now())
    held = registered_margin(margin, old, seen, now())
    return dataclasses.replace(manifest, **entries._asdict(), margin=held)


def scored(
    results: Path, earlier: Manifest | None, runs: list[PlannedRun], statuses: dict[str, str]
) -> dict[int, set[str]]:
    """The cells of this study that have a result, by seed; those of its earlier manifest and other studies', too."""
    found: dict[int, set[str]] = {}
    for run in [*runs, *(earlier.runs if earlier else ()), *same_runs(results, runs)]:
        status = statuses.get(run.path) or status_of(results, run.path)[0]
        if status in ("done", "diverged", "untested"):
            found.setdefault(run.seed, set()).add(run.cell)
    return found


def unit_name(paths: list[str]) -> str:
    """A unit's name, from its runs: it means the same in every manifest that another command writes meanwhile."""
    return "u" + hashlib.sha256("\n".join(paths).encode()).hexdigest()[:12]


def study_name(draft: Draft) -> str:
    """The factors and a hash of everything but the seeds, before any tuning."""
    cells = [[row.name, settings(row.config), row.task] for row in draft.rows]
    design = [draft.settings["design"]] * (draft.settings["design"] != "grid")
    tune = [draft.settings["tune"]] * (draft.settings["tune"]["key"] is not None)  # never what it will choose
    content = json.dumps([draft.factors, draft.reference, draft.settings["match"], cells, *design, *tune])
    head = "-".join(key.replace("/", "_").replace("+", "-") for key in draft.factors) or "single"
    return f"{head[:60]}-{hashlib.sha256(content.encode()).hexdigest()[:6]}"
