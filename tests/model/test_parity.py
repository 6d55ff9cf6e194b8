"""Every preset against an implementation that we did not write, with random weights: logits and gradients."""

from __future__ import annotations

import pytest
from parity.compare import errors, outcomes
from parity.decoders import DECODERS
from parity.encoders import ENCODERS

from ablate.catalogue import groups

FAMILIES = DECODERS | ENCODERS


def test_every_preset_has_a_reference():
    assert {family.preset for family in FAMILIES.values()} == groups()["preset"].keys()


@pytest.mark.parametrize("name", FAMILIES)
def test_logits_and_gradients_are_the_references(name):
    family = FAMILIES[name]
    theirs, ours = outcomes(family)
    found = errors(theirs, ours)
    print(name, max(found.items(), key=lambda x: x[1]))
    worst = {tensor: error for tensor, error in found.items() if not error <= family.tolerance}
    assert not worst, worst
