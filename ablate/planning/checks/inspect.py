"""Inspects the cells of a study: each is checked, matched to its reference, counted and tried out; what remains are
rows of the manifest and sentences, plain data.  Loads torch, and user code: see `ablate.planning.cells`."""

from ablate.config.depth import folder_choice
from ablate.config.errors import PlanError, Problem
from ablate.config.factors import cell_name
from ablate.config.schema import Config
from ablate.data.corpus import nothing_prepared
from ablate.formatting import percent
from ablate.model.init import shared_draws
from ablate.model.products import one_thread
from ablate.planning.checks import child
from ablate.planning.checks.duplicates import refuse_equal, same_networks
from ablate.planning.checks.examine import examine_cell
from ablate.planning.checks.memory import memory_problems
from ablate.planning.checks.small_models import Checked
from ablate.planning.checks.user_code import foreign_parts
from ablate.planning.checks.validate import Validator
from ablate.planning.matching import CLOSE, match_cells, training_positions
from ablate.planning.reporting import reported
from ablate.planning.study import CHECK, TRY, Draft, Inspection, runs_of
from ablate.runs.key import batches, cell_id, is_foreign, numbers
from ablate.runs.records import SOLVED, Cell, TaskFacts


def inspect(drafts: list[Draft], settings: Config, until: int) -> Inspection:
    """Check cells, match each to its reference and try it out on a small copy; `settings` has the study's own keys.
    Later steps are left out after problems, and after `until`.  Texts are prepared only if all checks pass."""
    with one_thread():
        validator = Validator()
        with nothing_prepared():
            checked, problems = validator.validate(drafts)
        if not problems and len(checked) < len(drafts) and until > CHECK:
            checked, problems = validator.validate(drafts)
        if problems or until == CHECK:
            tasks = {cell.task.fingerprint: describe_task(cell) for cell in checked}
            return Inspection(tasks=tasks, problems=problems)
        try:
            checked = match_cells(settings.match, checked, drafts)
            rows = [describe_cell(place, drafts, checked) for place in range(len(checked))]
            tasks = describe_tasks(checked)
            refuse_equal(rows, checked, settings.allow_duplicates)
            notes = []
            if until == TRY:
                notes = try_out(rows, checked, runs_of(drafts, settings), settings.allow_duplicates)
        except PlanError as error:
            return Inspection(problems=error.problems)
    return Inspection(rows=rows, tasks=tasks, notes=list(dict.fromkeys(notes)))


def try_out(rows: list[Cell], checked: list[Checked], runs: int, allow_duplicates: bool) -> list[str]:
    """Notes on cells from small copies: those with user code are examined, and those that pass are compared, and
    share memory.  Raises PlanError."""
    problems: list[Problem] = []
    notes: list[str] = []
    passed_rows = []
    passed = []
    for row, cell in zip(rows, reported(checked, "trying"), strict=True):
        of_cell: list[Problem] = []
        if is_foreign(numbers(cell.config)):
            child.begin(foreign_parts(cell.config))
            of_cell, remarks = examine_cell(cell)
            problems += of_cell
            notes += [f"{row.label}: {remark}" for remark in remarks]
        if not of_cell:
            passed_rows.append(row)
            passed.append(cell)
    problems += memory_problems(passed_rows, passed, runs)
    for first, second in same_networks(passed):
        both = f"{passed_rows[first].label} and {passed_rows[second].label}"
        sentence = f"{both} make the same network: from equal seeds their training losses are equal"
        if allow_duplicates:
            notes.append(f"{sentence}; allow_duplicates=true trains both")
        else:
            problems.append(Problem("", f"{sentence}; leave one out, or write allow_duplicates=true"))
    if problems:
        raise PlanError(list(dict.fromkeys(problems)))
    return notes


def describe_cell(place: int, drafts: list[Draft], checked: list[Checked]) -> Cell:
    """The manifest's row of a cell."""
    draft = drafts[place]
    cell = checked[place]
    config = cell.config
    compared = checked[draft.reference].budget
    positions = training_positions(cell)
    steps = config.train.steps
    notes = [*cell.task.notes, *cell.budget.notes]
    for half, what in (("init", "initialisation"), ("data", "the order of the data")):
        seed = getattr(config.seed, half)
        if seed is not None:
            notes.append(f"seed.{half}={seed} for every run: intervals do not cover {what}")
    seen = [str(length) for length in config.eval.lengths if not cell.task.holds_out(length)]
    if seen:
        notes.append(f"eval.lengths={','.join(seen)}: test examples were seen in training, as there are too few")
    if cell.matched and abs(cell.matched.difference) > CLOSE:
        missed = f"{percent(cell.matched.difference)} {cell.matched.quantity} against its reference"
        notes.append(f"{draft.label}: {missed}, and nothing comes nearer")
    name = cell_name(folder_choice(config, draft.choices))
    return Cell(
        id=cell_id(name, config, cell.task.fingerprint),
        name=name,
        label=draft.label,
        levels=draft.levels,
        reference=drafts[draft.reference].levels == draft.levels,
        matched=cell.matched,
        defaults=cell.defaults,
        config=config,
        user_code=cell.user_code,
        params=cell.budget.params,
        flops_per_token=cell.budget.flops_per_token,
        params_vs_reference=cell.budget.params / compared.params - 1,
        shared_draws=shared_draws(cell.budget.shapes, compared.shapes),
        tokens_per_step=positions / steps if positions % steps else positions // steps,
        batches=batches(config, cell.task.fingerprint),
        task=cell.task.fingerprint,
        notes=notes,
    )


def describe_tasks(checked: list[Checked]) -> dict[str, TaskFacts]:
    """The manifest's entries of tasks, by fingerprint.  Raises PlanError if `solved_at` of a task differs."""
    tasks: dict[str, TaskFacts] = {}
    for cell in checked:
        task = describe_task(cell)
        first = tasks.setdefault(cell.task.fingerprint, task)
        if first.solved_at != task.solved_at:
            differ = f"is {first.solved_at} and {task.solved_at} in configurations of one task; write one for all"
            raise PlanError([Problem("data.solved_at", differ)])
    return tasks


def describe_task(cell: Checked) -> TaskFacts:
    """The manifest's entry of a cell's task.  With `data.solved_at`, the share of runs that solved it becomes the first
    metric, and the metric that was first is one of those that the summary shows beside it."""
    task = cell.task
    keys = ("name", "title", "kind", "token", "metrics", "yardsticks", "train_tokens", "positions")
    facts = {key: getattr(task, key) for key in keys}
    facts |= task.metric_facts()
    solved_at = cell.config.data.get("solved_at")
    if solved_at is not None:
        deciding = next(iter(task.metrics))  # the metric that `solved_at` is a value of
        facts["solved_at"] = solved_at
        facts["metrics"] = {SOLVED: "max"} | task.metrics
        facts["shares"] = [SOLVED, *facts["shares"]]
        facts["beside"] = [deciding, *facts["beside"]]
    return TaskFacts(**facts)
