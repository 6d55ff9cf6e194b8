"""From the words of `ablate command` to a plan: configurations, runs with their keys, and what is done already."""

import dataclasses
import itertools
import json
import os
import re
import shlex
from collections.abc import Sequence
from pathlib import Path

from ablate.config.errors import PlanError, Problem
from ablate.execution.pool import Order
from ablate.planning.earlier_runs import registered, status_of
from ablate.planning.runs import from_here, in_turn
from ablate.program.order import FILES, Program
from ablate.program.template import FIELD, fill_word
from ablate.program.words import Request, read_request
from ablate.runs.files import digest
from ablate.runs.folder import now
from ablate.runs.logs import lower_is_better
from ablate.runs.manifest import is_name, readable
from ablate.runs.naming import measured_as
from ablate.runs.records import FORMAT, Cell, Manifest, PlannedRun, TaskFacts

LONGEST = 60  # characters of a folder's name
OUT_UNUSED = "the command does not use {out}: if runs write files, they write over each other's, or read them"
LARGEST = 10_000_000  # bytes of a file named in the command, whose content is part of a run's key


@dataclasses.dataclass(frozen=True)
class ProgramPlan:
    """A study of a program: its manifest, the state of its runs, and notes; has what `api.train` needs of a plan.

    Runs of seeds that the command does not name stay in the manifest, and are in neither `programs` nor `statuses`.
    """

    results: Path
    manifest: Manifest
    programs: dict[str, Program]  # by the path of a run
    statuses: dict[str, str]
    notes: list[str]
    dry_run: bool
    more: bool = False
    ended: Sequence["ProgramPlan"] = ()
    launcher: Sequence[str] = ()

    @property
    def is_local(self) -> bool:
        """Whether its runs are started on this machine."""
        return True

    @property
    def folder(self) -> Path:
        """The results folder, relative to the working directory if it is inside."""
        return from_here(self.results)

    @property
    def todo(self) -> list[str]:
        """Paths of the runs to start: those without a result, and those that failed."""
        return [path for path, status in self.statuses.items() if status in ("missing", "failed")]

    def orders(self) -> list[Order]:
        """The remaining runs, in turn."""
        cells = {cell.id: cell for cell in self.manifest.cells}
        todo = set(self.todo)
        results = str(self.results)
        orders = []
        for run in in_turn(self.manifest.runs):
            if run.path in todo:
                program = self.programs[run.path]
                cell = cells[run.cell]
                orders.append(Order(results=results, path=run.path, seed=run.seed, cell=cell, user=[], program=program))
        return orders


def plan_program(command: str, words: Sequence[str]) -> ProgramPlan:
    """The plan of a command line; nothing is started or written.  Raises PlanError with all mistakes."""
    request, problems = read_request(command, words)
    metric = request.option("metric", "")
    better = request.options.get("better")
    lower = lower_is_better(metric) if better is None else better == "min"
    if metric and lower is None:
        problems.append(
            Problem("better", f"is missing: {metric} does not say which is better; write better=min or better=max")
        )
    name = request.option("study", "")
    if name and not is_name(name):
        problems.append(Problem("study", f"{name!r} can name no folder"))
    if problems:
        raise PlanError(problems)
    results = Path(request.option("results_dir", os.environ.get("ABLATE_RESULTS", "results"))).absolute()
    typed = shlex.join(["ablate", "command", command, *words])
    return plan_request(request, typed, results, bool(lower))


def plan_request(request: Request, typed: str, results: Path, lower: bool) -> ProgramPlan:
    """The plan of a request.  Raises PlanError if the study's name is that of another one."""
    content = content_of(request)
    base = request.option("study", f"{head_of(request)}-{hash_of([content, request.settings])[:6]}")
    study = base
    seeds = request.seeds
    if "confirm" in request.options:
        count = int(request.options["confirm"])
        study = f"{base}-confirm-{count}"
        seeds = fresh_seeds(results, base, count)
    cells = cells_of(request, content)
    programs = {}
    runs = []
    statuses = {}
    notes = []
    for seed in seeds:
        for cell in cells:
            levels = settings_of(request, cell)
            numbers = hash_of([content, levels])
            path = f"{cell.name}/s{seed}-{hash_of([numbers, seed])[:16]}"
            runs.append(PlannedRun(cell=cell.id, seed=seed, path=path))
            programs[path] = program_of(request, levels, seed, results / "runs" / path, numbers, lower)
            statuses[path], damage = status_of(results, path)
            notes += damage
    earlier = readable(results, study)
    if earlier and {cell.id for cell in earlier.cells} - {cell.id for cell in cells}:
        message = f"{study} holds other configurations; add to them, or write another name"
        raise PlanError([Problem("study", message)])
    manifest = manifest_of(request, typed, study, cells, runs, earlier, lower)
    if study != base:
        manifest = dataclasses.replace(manifest, confirms=base)
    margin = float(request.options["margin"]) if "margin" in request.options else None
    scored: dict[int, set[str]] = {}
    for run in runs:
        if statuses[run.path] in ("done", "diverged"):
            scored.setdefault(run.seed, set()).add(run.cell)
    entry = registered(margin, earlier.margin if earlier else None, scored, now())
    manifest = dataclasses.replace(manifest, margin=entry)
    if "out" not in request.fields and not scored:
        notes.append(OUT_UNUSED)
    return ProgramPlan(results, manifest, programs, statuses, notes, request.option("dry_run", "") == "true")


