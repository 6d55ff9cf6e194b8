"""The keys that belong to a whole study and to no cell of it: what is wrong with them."""

import os
import re
import tempfile
from collections.abc import Set
from pathlib import Path
from typing import Any

from ablate.config.errors import Problem
from ablate.config.margin import wrong_margin
from ablate.config.schema import BY_STEPS, MOST_SEEDS, TUNING_SEEDS, Config

# The keys that each way of matching chooses for a cell.
CHOSEN = dict.fromkeys(("params", "flops"), ("ffn.hidden", "ffn.mult")) | dict.fromkeys(BY_STEPS, ("train.steps",))
TAKEN = ("export", "verify", "gallery")  # commands of `ablate analyse`, which takes a study's name in the same place
SEEDS = "must be a number of seeds, a list of them, or auto: seeds=5, seeds=[3,7], seeds=auto"


def study_problems(config: Config) -> list[Problem]:
    """Problems of the keys that belong to the study and not to a cell."""
    seeds = config.seeds
    found = [Problem("seeds", wrong)] if (wrong := _wrong_seeds(seeds, config.confirm)) else []
    found += [Problem("study", wrong)] if (wrong := _wrong_name(config.study)) else []
    one = seeds == 1 or (_is_seed_list(seeds) and len(seeds) == 1)
    if None not in (config.seed.init, config.seed.data) and not one:
        found.append(Problem("seed", "init and data are both fixed, so all seeds would be one run; write seeds=1"))
    if wrong := wrong_margin(config.margin, config.step_equivalents):
        found.append(Problem("margin", wrong))
    folder = Path(config.results_dir).absolute()
    while not os.path.lexists(folder):
        folder = folder.parent
    if not folder.is_dir():
        found.append(Problem("results_dir", f"{folder} is not a folder; write another results_dir"))
    elif not config.dry_run:
        try:
            tempfile.TemporaryFile(dir=folder).close()  # asking for permission says little to root, or of a full disk
        except OSError as error:
            found.append(Problem("results_dir", f"{folder} cannot be written ({error.strerror}); write another one"))
    return found


def _wrong_seeds(seeds: Any, confirm: int | None) -> str | None:
    """What is wrong with the seeds of a study, if anything."""
    if seeds == "auto":
        message = "auto and confirm do not go together: fresh seeds are counted beforehand; leave seeds=auto out"
        return message if confirm else None
    if isinstance(seeds, list) and len(set(map(str, seeds))) < len(seeds):
        return f"{seeds} has a seed twice; write each once"
    if isinstance(seeds, bool) or not (isinstance(seeds, int) or _is_seed_list(seeds)):
        return f"{SEEDS}; not {seeds!r}"
    if isinstance(seeds, int) and seeds < 1:
        return f"must be ≥ 1, not {seeds}"
    if (seeds if isinstance(seeds, int) else len(seeds)) > MOST_SEEDS:
        return f"must be at most {MOST_SEEDS:,} seeds"
    if isinstance(seeds, list) and any(seed in TUNING_SEEDS for seed in seeds):
        return f"{TUNING_SEEDS.start} and above are tuning's, and never scored; write smaller ones"
    return None


def _wrong_name(name: str | None) -> str | None:
    """What is wrong with the name of a study, if anything; None is no name."""
    if name in TAKEN or (name or "").startswith("-"):
        why = "is a command" if name in TAKEN else "begins as an option does"
        return f"{name!r} {why}, so that ablate analyse would not take it for a study; write another name"
    if name is not None and not re.fullmatch(r"(?=.*\w)[\w.-]{1,100}", name):
        return f"{name!r} cannot name a folder; use up to 100 letters, digits, '.', '_', '-'"
    return None


def idle_problems(given: Set[str], config: Config) -> list[Problem]:
    """Keys on the command line that another one would have to switch on."""
    found = []
    if "seeds_max" in given and config.seeds != "auto":
        found.append(Problem("seeds_max", "is the most that seeds=auto adds; write it too, or leave seeds_max out"))
    if "tune.seeds" in given and config.tune.key is None:
        found.append(Problem("tune.seeds", "tunes nothing by itself; write tune.key and tune.values, or leave it out"))
    return found


def _is_seed_list(seeds: Any) -> bool:
    """Whether a value is a list of different seeds."""
    whole = isinstance(seeds, list) and all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in seeds)
    return whole and 0 < len(seeds) == len(set(seeds))
