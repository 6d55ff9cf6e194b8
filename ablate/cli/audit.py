"""`ablate audit main~12..main 'uv run train.py' env.SEED={seed} metric=val_bpb`: which of these commits are real?

Each commit is tested against the one before it, on seeds of its own, at 5 % over all commits; nothing is reverted.
Exit code 0 whatever the steps are; as for `ablate command` if runs were stopped.
"""

import re
import textwrap
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from ablate.cli.program import carry_out, dry_run, refuse_unquoted
from ablate.config.errors import PlanError, Problem
from ablate.config.program_keys import CODE, OF_EVERY_STUDY, OPTIONS, split_values
from ablate.config.subcommands import Outcome, PlainParser, conclude
from ablate.evidence.families import ALPHA
from ablate.formatting import columns, counted, decimals, span
from ablate.formatting.streams import echo
from ablate.planning.program import plan_program
from ablate.planning.runs import Plan
from ablate.program.history import kept_commits
from ablate.program.revisions import GitError, repository_of
from ablate.runs.records import Manifest

if TYPE_CHECKING:
    import pandas

    from ablate.runs.study import Study

USAGE = "ablate audit main~12..main 'uv run train.py' env.SEED={seed} metric=val_bpb"
FIRST_SEED = 101  # sessions use small seeds, and 1337: what was kept was chosen by its luck with these
SEEDS = 5
LONGEST = 50  # characters of a subject
REAL = "real"
HARMFUL = "harmful"
OPEN = "open"
SAME = "no change"
NO_RESULT = "no result"
OF_VERDICT = {"better": REAL, "worse": HARMFUL, "withheld": NO_RESULT}
OF_VERDICT |= {name: name for name in ("equivalent", "negligible")}  # with a margin


def main(words: Sequence[str]) -> int:
    """Audit a range of commits; returns the exit code."""
    text = f"{USAGE}\n\nTests each commit of a range against the one before, on fresh seeds; see ablate command --help."
    parser = PlainParser("ablate audit", text)
    parser.add_argument("range", help="START..END, or a results.tsv with columns commit and status")
    parser.add_argument("command", help="the command, as one word in quotes, with fields in braces")
    parser.add_argument("words", nargs="*", metavar="key=value")
    refuse_unquoted(parser, words, USAGE)
    options = parser.parse_intermixed_args(words)
    return conclude("ablate audit", options.json, lambda: audit(options.range, options.command, options.words))


def audit(source: str, command: str, words: Sequence[str]) -> Outcome:
    """Test the commits of a range, and print what each is.  Raises PlanError."""
    plan = plan_program(command, words_of_audit(source, words))
    if plan.dry_run:
        return dry_run(plan)
    from ablate import evidence
    from ablate.cli.sweep import FAILED, Terminal

    class AuditTerminal(Terminal):
        """Prints the steps in place of the summary of a study."""

        def ended(self, plan: Plan, study: "Study", seconds: float | None) -> None:
            self.study = study
            effects = evidence.effects(study)
            steps = steps_of(study, effects)
            chain = total_change(effects)
            unadjusted = evidence.unadjusted(study.manifest)  # after looks at fewer seeds
            self.result = {"steps": steps, "chain": chain, "unadjusted": unadjusted}
            echo("\n".join(described(study.manifest, steps, chain, unadjusted)))

    terminal = AuditTerminal()
    outcome = carry_out(plan, terminal)
    if terminal.study is None:
        return outcome
    code = 0 if outcome.code == FAILED else outcome.code  # commits that crash are a result
    return Outcome(code, terminal.result, outcome.remarks)


def words_of_audit(source: str, words: Sequence[str]) -> list[str]:
    """The words of a cumulative study of these commits, on fresh seeds.  Raises PlanError."""
    try:
        repository = repository_of(Path.cwd())
    except GitError:
        raise PlanError([Problem("range", f"{Path.cwd()} is in no repository of git; go to its folder")]) from None
    commits, problems = kept_commits(source, repository)
    problems += word_problems(words)
    if problems:
        raise PlanError(problems)
    count = SEEDS
    others = []
    for word in words:
        if re.fullmatch(r"seeds=[1-9]\d{0,3}", word):
            count = int(word.partition("=")[2])
        else:
            others.append(word)
    chain = [f"{CODE}={','.join(commits)}", "design=cumulative", *others]
    if any(word.startswith("seeds=") for word in others):  # a list of seeds
        return chain
    seeds = range(FIRST_SEED, FIRST_SEED + count)
    return [*chain, f"seeds=[{','.join(map(str, seeds))}]"]


