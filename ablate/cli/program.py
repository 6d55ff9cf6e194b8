"""`ablate command 'python train.py --bias={bias} --seed={seed}' bias=true,false metric=val/loss`: compares what any
program does with these values."""

import argparse
import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING

from ablate.config.program_keys import OF_EVERY_STUDY, OPTIONS, SETTINGS
from ablate.config.subcommands import Outcome, PlainParser, conclude
from ablate.formatting import counted
from ablate.formatting.streams import echo
from ablate.planning.program import plan_program
from ablate.planning.runs import Plan
from ablate.program.checks import ignored

if TYPE_CHECKING:
    from ablate.cli.sweep import Terminal

USAGE = "ablate command 'python train.py --bias={bias} --seed={seed} --out_dir={out}' bias=true,false metric=val/loss"
SHOWN = 3  # commands that a dry run shows


def main(words: Sequence[str]) -> int:
    """Run a study of a program; returns the exit code."""
    options = "\n".join(f"  {name:<12} {text}" for name, text in (SETTINGS | OPTIONS | OF_EVERY_STUDY).items())
    parser = PlainParser(
        "ablate command",
        f"{USAGE}\n\nEvery other key=value is a setting of the command; several values are compared.\n\n{options}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", help="the command, as one word in quotes, with fields in braces; or study=mine.yaml")
    parser.add_argument("words", nargs="*", metavar="key=value")
    refuse_unquoted(parser, words, USAGE)
    options_given = parser.parse_intermixed_args(words)
    return conclude("ablate command", options_given.json, lambda: study(options_given.command, options_given.words))


def refuse_unquoted(parser: PlainParser, words: Sequence[str], usage: str) -> None:
    """Exit with a line if options of the program stand outside of quotes."""
    options = [word for word in words if word.startswith("-") and word not in ("--json", "-h", "--help")]
    if options:
        parser.error(f"{options[0]} is not in the command; put the whole command in quotes, as one word: {usage}")


def study(command: str, words: Sequence[str]) -> Outcome:
    """Show a plan, or carry it out and print the summary.  Raises PlanError."""
    plan = plan_program(command, words)
    if plan.dry_run:
        return dry_run(plan)
    from ablate.cli.sweep import Terminal  # loads pandas, which a refused command does not need

    return carry_out(plan, Terminal())


def dry_run(plan: Plan) -> Outcome:
    """Show a plan."""
    echo(preview(plan))
    return Outcome(0, {"study": plan.manifest.study, "todo": plan.todo}, plan.notes)


def carry_out(plan: Plan, terminal: "Terminal") -> Outcome:
    """Carry out a plan; the terminal prints what it shows."""
    from ablate.cli.sweep import train, verdicts

    code = train(plan, terminal)
    results = terminal.study
    if results is None:
        return Outcome(code, None, terminal.remarks)
    request = plan.study.request
    if request and "budget" in request.options:
        steps = results.runs.dropna(subset="steps").groupby("label", sort=False)["steps"].agg(["min", "max"])
        ranges = [f"{label} {row['min']:,.0f} to {row['max']:,.0f}" for label, row in steps.iterrows()]
        terminal.remark(f"steps in the time given: {'; '.join(ranges) or 'unknown'}")
    if results.runs["status"].eq("done").all():  # else it was said when the runs were stopped
        for line in ignored(results):
            terminal.remark(line)
    return Outcome(code, verdicts(results), terminal.remarks)


def preview(plan: Plan) -> str:
    """A plan in words, with the first commands as they will run."""
    manifest = plan.manifest
    cells = counted(len(manifest.cells), "configuration")
    seeds = counted(len(manifest.seeds), "seed")
    lines = [f"{manifest.study}: {cells} × {seeds}, {counted(len(plan.todo), 'run')} to do, in {plan.folder}"]
    for name, levels in manifest.factors.items():
        reference = manifest.reference[name]
        others = ", ".join(str(level) for level in levels if level != reference)
        lines.append(f"  {name}: {reference} (reference), {others}")
    [task] = manifest.tasks.values()
    [direction] = task.metrics.values()
    lines.append(f"  compared by {manifest.endpoint}, of which the {direction}imum is best")
    lines += [f"  claim {name}" for name in manifest.claims]
    for cell in manifest.cells:
        lines += [f"  {note}" for note in cell.notes]
    for order in plan.orders()[:SHOWN]:
        assert order.program
        environment = [f"{name}={shlex.quote(value)}" for name, value in order.program.environment.items()]
        line = " ".join([*environment, shlex.join(order.program.words)])
        lines.append(f"  {line}  (in {order.program.tree.commit[:10]})" if order.program.tree else f"  {line}")
    return "\n".join([*lines, *manifest.remarks, *plan.notes])
