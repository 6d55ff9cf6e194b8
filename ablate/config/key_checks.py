"""Checks of keys: those of a whole study, its margin, and the base schema of a configuration.  Needs no torch."""

import dataclasses
import math
import os
import re
import tempfile
from collections.abc import Iterable, Iterator, Mapping, Set
from pathlib import Path
from types import MappingProxyType
from typing import Any

from ablate.config.errors import Problem
from ablate.config.groups import named_elsewhere
from ablate.config.schema import BY_STEPS, KEYS, MISSING, MOST_SEEDS, OWNED, SECTIONS, TUNING_SEEDS, Config
from ablate.formatting import instead, is_number, nearest, show

SWITCHES = [field.name for field in dataclasses.fields(Config) if field.type == "bool"]
# The keys that each value of `match` adjusts.
CHOSEN = dict.fromkeys(("params", "flops"), ("ffn.hidden", "ffn.mult")) | {BY_STEPS: ("train.steps",)}
LARGEST = 10**9  # the largest size or number of steps
LARGEST_SEED = 2**53
TAKEN = ("export", "verify")  # commands of `ablate analyse`, so no names of studies
SEEDS = "must be a number of seeds, a list of them, or auto: seeds=5, seeds=[3,7], seeds=auto"


def study_problems(config: Config) -> list[Problem]:
    """Problems of the keys of a whole study."""
    seeds = config.seeds
    found = [Problem("seeds", wrong)] if (wrong := _wrong_seeds(seeds, config.confirm)) else []
    found += [Problem("study", wrong)] if (wrong := wrong_name(config.study)) else []
    one = seeds == 1 or (_is_seed_list(seeds) and len(seeds) == 1)
    if None not in (config.seed.init, config.seed.data) and not one:
        found.append(Problem("seed", "init and data are both fixed, so all seeds would be one run; write seeds=1"))
    if wrong := wrong_margin(config.margin, config.step_equivalents):
        found.append(Problem("margin", wrong))
    path = Path(config.results_dir).absolute()
    folder = next(each for each in (path, *path.parents) if os.path.lexists(each))
    if not folder.is_dir():
        found.append(Problem("results_dir", f"{folder} is not a folder; write another results_dir"))
    elif not config.dry_run:
        try:
            tempfile.TemporaryFile(dir=folder).close()  # os.access is unreliable for root and full disks
        except OSError as error:
            found.append(Problem("results_dir", f"{folder} cannot be written ({error.strerror}); write another one"))
    return found


def _wrong_seeds(seeds: Any, confirm: int | None) -> str | None:
    if seeds == "auto":
        message = "auto and confirm do not go together: confirm alone says how many fresh seeds; write seeds=5, say"
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
        return f"{TUNING_SEEDS.start} to {TUNING_SEEDS[-1]} are tuning's, and never scored; write others"
    return None


def wrong_name(name: str | None) -> str | None:
    """What is wrong with the name of a study, if anything."""
    if name in TAKEN or (name or "").startswith(("-", ".")):
        why = "is a command of ablate analyse" if name in TAKEN else "begins as options or hidden files do"
        return f"{name!r} {why}; write another name"
    if name is not None and not (re.fullmatch(r"(?=.*\w)[\w.-]{1,100}", name) and len(name.encode()) <= 200):
        return f"{name!r} cannot name a folder; use up to 100 letters (200 bytes), digits, '.', '_', '-'"
    return None


def idle_problems(given: Set[str], config: Config) -> Iterator[Problem]:
    """Problems of keys on the command line that have no effect without another key."""
    if "seeds_max" in given and config.seeds != "auto":
        yield Problem("seeds_max", "is the most that seeds=auto adds; write it too, or leave seeds_max out")
    if "ladder" in given and config.design != "ladder":
        yield Problem("ladder", "is the number of rungs of design=ladder; write that, too, or leave ladder out")
    if "tune.seeds" in given and config.tune.key is None:
        yield Problem("tune.seeds", "tunes nothing by itself; write tune.key and tune.values, or leave it out")


def suggestion(word: str, value: str = "", choices: Mapping[str, str] = MappingProxyType({})) -> str:
    """What to write instead of a word that is no KEY=VALUE: the key that is meant with its value, or a choice."""
    near = nearest(word, {*KEYS} - SECTIONS.keys(), named_elsewhere() | dict(choices))
    if near is None or near in choices.values():
        return instead(word, choices.values(), choices) if choices else "see ablate --help"
    given = value if near == word else ""  # a key of another name may have another unit
    return f"write {near}={given or ('true' if near in SWITCHES else 'VALUE')}"


def _is_seed_list(seeds: Any) -> bool:
    whole = isinstance(seeds, list) and all(isinstance(s, int) and not isinstance(s, bool) and s >= 0 for s in seeds)
    return whole and 0 < len(seeds) == len(set(seeds))


