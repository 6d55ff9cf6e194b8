"""How often `ablate audit` calls a step real that is not: simulated sessions of 100 edits, beside greedy's record.

python benchmarks/bench_audit.py                    3,000 sessions of each kind, by the functions that decide
python benchmarks/bench_audit.py --commands 200     sessions through the real command, on a program that prints noise

A session is greedy, as agents' are: each edit is run once, and kept if its score is below the best so far.  Effects
are in SDs of one run.  The audit then tests each kept edit on fresh seeds against the one before.
"""

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas
from scipy import stats

from ablate import evidence
from ablate.cli.audit import REAL, status_of_effect
from ablate.config.program_keys import CODE
from ablate.runs.folder import now
from ablate.runs.naming import measured_as
from ablate.runs.records import FORMAT, Cell, Manifest, PlannedRun, TaskFacts
from ablate.runs.study import Study

EDITS = 100
SEEDS = 5
GOOD = 0.1  # share of edits that help, by 1 to 5 SDs
HARMFUL = 0.4  # share that harm, by as much
METRIC = "score"
NULL = "no edit helps"
MIXED = "mixed"
PROGRAM = """\
import sys, numpy
print("score:", numpy.random.default_rng([int(sys.argv[1]), {commit}]).normal({level}, 1))
"""


