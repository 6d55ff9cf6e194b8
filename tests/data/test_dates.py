"""Date translation: answers against dates written by hand, no day on two sides, locales that are none."""

import calendar
import datetime
from typing import Any

import pytest
from tasks import build, task

from ablate.data.dates import refuse_ambiguous
from ablate.data.sequence import EOS, FIRST, SEP
from ablate.data.task import IGNORE

pytest.importorskip("babel")
DAYS = ["hétfő", "kedd", "szerda", "csütörtök", "péntek", "szombat", "vasárnap"]
MONTHS = ["január", "február", "március", "április", "május", "június"]
MONTHS += ["július", "augusztus", "szeptember", "október", "november", "december"]
both = pytest.mark.parametrize("kind", ["lm", "seq2seq"])


def by_hand(day: datetime.date) -> dict[str, str]:
    """Monday, 3 May 2021: 2021. május 3., hétfő; 3 May 2021: 2021. máj. 3.; 03/05/2021: 2021. 05. 03."""
    weekday = calendar.day_name[day.weekday()]
    full = f"{weekday}, {day.day} {calendar.month_name[day.month]} {day.year}"
    short = f"{day.day:02}/{day.month:02}/{day.year}"
    return {
        full: f"{day.year}. {MONTHS[day.month - 1]} {day.day}., {DAYS[day.weekday()]}",
        short: f"{day.year}. {day.month:02}. {day.day:02}.",
    }


def characters(dates: Any) -> dict[int, str]:
    """The characters of ids, learned from dates written by hand."""
    known: dict[int, str] = {}
    for i, day in enumerate(dates.days):
        for row, pair in zip((0, 2), by_hand(day).items(), strict=True):  # full and short
            for table, text in zip((dates.sources, dates.targets), pair, strict=True):
                written = [int(number) for number in table[i * dates.formats + row] if number]
                for number, character in zip(written, text, strict=True):
                    assert known.setdefault(number, character) == character
    assert len(set(known.values())) == len(known) and min(known) >= FIRST
    return known


def read(dates: Any, examples: Any) -> list[tuple[str, str]]:
    """Source and answer of each example as text, from what a model gets."""
    known = characters(dates)
    pairs = []
    for i, targets in enumerate(examples.targets.tolist()):
        tokens = examples.inputs["tokens"][i].tolist()
        cut = tokens.index(SEP) if dates.kind == "lm" else 0
        source = tokens[:cut] if dates.kind == "lm" else examples.inputs["source"][i].tolist()
        answer = [target for target in targets if target != IGNORE]
        assert answer.pop() == EOS and [token for token in tokens[cut + 1 :] if token] == answer
        pairs.append(tuple("".join(known.get(j, "") for j in ids) for ids in (source, answer)))
    return pairs


@both
def test_answers_are_how_a_hungarian_writes(kind: str) -> None:
    dates: Any = task("dates", kind)
    answers: dict[str, str] = {}
    for day in dates.days:
        answers |= by_hand(day)
    pairs = read(dates, dates.batch(1, 0, 300)) + read(dates, dates.held_out("test", 20_000))
    known = [pair for pair in pairs if pair[0] in answers]
    assert all(answers[source] == answer for source, answer in known)
    assert len(known) > 0.5 * len(pairs)  # the rest is the medium format
    assert {source[-4:] for source, _ in known} == {"1996", "1997", "1998", "1999"}


def day_of(source: str) -> tuple[int, int, int]:
    """Year, month and day that a British date names, whatever its format."""
    if "/" in source:
        day, month, year = map(int, source.split("/"))
        return year, month, day
    day, name, year = source.split(", ")[-1].split(" ")
    return int(year), list(calendar.month_abbr).index(name[:3]), int(day)


def test_no_day_is_on_two_sides() -> None:
    dates = task("dates", "seq2seq")
    train = {day_of(source) for step in range(12) for source, _ in read(dates, dates.batch(step, step, 500))}
    val = {day_of(source) for source, _ in read(dates, dates.held_out("val", 2 * 10**5))}
    test = {day_of(source) for source, _ in read(dates, dates.held_out("test", 2 * 10**5))}
    assert not train & val and not train & test and not val & test
    assert len(train) > 900 and 40 < len(val) < 110 and 40 < len(test) < 110


def test_documents_are_the_years() -> None:
    dates = task("dates", "seq2seq")
    held_out = dates.held_out("test", 20_000)
    assert held_out.names == ["1996", "1997", "1998", "1999"] and len(set(held_out.documents.ravel())) == 4
    for (source, _), documents in zip(read(dates, held_out), held_out.documents, strict=True):
        assert {held_out.names[document] for document in documents} == {str(day_of(source)[0])}


REFUSED = [
    ({"source": "en_GBB"}, "did you mean en_GB?"),
    ({"target": "hungarian"}, "data.target=hungarian"),
    ({"source": ""}, "data.source= is no locale"),
    ({"formats": ["wide"]}, "write some of [full"),
    ({"formats": []}, "data.formats=[]"),
    *(({"years": years}, "data.years=") for years in ([2000], [2010, 2000], [0, 10], [1, 2, 3])),
    ({"context": 31}, "needs data.context of at least 32, not 31"),
    ({"formats": ["long", "medium"], "years": [1998, 1999]}, "May"),  # two answers to one date
]


@pytest.mark.parametrize(("settings", "words"), REFUSED)
def test_what_is_no_setting_is_refused(settings: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError) as caught:
        build("dates", "seq2seq", **settings)
    message = str(caught.value)
    assert "\n" not in message and message.startswith("data.") and words in message


def test_a_date_that_means_two_days_is_refused() -> None:
    with pytest.raises(ValueError, match=r"^data\.formats.*'1/1/50' is '2050' or '1950'"):
        refuse_ambiguous(["1/1/50", "1/2/50", "1/1/50"], ["1950", "1950", "2050"], 1, "en_US")
