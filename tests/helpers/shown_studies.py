"""Small studies of all kinds, and what people read of them: summary, tables, methods paragraph.

`make records` writes them to tests/recorded/pages, `tests/analysis/test_pages.py` compares.
"""

import json
import math
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from fake_studies import STEPS, TASK, edit_manifest, fabricate, plain_score, whole

from ablate.cli.summary import summary
from ablate.runs.files import write_json
from ablate.runs.folder import Run
from ablate.runs.manifest import read_manifest
from ablate.runs.study import load_study
from analysis.case import case_of
from analysis.writing import methods, tables

PAGES = Path(__file__).parents[1] / "recorded" / "pages"
GRID: dict[str, list[Any]] = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
THREE = GRID | {"residual": ["pre", "post"]}
FFN = ["mlp", "gelu", "silu", "swiglu"]
ACCURACY = TASK | {"title": "MQAR", "kind": "classification", "token": "token", "train_tokens": None}
ACCURACY |= {"metrics": {"accuracy": "max", "loss": "min"}, "yardsticks": {"chance": 4.0}}
SPELLED = {"rms": "RMSNorm & co.", "ffn": "feed-forward_layer"}


def claim(registered: bool = True, **said: Any) -> dict[str, Any]:
    return {"claim": said, "written": "2025-01-01T00:00:00+00:00", "registered": registered, "earlier": []}


CLAIMS = {
    "lower": claim(less=[{"ffn": "swiglu"}, {"ffn": "mlp"}]),
    "lower_at_rms": claim(less=[{"ffn": "swiglu"}, {"ffn": ["mlp", "gelu"]}], at={"norm": "rms"}, margin=0.01),
    "near": claim(equivalent=[{"ffn": "gelu"}, {"ffn": "silu"}], margin=0.02),
    "near_in_steps": claim(equivalent=[{"ffn": "gelu"}, {"ffn": "silu"}], margin="5 %"),
    "late": claim(False, greater=[{"ffn": "gelu"}, {"ffn": "mlp"}]),
    "no_more": claim(not_greater=[{"ffn": "gelu"}, {"ffn": "silu"}], margin=0.02),
    "no_less": claim(not_less=[{"ffn": "swiglu"}, {"ffn": "silu"}], margin=0.02),
    "safe": claim(diverges_more=[{"ffn": "gelu"}, {"ffn": "mlp"}]),
    "theirs": claim(rank_correlates=[{"ffn": FFN}, [1.677, 1.679, 1.683, 1.636]]),
}


def lost(levels: dict[str, Any], seed: int) -> str:
    """Some runs diverge, one fails, one is missing, one still runs."""
    if levels.get("norm", "rms") != "rms":
        return "done"
    endings = {("gelu", 2): "diverged", ("silu", 3): "failed", ("swiglu", 4): "missing", ("swiglu", 5): "running"}
    return endings.get((levels["ffn"], seed), "done")


def lost_or_done(levels: dict[str, Any], seed: int) -> str:
    return lost(levels, seed).replace("running", "done")


def solving(levels: dict[str, Any], seed: int) -> float:
    """Shares of right answers: nearly all, with one seed of one variant at chance."""
    return 0.02 if (levels["position"], seed) == ("alibi", 3) else 0.985 + 0.001 * (seed % 4)


def longer(levels: dict[str, Any], seed: int) -> float:
    """More steps lower the loss, each seed by another slope."""
    others = {factor: level for factor, level in levels.items() if factor != "train.steps"}
    slope = 0.1 + 0.005 * (seed % 3)
    return plain_score(others, seed) - slope * math.log(levels.get("train.steps", STEPS) / STEPS)


def two_tasks(levels: dict[str, Any], seed: int) -> float:
    score = plain_score(levels, seed)
    return score if levels["data"] == "lm" else 0.9 - 0.1 * (score - 2)


