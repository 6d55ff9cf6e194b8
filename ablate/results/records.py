"""What the manifest of a study holds, as records: cells, planned runs, looks, claims, the margin, what was tuned."""

import dataclasses
from typing import Any, Literal

from ablate.config.citations import Entry
from ablate.config.claim_relations import Claim, Criterion, Level, Levels, Number
from ablate.config.designs import Aliases
from ablate.config.schema import Config
from ablate.config.typed_json import Record, optional, record
from ablate.results.atomic import Sum

FORMAT = 2  # of manifests

SOLVED = "solved"  # the metric of tasks with `solved_at`: 1 of a run that solved its task, 0 of any other that ended
Way = Literal["min", "max"]  # in which a metric is better


@record
class TaskFacts(Record):
    """What a study keeps of a task; `metrics` says of each whether less ("min") or more is better.

    shares           metrics between 0 and 1
    units            of metrics that are per token
    beside           metrics that the summary shows beside the first
    solved_at        what the metric after `solved` is of a run that solved its task, where that is what is compared
    """

    name: str = ""
    title: str = ""
    kind: str = ""
    token: str = ""  # what a target stands for
    metrics: dict[str, Way]
    yardsticks: dict[str, Number | None] = dataclasses.field(default_factory=dict)
    train_tokens: Number | None = None
    positions: int | None = optional(default=None)
    shares: list[str] = dataclasses.field(default_factory=lambda: ["accuracy", "exact"])
    units: dict[str, str] = dataclasses.field(default_factory=lambda: {"loss": "nats"})
    beside: list[str] = dataclasses.field(default_factory=list)
    solved_at: Number | None = optional(default=None)

    @property
    def measured(self) -> str:
        """The first metric that its runs measure: the share solved is counted from it."""
        return next(name for name in self.metrics if self.solved_at is None or name != SOLVED)

    def clumps(self, metric: str) -> bool:
        """Whether a metric is that one, of runs that end near its best or far below: a mean describes neither."""
        return self.solved_at is not None and metric.split("/")[-1].split("@")[0] == self.measured


@record
class Matched(Record):
    """What a cell was held equal in: its amount, its reference's, and the difference as a share of the latter."""

    quantity: str
    value: Number
    reference: Number
    difference: Number


@record
class StepSeconds(Record):
    """Seconds of a cell's training step, measured before its study began, and the relative standard error of the ratio
    to its reference's.
    """

    seconds: Number
    error: Number


@record
class Cell(Record):
    """One resolved configuration without its seed, with what it costs and what it shares with its reference.

    batches          cells with equal values see the same batches, and their seeds pair
    task             fingerprint of its data
    step_seconds     where cells are equal in seconds
    shared_draws     share of its parameters that start from its reference's draws
    seen_lengths     of `eval.lengths` those whose examples training has seen, with the share of them
    defaults         arguments that no YAML sets and constructors fill in, by dotted name
    written          the label that it was planned with, where a user has given it another
    """

    id: str
    name: str  # of its runs' folder
    label: str
    levels: Levels
    reference: bool
    params: Number
    params_vs_reference: Number | None = None
    flops_per_token: Number
    shared_draws: Number | None = None
    matched: Matched | None = None
    step_seconds: StepSeconds | None = optional(default=None)
    tokens_per_step: Number | None = None
    batches: str
    task: str
    seen_lengths: dict[str, Number] = dataclasses.field(default_factory=dict)
    notes: list[str] = dataclasses.field(default_factory=list)
    defaults: dict[str, Any] = dataclasses.field(default_factory=dict)
    config: Config
    written: str | None = optional(default=None)

    @property
    def flops_per_step(self) -> float:
        """Floating-point operations of a training step: 3 times those of its forward passes (Chowdhery 2022)."""
        return 3.0 * self.flops_per_token * (self.tokens_per_step or 1)


@record
class PlannedRun(Record):
    """A cell with a seed; `path` is `<cell's name>/<key>`, `tuned` the settings that were chosen for this seed."""

    cell: str
    seed: int
    tuned: Levels | None = optional(default=None)
    path: str