def main() -> None:
    """Print a table of each kind of session."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sessions", type=int, default=3000)
    parser.add_argument("--commands", type=int, default=0)
    parser.add_argument(
        "--first", type=int, default=0, help="the number of the first session: each has draws of its own"
    )
    parser.add_argument("--kinds", default=f"{NULL},{MIXED}")
    options = parser.parse_args()
    count = options.commands or options.sessions
    audit = audit_by_command if options.commands else audit_by_functions
    for kind in options.kinds.split(","):
        records = []
        for session in range(options.first, options.first + count):
            rng = np.random.default_rng([session, len(kind)])
            levels = greedy_session(rng, kind == MIXED)
            if len(levels) > 1:
                records.append(record(levels, audit(levels, rng)))
        print(report(kind, pandas.DataFrame(records), count), flush=True)


def greedy_session(rng: np.random.Generator, is_mixed: bool) -> list[float]:
    """The true scores of the commits that a greedy session keeps, its start first."""
    levels = [0.0]
    best = rng.normal()
    for _ in range(EDITS):
        level = levels[-1] + (effect_of_edit(rng) if is_mixed else 0.0)
        score = rng.normal(level)
        if score < best:
            best = score
            levels.append(level)
    return levels


def effect_of_edit(rng: np.random.Generator) -> float:
    """The effect of one edit on the score, of which less is better."""
    kind = rng.random()
    size = rng.uniform(1, 5)
    if kind < GOOD:
        return -size
    return size if kind < GOOD + HARMFUL else 0.0


def audit_by_functions(levels: list[float], rng: np.random.Generator) -> list[bool]:
    """Whether each step is called real, from scores of fresh seeds."""
    scores = rng.normal(levels, 1, (SEEDS, len(levels)))
    effects = evidence.effects(chain(scores))
    steps = effects[effects["kind"] == "step"].to_dict("records")
    return [status_of_effect(step) == REAL for step in steps]


def chain(scores: np.ndarray) -> Study:
    """The cumulative study of a chain of commits, with scores (seeds, commits)."""
    commits = [f"c{i}" for i in range(scores.shape[1])]
    cells = []
    runs = []
    rows = []
    for i, commit in enumerate(commits):
        label = f"{CODE}={commit}"
        cell = Cell(
            id=commit,
            name=commit,
            label=label,
            levels={CODE: commit},
            reference=i == 0,
            batches="",
            task="program",
            params=None,
            flops_per_token=None,
            config=None,
        )
        cells.append(cell)
        for seed, score in enumerate(scores[:, i]):
            runs.append(PlannedRun(cell=commit, seed=seed, path=f"{commit}/s{seed}-0"))
            row = {"cell": commit, "label": label, "seed": seed, "status": "done", CODE: commit, METRIC: score}
            rows.append(row)
    manifest = Manifest(
        format=FORMAT,
        study="simulated",
        program="simulated",
        created=now(),
        updated=now(),
        design="cumulative",
        looks=[],
        factors={CODE: [*commits]},
        components=[],
        reference={CODE: commits[0]},
        seeds=list(range(len(scores))),
        tasks={"program": TaskFacts(name="simulated", metrics={measured_as(METRIC): "min"})},
        cells=cells,
        runs=runs,
        endpoint=METRIC,
    )
    return Study(manifest, pandas.DataFrame(rows), pandas.DataFrame(columns=["cell", "seed", "step"]), [])


def audit_by_command(levels: list[float], rng: np.random.Generator) -> list[bool]:
    """Whether each step is called real by `ablate audit` in a repository of these commits."""
    with tempfile.TemporaryDirectory() as folder:
        program = Path(folder) / "train.py"
        git = ["git", "-c", "user.name=ablate", "-c", "user.email=ablate@localhost"]
        subprocess.run([*git, "init", "--quiet", "--initial-branch=main"], cwd=folder, check=True)
        for i, level in enumerate(levels):
            program.write_text(PROGRAM.format(commit=int(rng.integers(2**31)), level=level))
            subprocess.run([*git, "add", "--all"], cwd=folder, check=True)
            subprocess.run([*git, "commit", "--quiet", "--message", f"edit {i}"], cwd=folder, check=True)
        first = subprocess.check_output(["git", "rev-list", "--max-parents=0", "HEAD"], cwd=folder, text=True).strip()
        seed = int(rng.integers(10**6))
        seeds = ",".join(str(seed + i) for i in range(SEEDS))
        words = [f"metric={METRIC}", "better=min", f"seeds=[{seeds}]", "parallel=2", "--json"]
        program_command = f"{sys.executable} train.py {{seed}}"
        command = [sys.executable, "-m", "ablate", "audit", f"{first}..main", program_command, *words]
        environment = os.environ | {"ABLATE_RESULTS": f"{folder}/results"}
        ended = subprocess.run(command, cwd=folder, env=environment, capture_output=True, text=True, check=True)
        return [step["status"] == REAL for step in json.loads(ended.stdout)["result"]["steps"]]


def record(levels: list[float], real: list[bool]) -> dict[str, float]:
    """What a session kept, and what its audit says."""
    helps = np.diff(levels) < 0
    called = np.array(real)
    return {
        "kept": len(helps),
        "kept_false": int((~helps).sum()),
        "kept_true": int(helps.sum()),
        "real": int(called.sum()),
        "real_false": int((called & ~helps).sum()),
        "real_true": int((called & helps).sum()),
        "runs": SEEDS * len(levels),
    }


def report(kind: str, records: pandas.DataFrame, sessions: int) -> str:
    """The shares of one kind of session, with Clopper-Pearson intervals of the share with a false step."""
    runs = records["runs"].sum() / sessions
    lines = [f"{kind}: {sessions} sessions of {EDITS} edits, {runs:.0f} further runs in an audit"]
    for name, kept in (("greedy", "kept"), ("audit", "real")):
        wrong = int((records[f"{kept}_false"] > 0).sum())
        interval = stats.binomtest(wrong, sessions).proportion_ci()
        text = f"{100 * wrong / sessions:.1f} % [{100 * interval.low:.1f}, {100 * interval.high:.1f}]"
        share = records[f"{kept}_false"].sum() / max(1, records[kept].sum())
        named = records[f"{kept}_true"].sum() / max(1, records["kept_true"].sum())
        lines.append(
            f"  {name}: sessions with a false step {text}; false share of its steps {100 * share:.1f} %, "
            f"of the kept edits that help {100 * named:.0f} % named"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
