"""The typed frame of the configuration: the keys that every study has, their types and ranges.  No torch.

Components (`norm`, `ffn`, ...) are not described here: a component's constructor is its schema.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any

from hydra.core.config_store import ConfigStore
from omegaconf import MISSING, DictConfig, OmegaConf

from ablate.config.errors import Problem

COMPONENTS = ("norm", "ffn", "residual", "position", "attention", "init")
PLACEBOS = (*COMPONENTS, "data", "chaos")  # what a placebo draws anew; of these, init is every draw
TUNING_SEEDS = range(1_000_000, 2_000_000)  # of tuning runs; never scored
MOST_SEEDS = 1000
LARGEST = 10**9  # that a size or a count of steps can be
LARGEST_SEED = 2**53
# Keys and groups that came after the first release, which everything else has been in: with the value, or the variant,
# that says that all is as it was before.  A cell with that one keeps its key; any other value is part of it.
LATER: dict[str, Any] = {}
LATER_GROUPS: dict[str, str] = {}
# What decides which runs there are and how they are carried out, but no run's numbers.
STUDY_KEYS = (
    *(
        "study",
        "seeds",
        "seeds_max",
        "confirm",
        "reference",
        "match",
        "design",
        "zip",
        "hold",
        "tier",
        "tune",
        "aa",
        "margin",
        "exchange",
    ),
    *("results_dir", "dry_run", "reuse", "allow_duplicates", "keep", "user", "unit", "track"),
)

# Of a run's own keys: what changes no number of its training.
NO_NUMBERS = ("train.parallel", "train.checkpoint_seconds", "eval.lengths", "data.path", "data.name")


def at_least(low: float, high: float = math.inf) -> Any:
    """A required number in [low, high]."""
    return dataclasses.field(default=MISSING, metadata={"range": (low, high)})


def one_of(*choices: str) -> Any:
    """A required word out of a list."""
    return dataclasses.field(default=MISSING, metadata={"choices": choices})


@dataclass(frozen=True)
class Model:
    """Shape of the model; `_target_` is its form."""

    _target_: str = MISSING
    layers: int = at_least(1, 1000)
    heads: int = at_least(1, 10_000)
    dim: int = at_least(1, 1_000_000)
    dropout: float = at_least(0)
    tie_embeddings: bool | None = MISSING
    scale_embeddings: bool = MISSING
    norm_embeddings: bool = MISSING
    share_layers: bool = MISSING


@dataclass(frozen=True)
class Train:
    """The loop; counts are in optimiser steps."""

    steps: int = at_least(1)
    batch_size: int = at_least(1, 1_000_000)
    eval_every: int = at_least(1)
    log_every: int = at_least(1)
    checkpoint_seconds: float = at_least(0)
    device: str = one_of("auto", "cpu", "cuda")
    precision: str = one_of("auto", "fp32", "bf16")
    compile: bool = MISSING
    parallel: Any = "auto"
    average: str = one_of("none", "ema")
    diagnostics: bool = MISSING


@dataclass(frozen=True)
class Optim:
    """The optimiser and its schedule; `floor` is the last learning rate as a share of `lr`."""

    _target_: str = MISSING
    lr: float = at_least(1e-12, 1000)
    betas: list[float] = MISSING
    weight_decay: float = at_least(0)
    clip: float = at_least(1e-12)
    warmup: int = at_least(0)
    schedule: str = one_of("cosine", "linear", "constant")
    floor: float = at_least(0, 1)


@dataclass(frozen=True)
class Eval:
    """Held-out tokens of each evaluation, and the lengths besides training's that a trained model is tested at."""

    tokens: int = at_least(1)
    lengths: list[int] = MISSING


@dataclass(frozen=True)
class Seed:
    """Fixed seeds of one half of the randomness; null follows the run's seed.

    `placebo` says what a placebo run draws anew: a component (norm, ffn, ...), init, data, or chaos (nothing).
    """

    init: int | None = None
    data: int | None = None
    placebo: str | None = dataclasses.field(default=None, metadata={"choices": PLACEBOS})


@dataclass(frozen=True)
class Tune:
    """A key that is tuned for each cell with the same budget: its values, and how many seeds score each of them.

    `per_seed` tunes anew for each scored seed, on tuning seeds of its own, so that intervals include the choice.
    """

    key: str | None = None
    values: list[Any] = dataclasses.field(default_factory=list)
    seeds: int = at_least(1, MOST_SEEDS)
    extend: bool = False
    per_seed: bool = False


@dataclass(frozen=True)
class Config:
    """The whole configuration."""

    norm: Any = MISSING
    ffn: Any = MISSING
    residual: Any = MISSING
    position: Any = MISSING
    attention: Any = MISSING
    init: Any = MISSING
    model: Model = dataclasses.field(default_factory=Model)
    data: Any = dataclasses.field(default_factory=dict)
    train: Train = dataclasses.field(default_factory=Train)
    optim: Optim = dataclasses.field(default_factory=Optim)
    eval: Eval = dataclasses.field(default_factory=Eval)
    seed: Seed = dataclasses.field(default_factory=Seed)
    track: Any = None
    study: str | None = None
    seeds: Any = 3
    seeds_max: int = at_least(5, MOST_SEEDS)
    confirm: int | None = dataclasses.field(default=None, metadata={"range": (1, MOST_SEEDS)})
    reference: Any = None
    match: str = one_of("none", "params", "flops", "flops_total")
    design: str = one_of("grid", "one_at_a_time", "leave_one_out", "cumulative", "fractional")
    zip: list[str] = dataclasses.field(default_factory=list)
    hold: Any = dataclasses.field(default_factory=list)
    tier: str | None = None
    tune: Tune = dataclasses.field(default_factory=Tune)
    margin: Any = None
    exchange: bool = False
    aa: int = at_least(0, MOST_SEEDS)
    results_dir: str = MISSING
    dry_run: bool = False
    reuse: str = one_of("same", "any", "none")
    allow_duplicates: bool = False
    keep: str = one_of("weights", "all", "none")
    user: list[str] = dataclasses.field(default_factory=list)
    unit: str | None = None