@record
class Look(Record):
    """Results of these seeds have been seen; `planned` are the looks of a sequence, `study` who saw them elsewhere."""

    seeds: list[int]
    planned: list[int] | None = optional(default=None)
    when: str = ""
    study: str | None = optional(default=None)


@record
class Sequential(Record):
    """The looks of seeds=auto, as numbers of seeds; the study is `at` one of them, and `max` is the last."""

    looks: list[int]
    at: int
    max: int | None = optional(default=None)


@record
class ClaimText(Record):
    """A claim as it was written, since when, and whether no comparison that it speaks of existed then."""

    claim: Claim
    written: str = ""
    registered: bool


@record
class ClaimEntry(ClaimText):
    """A claim with its earlier texts; one that was taken out says when, and whether its results were seen by then."""

    earlier: list[ClaimText] = dataclasses.field(default_factory=list)
    withdrawn: str | None = optional(default=None)
    seen: bool | None = optional(default=None)


@record
class MarginText(Record):
    """A margin, since when it holds, and whether no comparison existed then; None is none any more."""

    value: Number | str | None
    written: str = ""
    registered: bool = False


@record
class MarginEntry(MarginText):
    """The margin of a study with its earlier values, oldest first."""

    earlier: list[MarginText] = dataclasses.field(default_factory=list)


@record
class CriterionText(Record):
    """What counts as replicated, since when, and whether no comparison existed then; None is nothing any more."""

    value: Criterion | None
    written: str = ""
    registered: bool = False


@record
class CriterionEntry(CriterionText):
    """The criterion of a study with its earlier ones, oldest first; `remark` says how else it was registered."""

    earlier: list[CriterionText] = dataclasses.field(default_factory=list)
    remark: str | None = optional(default=None)


@record
class Tune(Record):
    """What a study that tunes was asked for."""

    key: str
    values: list[Any]
    seeds: int
    extend: bool = False
    per_seed: bool = False


@record
class TunedCell(Record):
    """The value that tuning chose for a cell, or for each of its seeds (`values`), and the scores of all."""

    value: Level
    values: dict[str, Level] = optional(default={})
    scores: list[Number | None]
    edge: bool  # whether it is the first or last that was tried


@record
class Tuning(Record):
    """What was tuned before a study was trained: the key, its values, seeds per value, the study that did it."""

    key: str
    values: list[Level]
    seeds: int
    per_seed: bool = optional(default=False)
    study: str
    cells: dict[str, TunedCell]


@record
class Manifest(Record):
    """A study: what varies, its cells, the planned runs, what was claimed beforehand and what has been seen."""

    format: int | None = optional(default=None)
    study: str
    source: str | None = optional(default=None)  # the file or project that runs of other programs come from
    created: str = ""
    updated: str = ""
    command: str = ""
    versions: dict[str, str] = dataclasses.field(default_factory=dict)
    design: str = "grid"
    zip: list[str] = dataclasses.field(default_factory=list)
    factors: dict[str, list[Level]]
    components: list[str]
    reference: Levels
    match: str = "none"
    claims: dict[str, ClaimEntry] = dataclasses.field(default_factory=dict)
    tier: str | None = None
    seeds: list[int]
    sequential: Sequential | None = None
    confirms: str | None = None
    looks: list[Look]
    tasks: dict[str, TaskFacts]
    cells: list[Cell]
    runs: list[PlannedRun]
    experiment: str | None = optional(default=None)
    asks: str | None = optional(default=None)  # digest of all that its study file sets and claims
    question: str | None = optional(default=None)
    published: str | None = optional(default=None)  # the numbers that the study tests again, as people read them
    figure: str | None = optional(default=None)  # the kind that mirrors the paper's
    placebo_of: str | None = optional(default=None)
    exchange_of: str | None = optional(default=None)
    aliases: Aliases = dataclasses.field(default_factory=Aliases)
    remarks: list[str] = dataclasses.field(default_factory=list)
    papers: dict[str, dict[str, Entry]] = optional(default={})  # of each variant, by key
    tunes: str | None = optional(default=None)
    tune: Tune | None = optional(default=None)
    endpoint: str | None = optional(default=None)
    tuning: Tuning | None = optional(default=None)
    placebos: str | None = optional(default=None)
    exchange: str | None = optional(default=None)
    timing: str | None = optional(default=None)
    shown: dict[str, str] = optional(default={})  # what a user calls factors and levels
    withdrawn: dict[str, ClaimEntry] = dataclasses.field(default_factory=dict)
    claims_hash: str | None = None
    replicated: CriterionEntry | None = optional(default=None)
    effects: MarginEntry | None = optional(default=None)  # "all": they are judged beside registered claims
    margin: MarginEntry | None = None

    def beside(self) -> dict[str, str]:
        """The studies that belong to this one, by what they are to it."""
        named = {"placebos": self.placebos, "exchange": self.exchange}
        return {role: name for role, name in named.items() if name}


