"""The sentences of a methods paragraph about training: model, data, optimiser, machine.  All from configurations."""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pandas

from ablate import format
from ablate.config.depth import is_patterned, spelled, variants_of
from ablate.config.schema import LAYERS
from ablate.format import listed, ranged
from ablate.results.records import Cell, Manifest
from ablate.results.speed import is_timed
from ablate.results.tables import planned_cells
from analysis.case import Case
from analysis.writing.bibliography import mention

PARTS = ("norm", "ffn", "residual", "position", "attention", "init")
FALLS = {
    "Cosine": "falls by a cosine to {} of that",
    "Linear": "falls linearly to {} of that",
    "Constant": "stays there",
    "WSD": "stays there until, over the last {decay} of the steps, it falls to {} of that",
}


def model(case: Case) -> Iterator[str]:
    """Form, shape and size of the models, and the components that all of them share."""
    cells = [cell for cell in case.study.manifest.cells if cell.config.known]
    if not cells:
        return
    form = listed(sorted({_spoken(_class(cell.config.model)) for cell in cells}))
    shape = [f"{configured(cells, 'model', 'layers')} layers", f"{configured(cells, 'model', 'heads')} heads"]
    shape.append(f"width {configured(cells, 'model', 'dim')}")
    sizes = dict.fromkeys(format.size(count) for count in sorted(cell.params for cell in cells))
    dropout = configured(cells, "model", "dropout")
    extra = f", dropout {dropout}" * (dropout not in ("", "0"))
    papers = mention(case.study.manifest, "model", "preset")
    size = ranged(list(sizes))
    yield f"The models are {f'{form} Transformers'.strip()}{papers} of {listed(shape)}, with {size} parameters{extra}."
    shared = [part for part in PARTS if _shared(case.study.manifest, cells, part)]
    common = {part: _class(getattr(cells[0].config, part)) for part in shared}
    named = [f"{part} {name}{mention(case.study.manifest, part)}" for part, name in common.items() if name]
    if named:
        yield f"All cells share {listed(named)}."


def _shared(manifest: Manifest, cells: list[Cell], part: str) -> bool:
    """Whether all cells have the same component, but for what factors and matching set in it."""
    chosen = [key for factor in manifest.factors for key in factor.split("+")] + ["ffn.hidden"]
    own = {key.partition(".")[2] for key in chosen if key.startswith(f"{part}.")}
    nodes = [getattr(cell.config, part) for cell in cells]
    bare = [{k: v for k, v in node.items() if k not in own} if isinstance(node, dict) else node for node in nodes]
    return all(node == bare[0] for node in bare)


def data(case: Case) -> Iterator[str]:
    """The tasks by name and fingerprint."""
    tasks = case.study.manifest.tasks
    if not case.study.manifest.source:
        named = [f"{task.title} (fingerprint {key[:12]})" for key, task in tasks.items()]
        many, papers = len(named) > 1, mention(case.study.manifest, "data")
        yield f"The task{'s are' if many else ' is'} {listed(named)}{papers}."


def loop(case: Case) -> Iterator[str]:
    """Steps, batches, optimiser and schedule."""
    manifest = case.study.manifest
    cells = [cell for cell in planned_cells(manifest) if cell.config.known]
    if not cells:
        return
    counts = sorted({cell.tokens_per_step for cell in cells if cell.tokens_per_step})
    tokens = ranged([f"{count:,}" for count in counts])
    seen = ranged(list(dict.fromkeys(format.passes(_passes(manifest, cell)) for cell in cells)))
    steps, batch = configured(cells, "train", "steps"), configured(cells, "train", "batch_size")
    precision, ways = configured(cells, "train", "precision"), listed(_ways(cells))
    taken = f"A run takes {steps} steps of {batch} examples ({tokens} positions a step, {seen})"
    yield taken + f" in {precision}" * bool(precision) + f" {ways}" * bool(ways) + "."
    if optimiser := _optimiser(cells, mention(manifest, "optim")):
        yield f"The optimiser is {optimiser}."
    peak, warmup, floor = (configured(cells, "optim", key) for key in ("lr", "warmup", "floor"))
    schedule = cells[0].config.schedule
    shortest = min(cell.config.train.steps for cell in cells)
    if any(cell.config.optim.warmup >= shortest for cell in cells):
        yield f"The learning rate rises linearly towards {peak}, which it would reach after {warmup} steps."
    elif peak and all(cell.config.schedule == schedule for cell in cells) and _class(schedule) in FALLS:
        rise = f"rises linearly over {warmup} steps to {peak}" if warmup not in ("", "0") else f"starts at {peak}"
        yield f"The learning rate {rise} and {FALLS[_class(schedule)].format(floor, decay=schedule.get('decay'))}."
    averages = {cell.config.train.average for cell in cells} - {"none"}
    if averages:
        yield f"What is measured is an average of the weights ({', '.join(sorted(averages))})."


