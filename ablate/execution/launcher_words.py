"""The words of a command line that are about Hydra itself: told apart without Hydra."""

from __future__ import annotations

from collections.abc import Sequence


def is_hydras(word: str) -> bool:
    """Whether a word of a command line is about Hydra itself: a launcher, say."""
    return word.lstrip("+~").startswith(("hydra.", "hydra/"))


def is_local(words: Sequence[str]) -> bool:
    """Whether words about Hydra leave the jobs to this machine's own launcher."""
    chosen = [word.partition("=")[2] for word in words if word.lstrip("+~").startswith("hydra/launcher=")]
    return not chosen or chosen[-1] == "ablate"
