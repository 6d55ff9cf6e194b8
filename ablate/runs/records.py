"""Record types of manifests (cells, planned runs, looks, claims, margin, tuning) and of a run's result files."""

import dataclasses
import math
from typing import Any, Generic, Literal, TypeVar, get_args

from ablate.config.citations import Entry
from ablate.config.claims import Claim, Criterion, Level, Leveled, Levels, Number
from ablate.config.mirror import Mirror
from ablate.config.schema import Config
from ablate.config.typed_json import Record, optional
from ablate.runs.files import Sum

FORMAT = 2  # version of the manifest format

SOLVED = "solved"  # the metric of tasks with `solved_at`: 1 for a finished run that solved its task, else 0
V = TypeVar("V")
Way = Literal["min", "max"]  # whether lower or higher values of a metric are better


class TaskFacts(Record):
    """Facts about a task."""

    name: str = ""
    title: str = ""
    kind: str = ""
    token: str = ""  # what one target is: byte, word, ...
    metrics: dict[str, Way]  # the first one ranks
    yardsticks: dict[str, Number | None] = dataclasses.field(default_factory=dict)
    train_tokens: Number | None = None
    positions: int | None = optional(default=None)
    shares: list[str] = dataclasses.field(default_factory=lambda: ["accuracy", "exact"])  # are in [0, 1]
    units: dict[str, str] = dataclasses.field(default_factory=lambda: {"loss": "nats"})  # per token
    beside: list[str] = dataclasses.field(default_factory=list)  # metrics that the summary shows next to the first
    solved_at: Number | None = optional(default=None)  # what `measured` must reach for a run to count as solved

    @property
    def measured(self) -> str:
        """The first metric that runs measure; `solved` is derived from it."""
        return next(name for name in self.metrics if self.solved_at is None or name != SOLVED)

    def clumps(self, metric: str) -> bool:
        """Whether a metric's values cluster near its best or far below it, so that a mean describes neither group."""
        return self.solved_at is not None and metric.split("/")[-1].split("@")[0] == self.measured


class Matched(Record):
    """The matched quantity of a cell: its value, the reference's, and their difference relative to the reference."""

    quantity: str
    value: Number
    reference: Number
    difference: Number


class UserCode(Record):
    """The user code that a cell imported when it was planned: a digest of each file's content, by name."""

    packages: dict[str, str]  # every file of the packages that `user=` names
    modules: dict[str, str]  # further local modules that were imported
    ablate: list[str]  # names of ablate that it imports
    versions: dict[str, str]  # of the installed distributions that it imports

    @property
    def files(self) -> dict[str, str]:
        """The digest of each file."""
        return self.packages | self.modules


class Cell(Leveled):
    """One resolved configuration without its seed, its cost, and what it shares with its reference.

    Of another program's runs, configuration, parameters and FLOPs may be unknown, and are None.
    """

    params: Number | None = optional()
    params_vs_reference: Number | None = None
    flops_per_token: Number | None = optional()
    shared_draws: Number | None = None  # share of its parameters with the same initial random draws as the reference's
    matched: Matched | None = None
    tokens_per_step: Number | None = None
    batches: str  # cells with equal values see the same batches, and their seeds pair
    task: str  # fingerprint of its data
    notes: list[str] = dataclasses.field(default_factory=list)
    defaults: dict[str, Any] = dataclasses.field(default_factory=dict)  # arguments that no YAML sets, by dotted name
    config: Config | None = optional()
    user_code: UserCode | None = optional(default=None)  # None if all of its components are built in
    written: str | None = optional(default=None)  # the planned label, if a user has given the cell another one

    @property
    def planned_config(self) -> Config:
        """The configuration of a cell that was planned here.  Raises ValueError for runs of another program."""
        if self.config is None:
            raise ValueError(f"{self.label} has no configuration: its runs are another program's")
        return self.config

    @property
    def flops_per_step(self) -> float:
        """FLOPs of a training step: 3 times those of its forward passes (Chowdhery 2022); NaN if unknown."""
        if self.flops_per_token is None:
            return math.nan
        return 3.0 * self.flops_per_token * (self.tokens_per_step or 1)

    @property
    def training_flops(self) -> float:
        """FLOPs of its training, forward and backward; NaN if its steps or tokens per step are unknown."""
        if self.config is None or not self.tokens_per_step:
            return math.nan
        return self.flops_per_step * self.config.train.steps


