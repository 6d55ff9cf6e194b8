"""MQAR and memorisation: every answer looked up by plain Python, and the published distribution of distances."""

from typing import Any

import numpy as np
import pytest
from scipy import stats
from tasks import build, task

from ablate.data.task import IGNORE


@pytest.mark.parametrize("length", [None, 16, 17, 300])
def test_mqar_answers_are_the_values_of_their_keys(length: int | None) -> None:
    it = task("mqar", "lm")
    for found in (it.batch(0, 3, 200), it.held_out("test", 4000, length)):
        for tokens, targets in zip(found.inputs["tokens"].tolist(), found.targets.tolist(), strict=True):
            known = {tokens[i]: tokens[i + 1] for i in range(0, 8, 2)}
            assert len(known) == 4 == len(set(known.values())), "keys and values are different ones"
            assert all(key < 128 <= value < 256 for key, value in known.items())
            expected = [IGNORE] * 8 + [known.get(token, IGNORE) for token in tokens[8:]]
            assert targets == expected
            assert sorted(token for token in tokens[8:] if token < 128) == sorted(known), "each key returns once"
            assert length is None or len(tokens) in (64, length)


def test_mqar_distances_follow_the_power_law() -> None:
    it = build("mqar", "lm", length=40, pairs=4, symbols=16, power_a=0.2)
    tokens = it.batch(0, 0, 6000).inputs["tokens"].numpy()
    gaps = np.array([(np.flatnonzero(row[8:] == row[0])[0]) // 2 for row in tokens])
    assert all((np.flatnonzero(row[8:] == row[0])[0]) % 2 == 0 for row in tokens[:100])
    weight = np.arange(1, 17) ** (0.2 - 1)  # the first key's distance is the first draw, with p itself
    assert stats.chisquare(np.bincount(gaps, minlength=16), 6000 * weight / weight.sum()).pvalue > 1e-4
    # The second is drawn from what the first left: p₂(g) = Σ_h≠g p(h) p(g) / (1 − p(h)).
    p = weight / weight.sum()
    second = np.array([sum(p[h] * p[g] / (1 - p[h]) for h in range(16) if h != g) for g in range(16)])
    gaps = np.array([(np.flatnonzero(row[8:] == row[2])[0]) // 2 for row in tokens])
    assert stats.chisquare(np.bincount(gaps, minlength=16), 6000 * second).pvalue > 1e-4


def test_memorisation_is_one_map_for_all_seeds_and_splits() -> None:
    it, other = task("memorisation", "lm"), build("memorisation", "lm", length=8)
    known: dict[int, int] = {}
    parts = [it.batch(seed, 0, 200) for seed in range(3)] + [it.held_out(split, 4000) for split in ("val", "test")]
    for found in [*parts, it.held_out("test", 4000, 100), other.batch(0, 0, 300)]:
        tokens, targets = found.inputs["tokens"].numpy(), found.targets.numpy()
        assert (tokens[:, 1::2] == 256).all() and (targets[:, ::2] == IGNORE).all()
        for key, value in zip(tokens[:, ::2].ravel().tolist(), targets[:, 1::2].ravel().tolist(), strict=True):
            assert known.setdefault(key, value) == value
    assert sorted(known) == list(range(128)) and sorted(known.values()) == list(range(128, 256))
    assert [known[key] - 128 for key in range(128)] != list(range(128))


@pytest.mark.parametrize(
    ("name", "more", "message"),
    [
        ("mqar", {"pairs": 0}, r"data\.pairs must be ≥ 1, not 0"),
        ("mqar", {"symbols": 6}, r"data\.symbols=6 has too few keys; data\.pairs=4 needs data\.symbols of at least 8"),
        ("mqar", {"symbols": 99}, r"data\.symbols=99 is odd"),
        ("mqar", {"length": 15}, r"data\.length=15 is too short; mqar needs at least 16"),
        ("mqar", {"length": 80}, r"data\.length=80 needs data\.context of at least 80, not 64"),
        ("mqar", {"power_a": 0.0}, r"data\.power_a must be > 0, not 0.0"),
        ("memorisation", {"symbols": 2}, r"data\.symbols must be ≥ 4, not 2"),
        ("memorisation", {"length": 7}, r"data\.length=7 is odd"),
    ],
)
def test_settings_that_make_no_sense_are_refused(name: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=f"^{message}"):
        build(name, "lm", **more)


def test_lengths_without_examples_are_refused() -> None:
    shortest = "has no examples of length 15; the shortest is 16"
    for name, length, message in (("mqar", 15, shortest), ("memorisation", 9, "length 9; write an even one")):
        with pytest.raises(ValueError, match=message):
            task(name, "lm").held_out("test", 100, length)