def manifest_of(
    request: Request,
    typed: str,
    study: str,
    cells: list[Cell],
    runs: list[PlannedRun],
    earlier: Manifest | None,
    lower: bool,
) -> Manifest:
    """The manifest of a study, with the runs of further seeds that are on disk; without its margin."""
    metric = request.options["metric"]
    planned = {(run.cell, run.seed) for run in runs}
    further = [run for run in earlier.runs if (run.cell, run.seed) not in planned] if earlier else []
    runs = [*runs, *further]
    return Manifest(
        format=FORMAT,
        study=study,
        program=shlex.join(request.template.words),
        created=earlier.created if earlier else now(),
        updated=now(),
        command=typed,
        design=request.option("design", "grid"),
        factors={name: [*values] for name, values in request.factors.items()},
        components=[],
        reference={name: values[0] for name, values in request.factors.items()},
        seeds=sorted({run.seed for run in runs}),
        looks=earlier.looks if earlier else [],
        tasks={"program": TaskFacts(name=name_of(request), metrics={measured_as(metric): "min" if lower else "max"})},
        cells=cells,
        runs=runs,
        endpoint=metric,
    )


def fresh_seeds(results: Path, base: str, count: int) -> list[int]:
    """Seeds that a study has not seen.  Raises PlanError if it is not on disk."""
    earlier = readable(results, base)
    if earlier is None:
        message = f"there is no study {base} in {results} to confirm; give its command without confirm first"
        raise PlanError([Problem("confirm", message)])
    first = max(earlier.seeds) + 1
    return list(range(first, first + count))


def content_of(request: Request) -> list[object]:
    """What the results of all configurations depend on: the command, its environment and the files that it names."""
    files = {}
    for word in request.template.words:
        path = Path(word)
        if not FIELD.search(word) and path.is_file() and path.stat().st_size <= LARGEST:
            files[word] = digest(path.read_bytes())
    options = {name: request.options.get(name) for name in ("metric", "at", "read", "timeout", "budget")}
    return [request.template.words, request.environment, files, options, os.getcwd()]


def name_of(request: Request) -> str:
    """What the study is about, in short: the file that the command names first, else its first word."""
    words = request.template.words[0].split() if request.template.in_shell else request.template.words
    files = [word for word in words[1:] if Path(word).is_file()]  # the first is its interpreter
    return Path(files[0] if files else words[0]).name


def head_of(request: Request) -> str:
    """The beginning of the study's default name: its factors."""
    return "-".join(re.sub(r"[^\w.]+", "_", name) for name in request.factors)[:LONGEST] or "single"


def cells_of(request: Request, content: list[object]) -> list[Cell]:
    """The configurations: all combinations of values, or each value alone against the first of all."""
    factors = request.factors
    first = {name: values[0] for name, values in factors.items()}
    if request.option("design", "grid") == "grid":
        combinations = [dict(zip(factors, values, strict=True)) for values in itertools.product(*factors.values())]
    else:
        combinations = [first]
        for name, values in factors.items():
            combinations += [first | {name: value} for value in values[1:]]
    cells = []
    for levels in combinations:
        label = ", ".join(f"{name}={value}" for name, value in levels.items()) or "the command"
        # Without "=", at which some programs split the path in --out_dir=PATH.
        name = re.sub(r"[^\w.+-]+", "_", "+".join(f"{name}-{value}" for name, value in levels.items()))
        cell = Cell(
            id=f"c{hash_of([content, levels])[:10]}",
            name=name[:LONGEST] or "single",
            label=label,
            levels=dict(levels),
            reference=levels == first,
            batches="",
            task="program",
            params=None,
            flops_per_token=None,
            config=None,
        )
        cells.append(cell)
    return cells


def settings_of(request: Request, cell: Cell) -> dict[str, str]:
    """The value of every setting in a configuration."""
    fixed = {name: values[0] for name, values in request.settings.items()}
    return fixed | {name: str(value) for name, value in cell.levels.items()}


def program_of(request: Request, levels: dict[str, str], seed: int, folder: Path, numbers: str, lower: bool) -> Program:
    """The program of one run."""
    values = levels | {"seed": str(seed), "out": str(folder / FILES)}
    in_arguments = {name: value for name, value in values.items() if not name.startswith("env.")}
    environment = {name: fill_word(text, values) for name, text in request.environment.items()}
    return Program(
        command=shlex.join(request.template.words),
        words=request.template.fill(in_arguments),
        environment=environment,
        folder=os.getcwd(),
        metric=request.options["metric"],
        lower_is_better=lower,
        read=request.option("read", ""),
        at=request.option("at", "last"),
        timeout=request.timeout,
        is_budget="budget" in request.options,
        parallel=int(request.options["parallel"]) if "parallel" in request.options else None,
        numbers=numbers,
    )


def hash_of(value: object) -> str:
    """A digest of plain values."""
    return digest(json.dumps(value, sort_keys=True).encode())
