"""How to run a program once."""

import json

from ablate.config.typed_json import Record
from ablate.program.revisions import Tree
from ablate.runs.files import digest

FILES = "out"  # the folder of a run that {out} names
LAST_LINE = "; its last line: "  # of its output, in the error of a failed run
OUTPUT = "output.txt"  # what it printed, in its folder


class Program(Record):
    """How to run a program once, and how to read its metric."""

    command: str  # with its fields
    words: list[str]
    environment: dict[str, str]
    folder: str  # that it is started in, where it is in no tree of its own
    tree: Tree | None = None  # the revision that it is started in
    metric: str
    lower_is_better: bool
    read: str = ""
    at: str = "last"
    timeout: float | None = None  # seconds
    is_budget: bool = False  # whether it is to be ended after `timeout`, with what it has reached
    parallel: int | None = None  # how many are run at a time; None: one, or one for each GPU
    numbers: str = ""  # a digest of all that its result depends on


def digest_of(value: object) -> str:
    """A digest of plain values."""
    return digest(json.dumps(value, sort_keys=True).encode())
