"""The base schema of configurations: keys, types and ranges but those of components, whose schema is a constructor."""

from __future__ import annotations

import dataclasses
import math
from dataclasses import dataclass
from typing import Any

MISSING: Any = "???"  # as in OmegaConf, which reading results does not import
NAMED = ("norm", "ffn", "residual", "position", "attention", "init")  # groups in the name of every run's folder
COMPONENTS = (*NAMED, "cross_attention", "embedding")
BUILT = (*COMPONENTS, "objective", "parametrization", "step")  # groups that determine the model and a training step
VARIED = (*BUILT, "schedule")  # all groups of components that a study can compare
IN_LAYERS = ("norm", "ffn", "residual", "attention", "cross_attention")  # groups whose modules are part of each layer
PLACED = (*IN_LAYERS, "position")  # groups whose variant can change over the layers
LAYERS = "_layers_"  # key of a group's pattern over the layers, or of the list of each layer's variant
OWNED = ("model", "optim")  # sections that also hold the constructor arguments of their `_target_`
TUNING_SEEDS = range(1_000_000, 2_000_000)  # seeds of tuning runs, which are never scored
MOST_SEEDS = 1000
BY_STEPS = "flops_total"  # the value of `match` that adjusts steps; the others adjust widths
# How runs are carried out; no effect on results.
PACE = ("train.parallel", "train.devices", "train.capture", "train.checkpoint_seconds", "train.memory")
# Keys of a run that do not affect its training.
SOURCES = ("data.path", "data.name", "data.column", "data.held_out", "data.validation", "data.test")
NO_NUMBERS = (*PACE, *SOURCES, "eval.lengths", "data.solved_at")


def at_least(low: float, high: float = math.inf) -> Any:
    """A required number in [low, high]."""
    return dataclasses.field(default=MISSING, metadata={"range": (low, high)})


def one_of(*choices: str) -> Any:
    """A required word from a list."""
    return dataclasses.field(default=MISSING, metadata={"choices": choices})


@dataclass(frozen=True)
class Model:
    """Shape of the model; `_target_` is its form (architecture)."""

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
    soft_cap: float | None = dataclasses.field(default=None, metadata={"range": (1e-6, 1e6)})