def with_exchange(folder: Path) -> str:
    kinds = {"train.steps": [STEPS, 640, 1000]}
    fabricate(folder, kinds, range(8), longer, study="fabricated-exchange", exchange_of="fabricated")
    margin = {"value": "2 %", "written": "2025-01-01T00:00:00+00:00", "registered": True, "earlier": []}
    options = {"claims": CLAIMS, "margin": margin, "exchange": "fabricated-exchange"}
    return fabricate(folder, {"norm": ["ln", "rms"], "ffn": FFN}, range(8), longer, lost_or_done, **options)


def timed(folder: Path) -> str:
    name = fabricate(folder, GRID, range(5), timing="isolated", every=80)

    def costs(manifest: dict[str, Any]) -> None:
        for i, cell in enumerate(manifest["cells"]):
            cell["flops_per_token"] *= 1 + 4 * (i % 3)
            cell["notes"] = ["of this cell alone"] * (i == 2)

    edit_manifest(folder, name, costs)
    diagnosed(folder, name)
    (folder / "figures.yaml").write_text(f"labels: {json.dumps(SPELLED)}\ncolours: {{ffn: {{swiglu: green}}}}\n")
    return name


def with_tuning(folder: Path) -> str:
    cells = {f"c{i}": {"value": 10.0 ** (i - 3), "scores": [2.2, 2.0 - i / 9, None], "edge": i == 1} for i in range(4)}
    tuning = {"key": "optim.lr", "values": [1e-3, 1e-2, 1e-1], "seeds": 2, "study": "x-tune", "cells": cells}
    name = fabricate(folder, THREE, range(5), design="cumulative", tuning=tuning, match="params")

    def matched(manifest: dict[str, Any]) -> None:
        for i, cell in enumerate(manifest["cells"]):
            quantity = {"quantity": "parameters", "value": 1000 + 9 * i, "reference": 1000, "difference": 0.009 * i}
            cell |= {"config": whole({"ffn": {"hidden": 128 + i}}), "matched": quantity}

    edit_manifest(folder, name, matched)
    return name


def by_rate(levels: dict[str, Any], seed: int) -> float:
    """A loss that rises with the distance from the best learning rate, less in deeper models."""
    distance = abs(math.log(levels["optim.lr"] / 3e-3))
    return plain_score({}, seed) + distance * 0.1 / levels["model.layers"]


def with_lengths(folder: Path) -> str:
    factors = {"position": ["rope", "alibi"], "optim.lr": [1e-3, 3e-3, 1e-2], "model.layers": [2, 4]}

    def status(levels: dict[str, Any], seed: int) -> str:
        is_unstable = levels["optim.lr"] == 1e-2 and levels["position"] == "alibi"
        return "diverged" if is_unstable and seed > 2 else "done"

    name = fabricate(folder, factors, range(5), by_rate, status, batches=lambda levels: levels["position"])
    for run in read_manifest(folder, name).runs:
        file = Run(folder, run.path).evaluation_file
        if file.parent.exists():
            metrics = {f"test/loss@{n}": 2 * (n / 32) ** 3 + 0.01 * run.seed for n in (32, 64, 128)}
            write_json(file, {"metrics": metrics})
    return name


def edit_log(folder: Path, path: str, change: Callable[[dict[str, Any]], None]) -> None:
    """Change each logged step of a run."""
    file = Run(folder, path).metrics_file
    rows = [json.loads(line) for line in file.read_text().splitlines()]
    for row in rows:
        change(row)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def diagnosed(folder: Path, name: str) -> None:
    for run in read_manifest(folder, name).runs:

        def diagnose(row: dict[str, Any], seed: int = run.seed) -> None:
            for depth, key in enumerate(("grad_norm/embed", "grad_norm/blocks.2", "attention_logit/blocks.10")):
                row[f"diag/{key}"] = 30.0**depth + 1 / (1 + row["step"] + seed)

        edit_log(folder, run.path, diagnose)


