"""Placebo runs: the reference cell beside copies of itself in which one part of the randomness is drawn anew."""

import math
from dataclasses import replace
from typing import Any

from ablate.config.errors import Problem
from ablate.config.schema import COMPONENTS, Config
from ablate.model.init import FIXED
from ablate.model.placebo import redrawn
from ablate.planning.describe import cells_of
from ablate.planning.rounds.tuning import summary_of
from ablate.planning.study import CheckedStudy

LEAST = 3  # placebos of a kind; fewer have no spread to speak of
WORDS = {"data": "data in another order", "init": "initialised anew", "chaos": "perturbed by 1e-7"}
KEY = "seed.placebo"
Shapes = dict[str, tuple[str, tuple[int, ...]]]  # of parameters: name -> (role, shape)


def placebo_problems(study: CheckedStudy) -> list[Problem]:
    """What is wrong with `placebo_seeds`."""
    count, seed = study.settings.placebo_seeds, study.settings.seed
    if not count:
        return []
    messages = []
    if count < LEAST:
        message = f"as in placebo_seeds=8: {count} of each kind tell nothing about a spread"
        messages.append(f"must be ≥ {LEAST}, {message}")
    if KEY in study.cells.factors or any(cell.config.seed.placebo for cell in study.cells.checked):
        messages.append(f"sets {KEY} by itself; leave one of them out")
    if None not in (seed.init, seed.data):
        messages.append("seed.init and seed.data are both fixed, so that all its seeds would be one run")
    return [Problem("placebo_seeds", message) for message in messages]


def placebo_study(study: CheckedStudy) -> CheckedStudy:
    """The reference cell of the first stratum and a placebo of each kind, with seeds 0, 1, 2, …"""
    count, (row, plain) = study.settings.placebo_seeds, study.cells.references[0]
    shapes, config = plain.budget.shapes, plain.config.with_value("eval.lengths", [])
    kinds: list[Any] = [None, *kinds_of(list(study.cells.factors), shapes, plain.config)]
    checked = [plain._replace(config=config.with_value(KEY, kind)) for kind in kinds]
    labels = [f"{row.label}, {WORDS.get(kind, f'{kind} drawn anew')}" if kind else row.label for kind in kinds]
    levels, names, at = [{KEY: kind} for kind in kinds], [row.name] * len(kinds), [0] * len(kinds)
    cells = cells_of({KEY: kinds}, {KEY: None}, checked, names, levels, labels, at)
    shares = [shared_draws(kind, shapes, plain.config) for kind in kinds]
    rows = [replace(each, shared_draws=share) for each, share in zip(cells.rows, shares, strict=True)]
    note = f"placebos: {row.label} and {len(kinds) - 1} kinds of placebo × {count} seeds; then: {summary_of(study)}"
    entries, seeds = {"placebo_of": study.base}, list(range(count))
    return study.companion(f"{study.base}-aa", replace(cells, rows=rows), note, entries, seeds=seeds)


def kinds_of(swept: list[str], shapes: Shapes, config: Config) -> list[str]:
    """The swept components of which the model draws something, then data order, initialisation and chaos.

    A half of the randomness that `seed` fixes is no source: all its placebos would be drawn alike.
    """
    keys = [key for name in swept for key in name.split("+")]  # of a zipped factor all
    studied = [key for key in keys if key in COMPONENTS and key != "init" and shared_draws(key, shapes, config) < 1]
    varying = [half for half in ("data", "init") if getattr(config.seed, half) is None]
    return [*(studied if "init" in varying else []), *varying, "chaos"]


def shared_draws(kind: str | None, shapes: Shapes, config: Config) -> float:
    """Share of a model's drawn numbers, and of vectors trained for its seed, that a placebo of a kind has in common
    with the plain run.
    """
    fixed = {*FIXED} - ({"vectors"} if config.embedding.get("shared") is False else set())
    drawn = {name: math.prod(shape) for name, (role, shape) in shapes.items() if role not in fixed}
    return 1 - sum(drawn[name] for name in redrawn(kind, drawn)) / max(1, sum(drawn.values()))