@dataclass(frozen=True)
class Train:
    """The training loop; counts are in optimiser steps."""

    steps: int = at_least(1)
    batch_size: int = at_least(1, 1_000_000)
    eval_every: int = at_least(1)
    log_every: int = at_least(1)
    checkpoint_seconds: float = at_least(0)
    device: str = one_of("auto", "cpu", "cuda")
    memory: Any = None
    precision: str = one_of("auto", "fp32", "bf16")
    compile: Any = MISSING
    matmul: str = one_of("auto", "torch", "onednn")
    parallel: Any = "auto"
    capture: Any = "auto"
    parts: int = dataclasses.field(default=1, metadata={"range": (1, 1_000_000)})
    devices: int = dataclasses.field(default=1, metadata={"range": (1, 1_000_000)})
    average: str = one_of("none", "ema")
    diagnostics: bool = MISSING

    @property
    def part_rows(self) -> int:
        """Sequences in the largest part of a batch."""
        return -(-self.batch_size // self.parts)


@dataclass(frozen=True)
class Optim:
    """The optimiser and its rates; `min_lr_ratio` is the final learning rate of the schedule divided by `lr`."""

    _target_: str = MISSING
    lr: float = at_least(1e-12, 1000)
    betas: list[float] | None = MISSING
    weight_decay: float = at_least(0)
    grad_clip: float | None = at_least(1e-12)  # the largest norm; null: gradients are not clipped
    warmup: int = at_least(0)
    min_lr_ratio: float = at_least(0, 1)


@dataclass(frozen=True)
class Eval:
    """Amounts of held-out data that a model is evaluated on."""

    tokens: int = at_least(1)  # tokens of the test split, evaluated at the last step
    val_share: float = at_least(1e-6, 1)  # evaluations during training use this share of `tokens`, for validation
    lengths: list[int] = MISSING  # lengths besides training's at which the trained model is tested


@dataclass(frozen=True)
class Seed:
    """Fixed seeds of initialisation or data, where null follows the run's seed."""

    init: int | None = None
    data: int | None = None


@dataclass(frozen=True)
class Tune:
    """A key that is tuned for each cell with the same budget: its values, and the number of seeds per value."""

    key: str | None = None
    values: list[Any] = dataclasses.field(default_factory=list)
    seeds: int = at_least(1, MOST_SEEDS)
    extend: bool = False
    rule: str = dataclasses.field(default="best", metadata={"choices": ("best", "one_se")})


@dataclass(frozen=True)
class Config:
    """The whole configuration of a cell, run or study; a component is a mapping whose schema is its constructor.

    `unread` holds keys beyond the base schema, also those of sections: entries of a newer version, which are written
    back unchanged, and the additional arguments of a model form or optimiser.
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
    match: str = one_of("none", "params", "flops", "flops_total")
    design: str = one_of("grid", "one_at_a_time", "leave_one_out", "cumulative", "ladder")
    ladder: int = dataclasses.field(default=4, metadata={"range": (3, 8)})
    zip: list[str] = dataclasses.field(default_factory=list)
    tier: str | None = None
    tune: Tune = dataclasses.field(default_factory=Tune)
    margin: Any = None
    step_equivalents: bool = False
    results_dir: str = MISSING
    dry_run: bool = False
    reuse: str = one_of("same", "none")
    allow_duplicates: bool = False
    keep: str = one_of("weights", "all", "none")
    timing: str = one_of("shared", "isolated")
    user: list[str] = dataclasses.field(default_factory=list)
    unread: dict[str, Any] = dataclasses.field(default_factory=dict, metadata={"omegaconf_ignore": True})

    @property
    def is_private(self) -> bool:
        """Whether its runs belong to one study only, as runs that are timed together with their partners do."""
        return self.reuse == "none" or self.timing == "isolated"

    def as_json(self) -> dict[str, Any]:
        """The configuration as files hold it, without `user`: who reads a file has to allow packages again."""
        found = {name: getattr(self, name) for name in KEYS if name != "user"}
        found |= {name: dict(vars(found[name])) for name in SECTIONS}
        return found | {name: found[name] | more if name in SECTIONS else more for name, more in self.unread.items()}

    def own(self, section: str) -> dict[str, Any]:
        """The settings of a model form or optimiser beyond the base schema: arguments of its constructor."""
        found: dict[str, Any] = self.unread.get(section, {})
        return found

    def with_value(self, key: str, value: Any) -> Config:
        """The configuration with one setting changed: optim.lr, ffn.hidden, study."""
        section, _, name = key.partition(".")
        if name in self.own(section):
            return dataclasses.replace(self, unread=self.unread | {section: self.own(section) | {name: value}})
        changed: Config = with_value(self, key.split("."), value)
        return changed


SECTIONS = {"model": Model, "train": Train, "optim": Optim, "eval": Eval, "seed": Seed, "tune": Tune}
KEYS = tuple(field.name for field in dataclasses.fields(Config) if field.name != "unread")
# Keys that determine which runs there are and how they are carried out, but not their numbers.
STUDY_KEYS = tuple(key for key in KEYS if key not in (*VARIED, *SECTIONS, "data", "timing") or key == "tune")
WHOLE = (*STUDY_KEYS, "timing")  # keys of a whole study; `timing` also counts in run keys, as it affects seconds


def typed(plain: dict[str, Any]) -> Config:
    """A resolved configuration as a `Config`; keys beyond the schema go to `unread`, which `check` reports."""
    sections, unread = {}, {name: value for name, value in plain.items() if name not in KEYS}
    for name in SECTIONS.keys() & plain.keys():
        own = {field.name for field in dataclasses.fields(SECTIONS[name])}
        sections[name] = SECTIONS[name](**{key: value for key, value in plain[name].items() if key in own})
        if more := {key: value for key, value in plain[name].items() if key not in own}:
            unread[name] = more
    return Config(**{name: plain[name] for name in KEYS if name in plain} | sections, unread=unread)


def with_value(node: Any, path: list[str], value: Any) -> Any:
    """A copy of a configuration, or of its plain data, with a value set at a path; missing sections are created."""
    name, *rest = path
    if isinstance(node, dict) and LAYERS in node:  # every variant that has the setting gets the value
        return {
            key: with_value(each, path, value) if isinstance(each, dict) and name in each else each
            for key, each in node.items()
        }
    if isinstance(node, dict):
        return node | {name: with_value(node.get(name) or {}, rest, value) if rest else value}
    return dataclasses.replace(node, **{name: with_value(getattr(node, name), rest, value) if rest else value})
