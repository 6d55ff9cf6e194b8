"""Date translation: answers against dates written by hand, and no day on two sides."""

import calendar
import datetime
from typing import Any

import pytest
from tasks import CHEAP, task

from ablate.data.dates import days_of, write_dates
from ablate.data.sequence import FIRST, SEP

pytest.importorskip("babel")
DAYS = ["hétfő", "kedd", "szerda", "csütörtök", "péntek", "szombat", "vasárnap"]
MONTHS = ["január", "február", "március", "április", "május", "június"]
MONTHS += ["július", "augusztus", "szeptember", "október", "november", "december"]
FORMATS = ("full", "medium", "short")


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    """The Hungarian date for each British one, by day and then format."""
    years = tuple(CHEAP["dates"]["years"])
    british = write_dates("source", "en_GB", years, FORMATS)
    hungarian = write_dates("target", "hu_HU", years, FORMATS)
    return dict(zip(british, hungarian, strict=True))


def by_hand(day: datetime.date) -> dict[str, str]:
    """Monday, 3 May 2021: 2021. május 3., hétfő; 03/05/2021: 2021. 05. 03."""
    weekday = calendar.day_name[day.weekday()]
    full = f"{weekday}, {day.day} {calendar.month_name[day.month]} {day.year}"
    short = f"{day.day:02}/{day.month:02}/{day.year}"
    return {
        full: f"{day.year}. {MONTHS[day.month - 1]} {day.day}., {DAYS[day.weekday()]}",
        short: f"{day.year}. {day.month:02}. {day.day:02}.",
    }


def test_answers_are_how_a_hungarian_writes(answers: dict[str, str]) -> None:
    for day in days_of(CHEAP["dates"]["years"]):
        assert answers.items() >= by_hand(day).items()


def pairs(dates: Any, examples: Any, answers: dict[str, str]) -> list[tuple[str, str]]:
    """Source and answer of each example as text, from what a model gets."""
    alphabet = sorted(set("".join([*answers, *answers.values()])))

    def text(ids: list[int]) -> str:
        return "".join(alphabet[i - FIRST] for i in ids if i >= FIRST)

    found = []
    for i, targets in enumerate(examples.targets.tolist()):
        tokens = examples.inputs["tokens"][i].tolist()
        cut = tokens.index(SEP) if dates.kind == "lm" else 0
        source = tokens[:cut] if dates.kind == "lm" else examples.inputs["source"][i].tolist()
        assert text(tokens[cut:]) == text(targets)
        found.append((text(source), text(targets)))
    return found


@pytest.mark.parametrize("kind", ["lm", "seq2seq"])
def test_examples_are_dates_and_their_answers(kind: str, answers: dict[str, str]) -> None:
    dates = task("dates", kind)
    for examples in (dates.batch(1, 0, 300), dates.held_out("test", 20_000)):
        assert {*pairs(dates, examples, answers)} <= answers.items()


def test_no_day_is_on_two_sides_and_documents_are_the_years(answers: dict[str, str]) -> None:
    dates = task("dates", "seq2seq")
    days = days_of(CHEAP["dates"]["years"])
    day_of = {source: days[i // len(FORMATS)] for i, source in enumerate(answers)}
    train = {day_of[source] for step in range(12) for source, _ in pairs(dates, dates.batch(step, step, 500), answers)}
    held_out = {}
    for split in ("val", "test"):
        examples = dates.held_out(split, 10**5)
        sources = [source for source, _ in pairs(dates, examples, answers)]
        assert [examples.names[row[0]] for row in examples.documents] == [str(day_of[s].year) for s in sources]
        held_out[split] = {day_of[source] for source in sources}
        assert 40 < len(held_out[split]) < 110
    assert len(train) > 900 and not train & (held_out["val"] | held_out["test"])
    assert not held_out["val"] & held_out["test"]
