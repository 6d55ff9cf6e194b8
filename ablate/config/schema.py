"""The base schema of configurations: keys, types and ranges but those of components, whose schema is a constructor."""

from __future__ import annotations

import dataclasses
import functools
import types
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from msgspec import Meta

MISSING: Any = "???"  # as in OmegaConf, which reading results does not import
NAMED = ("norm", "ffn", "residual", "position", "attention", "init")  # groups in the name of every run's folder
COMPONENTS = (*NAMED, "cross_attention", "embedding")
BUILT = (*COMPONENTS, "objective", "parametrization", "step")  # groups that determine the model and a training step
VARIED = (*BUILT, "schedule")  # all groups of components that a study can compare
IN_LAYERS = ("norm", "ffn", "residual", "attention", "cross_attention")  # groups whose modules are part of each layer
PLACED = (*IN_LAYERS, "position")  # groups whose variant can change over the layers
LAYERS = "_layers_"  # key of a group's pattern over the layers, or of the list of each layer's variant
WITH_ARGUMENTS = ("model", "optim")  # sections that also hold the constructor arguments of their `_target_`
TUNING_SEEDS = range(1_000_000, 2_000_000)  # seeds of tuning runs, which are never scored
MOST_SEEDS = 1000
BY_STEPS = "flops_total"  # the value of `match` that adjusts steps; the others adjust widths
# How runs are carried out; no effect on results.
PACE = ("train.parallel", "train.devices", "train.capture", "train.checkpoint_seconds")
# Keys of a run that do not affect its training.
SOURCES = ("data.path", "data.name", "data.column", "data.held_out", "data.validation", "data.test")
NO_NUMBERS = (*PACE, *SOURCES, "eval.lengths", "data.solved_at")

Positive = Annotated[int, Meta(ge=1)]
UpToMillion = Annotated[int, Meta(ge=1, le=1_000_000)]
SeedCount = Annotated[int, Meta(ge=1, le=MOST_SEEDS)]
NotNegative = Annotated[float, Meta(ge=0)]
Auto = Literal["auto"]
Betas = Annotated[
    list[Annotated[float, Meta(ge=0, lt=1)]],
    Meta(min_length=2, max_length=2, description="a list of two numbers in [0, 1)"),
]
Lengths = Annotated[list[Positive], Meta(description="a list of whole numbers ≥ 1")]


@dataclass(frozen=True)
class Model:
    """Shape of the model; `_target_` is its form (architecture)."""

    _target_: str = MISSING
    layers: Annotated[int, Meta(ge=1, le=1000)] = MISSING
    heads: Annotated[int, Meta(ge=1, le=10_000)] = MISSING
    dim: UpToMillion = MISSING
    head_dim: UpToMillion | None = None
    dropout: NotNegative = MISSING
    tie_embeddings: bool | None = MISSING
    scale_embeddings: bool = MISSING
    norm_embeddings: bool = MISSING
    share_layers: bool = MISSING
    share_embeddings: bool = True
    soft_cap: Annotated[float, Meta(ge=1e-6, le=1_000_000)] | None = None


