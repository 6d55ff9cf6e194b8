"""Which keys can be tuned, over which values, and which tuning seeds choose for which scored seeds."""

import dataclasses
import json
import math
import shlex
from collections.abc import Iterable, Sequence
from typing import Any, get_type_hints

from ablate import formatting
from ablate.config.errors import Problem
from ablate.config.key_checks import CHOSEN
from ablate.config.schema import COMPONENTS, SECTIONS, TUNING_SEEDS, WHOLE, Config
from ablate.formatting import flat, is_number, nearest
from ablate.planning.earlier_runs import choose_seeds, read_earlier
from ablate.planning.study import CheckedStudy
from ablate.results.records import Manifest, Tune

Shares = dict[int | None, list[int]]  # scored seed, None for all together -> tuning seeds

LIMIT = 4  # values by which a grid is extended, on each side


def typed_values(key: str, values: list[Any]) -> list[Any]:
    """The values as the key's type has them; those of components as they are.  Raises ValueError."""
    section, _, name = key.partition(".")
    if section not in SECTIONS:
        return list(values)
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

    from ablate.config.compose import writable  # loads Hydra

    typed, hint = [], str(get_type_hints(SECTIONS[section])[name])
    for value in values:
        node = writable(SECTIONS[section])
        try:
            if isinstance(value, bool) and "bool" not in hint:  # a number, to OmegaConf
                raise ValueError
            OmegaConf.update(node, name, value)
            typed.append(OmegaConf.to_container(node)[name])  # type: ignore[index, call-overload]
        except (OmegaConfBaseException, ValueError):
            raise ValueError(f"{value!r} is not a value of {key}") from None
    return typed


def choose(scores: Sequence[float | None], lower: bool) -> int:
    """Index of the best score, the first of equal ones; None, of a value with a diverged run, is worse than any."""
    ranked = [math.inf if score is None else score if lower else -score for score in scores]
    return min(range(len(ranked)), key=lambda i: (scores[i] is None, ranked[i], i))


def at_edge(grid: Sequence[Any], i: int) -> bool:
    """Whether a value is the smallest or the largest of its grid; values that are no numbers have no order."""
    return all(map(is_number, grid)) and grid[i] in (min(grid), max(grid))


def extended(grid: list[Any], given: Sequence[Any], best: Iterable[int]) -> list[Any]:
    """The grid with one more value on each side where a best value lies, by the ratio of the outermost two there.

    Values to three digits, whole ones stay whole; at most LIMIT values beyond the given ones on each side.
    """
    chosen, wider = {grid[i] for i in best}, list(grid)
    for outer, inner in ((0, 1), (-1, -2)):
        ordered = sorted(grid)
        end, ratio = ordered[outer], ordered[outer] / ordered[inner]
        added = sum(value < min(given) if outer == 0 else value > max(given) for value in grid)
        new: float = float(f"{end * ratio:.3g}")
        if all(isinstance(value, int) for value in grid):
            new = round(new)
        if end in chosen and added < LIMIT and new > 0 and new not in grid:
            wider.append(new)
    return wider


def starting_grid(study: CheckedStudy) -> list[Any]:
    """The values to try first: those given, with what earlier commands have added."""
    tune = study.settings.tune
    given, earlier = typed_values(str(tune.key), tune.values), read_earlier(study.results, f"{study.tuning_name}-tune")
    known = earlier.manifest.factors.get(str(tune.key), []) if earlier.manifest else []
    return known if tune.extend and known[: len(given)] == given else given


def seeds_of(study: CheckedStudy) -> Shares:
    """The tuning seeds of each scored seed: seed s has numbers s · n to s · n + n − 1, so that more seeds move none."""
    count = study.settings.tune.seeds
    if not study.settings.tune.per_seed:
        return {None: list(TUNING_SEEDS[:count])}
    return {seed: list(TUNING_SEEDS[seed * count : (seed + 1) * count]) for seed in scored_seeds(study)}


def scored_seeds(study: CheckedStudy) -> list[int]:
    """The seeds that the study will score, those of earlier looks included."""
    earlier = read_earlier(study.results, study.tuning_name)
    return sorted({*choose_seeds(study, earlier), *(seed for look in earlier.looks for seed in look.seeds)})


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
