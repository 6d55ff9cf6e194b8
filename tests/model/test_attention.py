"""Attention's variants on disk: biases of positions, a memory with its mask; formulas: test_attention_options.py."""

from typing import Any

import pytest
import torch
from empty_task import some_shape
from test_attend import B, some, some_mask
from test_variants import read, variants

from ablate.config.components import bind
from ablate.model.build import offered
from ablate.model.position import Places

DIM, HEADS = 12, 4
SHAPE = some_shape(DIM, HEADS, head_dim=4)  # a head is wider than dim / heads, so that nothing fits by chance
OFFERED = offered(SHAPE) | {"layer": 0}
NOWHERE = Places()
SCORING = [v for v in variants("attention") if ".mixers." not in read("attention", v)["_target_"]]  # test_mixers.py
every = pytest.mark.parametrize("variant", SCORING)


def randomised(attention: Any) -> Any:
    """In float64, biases and gains drawn, too."""
    for seed, parameter in enumerate(attention.double().parameters()):
        with torch.no_grad():
            parameter.copy_(0.5 * some(*parameter.shape, seed=seed))
    return attention


def from_disk(variant: str, **more: Any) -> Any:
    """A variant as its YAML describes it."""
    return randomised(bind("attention", read("attention", variant) | more, OFFERED)())


@pytest.mark.parametrize("variant", [v for v in variants("attention") if "kv_heads" in read("attention", v)])
@pytest.mark.parametrize("kv_heads", [0, 3, 8, -1])
def test_groups_must_divide_the_heads(variant: str, kv_heads: int) -> None:
    with pytest.raises(ValueError, match=rf"attention\.kv_heads={kv_heads} must divide model\.heads=4"):
        bind("attention", read("attention", variant) | {"kv_heads": kv_heads}, OFFERED)()


# ---- every variant on disk


@every
def test_a_position_s_bias_reaches_the_scores(variant: str) -> None:
    """With a bias against all others everybody looks at itself alone."""
    attention, x, t = from_disk(variant), some(3, 5, DIM), torch.arange(5)
    alone = Places(None, -1e4 * (t[:, None] - t).abs().double().expand(HEADS, 5, 5))
    for causal in (False, True):
        one_by_one = torch.cat([attention(x[:, i : i + 1], NOWHERE, causal) for i in range(5)], 1)
        torch.testing.assert_close(attention(x, alone, causal), one_by_one)


@every
def test_a_memory_of_another_length_is_attended_to_with_its_own_mask(variant: str) -> None:
    attention, x, memory = from_disk(variant), some(B, 4, DIM), some(B, 6, DIM, seed=1)
    mask = some_mask("holes")
    assert mask is not None
    got = attention(x, NOWHERE, False, mask, memory)
    assert got.shape == x.shape
    for b in range(B):  # one example at a time, its padding cut out
        short = memory[b : b + 1, mask[b].bool()]
        torch.testing.assert_close(got[b : b + 1], attention(x[b : b + 1], NOWHERE, False, None, short))
    order = [2, 0, 5, 1, 4, 3]
    torch.testing.assert_close(got, attention(x, NOWHERE, False, mask[:, order], memory[:, order]))
    assert (got - attention(x, NOWHERE, False, None, memory))[1:].abs().amax(-1).min() > 1e-6