class PlannedRun(Record):
    """A cell and a seed; `path` is `<cell's name>/<key>`."""

    cell: str
    seed: int
    path: str


class Look(Record):
    """One look at the results of these seeds; `planned` is the sequence of looks, `study` another study that looked."""

    seeds: list[int]
    planned: list[int] | None = optional(default=None)
    when: str = ""
    study: str | None = optional(default=None)


class Sequential(Record):
    """The looks of seeds=auto, as numbers of seeds: the current one is `at`, the last one `max`."""

    looks: list[int]
    at: int
    max: int | None = optional(default=None)


class ClaimText(Record):
    """A claim, when it was written, and whether it was registered: before any comparison that it is about existed."""

    claim: Claim
    written: str = ""
    registered: bool


class ClaimEntry(ClaimText):
    """A claim with its earlier versions; `withdrawn` and `seen`: when it was removed, and whether results were seen."""

    earlier: list[ClaimText] = dataclasses.field(default_factory=list)
    withdrawn: str | None = optional(default=None)
    seen: bool | None = optional(default=None)


class ValueText(Record, Generic[V]):
    """A margin or criterion, when it was set, and whether before any comparison existed; None if it was removed."""

    value: V | None
    written: str = ""
    registered: bool = False


class ValueEntry(ValueText[V]):
    """A margin or criterion with its earlier values, oldest first; `remark` is a note on its registration."""

    earlier: list[ValueText[V]] = dataclasses.field(default_factory=list)
    remark: str | None = optional(default=None)


MarginText = ValueText[Number | str]
MarginEntry = ValueEntry[Number | str]
CriterionEntry = ValueEntry[Criterion]


class Tune(Record):
    """The request for tuning: the key, its values, and how they are tried."""

    key: str
    values: list[Any]
    seeds: int
    extend: bool = False
    rule: str = "best"


class TunedCell(Record):
    """The value that tuning chose for a cell, and the scores of all values."""

    value: Level
    scores: list[Number | None]
    edge: bool  # whether it is the first or last value tried


class Tuning(Record):
    """The tuning before a study: the key, its values, seeds per value, and the study that tuned it."""

    key: str
    values: list[Level]
    seeds: int
    rule: str = optional(default="best")
    study: str
    cells: dict[str, TunedCell]


class Manifest(Record):
    """A study: its factors, cells, planned runs, registered claims, and the looks at its results."""

    format: int | None = optional(default=None)
    study: str
    source: str | None = optional(default=None)  # the file or project that runs of another program were read from
    program: str | None = optional(default=None)  # the command of another program that trains its runs
    track: list[dict[str, Level]] = optional(default=[])  # the tracking services of a program's runs
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
    asks: str | None = optional(default=None)  # digest of everything that its study file sets and claims
    question: str | None = optional(default=None)
    published: str | None = optional(default=None)  # the published numbers that the study retests, as text
    figure: str | None = optional(default=None)  # the kind of figure that corresponds to the paper's
    mirror: Mirror | None = optional(default=None)  # the paper's figure as data
    exchange_of: str | None = optional(default=None)
    remarks: list[str] = dataclasses.field(default_factory=list)
    papers: dict[str, dict[str, Entry]] = optional(default={})  # the papers that each variant cites, by key
    tunes: str | None = optional(default=None)
    tune: Tune | None = optional(default=None)
    endpoint: str | None = optional(default=None)
    tuning: Tuning | None = optional(default=None)
    exchange: str | None = optional(default=None)
    timing: str | None = optional(default=None)
    names: dict[str, str] = optional(default={})  # what the user's folder calls variants, keys and metrics
    shown: dict[str, str] = optional(default={})  # what is shown in place of factors, levels and metrics
    withdrawn: dict[str, ClaimEntry] = dataclasses.field(default_factory=dict)
    claims_hash: str | None = None
    replicated: CriterionEntry | None = optional(default=None)
    margin: MarginEntry | None = None

    @property
    def is_foreign(self) -> bool:
        """Whether another program trained its runs."""
        return bool(self.source or self.program)

    def passes(self, cell: Cell) -> float | None:
        """How often a cell sees the training data; None if the data never repeat, or if its steps are unknown."""
        tokens = self.tasks[cell.task].train_tokens
        if tokens is None or cell.config is None:
            return None
        return float(cell.config.train.steps * (cell.tokens_per_step or 0) / tokens)

    @property
    def configs(self) -> list[Config]:
        """The configurations of its cells; empty for runs of another program."""
        return [cell.config for cell in self.cells if cell.config is not None]

    def beside(self) -> dict[str, str]:
        """The studies that accompany this one, by role (`exchange`)."""
        return {"exchange": self.exchange} if self.exchange else {}


