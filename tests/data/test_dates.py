"""Date translation: answers against dates written by hand, and no day on two sides."""

import datetime
from typing import Any

import pytest
from tasks import CHEAP, task

from ablate.data.dates import days_of, write_dates
from ablate.data.sequence import FIRST, SEP

pytest.importorskip("babel")
FORMATS = ("full", "medium", "short")


@pytest.fixture(scope="module")
def answers() -> dict[str, str]:
    """The Hungarian date for each British one, by day and then format."""
    years = tuple(CHEAP["dates"]["years"])
    british = write_dates("source", "en_GB", years, FORMATS)
    hungarian = write_dates("target", "hu_HU", years, FORMATS)
    return dict(zip(british, hungarian, strict=True))


def test_answers_are_how_a_hungarian_writes(answers):
    assert answers["03/05/1996"] == "1996. 05. 03."
    assert answers["Friday, 3 May 1996"] == "1996. május 3., péntek"


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
def test_examples_are_dates_with_their_answers_and_no_day_is_on_two_sides(kind, answers):
    dates = task("dates", kind)
    days = days_of(CHEAP["dates"]["years"])
    day_of = {source: days[i // len(FORMATS)] for i, source in enumerate(answers)}
    sides = {split: dates.held_out(split, 10**5) for split in ("val", "test")}
    trained: set[datetime.date] = set()
    for step in range(12):
        pairs_of_batch = pairs(dates, dates.batch(step, step, 500), answers)
        assert {*pairs_of_batch} <= answers.items()
        trained |= {day_of[source] for source, _ in pairs_of_batch}
    assert len(trained) > 900
    for examples in sides.values():
        pairs_of_side = pairs(dates, examples, answers)
        assert {*pairs_of_side} <= answers.items()
        held_out = [day_of[source] for source, _ in pairs_of_side]
        assert [examples.names[row[0]] for row in examples.documents] == [str(day.year) for day in held_out]
        assert 40 < len({*held_out}) < 110 and not trained & {*held_out}
        trained |= {*held_out}
