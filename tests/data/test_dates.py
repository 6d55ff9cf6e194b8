"""Date translation: answers against dates written by hand, no day on two sides, locales that are none."""

import calendar
import datetime
import functools
from typing import Any

import pytest
from tasks import build, task

from ablate.data.dates import refuse_ambiguous
from ablate.data.sequence import BOS, EOS, FIRST, SEP
from ablate.data.task import IGNORE

pytest.importorskip("babel")
DAYS = ["hétfő", "kedd", "szerda", "csütörtök", "péntek", "szombat", "vasárnap"]
MONTHS = ["január", "február", "március", "április", "május", "június"]
MONTHS += ["július", "augusztus", "szeptember", "október", "november", "december"]
ENGLISH = list(calendar.month_name)[1:]
both = pytest.mark.parametrize("kind", ["lm", "seq2seq"])


@functools.cache
def alphabet(it: Any) -> dict[int, str]:
    """Characters by their ids, learned from dates written by hand; a task's tables never change."""
    found: dict[int, str] = {}
    for i, day in enumerate(it.days):
        for row, texts in ((0, (british(day), hungarian(day))), (2, short(day))):  # full and short
            for table, text in zip((it.sources, it.targets), texts, strict=True):
                kept = [int(j) for j in table[i * it.formats + row] if j]
                assert len(kept) == len(text), text
                for j, character in zip(kept, text, strict=True):
                    assert found.setdefault(j, character) == character
    assert len(set(found.values())) == len(found) and min(found) >= FIRST
    return found


def british(day: datetime.date) -> str:
    """Monday, 3 May 2021."""
    names = ["Monday", "Tuesday", "Wednesday", "Thursday", "Friday", "Saturday", "Sunday"]
    return f"{names[day.weekday()]}, {day.day} {ENGLISH[day.month - 1]} {day.year}"


def hungarian(day: datetime.date) -> str:
    """2021. május 3., hétfő."""
    return f"{day.year}. {MONTHS[day.month - 1]} {day.day}., {DAYS[day.weekday()]}"


def short(day: datetime.date) -> tuple[str, str]:
    """03/05/2021 and 2021. 05. 03."""
    return f"{day.day:02}/{day.month:02}/{day.year}", f"{day.year}. {day.month:02}. {day.day:02}."


def read(it: Any, found: Any) -> list[tuple[str, str]]:
    """Source and answer of each example as text, from what a model gets."""
    characters = alphabet(it) | {BOS: "", SEP: "", EOS: "\n"}
    pairs = []
    for i, targets in enumerate(found.targets.tolist()):
        tokens = found.inputs["tokens"][i].tolist()
        source = found.inputs["source"][i].tolist() if it.kind == "seq2seq" else tokens[: tokens.index(SEP)]
        answer = "".join(characters[j] for j in targets if j != IGNORE)
        assert answer.endswith("\n")
        shown = tokens if it.kind == "seq2seq" else tokens[tokens.index(SEP) :]
        assert "".join(characters[j] for j in shown if j) == answer[:-1]
        pairs.append(("".join(characters[j] for j in source if j), answer[:-1]))
    return pairs


@both
def test_answers_are_how_a_hungarian_writes(kind: str) -> None:
    it = task("dates", kind)
    by_hand = {british(day): hungarian(day) for day in it.days}  # type: ignore[attr-defined]
    by_hand |= dict(short(day) for day in it.days)  # type: ignore[attr-defined]
    pairs = [pair for step in range(3) for pair in read(it, it.batch(1, step, 100))]
    pairs += read(it, it.held_out("test", 20_000))
    known = [(source, answer) for source, answer in pairs if source in by_hand]
    assert all(by_hand[source] == answer for source, answer in known)
    assert len(known) > 0.5 * len(pairs)  # the rest is the medium format
    assert len({source[-4:] for source, _ in known}) == 4


def day_of(source: str) -> tuple[int, int, int]:
    """Year, month and day that a British date names, whatever its format."""
    if "/" in source:
        day, month, year = map(int, source.split("/"))
        return year, month, day
    day, name, year = source.split(", ")[-1].split(" ")
    month = next(i for i, month in enumerate(ENGLISH) if month[:3] == name[:3]) + 1
    return int(year), month, int(day)


def test_no_day_is_on_two_sides() -> None:
    it = task("dates", "seq2seq")
    train = {day_of(source) for step in range(12) for source, _ in read(it, it.batch(step, step, 500))}
    val, test = ({day_of(source) for source, _ in read(it, it.held_out(split, 2 * 10**5))} for split in ("val", "test"))
    assert not train & val and not train & test and not val & test
    assert len(train) > 900 and 40 < len(val) < 110 and 40 < len(test) < 110


def test_documents_are_the_years() -> None:
    it = task("dates", "seq2seq")
    found = it.held_out("test", 20_000)
    assert found.names == [str(year) for year in range(1996, 2000)]
    for (source, _), owners in zip(read(it, found), found.documents, strict=True):
        assert {found.names[owner] for owner in owners} == {str(day_of(source)[0])}
    assert len(set(found.documents.ravel())) == 4


def refused(**more: Any) -> str:
    with pytest.raises(ValueError) as caught:
        build("dates", "seq2seq", **more)
    message = str(caught.value)
    assert "\n" not in message and message.startswith("data."), message
    return message


def test_what_is_no_setting_is_refused() -> None:
    assert "data.source=en_GBB" in refused(source="en_GBB") and "did you mean en_GB?" in refused(source="en_GBB")
    assert "data.target=hungarian" in refused(target="hungarian")
    assert "data.source=" in refused(source="")
    assert "write some of [full" in refused(formats=["wide"])
    assert "data.formats=[]" in refused(formats=[])
    for years in ([2000], [2010, 2000], [0, 10], [1, 2, 3]):
        assert "data.years=" in refused(years=years)
    assert "needs data.context of at least 32, not 31" in refused(context=31)
    build("dates", "seq2seq", context=32, years=[2000, 2003])


def test_dates_that_nobody_could_tell_are_refused() -> None:
    assert "May" in refused(formats=["long", "medium"], years=[1998, 1999])
    with pytest.raises(ValueError, match=r"^data\.formats.*'1/1/50' is '2050' or '1950'"):
        refuse_ambiguous(["1/1/50", "1/2/50", "1/1/50"], ["1950", "1950", "2050"], 1, "en_US")
