"""Studies written to a folder as a sweep would leave them, with numbers that a test chooses; nothing is trained."""

import functools
import itertools
import json
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas

from ablate.config.designs import DESIGNS, NOTES
from ablate.config.groups import default_settings
from ablate.config.schema import VARIED
from ablate.config.typed_json import parse, stored
from ablate.runs.files import SEAL, finite, read_json, seal_of
from ablate.runs.folder import Run
from ablate.runs.manifest import flaw, study_folder
from ablate.runs.records import Cell, Manifest, Result
from ablate.runs.study import Study
from ablate.runs.tables import curves_of, in_one_sitting, run_row, speed_of

COMPONENTS = {"norm": "ln", "ffn": "mlp", "residual": "pre", "position": "rope", "attention": "mha", "init": "gpt2"}
STEPS = 800
TASK = {
    "name": "stdlib-3.11",
    "title": "byte LM on stdlib-3.11",
    "kind": "lm",
    "token": "byte",
    "metrics": {"loss": "min"},
    "yardsticks": {"uniform": 5.5452, "unigram": 3.241, "bigram": 2.463},
    "train_tokens": 10_200_000,
}

Levels = dict[str, Any]


def plain_score(levels: Levels, seed: int) -> float:
    """A final loss with an effect of swiglu, noise that seeds share and noise of their own."""
    name = json.dumps(levels, sort_keys=True)
    own = np.random.default_rng([seed, *name.encode()]).normal(0, 0.004)
    shared = np.random.default_rng(seed).normal(0, 0.01)
    return float(2.06 - 0.053 * (levels.get("ffn") == "swiglu") + shared + own)


def always_done(levels: Levels, seed: int) -> str:
    """Every run ended as it should."""
    return "done"


def fabricate(
    results: Path,
    factors: dict[str, list[Any]],
    seeds: Sequence[int] = (0, 1, 2),
    score: Callable[[Levels, int], float | None] = plain_score,
    status: Callable[[Levels, int], str] = always_done,
    every: int = 40,
    **more: Any,
) -> str:
    """Write a study of a design over `factors`, the full grid by default, below `results`, and return its name.

    Runs log every `every` steps.  `status` says done, diverged, failed, missing (nothing on disk) or running (logged
    steps, no result).  `more`: `batches` and `task` of a cell's levels, `study`, `design`, and entries of the manifest;
    with tasks of its own, `task` says which one a cell has, and `score` is of the first metric of that one.
    """
    manifest = _manifest(factors, seeds, **more)
    for planned, cell, final, ending in _ends(manifest, score, status):
        run = Run(results, planned["path"])
        if ending != "missing":
            _log(run, _metric(manifest, cell), planned["seed"], final, ending, every)
        result = _result(manifest, planned, cell, final, ending)
        if result:
            write_json(run.result_file, result)
    write_json(study_folder(results, manifest["study"]) / "manifest.json", manifest)
    return str(manifest["study"])


def study_of(
    factors: dict[str, list[Any]],
    seeds: Sequence[int] = (0, 1, 2),
    score: Callable[[Levels, int], float | None] = plain_score,
    status: Callable[[Levels, int], str] = always_done,
    beside: dict[str, Study] | None = None,
    **more: Any,
) -> Study:
    """What `load_study` reads of the study that `fabricate` writes, without files and without logged steps.

    `beside`: the accompanying studies, by role.
    """
    content = _manifest(factors, seeds, **more)
    manifest = parse(Manifest, json.loads(json.dumps(finite(content), allow_nan=False)))
    assert not flaw(manifest)
    cells = {cell.id: cell for cell in manifest.cells}
    rows = []
    for planned, cell, final, ending in _ends(content, score, status):
        result = _result(content, planned, cell, final, ending)
        record = parse(Result, result) if result else None
        row = planned | {"label": cell["label"]} | run_row(cells[cell["id"]], record, None)
        rows.append(row | speed_of(manifest, record))
    runs, notes = in_one_sitting(pandas.DataFrame(rows))
    order = ["cell", "label", "seed", "status", *factors]
    runs = runs[order + [name for name in runs if name not in order]]
    return Study(manifest, runs, curves_of([]), notes, beside or {})


