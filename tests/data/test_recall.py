"""MQAR and memorisation: every answer looked up by plain Python, and the published distribution of distances."""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from tasks import build, task

from ablate.data.task import IGNORE


@pytest.mark.parametrize("length", [None, 16, 17, 300])
def test_mqar_answers_are_the_values_of_their_keys(length):
    mqar = task("mqar", "lm")
    examples = mqar.batch(0, 3, 200) if length is None else mqar.held_out("test", 4000, length)
    for tokens, targets in zip(examples.inputs["tokens"].tolist(), examples.targets.tolist(), strict=True):
        values = dict(zip(tokens[0:8:2], tokens[1:8:2], strict=True))
        assert len(values) == 4 == len(set(values.values())), "keys and values are different ones"
        assert all(key < 128 <= value < 256 for key, value in values.items())
        assert targets == [IGNORE] * 8 + [values.get(token, IGNORE) for token in tokens[8:]]
        assert sorted(token for token in tokens[8:] if token < 128) == sorted(values), "each key returns once"
        assert len(tokens) == (length or 64)


@pytest.mark.parametrize("key", [0, 1])
def test_mqar_distances_follow_the_power_law(key):
    mqar = build("mqar", "lm", length=40, pairs=4, symbols=16, power_a=0.2)
    tokens = mqar.batch(0, 0, 6000).inputs["tokens"].numpy()
    distances = (tokens[:, 8:] == tokens[:, [2 * key]]).argmax(1)
    assert (distances % 2 == 0).all()
    p = np.arange(1, 17) ** (0.2 - 1)
    p /= p.sum()
    if key:  # drawn from what the first left: p₂(g) = Σ_h≠g p(h) p(g) / (1 − p(h))
        p = p * ((p / (1 - p)).sum() - p / (1 - p))
    assert stats.chisquare(np.bincount(distances // 2, minlength=16), 6000 * p).pvalue > 1e-4


def test_memorisation_is_one_map_for_all_seeds_splits_and_lengths():
    memorisation = task("memorisation", "lm")
    parts: list[Any] = [memorisation.batch(0, 0, 200), memorisation.batch(1, 0, 200)]
    parts += [memorisation.held_out("val", 4000), memorisation.held_out("test", 4000, 100)]
    pairs = set()
    for part in parts:
        tokens = part.inputs["tokens"]
        assert (tokens[:, 1::2] == 256).all() and (part.targets[:, ::2] == IGNORE).all()
        keys = tokens[:, ::2].flatten().tolist()
        pairs |= {*zip(keys, part.targets[:, 1::2].flatten().tolist(), strict=True)}
    assert len(pairs) == 128, "each key has one value"
    assert {key for key, _ in pairs} == {*range(128)} and {value for _, value in pairs} == {*range(128, 256)}
