"""Dropout: masks that are a function of (seed, step, site, index) alone."""

import hashlib
import itertools
import math
from typing import Any

import pytest
import torch
from model_variants import built, some_tokens
from torch import Tensor, nn

from ablate.model.dropout import Dropout, rekey

WORD = 2**64


def site(name: str, p: float, seed: int = 0, step: int = 0) -> Dropout:
    """A dropout module keyed as the site `name` of a model."""
    dropout = Dropout(p)
    rekey(nn.ModuleDict({name: dropout}), seed, step)
    return dropout


def split_mix(z: int) -> int:
    """SplitMix64's output function (Steele 2014), in whole numbers."""
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9 % WORD
    z = (z ^ (z >> 27)) * 0x94D049BB133111EB % WORD
    return z ^ (z >> 31)


@pytest.mark.parametrize(("seed", "step", "name"), [(0, 0, "a"), (123456789, 10**6, "é")])
def test_the_mask_is_split_mix_of_key_and_index(seed, step, name):
    key = int.from_bytes(hashlib.sha256(f"dropout/{seed}/{step}/{name}".encode()).digest()[:8], "little")
    kept = [split_mix((key + i) * 0x9E3779B97F4A7C15 % WORD) >> 40 >= int(0.3 * 2**24) for i in range(2000)]
    found = site(name, 0.3, seed, step)(torch.ones(2000, dtype=torch.float64))
    torch.testing.assert_close(found, torch.tensor(kept) / torch.tensor(0.7, dtype=torch.float64))
    assert abs(sum(kept) - 1400) < 4.5 * math.sqrt(2000 * 0.3 * 0.7)


def test_nothing_else_moves_a_mask():
    dropout, x = site("a", 0.3), torch.ones(8, 16)
    torch.manual_seed(0)
    first = dropout(x)
    state = torch.get_rng_state()
    torch.manual_seed(1)
    torch.rand(5)
    assert torch.equal(dropout(x), first)
    assert torch.equal(dropout(x.flatten()).view(8, 16), first)  # an index counts elements, whatever the shape
    assert torch.equal(dropout(x.double()).float(), first)
    assert torch.equal(dropout(x[:3]), first[:3])
    assert torch.equal(dropout(x.T.contiguous().T), first)  # nor how they lie in memory
    assert dropout(x.bfloat16()).dtype == torch.bfloat16
    torch.manual_seed(0)
    dropout(x)
    assert torch.equal(torch.get_rng_state(), state)
    assert torch.equal(dropout.eval()(x), x) and torch.equal(Dropout(0.0)(x), x)


@pytest.mark.parametrize("p", [-0.1, 1.0, math.nan])
def test_impossible_rates_are_refused(p):
    with pytest.raises(ValueError, match="dropout must be"):
        Dropout(p)


def test_both_stacks_have_masks_of_their_own():
    model = built(form=("encoder_decoder", "seq2seq"), dropout=0.2)
    rekey(model, 0, 0)
    keys = {name: int(module.key) for name, module in model.named_modules() if isinstance(module, Dropout)}
    assert len(set(keys.values())) == len(keys) == 2 + 2 * (1 + 2) + 2 * (2 + 3)  # embeddings; shares and sublayers
    assert {name.split(".")[0] for name in keys} == {"encoder", "decoder"}


def test_layers_that_share_parameters_have_masks_of_their_own():
    """`share_layers` shares parameters, not noise: a feature dropped in one layer must not be dropped in all, nor in
    all of them what is dropped of the embeddings."""
    model: Any = built(dropout=0.5, share_layers=True, layers=2)
    rekey(model, 0, 0)
    masks: list[Tensor] = []
    for dropout in dict.fromkeys([model.dropout, *(layer.dropouts[0] for layer in model.blocks)]):
        dropout.register_forward_hook(lambda module, given, out: masks.append(out == 0))
    model(some_tokens())
    assert len(masks) == 3
    for one, other in itertools.combinations(masks, 2):
        agreement = float((one == other).double().mean())
        assert agreement < 0.7, f"two masks agree in {agreement:.0%} of their places; by chance it is 50 %"
