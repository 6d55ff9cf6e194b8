"""The values that a key is tuned over, how a grid goes on, and which tuning seeds choose for which scored seeds."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any, get_type_hints

from ablate.config.compose import writable
from ablate.config.schema import SECTIONS, TUNING_SEEDS
from ablate.formatting.settings import is_number
from ablate.planning.earlier_runs import choose_seeds, read_earlier
from ablate.planning.study import CheckedStudy

Shares = dict[int | None, list[int]]  # scored seed, None for all together -> tuning seeds

LIMIT = 4  # values by which a grid is extended, on each side


def typed_values(key: str, values: list[Any]) -> list[Any]:
    """The values as the key's type has them; those of components as they are.  Raises ValueError."""
    section, _, name = key.partition(".")
    if section not in SECTIONS:
        return list(values)
    from omegaconf import OmegaConf
    from omegaconf.errors import OmegaConfBaseException

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
