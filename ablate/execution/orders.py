"""What the processes of a sweep send each other: an order to train one run, and its answer, each a line of JSON."""

import json

from ablate.config.typed_json import Record, parse, record
from ablate.results.records import Cell


@record
class Order(Record):
    """All that a worker needs to train a run.

    `user` are the packages that the command allows: files allow none.  `wait` where another process trains it.
    """

    results: str
    path: str  # <cell's name>/<key>
    seed: int
    cell: Cell
    user: list[str]
    wait: bool = False


@record
class Answer(Record):
    """How a run ended, the file that had no space, or how the process died.

    `leaving` says that who answers takes no further order.
    """

    status: str
    leaving: bool = False
    full: str = ""
    died: str = ""


def line(message: Record) -> str:
    """A message as it is sent."""
    return json.dumps(message.as_json()) + "\n"


def order_of(text: str) -> Order:
    """The order in a line."""
    return parse(Order, json.loads(text))


def answer_of(text: str) -> Answer | None:
    """The answer in a line; None where a component wrote something else to where answers go."""
    try:
        return parse(Answer, json.loads(text))
    except ValueError:
        return None