@dataclass(frozen=True)
class Train:
    """The training loop; counts are in optimiser steps."""

    steps: Positive = MISSING
    batch_size: UpToMillion = MISSING
    eval_every: Positive = MISSING
    log_every: Positive = MISSING
    checkpoint_seconds: NotNegative = MISSING
    device: Literal["auto", "cpu", "cuda"] = MISSING
    precision: Literal["auto", "fp32", "bf16"] = MISSING
    compile: bool | Auto = MISSING
    matmul: Literal["auto", "torch", "onednn"] = MISSING
    parallel: Positive | Auto = "auto"
    capture: bool | Auto = "auto"
    parts: UpToMillion = 1
    devices: UpToMillion = 1
    average: Literal["none", "ema"] = MISSING
    diagnostics: bool = MISSING

    @property
    def part_rows(self) -> int:
        """Sequences in the largest part of a batch."""
        return -(-self.batch_size // self.parts)


@dataclass(frozen=True)
class Optim:
    """The optimiser and its rates; `min_lr_ratio` is the final learning rate of the schedule divided by `lr`."""

    _target_: str = MISSING
    lr: Annotated[float, Meta(ge=1e-12, le=1000)] = MISSING
    betas: Betas | None = MISSING
    weight_decay: NotNegative = MISSING
    grad_clip: Annotated[float, Meta(ge=1e-12)] | None = MISSING  # the largest norm; null: gradients are not clipped
    warmup: Annotated[int, Meta(ge=0)] = MISSING
    min_lr_ratio: Annotated[float, Meta(ge=0, le=1)] = MISSING


@dataclass(frozen=True)
class Eval:
    """Amounts of held-out data that a model is evaluated on."""

    tokens: Positive = MISSING  # tokens of the test split, evaluated at the last step
    # Evaluations during training use this share of `tokens`, for validation.
    val_share: Annotated[float, Meta(ge=1e-6, le=1)] = MISSING
    lengths: Lengths = MISSING  # lengths besides training's at which the trained model is tested


@dataclass(frozen=True)
class Seed:
    """Fixed seeds of initialisation or data, where null follows the run's seed."""

    init: int | None = None
    data: int | None = None


@dataclass(frozen=True)
class Tune:
    """A key that is tuned for each cell with the same budget: its values, and the number of seeds per value."""

    key: str | None = None
    values: list[Any] = field(default_factory=list)
    seeds: SeedCount = MISSING
    extend: bool = False
    rule: Literal["best", "one_se"] = "best"


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
    model: Model = field(default_factory=Model)
    data: Any = field(default_factory=dict)
    train: Train = field(default_factory=Train)
    optim: Optim = field(default_factory=Optim)
    eval: Eval = field(default_factory=Eval)
    seed: Seed = field(default_factory=Seed)
    track: Any = None
    study: str | None = None
    seeds: Any = 5
    seeds_max: Annotated[int, Meta(ge=5, le=MOST_SEEDS)] = MISSING
    confirm: SeedCount | None = None
    match: Literal["none", "params", "flops", "flops_total"] = MISSING
    design: Literal["grid", "one_at_a_time", "leave_one_out", "cumulative", "ladder"] = MISSING
    ladder: Annotated[int, Meta(ge=3, le=8)] = 4
    zip: list[str] = field(default_factory=list)
    tier: str | None = None
    tune: Tune = field(default_factory=Tune)
    margin: Any = None
    step_equivalents: bool = False
    results_dir: str = MISSING
    dry_run: bool = False
    reuse: Literal["same", "none"] = MISSING
    allow_duplicates: bool = False
    keep: Literal["weights", "all", "none"] = MISSING
    timing: Literal["shared", "isolated"] = MISSING
    user: list[str] = field(default_factory=list)
    unread: dict[str, Any] = field(default_factory=dict)

    @property
    def is_private(self) -> bool:
        """Whether its runs belong to one study only, as runs that are timed together with their partners do."""
        return self.reuse == "none" or self.timing == "isolated"

    def as_json(self) -> dict[str, Any]:
        """The configuration as files hold it, without `user`: who reads a file has to allow packages again."""
        values = {}
        for name in KEYS:
            if name in SECTIONS:
                values[name] = dict(vars(getattr(self, name)))
            elif name != "user":
                values[name] = getattr(self, name)
        for name, more in self.unread.items():
            values[name] = values[name] | more if name in SECTIONS else more
        return values

    def arguments(self, section: str) -> dict[str, Any]:
        """The settings of a model form or optimiser beyond the base schema: arguments of its constructor."""
        values: dict[str, Any] = self.unread.get(section, {})
        return values

    def with_value(self, key: str, value: Any) -> Config:
        """The configuration with one setting changed: optim.lr, ffn.hidden, study."""
        section, _, name = key.partition(".")
        arguments = self.arguments(section)
        if name in arguments:
            return dataclasses.replace(self, unread=self.unread | {section: arguments | {name: value}})
        changed: Config = with_value(self, key.split("."), value)
        return changed


SECTIONS = {"model": Model, "train": Train, "optim": Optim, "eval": Eval, "seed": Seed, "tune": Tune}
KEYS = tuple(each.name for each in dataclasses.fields(Config) if each.name != "unread")
# Keys that determine which runs there are and how they are carried out, but not their numbers.
STUDY_KEYS = tuple(key for key in KEYS if key not in (*VARIED, *SECTIONS, "data", "timing") or key == "tune")
WHOLE = (*STUDY_KEYS, "timing")  # keys of a whole study; `timing` also counts in run keys, as it affects seconds


def typed(plain: dict[str, Any]) -> Config:
    """A resolved configuration as a `Config`; keys beyond the schema go to `unread`, which `check` reports."""
    values = {}
    unread = {}
    for name, value in plain.items():
        if name in SECTIONS:
            fields = types_of(SECTIONS[name])
            values[name] = SECTIONS[name](**{key: item for key, item in value.items() if key in fields})
            arguments = {key: item for key, item in value.items() if key not in fields}
            if arguments:
                unread[name] = arguments
        elif name in KEYS:
            values[name] = value
        else:
            unread[name] = value
    return Config(**values, unread=unread)


def with_value(node: Any, path: list[str], value: Any) -> Any:
    """A copy of a configuration, or of its plain data, with a value set at a path; missing sections are created."""
    name, *rest = path
    if isinstance(node, dict) and LAYERS in node:  # every variant that has the setting gets the value
        variants = {}
        for key, variant in node.items():
            has_setting = isinstance(variant, dict) and name in variant
            variants[key] = with_value(variant, path, value) if has_setting else variant
        return variants
    if isinstance(node, dict):
        return node | {name: with_value(node.get(name) or {}, rest, value) if rest else value}
    return dataclasses.replace(node, **{name: with_value(getattr(node, name), rest, value) if rest else value})


@functools.cache
def types_of(section: type) -> dict[str, Any]:
    """The type of each key of a section, with its range."""
    return get_type_hints(section, include_extras=True)


def options_of(hint: Any) -> list[Any]:
    """The types that a key takes besides null: int and Literal["auto"] of int | Literal["auto"] | None."""
    is_union = get_origin(hint) in (Union, types.UnionType)
    options = get_args(hint) if is_union else (hint,)
    return [option for option in options if option is not types.NoneType]


def choices_of(hint: Any) -> list[str]:
    """The words that a key takes, each of them a Literal."""
    choices: list[str] = []
    for option in options_of(hint):
        if get_origin(option) is Literal:
            choices += get_args(option)
    return choices
