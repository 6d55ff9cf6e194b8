"""The losses of a study's runs by held-out document, as one table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ablate.results.result import Documents, Result

if TYPE_CHECKING:
    import pandas

Whose = tuple[str, int]  # a cell and a seed
ROWS = ("text", "name", "tokens")


def tested_on(result: Result | None) -> Documents | None:
    """The test documents of a run that is done, with their losses; None where it keeps none that fit together."""
    if result is None or result.status != "done":
        return None
    test = (result.documents or {}).get("test")
    whole = test and test.name and len(test.name) == len(test.tokens) == len(test.loss)
    return test if whole else None


def by_document(tested: dict[Whose, Documents]) -> pandas.DataFrame:
    """Mean losses (documents, runs): a row per `text`, `name` and scored `tokens`, a column per cell and seed.

    Runs that were tested on other documents have rows of their own, another `text`, and NaN in all others; what was not
    finite is NaN, too.
    """
    import numpy as np
    import pandas

    texts: dict[tuple[tuple[str, ...], tuple[int, ...]], dict[Whose, Documents]] = {}
    for whose, found in tested.items():
        texts.setdefault((tuple(found.name), tuple(found.tokens)), {})[whose] = found
    rows = [(i, *each) for i, (names, tokens) in enumerate(texts) for each in zip(names, tokens, strict=True)]
    losses, start = np.full((len(rows), len(tested)), np.nan), 0
    places = {whose: i for i, whose in enumerate(tested)}
    for (names, _), runs in texts.items():
        for whose, found in runs.items():
            losses[start : start + len(names), places[whose]] = np.array(found.loss, dtype=float)
        start += len(names)
    index = pandas.MultiIndex.from_tuples(rows, names=ROWS)
    return pandas.DataFrame(losses, index, pandas.MultiIndex.from_tuples(tested, names=("cell", "seed")))


def none() -> pandas.DataFrame:
    """The table of a study whose runs keep no losses by document."""
    return by_document({})
