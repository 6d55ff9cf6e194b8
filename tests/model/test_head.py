"""The head: bias and soft cap."""

from __future__ import annotations

import pytest
import torch
from test_variants import FORMS, built, jitter, some_inputs

forms = pytest.mark.parametrize("form", FORMS, ids="-".join)


def names(model: torch.nn.Module) -> set[str]:
    return {name for name, _ in model.named_parameters()}


@forms
def test_a_soft_cap_bends_logits(form: tuple[str, str]) -> None:
    inputs, plain, capped = (
        some_inputs(form),
        jitter(built(form=form), 0.5),
        jitter(built(form=form, soft_cap=2.0), 0.5),
    )
    torch.testing.assert_close(capped(**inputs), 2 * torch.tanh(plain(**inputs) / 2))


@forms
def test_a_bias_of_the_head_is_added_to_logits(form: tuple[str, str]) -> None:
    if form[0] == "bert":
        with pytest.raises(ValueError, match=r"model\.head_bias"):
            built(form=form, head_bias=True)
        return
    plain, biased = built(form=form), built(form=form, head_bias=True)
    assert names(biased) - names(plain) == {"head.bias"} and not biased.head.bias.any()
    shift = torch.arange(float(len(biased.head.bias)))
    biased.head.bias.data.copy_(shift)
    torch.testing.assert_close(biased(**some_inputs(form)), plain(**some_inputs(form)) + shift)