def _ways(cells: list[Cell]) -> list[str]:
    """How all models are computed, where it is not as torch does by itself."""
    trained = [cell.config.train for cell in cells]
    onednn = all(train.products == "onednn" for train in trained)
    return ["with products by oneDNN"] * onednn + ["with compiled models"] * all(train.compile for train in trained)


def _optimiser(cells: list[Cell], papers: str) -> str:
    name = listed(sorted({_class(cell.config.optim) for cell in cells}))
    betas, decay, clip = (configured(cells, "optim", key) for key in ("betas", "weight_decay", "clip"))
    named = {"betas": betas, "weight decay": decay, "gradients clipped at norm": clip}
    settings = [f"{key} {value}" for key, value in named.items() if value]
    return ", ".join([name + papers, *settings]) if name else ""


def machine(case: Case) -> Iterator[str]:
    """Device, versions, commit and what the runs took, as far as they say."""
    runs, manifest = case.study.runs, case.study.manifest
    known = {name: distinct(runs, name) for name in ("device", "torch", "commit")}
    python = manifest.versions.get("python")
    if known["device"]:
        with_torch = f" with PyTorch {ranged(known['torch'])}" if known["torch"] else ""
        with_python = f" and Python {python}" if python and with_torch else ""
        yield f"The runs were trained on {listed(known['device'])}{with_torch}{with_python}."
    if known["commit"]:
        changed = " with changes that were not committed" * bool(runs["dirty"].fillna(False).astype(bool).any())
        commits = listed(commit[:12] for commit in known["commit"])
        theirs = sorted(
            {top for cell in manifest.cells for top in _packages(cell.config.as_json())} - {"ablate", "torch"}
        )
        beside = f", beside {listed(theirs)}, whose version is not recorded" if theirs else ""
        yield f"The code is that of commit{'s' * (len(known['commit']) > 1)} {commits}{changed}{beside}."
    if "seconds" in runs and runs["seconds"].notna().any():
        took = format.duration(float(runs["seconds"].sum()))
        speed = "" if is_timed(manifest) else "; speed is not compared"
        yield f"Training and evaluation took {took} in sum over runs{_compute(case)}{speed}."
    if is_timed(manifest):
        yield (
            "Runs were trained one at a time, the cells of a seed in turn, every other seed backwards; seconds of a "
            "training step are means after the first few steps, without evaluations and compiling."
        )


def _packages(config: Any) -> set[str]:
    """The packages at the top that a configuration's `_target_`s are from."""
    inner = config.items() if isinstance(config, dict) else ()
    own = {str(value).partition(".")[0] for key, value in inner if key == "_target_"}
    return own.union(*(_packages(value) for _, value in inner))


def _compute(case: Case) -> str:
    """Forward FLOPs of training of all runs that ended as done."""
    cells = {cell.id: cell for cell in case.study.manifest.cells}
    done = case.study.runs[case.study.runs["status"] == "done"]["cell"].map(cells)
    amounts = [
        cell.flops_per_token * (cell.tokens_per_step or 0) * cell.config.train.steps
        for cell in done
        if cell.flops_per_token and cell.config.known
    ]
    return f", {format.setting(float(f'{sum(amounts):.1e}'))} forward FLOPs of training" if amounts else ""


def _passes(manifest: Manifest, cell: Cell) -> float | None:
    tokens = manifest.tasks[cell.task].train_tokens
    seen = cell.config.train.steps * (cell.tokens_per_step or math.nan)
    return None if tokens is None else float(seen / tokens)


def configured(cells: Iterable[Cell], section: str, key: str) -> str:
    """A setting of all cells: its value, or all that there are; nothing where no cell has it."""
    found = {str(value): value for cell in cells if (value := getattr(getattr(cell.config, section), key)) is not None}
    values: list[Any] = list(found.values())
    if all(isinstance(value, int | float) for value in values):
        values.sort()
    return ranged([listed(map(format.setting, value if isinstance(value, list) else [value])) for value in values])


def _class(node: Any) -> str:
    """The class of a part, RMSNorm, or those of its variants and how they follow each other, Window and MHA
    (5window+mha); nothing where none is known.
    """
    if is_patterned(node):
        return f"{listed(map(_class, variants_of(node)))} ({spelled(node[LAYERS])})"
    target = node.get("_target_", "") if isinstance(node, dict) else getattr(node, "_target_", "")
    return str(target).rpartition(".")[2]


def _spoken(name: str) -> str:
    """A class as a word: encoder-decoder; an acronym stays as it is."""
    return name if name.isupper() else re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower()


def distinct(runs: pandas.DataFrame, column: str) -> list[str]:
    """The different values of a column that runs may not have."""
    return [str(value) for value in runs[column].dropna().unique()] if column in runs else []