SECTIONS = {"model": Model, "train": Train, "optim": Optim, "eval": Eval, "seed": Seed, "tune": Tune}


def typed(plain: dict[str, Any]) -> Config:
    """A resolved configuration as records; keys beyond the frame are left out, of which `check` tells."""
    sections = {name: _record(section, plain[name]) for name, section in SECTIONS.items()}
    found: Config = _record(Config, plain | sections)
    return found


def _record(frame: Any, values: dict[str, Any]) -> Any:
    return frame(**{field.name: values[field.name] for field in dataclasses.fields(frame) if field.name in values})


@functools.cache
def register() -> None:
    """Put the frame into Hydra's store, where `conf/config.yaml` takes it from."""
    ConfigStore.instance().store(name="schema", node=writable(Config))


def writable(frame: Any) -> DictConfig:
    """A frame as OmegaConf composes it: what is frozen in Python is not while it is put together."""
    node: DictConfig = OmegaConf.structured(frame)
    for part in (node, *(node._get_node(key) for key in node)):
        if isinstance(part, DictConfig):
            OmegaConf.set_readonly(part, None)
    return node


def check(config: dict[str, Any]) -> list[Problem]:
    """Everything wrong with the frame of one resolved configuration: unknown keys, ranges, words, numbers like nan."""
    known = {field.name for field in dataclasses.fields(Config)}
    problems = [Problem(key, f"no such key; there are {', '.join(sorted(known))}") for key in config.keys() - known]
    problems += _check_fields(Config, config, "")
    for name, section in SECTIONS.items():
        fields = {field.name for field in dataclasses.fields(section)}
        for key in config[name].keys() - fields:
            problems.append(Problem(f"{name}.{key}", f"no such key; there are {', '.join(sorted(fields))}"))
        problems += _check_fields(section, config[name], f"{name}.")
    betas = config["optim"]["betas"]
    if len(betas) != 2 or not all(0 <= beta < 1 for beta in betas):
        problems.append(Problem("optim.betas", f"{betas} must be two numbers in [0, 1)"))
    lengths = config["eval"]["lengths"]
    if lengths != MISSING and (len(set(lengths)) < len(lengths) or any(length < 1 for length in lengths)):
        problems.append(Problem("eval.lengths", f"{lengths} must be different lengths, each at least 1"))
    return problems + _beyond_numbers(config, "", {problem.key for problem in problems})


def misshapen(kind: str, value: Any) -> str | None:
    """What is wrong with a value for a key of the frame annotated as `kind`, by its shape alone; None if nothing."""
    if kind.startswith("list") and value not in (None, MISSING):
        if not isinstance(value, list):
            return "takes a list; write [...]"
        named = kind != "list[str]" or all(isinstance(item, str) for item in value)
        return None if named else "takes a list of names"
    single = kind.split(" | ")[0] in ("str", "int", "float", "bool")
    return "takes one value" if single and isinstance(value, dict | list) else None


def plain(value: float) -> str:
    """A number as people read it: 1,000,000; of one with many digits, how large it is: 7.3 x 10^23."""
    if abs(value) < 1e12 or not math.isfinite(value):
        return f"{value:,}" if isinstance(value, int) and abs(value) >= 10_000 else str(value)
    power = math.floor(math.log10(abs(value)))
    return f"{value / 10**power:.1f} × 10^{power}"


def _check_fields(section: Any, values: dict[str, Any], prefix: str) -> list[Problem]:
    problems = []
    for field in dataclasses.fields(section):
        key, value = prefix + field.name, values.get(field.name)
        low, high = field.metadata.get("range", (-math.inf, math.inf))
        choices = field.metadata.get("choices", (value,))
        if value == MISSING:
            problems.append(Problem(key, "has no value; write one"))
        elif isinstance(value, int | float) and not low <= value <= high and not math.isnan(value):
            most = "" if high == math.inf else f" and ≤ {plain(high)}"
            problems.append(Problem(key, f"must be ≥ {low:g}{most}, not {plain(value)}"))
        elif value not in choices and (value is not None or field.default is not None):
            problems.append(Problem(key, f"must be one of {', '.join(choices)}; not {value!r}"))
    return problems


def _beyond_numbers(value: Any, key: str, known: set[str]) -> list[Problem]:
    """Numbers that are not finite, and sizes beyond all that there are, where nothing is `known` to be wrong yet."""
    if isinstance(value, dict):
        named = [(f"{key}.{name}" if key else str(name), item) for name, item in value.items()]
        return [p for name, item in named for p in _beyond_numbers(item, name, known)]
    if isinstance(value, list):
        return [p for item in value for p in _beyond_numbers(item, key, known)]
    if isinstance(value, float) and not math.isfinite(value):
        return [Problem(key, f"{value} is not a number to compute with; write a finite one")]
    most = LARGEST_SEED if key.startswith("seed") else LARGEST
    if isinstance(value, int) and abs(value) > most and key not in known:
        return [Problem(key, f"{plain(value)} is too large; write {plain(most)} at most")]
    return []
