"""The typed frame of the configuration: the keys that every study has, their types and ranges.  No torch.

Components (`norm`, `ffn`, ...) are not described here: a component's constructor is its schema.
"""

from __future__ import annotations

import dataclasses
import functools
import math
from dataclasses import dataclass
from typing import Any

MISSING: Any = "???"  # OmegaConf's own; who only reads what is on disk loads neither it nor Hydra
NAMED = ("norm", "ffn", "residual", "position", "attention", "init")  # in the name of every run's folder
COMPONENTS = (*NAMED, "cross_attention", "embedding")
TRAINING = ("objective", "schedule", "step")  # groups of how it is trained, beside its optimiser
BUILT = (*COMPONENTS, "objective", "parametrization", "step")  # groups that decide a model and how a batch trains it
VARIED = (*BUILT, "schedule")  # all groups whose variants are classes that a study compares
PLACED = ("norm", "ffn", "residual", "attention", "cross_attention")  # those that stand in the layers of a stack
LAYERS = "_layers_"  # the pattern of such a one that has several variants, or the variant of each layer
OWNED = ("model", "optim")  # sections of the frame that hold, beside its keys, those of what they choose
PLACEBOS = (*COMPONENTS, "data", "chaos")  # what a placebo draws anew; of these, init is every draw
TUNING_SEEDS = range(1_000_000, 2_000_000)  # of tuning runs; never scored
MOST_SEEDS = 1000
LARGEST = 10**9  # that a size or a count of steps can be
LARGEST_SEED = 2**53
BY_STEPS = ("seconds", "flops_total")  # matches that choose steps; the others choose widths
PACE = ("train.parallel", "train.checkpoint_seconds")  # how runs are carried out, which changes nothing of theirs
# Of a run's own keys: what changes no number of its training.
NO_NUMBERS = (*PACE, "eval.lengths", "data.path", "data.name", "data.solved_at")


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
    head_dim: int | None = dataclasses.field(default=None, metadata={"range": (1, 1_000_000)})
    dropout: float = at_least(0)
    tie_embeddings: bool | None = MISSING
    scale_embeddings: bool = MISSING
    norm_embeddings: bool = MISSING
    share_layers: bool = MISSING
    share_embeddings: bool = True
    head_bias: bool = False
    soft_cap: float | None = dataclasses.field(default=None, metadata={"range": (1e-6, 1e6)})


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
    compile: Any = MISSING
    matmul: str = one_of("auto", "torch", "onednn")
    parallel: Any = "auto"
    average: str = one_of("none", "ema")
    diagnostics: bool = MISSING


@dataclass(frozen=True)
class Optim:
    """The optimiser and its rates; `min_lr_ratio` is where the schedule ends as a share of `lr`."""

    _target_: str = MISSING
    lr: float = at_least(1e-12, 1000)
    betas: list[float] | None = MISSING
    weight_decay: float = at_least(0)
    grad_clip: float = at_least(1e-12)
    warmup: int = at_least(0)
    min_lr_ratio: float = at_least(0, 1)


