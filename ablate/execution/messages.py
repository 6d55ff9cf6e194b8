"""What the processes of a sweep tell each other: jobs, orders and answers, each a line of JSON."""

from __future__ import annotations

import json

from ablate.config.typed_json import Record, parse, record
from ablate.results.records import UnitRun


@record
class Job(Record):
    """A unit of a study to be carried out, with what it takes from packages of `user`; `wait` where others hold it."""

    results: str
    study: str
    unit: str
    user: list[str]
    wait: bool = True


@record
class Order(Record):
    """One run of a job."""

    results: str
    run: UnitRun
    user: list[str]
    wait: bool


@record
class Answer(Record):
    """What became of a job or an order: how each run ended, or the file that had no space, or how a process died.

    `leaving` says that who answers takes nothing more.
    """

    statuses: list[str]
    leaving: bool = False
    full: str = ""
    died: str = ""


def line(message: Record) -> str:
    """A message as it is sent."""
    return json.dumps(message.as_json()) + "\n"


def answer_of(text: str) -> Answer | None:
    """The answer in a line; None where a component wrote something else to where answers go."""
    try:
        return parse(Answer, json.loads(text))
    except ValueError:
        return None
