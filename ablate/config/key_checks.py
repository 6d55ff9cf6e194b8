"""Checks of keys: those of a whole study, its margin, and the base schema of a configuration.  Needs no torch."""

import math
import os
import re
import tempfile
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import Any

from ablate.config.depth import variants_of
from ablate.config.errors import Problem
from ablate.config.schema import BY_STEPS, MOST_SEEDS, TUNING_SEEDS, Config
from ablate.config.targets import BUILT_IN, within
from ablate.formatting import is_number

# The keys that each value of `match` adjusts.
CHOSEN = dict.fromkeys(("params", "flops"), ("ffn.hidden", "ffn.mult")) | {BY_STEPS: ("train.steps",)}
TAKEN = ("export", "verify")  # commands of `ablate analyse`, so no names of studies
SEED_RANGE = range(2**53 + 1)  # what floating-point numbers hold exactly
SEEDS = f"must be a number of seeds from 1 to {MOST_SEEDS:,}, a list of them, or auto: seeds=5, seeds=[3,7], seeds=auto"


def study_problems(config: Config) -> list[Problem]:
    """Problems of the keys of a whole study."""
    messages = {
        "seeds": seeds_problem(config.seeds, config.confirm),
        "study": name_problem(config.study),
        "seed": fixed_seed_problem(config),
        "margin": margin_problem(config.margin, config.step_equivalents),
        "results_dir": None if config.dry_run else folder_problem(Path(config.results_dir).absolute()),
    }
    return [Problem(key, message) for key, message in messages.items() if message]


def seeds_problem(seeds: Any, confirm: int | None) -> str | None:
    """What is wrong with the seeds of a study, if anything."""
    if seeds == "auto":
        message = "auto and confirm do not go together: confirm alone says how many fresh seeds; write seeds=5, say"
        return message if confirm else None
    count = seeds
    if isinstance(seeds, list) and all(type(seed) is int and seed in SEED_RANGE for seed in seeds):
        count = len(seeds)
        if len(set(seeds)) < count:
            return f"{seeds} has a seed twice; write each once"
        if any(seed in TUNING_SEEDS for seed in seeds):
            return f"{TUNING_SEEDS.start} to {TUNING_SEEDS[-1]} are tuning's, and never scored; write others"
    if not (type(count) is int and 1 <= count <= MOST_SEEDS):
        return f"{SEEDS}; not {seeds!r}"
    return None


def fixed_seed_problem(config: Config) -> str | None:
    """What is wrong with the fixed seeds of a study, if anything."""
    is_one_seed = config.seeds == 1 or (isinstance(config.seeds, list) and len(config.seeds) == 1)
    if None in (config.seed.init, config.seed.data) or is_one_seed:
        return None
    return "init and data are both fixed, so all seeds would be one run; write seeds=1"


def name_problem(name: str | None) -> str | None:
    """What is wrong with the name of a study, if anything."""
    if name is None:
        return None
    if name in TAKEN or not re.fullmatch(r"\w[\w.-]{0,99}", name) or len(name.encode()) > 200:
        letters = "up to 100 letters (200 bytes), digits, '.', '_', '-'"
        return f"{name!r} cannot name a folder, or is a command of ablate analyse; use {letters}, first no sign"
    return None


def folder_problem(path: Path) -> str | None:
    """Why nothing can be written into a results folder, if so; of one that does not exist, into the folder above."""
    folder = next(each for each in (path, *path.parents) if os.path.lexists(each))
    try:
        tempfile.TemporaryFile(dir=folder).close()  # os.access is unreliable for root and full disks
    except OSError as error:
        return f"{folder} cannot be written ({error.strerror}); write another one"
    return None


def idle_problems(keys: Collection[str], study: Config, configs: Sequence[Config]) -> list[Problem]:
    """Problems of keys that somebody sets and that have no effect in any of a study's configurations."""
    ffns = [ffn for config in configs for ffn in variants_of(config.ffn)]
    has_widths = all(map(has_width, ffns))
    width = "has no effect where ffn.hidden is set; leave one of them out"
    idle = {
        "seeds_max": (study.seeds != "auto", "is the most that seeds=auto adds; write it too, or leave seeds_max out"),
        "ladder": (study.design != "ladder", "is the number of rungs; write design=ladder, too, or leave it out"),
        "tune.seeds": (study.tune.key is None, "tunes nothing; write tune.key and tune.values, or leave it out"),
        "optim.min_lr_ratio": (
            all(config.schedule.get("_target_") == CONSTANT for config in configs),
            "has no effect on schedule=constant; write another schedule, or leave it out",
        ),
        "model.share_embeddings": (
            all(config.model._target_ in ONE_STACK for config in configs),
            "is for two stacks; write model=encoder_decoder, too, or leave it out",
        ),
        "ffn.mult": (has_widths, width),
        "ffn.multiple_of": (has_widths, width),
    }
    return [Problem(key, message) for key, (is_idle, message) in idle.items() if is_idle and key in keys]


CONSTANT = "ablate.training.schedule.Constant"
ONE_STACK = tuple(f"ablate.model.transformer.{name}" for name in ("Decoder", "Encoder", "BERT"))  # forms of model


def has_width(ffn: dict[str, Any]) -> bool:
    """Whether an FFN's width is set, as built-in ones then ignore the settings that it is computed from."""
    return ffn.get("hidden") is not None and within(ffn["_target_"], BUILT_IN)


PER_CENT = re.compile(r"(\d+(?:\.\d*)?|\.\d+)\s*%")
SPELLING = "a number in the metric's unit (margin=0.01) or a share of the training steps (margin='2 %')"


def fraction_of(margin: Any) -> float | None:
    """A margin such as '2 %' as a fraction of the reference's training steps, 0.02; None for any other margin."""
    match = PER_CENT.fullmatch(margin.strip()) if isinstance(margin, str) else None
    return float(match[1]) / 100 if match else None


def margin_problem(margin: Any, step_equivalents: bool) -> str | None:
    """What is wrong with a study's margin, if anything; `check` reports nan and inf."""
    if margin is None or (isinstance(margin, float) and not math.isfinite(margin)):
        return None
    share = fraction_of(margin)
    size = margin if share is None else share
    if not is_number(size) or size <= 0:
        return f"must be > 0, {SPELLING}; not {margin!r}"
    if share is not None and not step_equivalents:
        why = f"{margin!r} is a share of the training steps, which needs the reference at other numbers of steps"
        return f"{why}; write step_equivalents=true, too, or a number in the metric's unit"
    return None


def without_unit(margin: Any, metrics: Iterable[str]) -> str | None:
    """What is wrong with a number as the margin of several metrics with different units, if anything."""
    units = list(dict.fromkeys(metrics))
    if margin is None or fraction_of(margin) is not None or len(units) < 2:
        return None
    why = f"{margin} cannot be in the unit of {' and of '.join(units)}"
    return f"{why}; write a share of the training steps (margin='2 %'), or leave it out"
