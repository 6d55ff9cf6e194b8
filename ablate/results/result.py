"""What a run came from and what it ended with, as its provenance.json, result.json and evaluation.json hold it."""

import dataclasses
from typing import Any, Literal

from ablate.config.typed_json import Record, optional, record
from ablate.results.checksum import Sum
from ablate.results.records import Number

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
