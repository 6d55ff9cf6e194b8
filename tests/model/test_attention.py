"""Attention's variants on disk: biases of positions, a memory with its mask; formulas: test_attention_options.py."""

import pytest
import torch
from attentions import DIM, HEADS, OFFERED, from_disk
from model_variants import SCORING, variants
from reference_config import component
from tensors import some

from ablate.config.components import bind
from ablate.model.position import Places

NOWHERE = Places()


@pytest.mark.parametrize("variant", [v for v in variants("attention") if "kv_heads" in component("attention", v)])
@pytest.mark.parametrize("kv_heads", [0, 3, 8, -1])
def test_groups_must_divide_the_heads(variant, kv_heads):
    with pytest.raises(ValueError, match=rf"^must divide the 4 heads, not {kv_heads}$"):
        bind("attention", component("attention", variant) | {"kv_heads": kv_heads}, OFFERED)()


# ---- every variant on disk


@pytest.mark.parametrize("variant", SCORING)  # of mixers: test_mixers.py
def test_a_position_s_bias_reaches_the_scores(variant):
    """With a bias against all others everybody looks at itself alone."""
    attention, x, t = from_disk(variant), some(3, 5, DIM), torch.arange(5)
    alone = Places(None, -1e4 * (t[:, None] - t).abs().double().expand(HEADS, 5, 5))
    for causal in (False, True):
        one_by_one = torch.cat([attention(x[:, i : i + 1], NOWHERE, causal) for i in range(5)], 1)
        torch.testing.assert_close(attention(x, alone, causal), one_by_one)