def _manifest(
    factors: dict[str, list[Any]],
    seeds: Sequence[int],
    batches: Callable[[Levels], str] = lambda levels: "b0",
    task: Callable[[Levels], str] = lambda levels: "f0",
    study: str = "fabricated",
    design: str = "grid",
    **entries: Any,
) -> dict[str, Any]:
    """The manifest of a study, as JSON has it."""
    components = [name for name in factors if name in COMPONENTS]
    compared = components if components and design in ("grid", "ladder") else factors
    last = -1 if design == "leave_one_out" else 0
    reference = {name: levels[last] for name, levels in factors.items() if name in compared}
    base = tuple(levels.index(levels[last]) for levels in factors.values())
    combinations = DESIGNS[design]([len(levels) for levels in factors.values()], base)
    cells = []
    for number, places in enumerate(combinations):
        levels = {name: factors[name][place] for name, place in zip(factors, places, strict=True)}
        cells.append(_cell(number, levels, reference, batches, task))
    if design == "cumulative":
        for before, cell in itertools.pairwise(cells):
            [level] = [level for name, level in cell["levels"].items() if before["levels"][name] != level]
            cell["label"] = f"+ {level}"
    runs = []
    for cell in cells:
        runs += [{"cell": cell["id"], "seed": seed, "path": f"{cell['name']}/s{seed}-{study}"} for seed in seeds]
    typed = " ".join(f"{name}={','.join(map(str, levels))}" for name, levels in factors.items())
    return {
        "study": study,
        "created": "2025-01-01T00:00:00+00:00",
        "updated": "2025-01-01T00:00:00+00:00",
        "command": f"ablate -m {typed}",
        "versions": {"ablate": "0.1.0", "python": "3.11.4", "torch": "2.6.0"},
        "design": design,
        "zip": [],
        "remarks": [NOTES[design]] if design in NOTES else [],
        "factors": factors,
        "components": components,
        "reference": reference,
        "claims": {},
        "seeds": list(seeds),
        "confirms": None,
        "looks": [],
        "tasks": {"f0": TASK},
        "cells": cells,
        "runs": runs,
        **entries,
    }


def _ends(
    manifest: dict[str, Any], score: Callable[[Levels, int], float | None], status: Callable[[Levels, int], str]
) -> Iterator[tuple[dict[str, Any], dict[str, Any], float | None, str]]:
    """Each planned run with its cell, its score and how it ended."""
    cells = {cell["id"]: cell for cell in manifest["cells"]}
    for run in manifest["runs"]:
        levels = cells[run["cell"]]["levels"]
        final = score(levels, run["seed"])
        yield run, cells[run["cell"]], None if final is None else float(final), status(levels, run["seed"])


def _metric(manifest: dict[str, Any], cell: dict[str, Any]) -> str:
    """The first metric of a cell's task, or of the only task."""
    tasks = manifest["tasks"]
    task = tasks.get(cell["task"]) or next(iter(tasks.values()))
    return str(next(iter(task["metrics"])))


def _result(
    manifest: dict[str, Any], run: dict[str, Any], cell: dict[str, Any], final: float | None, status: str
) -> dict[str, Any] | None:
    """What the result file of a run holds; None if it has none."""
    if status in ("missing", "running"):
        return None
    errors = {
        "diverged": {"type": "Diverged", "message": "val/loss 7.1 is above 1.1 x its first value", "traceback": ""},
        "failed": {"type": "RuntimeError", "message": "shapes do not fit\nsecond line", "traceback": "Traceback ..."},
    }
    metrics = {f"{split}/{_metric(manifest, cell)}": final for split in ("test", "val", "train")}
    result = {
        "status": status,
        "final": metrics if status == "done" else {},
        "steps": STEPS if status == "done" else STEPS // 2,
        "params": cell["params"],
        "error": errors.get(status),
    }
    if manifest.get("timing") == "isolated" and status != "failed":
        place = manifest["cells"].index(cell)
        seconds = float(0.02 + 2e-3 * place + np.random.default_rng([run["seed"], place]).normal(0, 1e-5))
        result |= {"timing": "isolated", "sitting": "here", "step_seconds": seconds}
    return result


def write_json(path: Path, content: dict[str, Any]) -> None:
    """A file as `ablate.runs.files.write_json` writes it, without waiting for the disk."""
    plain = json.loads(json.dumps(finite(content), allow_nan=False))
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(plain | {SEAL: seal_of(plain)}, ensure_ascii=False), encoding="utf-8")


def draw_effects_alone(results: Path, study: str = "fabricated") -> None:
    """Have the analysis of a study draw one figure: all of them take seconds."""
    folder = results / "figures" / study
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "figures.yaml").write_text("subset: {figures: [effects]}\n")


def _cell(
    number: int, levels: Levels, reference: Levels, batches: Callable[[Levels], str], task: Callable[[Levels], str]
) -> dict[str, Any]:
    config = whole()
    for key, level in levels.items():
        group, _, name = key.partition(".")
        if group in COMPONENTS and not name:
            config[group] = level
        elif group in (*COMPONENTS, "data") or name in config.get(group, ()):
            config[group] |= {name or "name": level}  # a level of `data` is a variant whose settings are the group's
    return {
        "id": f"c{number}",
        "name": re.sub(r"[/\\]", "_", "-".join(str((COMPONENTS | levels)[name]) for name in COMPONENTS)) + f"-{number}",
        "label": " + ".join(map(str, levels.values())) or "reference",
        "levels": levels,
        "reference": all(levels[name] == level for name, level in reference.items()),
        "params": 123_456 + 100 * number,
        "flops_per_token": 250_000,
        "params_vs_reference": 100 * number / 123_456,
        "shared_draws": 1.0,
        "matched": None,
        "tokens_per_step": 16 * config["data"]["context"],
        "batches": batches(levels),
        "task": task(levels),
        "notes": ["bn: training statistics see the future of the batch"] if levels.get("norm") == "bn" else [],
        "config": config,
    }