Status = Literal["done", "diverged", "failed"]
Metrics = dict[str, Number | None]  # None was not finite


@record
class Provenance(Record):
    """All that a run's numbers come from: its settings (a hash), versions, data, and code (a hash).

    `study` is the one that the run belongs to alone, under reuse=none or timing=isolated; `source` says where the data
    were, `definitions` holds the digest of each by where it stands.
    """

    numbers: str = ""
    versions: dict[str, str | int]
    data: str = ""
    source: dict[str, Any] | None = None
    study: str | None = None
    code: str = ""
    definitions: dict[str, str] = dataclasses.field(default_factory=dict)


@record
class RunError(Record):
    """Why a run failed or diverged."""

    type: str = ""
    message: str = ""
    traceback: str = ""


@record
class Commit(Record):
    """The code that a run was trained with, and whether it had changes."""

    commit: str | None = None
    dirty: bool | None = None


@record
class Overfits(Record):
    """How many times its lowest the validation loss ends at, and the step where it was lowest."""

    times: Number
    step: Number


@record
class Documents(Record):
    """Scored targets and mean loss of each held-out document."""

    name: list[str] = optional(default=[])
    tokens: list[int] = optional(default=[])
    loss: list[Number | None] = optional(default=[])


@record
class Result(Record):
    """What a run ended with: its status, the metrics of its last step, and what it knows of itself, or None.

    `files` are the files beside it as they were written, `documents` the test split's by the name of the split,
    `seconds` by phase with their total, `resumed` how often it went on from a checkpoint, `cpu_seconds` what its
    processes took of the CPU, but for what a killed one did after its last checkpoint, `vectors_seconds` what training
    the vectors of its embedding took, whichever run trained them.
    `step_seconds`, the mean of training steps after the first few, and `tokens_per_second` with it say something about
    speed where `timing` is isolated: the runs of one `sitting` were trained one after another.
    """

    status: Status
    final: Metrics
    error: RunError | None = None
    files: dict[str, Sum] | None = None
    overfits: Overfits | None = None
    params: Number | None = None
    flops_per_token: Number | None = None
    data_fingerprint: str | None = None
    versions: dict[str, str] | None = None
    git: Commit | None = None
    host: str | None = None
    steps: int | None = None
    tokens: int | None = None
    resumed: int | None = None
    accumulation: int | None = None
    seconds: dict[str, Number] | None = None
    cpu_seconds: Number | None = optional(default=None)
    vectors_seconds: Number | None = optional(default=None)
    timing: str | None = optional(default=None)
    sitting: str | None = optional(default=None)
    step_seconds: Number | None = optional(default=None)
    tokens_per_second: Number | None = None
    mfu: Number | None = None
    peak_memory: Number | None = None
    device: str | None = None
    documents: dict[str, Documents] | None = None
    started: str | None = None
    ended: str | None = None


@record
class Evaluation(Record):
    """Metrics of a trained model that came after its result, at other lengths say, and what they were measured with."""

    metrics: Metrics = dataclasses.field(default_factory=dict)
    torch: str | None = None
    data_fingerprint: str | None = None
