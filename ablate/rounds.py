"""The rounds of a command: each a study of its own, planned when the ones before it have ended."""

from __future__ import annotations

from collections.abc import Iterator

from ablate.cells import Draft


def rounds_of(draft: Draft) -> Iterator[Draft]:
    """The drafts of a command's rounds in order, each made from the results of those before; the study's own is last.

    Ask for the next one when the round before it has nothing left to train.
    """
    yield draft