@dataclass(frozen=True)
class Eval:
    """How much of the held-out splits a model is measured on."""

    tokens: int = at_least(1)  # of the test split, at the last step
    val_share: float = at_least(1e-6, 1)  # of so many, of the validation split, at each evaluation during training
    lengths: list[int] = MISSING  # besides training's, that a trained model is tested at


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
    """The whole configuration of a cell, a run or a study; a component is a mapping, whose schema is its constructor.

    `unread` is what stands beside the frame, in the sections, too: what a newer version wrote, which is written back as
    it was, and the arguments that a model form or an optimiser has of its own.
    """

    norm: Any = MISSING
    ffn: Any = MISSING
    residual: Any = MISSING
    position: Any = MISSING
    attention: Any = MISSING
    init: Any = MISSING
    cross_attention: Any = MISSING
    embedding: Any = MISSING
    objective: Any = MISSING
    schedule: Any = MISSING
    parametrization: Any = MISSING
    step: Any = MISSING
    model: Model = dataclasses.field(default_factory=Model)
    data: Any = dataclasses.field(default_factory=dict)
    train: Train = dataclasses.field(default_factory=Train)
    optim: Optim = dataclasses.field(default_factory=Optim)
    eval: Eval = dataclasses.field(default_factory=Eval)
    seed: Seed = dataclasses.field(default_factory=Seed)
    track: Any = None
    study: str | None = None
    seeds: Any = 5
    seeds_max: int = at_least(5, MOST_SEEDS)
    confirm: int | None = dataclasses.field(default=None, metadata={"range": (1, MOST_SEEDS)})
    reference: Any = None
    match: str = one_of("none", "params", "flops", "seconds", "flops_total")
    design: str = one_of("grid", "one_at_a_time", "leave_one_out", "cumulative", "fractional")
    zip: list[str] = dataclasses.field(default_factory=list)
    hold: Any = dataclasses.field(default_factory=list)
    tier: str | None = None
    tune: Tune = dataclasses.field(default_factory=Tune)
    margin: Any = None
    step_equivalents: bool = False
    placebo_seeds: int = at_least(0, MOST_SEEDS)
    results_dir: str = MISSING
    dry_run: bool = False
    reuse: str = one_of("same", "any", "none")
    allow_duplicates: bool = False
    keep: str = one_of("weights", "all", "none")
    timing: str = one_of("shared", "isolated")
    user: list[str] = dataclasses.field(default_factory=list)
    unread: dict[str, Any] = dataclasses.field(default_factory=dict, metadata={"omegaconf_ignore": True})

    @property
    def is_private(self) -> bool:
        """Whether its runs are its study's own: no other study takes those that are timed beside their partners."""
        return self.reuse == "none" or self.timing == "isolated"

    @property
    def known(self) -> bool:
        """Whether it says anything: of the runs of other programs no configuration is known."""
        return self != nothing()

    def as_json(self) -> dict[str, Any]:
        """The configuration as files hold it: whoever reads one says anew which packages of their own may run."""
        if not self.known:
            return {}
        found = {name: getattr(self, name) for name in KEYS if name != "user"}
        found |= {name: dict(vars(found[name])) for name in SECTIONS}
        return found | {name: found[name] | more if name in SECTIONS else more for name, more in self.unread.items()}

    def own(self, section: str) -> dict[str, Any]:
        """The settings of a model form, or an optimiser, that the frame does not have: those of its constructor."""
        found: dict[str, Any] = self.unread.get(section, {})
        return found

    def with_value(self, key: str, value: Any) -> Config:
        """The configuration with one setting changed: optim.lr, ffn.hidden, study."""
        section, _, name = key.partition(".")
        if name in self.own(section):
            return dataclasses.replace(self, unread=self.unread | {section: self.own(section) | {name: value}})
        changed: Config = with_value(self, key.split("."), value)
        return changed


@functools.cache
def nothing() -> Config:
    """The configuration that says nothing."""
    return Config()


SECTIONS = {"model": Model, "train": Train, "optim": Optim, "eval": Eval, "seed": Seed, "tune": Tune}
KEYS = tuple(field.name for field in dataclasses.fields(Config) if field.name != "unread")
# What decides which runs there are and how they are carried out, but no run's numbers.
STUDY_KEYS = tuple(key for key in KEYS if key not in (*VARIED, *SECTIONS, "data", "timing") or key == "tune")
WHOLE = (*STUDY_KEYS, "timing")  # the keys of a whole study; this one is part of its runs' keys, for their seconds


def is_component(keys: list[str]) -> bool:
    """Whether a factor is one of components."""
    return any(key in VARIED for key in keys)


def typed(plain: dict[str, Any]) -> Config:
    """A resolved configuration as records; `check` tells of keys beyond the frame."""
    sections, unread = {}, {name: value for name, value in plain.items() if name not in KEYS}
    for name in SECTIONS.keys() & plain.keys():
        own = {field.name for field in dataclasses.fields(SECTIONS[name])}
        sections[name] = SECTIONS[name](**{key: value for key, value in plain[name].items() if key in own})
        if more := {key: value for key, value in plain[name].items() if key not in own}:
            unread[name] = more
    return Config(**{name: plain[name] for name in KEYS if name in plain} | sections, unread=unread)


def with_value(node: Any, path: list[str], value: Any) -> Any:
    """A configuration, or plain data of one, with a value at a path; sections that it lacks are made.

    Of several variants over the layers, those that have the setting get the value.
    """
    name, *rest = path
    if isinstance(node, dict) and LAYERS in node:
        return {
            key: with_value(each, path, value) if isinstance(each, dict) and name in each else each
            for key, each in node.items()
        }
    if isinstance(node, dict):
        return node | {name: with_value(node.get(name) or {}, rest, value) if rest else value}
    return dataclasses.replace(node, **{name: with_value(getattr(node, name), rest, value) if rest else value})