def word_problems(words: Sequence[str]) -> list[Problem]:
    """Words that an audit cannot take: what it sets, a second setting that is compared, and seeds that a session has
    used."""
    problems = []
    for word in words:
        key, _, text = word.partition("=")
        if key in (CODE, "design"):
            problems.append(Problem(key, "is set by the audit; leave it out"))
        elif key not in (*OPTIONS, *OF_EVERY_STUDY) and len(split_values(text)) > 1:
            problems.append(Problem(key, "has several values; an audit compares commits alone: write one"))
        elif word == "seeds=auto":
            problems.append(Problem("seeds", "auto begins with seeds that the session may have used; write seeds=8"))
    return problems


def steps_of(study: "Study", effects: "pandas.DataFrame") -> list[dict[str, Any]]:
    """What each commit is, in order, with its difference from the one before, and runs without a result."""
    subjects = {cell.levels[CODE]: cell.notes[0].partition(": ")[2] for cell in study.manifest.cells}
    failed = study.runs[study.runs["status"] != "done"]
    without_result = failed[CODE].value_counts()
    reasons = failed.groupby(CODE)["error"].first() if "error" in failed else {}
    steps = []
    for row in effects[effects["kind"] == "step"].to_dict("records"):
        commit = row["level"]
        step = {"commit": commit, "subject": subjects[commit], "status": status_of_effect(row)}
        step |= {name: row[name] for name in ("mean", "low", "high", "n")}
        step |= {"without_result": int(without_result.get(commit, 0)), "error": reasons.get(commit)}
        steps.append(step)
    return steps


def status_of_effect(effect: dict[str, Any]) -> str:
    """What a step is, by its effect: real, harmful, open, no change, no result, or what a margin makes of it."""
    has_all_runs = effect["failed"] + effect["missing"] == 0
    if effect["n"] == 0 or (effect["n"] == 1 and not has_all_runs):  # one difference is left, and shows nothing
        return NO_RESULT
    if has_all_runs and effect["n"] > 1 and effect["mean"] == 0 and effect["sd"] == 0:
        return SAME
    return OF_VERDICT.get(effect["verdict"], OPEN)


def total_change(effects: "pandas.DataFrame") -> dict[str, Any]:
    """The difference of the last commit from the first one, with its interval."""
    is_total = effects["kind"] == "cell"  # a chain of two commits has its step alone
    last = effects[is_total].iloc[-1] if is_total.any() else effects.iloc[-1]
    return {name: last[name] for name in ("mean", "low", "high", "n")}


def described(manifest: Manifest, steps: list[dict[str, Any]], chain: dict[str, Any], unadjusted: str) -> list[str]:
    """The steps as lines, and what the chain gained."""
    places = decimals(entry["high"] - entry["mean"] for entry in [*steps, chain])
    rows = []
    for step in steps:
        subject = textwrap.shorten(step["subject"], LONGEST, placeholder=" …")
        result = why_not(step) if step["status"] == NO_RESULT else interval(step, places)
        rows.append([f"  {step['status']}", step["commit"], subject, result])
    [task] = manifest.tasks.values()
    better = "lower" if "min" in task.metrics.values() else "higher"
    seeds = f"{counted(len(manifest.seeds), 'seed')} from {manifest.seeds[0]} on"
    counts = Counter(step["status"] for step in steps)
    statuses = [f"{count} {status}" for status, count in counts.most_common()]
    return [
        f"{counted(len(steps), 'step')} of {task.name}, {manifest.endpoint} ({better} is better), {seeds}",
        *columns(rows),
        f"{', '.join(statuses)}; tested at {100 * ALPHA:g} % over all steps",
        *([unadjusted] if unadjusted else []),
        f"from {manifest.reference[CODE]} to {steps[-1]['commit']}: {interval(chain, places) or NO_RESULT}",
    ]


def why_not(step: dict[str, Any]) -> str:
    """Why a step has no result: its runs failed, or those of the commit before it."""
    if not step["without_result"]:
        return "nothing to compare with"
    lines = (step["error"] or "").strip().splitlines()
    return f"{counted(step['without_result'], 'run')} failed: {lines[-1] if lines else 'ablate status says why'}"


def interval(entry: dict[str, Any], places: int) -> str:
    """A difference with its interval; empty if there is none."""
    return span(entry["mean"], entry["low"], entry["high"], places) if entry["n"] else ""