PER_CENT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*%")
SPELLING = "a number in the metric's unit (margin=0.01) or a share of the training steps (margin='2 %')"


def fraction_of(margin: Any) -> float | None:
    """A margin such as '2 %' as a fraction of the reference's training steps, 0.02; None for any other margin."""
    found = PER_CENT.fullmatch(margin.strip()) if isinstance(margin, str) else None
    return float(found[1]) / 100 if found else None


def wrong_margin(margin: Any, other_steps: bool) -> str | None:
    """What is wrong with a study's margin, if anything."""
    share = fraction_of(margin)
    size = margin if share is None else share
    if margin is None or (isinstance(size, float) and not math.isfinite(size)):
        return None  # `check` reports nan and inf
    if not is_number(size) or size <= 0:
        return f"must be > 0, {SPELLING}; not {margin!r}"
    if share is not None and not other_steps:
        why = f"{margin!r} is a share of the training steps, which needs the reference at other numbers of steps"
        return f"{why}; write step_equivalents=true, too, or a number in the metric's unit"
    return None


def without_unit(margin: Any, metrics: Iterable[str]) -> str | None:
    """What is wrong with a number as the margin of several metrics with different units, if anything."""
    known = list(dict.fromkeys(metrics))
    if margin is None or fraction_of(margin) is not None or len(known) < 2:
        return None
    why = f"{margin} cannot be in the unit of {' and of '.join(known)}"
    return f"{why}; write a share of the training steps (margin='2 %'), or leave it out"


def check(config: Config) -> list[Problem]:
    """Problems of a resolved configuration's base schema: unknown keys, ranges, choices, numbers such as nan."""
    beyond = config.unread.keys() - SECTIONS.keys()
    problems = [Problem(key, f"no such key; there are {', '.join(sorted(KEYS))}") for key in beyond]
    problems += _check_fields(config, "")
    for name in SECTIONS:
        fields = {field.name for field in dataclasses.fields(SECTIONS[name])}
        for key in config.unread.get(name, ()) if name not in OWNED else ():  # constructors check theirs
            problems.append(Problem(f"{name}.{key}", f"no such key; there are {', '.join(sorted(fields))}"))
        problems += _check_fields(getattr(config, name), f"{name}.")
    betas, lengths = config.optim.betas, config.eval.lengths
    if betas is not None and (len(betas) != 2 or not all(0 <= beta < 1 for beta in betas)):
        problems.append(Problem("optim.betas", f"{betas} must be two numbers in [0, 1)"))
    if lengths != MISSING and (len(set(lengths)) < len(lengths) or any(length < 1 for length in lengths)):
        problems.append(Problem("eval.lengths", f"{lengths} must be different lengths, each at least 1"))
    return problems + _beyond_numbers(config.as_json(), "", {"train.memory", *(problem.key for problem in problems)})


def readable_number(value: float) -> str:
    """A number for people: 1,000,000, or 7.3 × 10^23 if it has many digits."""
    if not 1e12 <= abs(value) < math.inf:  # an integer may be too large for math.isfinite
        return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)
    power = math.floor(math.log10(abs(value)))
    return f"{value / 10**power:.1f} × 10^{power}"


def _check_fields(section: Any, prefix: str) -> Iterator[Problem]:
    for field in dataclasses.fields(section):
        key, value = prefix + field.name, getattr(section, field.name)
        low, high = field.metadata.get("range", (-math.inf, math.inf))
        choices = field.metadata.get("choices", (value,))
        if value == MISSING:
            yield Problem(key, "has no value; write one")
        elif isinstance(value, int | float) and not low <= value <= high and value == value:
            most = "" if high == math.inf else f" and ≤ {readable_number(high)}"
            yield Problem(key, f"must be ≥ {low:g}{most}, not {readable_number(value)}")
        elif value not in choices and (value is not None or field.default is not None):
            near = f"; did you mean {near}?" if (near := nearest(str(value), choices)) else ""
            message = f"must be one of {', '.join(choices)}; not {show(value) or 'nothing'}{near}"
            yield Problem(key, message)


def _beyond_numbers(value: Any, key: str, known: set[str]) -> list[Problem]:
    """Problems of numbers that are not finite or too large; keys in `known` already have a problem."""
    if isinstance(value, dict | list):
        inner = value.items() if isinstance(value, dict) else [("", item) for item in value]
        return [p for name, item in inner for p in _beyond_numbers(item, f"{key}.{name}".strip("."), known)]
    if isinstance(value, float) and not math.isfinite(value):
        return [Problem(key, f"{value} is not a number to compute with; write a finite one")]
    most = LARGEST_SEED if key.startswith("seed") else LARGEST
    if isinstance(value, int) and abs(value) > most and key not in known:
        return [Problem(key, f"{readable_number(value)} is too large; write {readable_number(most)} at most")]
    return []
