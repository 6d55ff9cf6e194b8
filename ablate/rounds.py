"""The rounds of a command: each a study of its own, planned when the ones before it have ended."""

from __future__ import annotations

from collections.abc import Generator
from typing import Any

from ablate.cells import Draft
from ablate.looks import looks


def rounds_of(draft: Draft) -> Generator[Draft, dict[str, Any], None]:
    """The drafts of a command's rounds in order, each made from the results of those before; the study's own is last.

    Send for the next one the manifest of the round before it, when that has nothing left to train.
    """
    yield from looks(draft)