def _log(run: Run, metric: str, seed: int, final: float | None, status: str, every: int) -> None:
    run.folder.mkdir(parents=True)
    last = STEPS if status == "done" else STEPS // 2
    with open(run.metrics_file, "w") as file:
        for step in range(0, last + 1, every):
            row = _logged(step, seed, 2.06 if final is None else final, status, last)
            file.write(json.dumps({key.replace("loss", metric): value for key, value in row.items()}) + "\n")


def _logged(step: int, seed: int, final: float, status: str, last: int) -> dict[str, Any]:
    falling = final + (5.55 - final) * float(np.exp(-step / 90)) + 0.3 * float(np.exp(-step / 300))
    burst = 5.0 if status == "diverged" and step > 0.8 * last else 0.0
    alive = falling + _wobble(seed, step) + burst - 0.3 * float(np.exp(-8 / 3))
    loss = None if status == "diverged" and step == last else alive
    row = {"step": step, "tokens": step * 1024, "seconds": step / 50, "val/loss": loss}
    return row | ({"test/loss": final} if status == "done" and step == last else {})


@functools.cache
def _wobble(seed: int, step: int) -> float:
    """Noise of a logged loss, the same in every cell."""
    return float(np.random.default_rng([seed, step]).normal(0, 0.01))


def whole(*sections: dict[str, dict[str, Any]]) -> dict[str, Any]:
    """A configuration as files hold it, with these settings in some of its sections."""
    config: dict[str, Any] = {
        **{group: {} if group in COMPONENTS else default_settings(group) for group in VARIED},
        "model": {"_target_": "", "layers": 4, "heads": 4, "dim": 64, "dropout": 0.0, "tie_embeddings": True},
        "data": {"context": 64},
        "train": {"steps": STEPS, "batch_size": 16, "eval_every": 50, "log_every": 10, "checkpoint_seconds": 15.0},
        "optim": {"_target_": "", "lr": 1e-3, "betas": None, "weight_decay": 0.0, "grad_clip": 1.0, "warmup": 0},
        "eval": {"tokens": 1024, "val_share": 1.0, "lengths": [64, 128]},
        "timing": "shared",
        "seed": {},
        "tune": {"seeds": 2},
        "seeds_max": 20,
        "match": "none",
        "design": "grid",
        "results_dir": "results",
        "reuse": "same",
        "keep": "weights",
    }
    config["model"] |= dict.fromkeys(("scale_embeddings", "norm_embeddings", "share_layers"), False)
    config["model"] |= {"head_dim": None, "share_embeddings": True, "soft_cap": None}
    config["train"] |= {"device": "cpu", "precision": "fp32", "compile": False, "average": "none"}
    config["train"] |= {"diagnostics": False, "matmul": "torch"}
    config["optim"] |= {"min_lr_ratio": 0.1}
    for section in sections:
        for name, values in section.items():
            config[name] = config.get(name, {}) | values
    return config


def a_manifest(**fields: Any) -> Manifest:
    """A manifest with these fields, and nothing in those that every manifest has."""
    empty: dict[str, Any] = {"study": "fabricated", "factors": {}, "reference": {}, "tasks": {}}
    empty |= {"components": [], "seeds": [], "looks": [], "cells": [], "runs": []}
    return Manifest(**(empty | fields))


def a_cell(**fields: Any) -> Cell:
    """A cell with these fields, and next to nothing in those that every cell has."""
    bare = {"name": "cell", "label": "cell", "levels": {}, "reference": False, "params": 1, "flops_per_token": 1}
    return Cell(**(bare | {"id": "c0", "batches": "b0", "task": "f0", "config": stored(whole())} | fields))


def with_manifest(study: Study, **fields: Any) -> Study:
    """The study with other fields of its manifest."""
    return replace(study, manifest=replace(study.manifest, **fields))


def with_cells(study: Study, change: Callable[[int, Cell], dict[str, Any]]) -> Study:
    """The study with other fields of its cells: `change` says which, by a cell's place."""
    cells = [replace(cell, **change(i, cell)) for i, cell in enumerate(study.manifest.cells)]
    return with_manifest(study, cells=cells)


def edit_json(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change what a JSON file holds, in place."""
    content = read_json(file)
    change(content)
    write_json(file, content)


def edit_manifest(results: Path, study: str, change: Callable[[dict[str, Any]], object]) -> None:
    """Change the JSON of a study's manifest, in place."""
    edit_json(study_folder(results, study) / "manifest.json", change)