def solved(folder: Path, solved_at: float | None = None) -> str:
    factors = {"position": ["rope", "alibi", "nope"]}
    batches = {"rope": "b0", "alibi": "b0", "nope": "b1"}
    tasks = {"f0": ACCURACY | {"solved_at": solved_at}}
    name = fabricate(folder, factors, range(6), solving, batches=lambda v: batches[v["position"]], tasks=tasks)
    for run in read_manifest(folder, name).runs:
        step_solved = 200 + 40 * run.seed
        if "-rope-" not in run.path:
            step_solved = 9999 if run.seed % 2 else 400

        def solve(row: dict[str, Any], step_solved: int = step_solved) -> None:
            row["val/accuracy"] = 1.0 if row["step"] >= step_solved else 0.3

        edit_log(folder, run.path, solve)
    return name


def far_off(levels: dict[str, Any], seed: int) -> float:
    return plain_score(levels, seed) + 2.0 * (levels["ffn"] == "v3")


def skewed(levels: dict[str, Any], seed: int) -> float:
    """Most seeds agree, one differs by far more than others do."""
    return plain_score(levels, seed) + (levels["norm"] == "rms") * (0.3 if seed == 6 else 0.001)


def many(folder: Path) -> str:
    margin = {"value": 0.01, "written": "2025-01-01T00:00:00+00:00", "registered": True, "earlier": []}
    factors = {"ffn": [f"v{i}" for i in range(13)], "norm": ["ln", "rms"]}
    return fabricate(folder, factors, range(5), far_off, margin=margin, every=400)


TWO = {"lm": TASK, "mqar": ACCURACY}
RATES = {"optim.weight_decay": [0.0, 0.1, 1.0], "norm": ["ln", "rms"]}
AUTO = {"looks": [5, 8, 12, 20], "at": 8, "max": 20}
SHOWN: dict[str, Callable[[Path], str]] = {
    "exchange": with_exchange,
    "timed": timed,
    "tuning": with_tuning,
    "lengths": with_lengths,
    "solved": solved,
    "looks": lambda at: fabricate(at, {"ffn": FFN}, range(8), status=lost_or_done, every=400, sequential=AUTO),
    "many": many,
    "skewed": lambda at: fabricate(at, {"norm": ["ln", "rms"]}, range(14), skewed),
    "one tuning seed": lambda at: fabricate(at, RATES, [10**6], tunes="other"),
    "alone": lambda at: fabricate(at, {}, range(3)),
    "none ended": lambda at: fabricate(
        at, THREE, range(2), design="cumulative", status=lambda v, s: "diverged" if s else "failed"
    ),
    "one at a time": lambda at: fabricate(at, {"ffn": FFN, "norm": ["ln", "bn"]}, range(5), design="one_at_a_time"),
    "unpaired": lambda at: fabricate(
        at, GRID | {"model.dim": [32, 64]}, range(6), status=lost, every=400, batches=lambda v: v["norm"]
    ),
    "two tasks": lambda at: fabricate(
        at, GRID | {"data": [*TWO]}, range(5), two_tasks, tasks=TWO, task=lambda v: v["data"]
    ),
}


def pages(folder: Path, name: str) -> str:
    """The summary, the tables and the methods paragraph of one of the studies."""
    study = load_study(folder, SHOWN[name](folder))
    case = case_of(study, folder)
    texts = {"summary": summary(study, folder), "methods": methods.markdown(case)}
    texts |= {table.name: tables.markdown(table) for table in tables.tables(case)}
    text = "\n".join(f"######## {title}\n{text}" for title, text in texts.items()) + "\n"
    return text.replace(str(folder), "FOLDER")


if __name__ == "__main__":
    for name in SHOWN:
        with tempfile.TemporaryDirectory() as folder:
            (PAGES / f"{name}.txt").write_text(pages(Path(folder), name), encoding="utf-8")
