"""Which keys can be tuned, over which values: what is wrong with the `tune` keys, before anything trains."""

from __future__ import annotations

import dataclasses
import json
import shlex
from typing import Any

from ablate import formatting
from ablate.config.errors import Problem
from ablate.config.schema import COMPONENTS, TUNING_SEEDS, WHOLE, Config
from ablate.config.study_keys import CHOSEN
from ablate.formatting.settings import flat, is_number
from ablate.formatting.suggest import nearest
from ablate.planning.earlier_runs import read_earlier
from ablate.planning.rounds.tuning_grid import scored_seeds, typed_values
from ablate.planning.study import CheckedStudy
from ablate.results.records import Manifest, Tune

UNSCORED = ("eval", "data", "seed")  # sections that change what is scored, or by which draws


def tuning_problems(study: CheckedStudy) -> list[Problem]:
    """What is wrong with the `tune` keys, given the cells of a study and what is on disk of it."""
    tune, earlier = study.settings.tune, read_earlier(study.results, study.base).manifest
    if tune.key is None:
        if tune.values or tune.extend or tune.per_seed:
            return [Problem("tune.key", "is not given; write the key that is tuned, as in tune.key=optim.lr")]
        if earlier and earlier.tuning:
            message = f"{study.base} was tuned ({earlier.tuning.key}); give the same tune.key and tune.values"
            return [Problem("study", f"{message}, or write another name")]
        return []
    if found := key_problems(study, tune.key):
        return found
    found = value_problems(study, tune.key)
    if tune.seeds > len(TUNING_SEEDS):
        found.append(Problem("tune.seeds", f"{tune.seeds} are too many; write a handful"))
    return found + per_seed_problems(study) or changed_tuning(study, earlier)


def key_problems(study: CheckedStudy, key: str) -> list[Problem]:
    """Why a key cannot be tuned."""
    section, match = key.split(".")[0], study.settings.match
    typed = [word.partition("=")[0].lstrip("+") for word in shlex.split(study.command)]
    lacking = [label for label, raw in zip(study.cells.labels, study.cells.raw, strict=True) if not has(raw, key)]
    message = ""
    if not key:
        message = "is empty; write the key to tune, as in tune.key=optim.lr, or leave it out"
    elif section in WHOLE:
        message = f"{key} belongs to the whole study; tune a key of the model or of training, such as optim.lr"
    elif section == "train":
        message = f"{key} is part of the budget, which all values share; tune a key of the model or of optim"
    elif section in UNSCORED:
        message = f"{key} changes what is scored; tune a key of the model or of training, such as optim.lr"
    elif key in COMPONENTS or isinstance(study.cells.raw[0].as_json().get(key), dict):
        message = f"{key} is a group; sweep it ({key}=...), or tune one of its keys, such as {key}.KEY"
    elif key in study.cells.factors:
        message = f"{key} is swept already; leave it out of the sweep, or out of tune.key"
    elif key in typed:
        message = f"{key} is given, too, and tuning chooses it for each cell; leave {key}=... out"
    elif key in CHOSEN.get(match, ()):
        message = f"match={match} chooses {key} for each cell; tune another key, or write match=none"
    elif match == "seconds" and section != "optim":
        message = f"{key} may change what a step takes, which match=seconds holds equal; tune a key of optim"
    elif len(lacking) == len(study.cells.rows):
        known = {name for raw in study.cells.raw for name in flat(raw.as_json())}
        near = nearest(key, (name for name in known if "._" not in name))  # targets are no settings
        message = f"no such key: {key}; " + (f"did you mean {near}?" if near else "see ablate --help")
    elif lacking:
        message = f"{lacking[0]} has no {key}; tune a key that every cell has"
    return [Problem("tune.key", message)] if message else []


def value_problems(study: CheckedStudy, key: str) -> list[Problem]:
    """What is wrong with the values of a key that can be tuned."""
    tune = study.settings.tune
    try:
        values = typed_values(key, tune.values)
    except ValueError as error:
        return [Problem("tune.values", str(error))]
    if len({json.dumps(value) for value in values}) < max(2, len(values)):
        example = f"tune.key={key} tune.values=[1e-3,3e-3,1e-2]"
        return [Problem("tune.values", f"{tune.values} must be at least two different values, as in {example}")]
    if tune.extend and not all(is_number(value) and value > 0 for value in values):
        return [Problem("tune.extend", "goes on by the ratio of the outermost two values, which must be numbers > 0")]
    return []


def per_seed_problems(study: CheckedStudy) -> list[Problem]:
    """What does not go with `tune.per_seed`."""
    settings, tune = study.settings, study.settings.tune
    if not tune.per_seed:
        return []
    if settings.seeds == "auto":
        message = "tunes for seeds that are known beforehand, and seeds=auto counts them later; write seeds=8"
        return [Problem("tune.per_seed", message)]
    shared = [key for key in ("placebo_seeds", "step_equivalents") if getattr(settings, key)]
    found = [Problem(key, "takes one value for all seeds; leave it out, or tune.per_seed") for key in shared]
    if str(tune.key).partition(".")[0] != "optim":
        message = f"{tune.key} would make each seed another model; it goes with keys of optim, such as optim.lr"
        found.append(Problem("tune.per_seed", message))
    largest = len(TUNING_SEEDS) // tune.seeds - 1
    if max(scored_seeds(study)) > largest:
        found.append(Problem("tune.per_seed", f"has tuning seeds for seeds up to {largest:,}; write smaller ones"))
    return found


def changed_tuning(study: CheckedStudy, earlier: Manifest | None) -> list[Problem]:
    """Refuse a name under which other tuning, or none, has been scored: its cells would be replaced after a look."""
    before = read_earlier(study.results, f"{study.tuning_name}-tune").manifest
    known = before.tune if before else None
    if known and known != Tune(**dataclasses.asdict(study.settings.tune)):
        was = f"{known.key} in {', '.join(map(formatting.show, known.values))}, {known.seeds} seeds"
        was += ", tune.extend=true" * known.extend + ", tune.per_seed=true" * known.per_seed
        return [
            Problem("tune", f"{study.base} was tuned otherwise ({was}); tune as before, or write another study=NAME")
        ]
    if earlier and not earlier.tuning:
        return [Problem("tune", f"{study.base} was trained without tuning; write another study=NAME")]
    return []


def has(config: Config, key: str) -> bool:
    """Whether a configuration has a setting."""
    *path, last = key.split(".")
    node: Any = config.as_json()
    for part in path:
        node = node.get(part) if isinstance(node, dict) else None
    return isinstance(node, dict) and last in node and not last.startswith("_")