class ClaimVerdict(Record):
    """How a claim was judged, and by the code of which commit.  `p` is that of the claim alone, uncorrected."""

    verdict: Literal["supported", "contradicted", "undecided", "withheld"]
    note: str
    estimate: Number | None
    interval: tuple[Number | None, Number | None]
    p: Number | None
    method: str
    commit: str


class StudyVerdicts(Record):
    """The content of verdicts.json: the overall verdict by the study's criterion, if it has one, and its claims'."""

    overall: str | None
    claims: dict[str, ClaimVerdict]


Status = Literal["done", "diverged", "failed"]
STATUSES = (*get_args(Status), "missing")  # of planned runs
Metrics = dict[str, Number | None]  # None: not finite


class Provenance(Record):
    """Everything that a run's numbers depend on: settings (a hash), versions, data, and code (a hash).

    `format` is that of the key; 1 in all runs before it was written.  Since format 2 each file of a run has its key.
    """

    key: str | None = optional(default=None)
    format: int = 1
    numbers: str = ""
    versions: dict[str, str | int]
    data: str = ""
    source: dict[str, Any] | None = None  # where the data came from
    study: str | None = None  # the only study that may use the run, under reuse=none or timing=isolated
    code: str = ""
    definitions: dict[str, str] = dataclasses.field(default_factory=dict)  # digests by qualified name, or by file


class RunError(Record):
    """Why a run failed or diverged."""

    type: str = ""
    message: str = ""
    traceback: str = ""


class Commit(Record):
    """The git commit that a run was trained with, and whether there were uncommitted changes."""

    commit: str | None = None
    dirty: bool | None = None


class Overfits(Record):
    """Final validation loss divided by the lowest, and the step of the lowest."""

    times: Number
    step: Number


class Documents(Record):
    """Names, numbers of scored targets and mean losses of held-out documents."""

    name: list[str] = optional(default=[])
    tokens: list[int] = optional(default=[])
    loss: list[Number | None] = optional(default=[])


class Result(Record):
    """The outcome of a run: its status, the metrics of its last step, and facts about the run, None where unknown."""

    key: str | None = optional(default=None)  # of its run; runs of format 1 have none
    status: Status
    final: Metrics
    error: RunError | None = None
    files: dict[str, Sum] | None = None  # checksums of its other files
    overfits: Overfits | None = None
    params: Number | None = None
    flops_per_token: Number | None = None
    data_fingerprint: str | None = None
    versions: dict[str, str] | None = None
    git: Commit | None = None
    host: str | None = None
    steps: int | None = None
    tokens: int | None = None
    resumed: int | None = None  # how often it continued from a checkpoint
    accumulation: int | None = None
    seconds: dict[str, Number] | None = None  # of each phase, and the total
    cpu_seconds: Number | None = optional(default=None)  # without what killed processes did after a last checkpoint
    vectors_seconds: Number | None = optional(default=None)  # to train its embedding's vectors, whichever run did
    timing: str | None = optional(default=None)
    sitting: str | None = optional(default=None)  # the runs of one were trained one after another
    step_seconds: Number | None = optional(default=None)  # mean after the first steps; comparable if timing=isolated
    tokens_per_second: Number | None = None  # comparable if timing=isolated
    mfu: Number | None = None
    peak_memory: Number | None = None
    device: str | None = None
    documents: dict[str, Documents] | None = None  # of each split
    started: str | None = None
    ended: str | None = None


class Evaluation(Record):
    """Metrics added after a run's result, such as those at other lengths, and the versions that they depend on."""

    key: str | None = optional(default=None)  # of its run; runs of format 1 have none
    metrics: Metrics = dataclasses.field(default_factory=dict)
    torch: str | None = None
    data_fingerprint: str | None = None

    @property
    def versions(self) -> tuple[str | None, str | None]:
        """What its metrics depend on besides the run: torch and the data."""
        return self.torch, self.data_fingerprint
