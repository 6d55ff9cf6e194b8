"""Which tuning seeds choose for which scored seeds: the same few for all, or with `tune.per_seed` some of their own."""

from __future__ import annotations

from ablate import formatting
from ablate.config.errors import Problem
from ablate.config.schema import TUNING_SEEDS, Tune
from ablate.planning.earlier_runs import choose_seeds, read_earlier
from ablate.planning.study import CheckedStudy

Shares = dict[int | None, list[int]]  # scored seed, None for all together -> tuning seeds


def tuning_name(study: CheckedStudy) -> str:
    """The study that tuning is for: a confirmation is tuned anew where each seed is."""
    return study.name if study.settings.tune.per_seed else study.base


def seeds_of(study: CheckedStudy) -> Shares:
    """The tuning seeds of each scored seed: seed s has numbers s · n to s · n + n − 1, so that more seeds move none."""
    tune = study.settings.tune
    count = tune.seeds
    if not tune.per_seed:
        return {None: list(TUNING_SEEDS[:count])}
    return {seed: list(TUNING_SEEDS[seed * count : (seed + 1) * count]) for seed in scored_seeds(study)}


def scored_seeds(study: CheckedStudy) -> list[int]:
    """The seeds that the study will score, those of earlier looks included."""
    earlier = read_earlier(study.results, tuning_name(study))
    return sorted({*choose_seeds(study, earlier), *(seed for look in earlier.looks for seed in look.seeds)})


def share_problems(study: CheckedStudy) -> list[Problem]:
    """What does not go with `tune.per_seed`."""
    settings, tune = study.settings, study.settings.tune
    if not tune.per_seed:
        return []
    if settings.seeds == "auto":
        message = "tunes for seeds that are known beforehand, and seeds=auto counts them later; write seeds=8"
        return [Problem("tune.per_seed", message)]
    beside = [key for key in ("placebo_seeds", "step_equivalents") if getattr(settings, key)]
    found = [Problem(key, "takes one value for all seeds; leave it out, or tune.per_seed") for key in beside]
    if str(tune.key).partition(".")[0] != "optim":
        told = f"{tune.key} would make each seed another model; it goes with keys of optim, such as optim.lr"
        found.append(Problem("tune.per_seed", told))
    largest = len(TUNING_SEEDS) // tune.seeds - 1
    if max(scored_seeds(study)) > largest:
        found.append(Problem("tune.per_seed", f"has tuning seeds for seeds up to {largest:,}; write smaller ones"))
    return found


def cost(tune: Tune, shares: Shares, cells: int) -> str:
    """What tuning anew for each seed costs; nothing where it is done once."""
    if not tune.per_seed:
        return ""
    runs = f"{formatting.counted(cells * tune.seeds * len(shares), 'run')}, {len(shares)} times the cost of tuning once"
    return f" for each of {formatting.counted(len(shares), 'scored seed')} ({runs})"
