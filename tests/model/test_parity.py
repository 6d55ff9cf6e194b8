"""Every preset against an implementation that we did not write, with random weights: logits and gradients."""

from collections.abc import Iterator
from typing import Any

import pytest
from omegaconf import OmegaConf
from parity.compare import CONTEXT, calculated, errors, expected
from parity.decoders import DECODERS
from parity.encoders import ENCODERS
from parity.local_layers import LOCAL_LAYERS
from parity.mixtures import MIXTURES
from parity.more_decoders import MORE_DECODERS
from parity.recurrent import RECURRENT

from ablate.config.groups import groups
from ablate.config.schema import LAYERS

FAMILIES = DECODERS | MORE_DECODERS | LOCAL_LAYERS | ENCODERS | MIXTURES | RECURRENT


def test_every_preset_has_a_reference():
    assert {family.preset for family in FAMILIES.values()} == groups()["preset"].keys()


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_and_gradients_are_the_references(name):
    family = FAMILIES[name]
    found = errors(expected(family)[1], calculated(family)[1]())
    assert not {tensor: error for tensor, error in found.items() if not error <= family.tolerance}


PAIRS = (("tanh", "none"), ("separate", "shared"), ("head", "all"), ("ln", "rms"), ("renormalised", "plain"))
OTHER = {one: other for pair in PAIRS for one, other in (pair, pair[::-1])}
OTHER |= {"swiglu": "geglu", "clamped": "swiglu"} | dict.fromkeys(("sigmoid", "load", "learned"), "null")


def changed(key: str, value: Any) -> Any:
    """Another value of a setting."""
    if key == "eps":
        return 1e-4  # ten times the largest that a preset has
    if isinstance(value, bool):
        return not value
    return value // 2 if isinstance(value, int) else 1.1 * value if isinstance(value, float) else OTHER[value]


def mutants() -> Iterator[tuple[str, str]]:
    """Every setting of a preset, changed, each in the first that has it; initialisation is not compared."""
    seen = set()
    for name, family in FAMILIES.items():
        if name == family.preset:
            body = OmegaConf.to_container(OmegaConf.load(groups()["preset"][name]))
            for group in body.keys() - {"defaults", "init"}:
                for key, value in body[group].items():
                    if value is not None and key not in ("share", "balance", LAYERS) and (group, key) not in seen:
                        seen.add((group, key))
                        yield name, f"{group}.{key}={changed(key, value)}"
    yield from (("gemma2", "attention=gqa+window"), ("gemma3", "attention.window=6"), ("olmo2", "residual=pre"))
    yield from (("gpt_neox", "position.share=0.5"), ("persimmon", "position.share=0.25"))
    yield ("bert", "attention.scale=1.0")
    yield from (("mistral", "attention.window=6"), ("mistral", f"attention.window={CONTEXT}"))
    yield from (("llama", "ffn=geglu"), ("bloom", "position=none"))


@pytest.mark.parametrize(("name", "override"), sorted(mutants()))
def test_a_setting_that_is_wrong_is_seen(name, override):
    family = FAMILIES[name]
    try:
        of_logits, outcome = calculated(family, override)
    except ValueError:
        return  # it has other parameters, or refuses
    assert of_logits > family.tolerance
    if of_logits <= 3 * family.tolerance:  # then a gradient must show it
        assert max(errors(expected(family)[1], outcome()).values()) > 3 * family.tolerance
