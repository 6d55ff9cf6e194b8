"""Python's keywords as the words that the command line would take."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import ablate
from ablate.config.errors import PlanError
from ablate.config.overrides import parsed
from ablate.python import words_of

SWEPT = [
    ({"norm": ["ln", "rms"]}, "norm=ln,rms"),
    ({"norm": ["ln"]}, "norm=ln"),
    ({"optim.lr": [1e-3, 3e-3]}, "optim.lr=0.001,0.003"),
    ({"optim.lr": [np.float64(1e-3), np.float64(3e-3)]}, "optim.lr=0.001,0.003"),
    ({"model.layers": range(1, 4)}, "model.layers=1,2,3"),
    ({"optim.betas": [(0.9, 0.95), (0.9, 0.99)]}, "optim.betas=[0.9,0.95],[0.9,0.99]"),
]


@pytest.mark.parametrize(("keys", "word"), SWEPT)
def test_a_list_sweeps(keys: dict[str, Any], word: str) -> None:
    assert words_of([], keys) == [word]


VALUES = [
    ("seeds", 5, 5),
    ("seeds", [3, 7], [3, 7]),
    ("zip", ["model.layers", "model.dim"], ["model.layers", "model.dim"]),
    ("tune.values", [1e-3, 3e-3], [1e-3, 3e-3]),
    ("eval.lengths", [64, 128], [64, 128]),
    ("reference", {"norm": "rms"}, {"norm": "rms"}),
    ("optim.betas", (0.9, 0.95), [0.9, 0.95]),
    ("step_equivalents", True, True),
    ("study", None, None),
    ("study", "a study, with 'odd' words=[1]", "a study, with 'odd' words=[1]"),
    ("study", "true", "true"),
    ("study", "1e3", "1e3"),
    ("margin", "2 %", "2 %"),
    ("data.path", Path("/a folder/text,1.txt"), "/a folder/text,1.txt"),
    ("optim.lr", float("1e-30"), 1e-30),
]


@pytest.mark.parametrize(("key", "value", "read"), VALUES)
def test_a_value_is_read_back_as_it_is(key: str, value: object, read: object) -> None:
    """By Hydra's own parser, and not as a sweep."""
    [word] = words_of([], {key: value})
    override = parsed(word)
    assert override.key_or_group == key and not override.is_sweep_override()
    found = override.value()
    assert str(found) == read if isinstance(read, str) else found == read


def test_all_that_cannot_be_a_word_is_said_at_once() -> None:
    with pytest.raises(PlanError) as refused:
        words_of(["seeds=1", ["norm=ln"]], {"norm": [], "optim.lr": object(), "data.path": {"a": b"x"}})  # type: ignore[list-item]
    keys = [problem.key for problem in refused.value.problems]
    assert keys == ["", "norm", "optim.lr", "data.path"] and "['norm=ln']" in str(refused.value)


def test_keywords_plan_what_words_plan(small: list[str]) -> None:
    by_words = ablate.plan("norm=ln,rms", "seeds=[3,7]", "optim.lr=0.001,0.003", *small)
    by_keys = ablate.plan(*small, norm=["ln", "rms"], seeds=[3, 7], **{"optim.lr": [1e-3, 3e-3]})
    assert {run.path for run in by_keys.manifest.runs} == {run.path for run in by_words.manifest.runs}
    assert len(by_keys.todo) == 8
