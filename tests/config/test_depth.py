"""Patterns over depth: what their words mean, and what is wrong with others."""

import itertools
import re

import pytest

from ablate.config.choices import names_of, parse_choice
from ablate.config.depth import expanded, spelled
from ablate.config.groups import groups

VARIANTS = groups()


@pytest.mark.parametrize(
    ("text", "layers", "letters"),
    [
        ("5window+mha", 12, "wwwwwmwwwwwm"),
        ("mha+window...", 5, "mwwww"),
        ("window...+mha", 3, "wwm"),
        ("mha+window...+2mha", 6, "mwwwmm"),
        ("5window+mha+...", 8, "wwwwwmww"),
        ("5window+mha+...", 3, "wwm"),
        ("2mha+5window+2mha+...", 5, "mmwmm"),
        ("9999999999window+mha+...", 3, "wwm"),
    ],
)
def test_names_stand_for_successive_layers_and_the_whole_is_repeated(text, layers, letters):
    assert [name[0] for name in expanded(text, layers)] == list(letters)
    assert parse_choice("attention", text, VARIANTS).is_pattern
    assert set(names_of(text)) == {"window", "mha"}


def test_the_shortest_spelling_gives_the_same_layers():
    for layers in range(1, 7):
        for names in itertools.product("abc", repeat=layers):
            assert expanded(spelled(list(names)), layers) == list(names)
    assert spelled(["a", "a", "b"] * 2) == "2a+b" and spelled(["a", "b", "b"]) == "a+2b"


@pytest.mark.parametrize(
    ("text", "layers", "told"),
    [
        ("5window+mha", 8, ["6 layers", "model.layers=8"]),
        ("mha+window...", 1, ["2 layers", "model.layers=1"]),
        ("2mha+5window+2mha+...", 4, ["5 layers", "model.layers=4"]),
    ],
)
def test_a_pattern_that_does_not_fit_the_depth_is_told_what_does(text, layers, told):
    with pytest.raises(ValueError) as caught:
        expanded(text, layers)
    assert all(words in str(caught.value) for words in told)


@pytest.mark.parametrize(
    ("group", "text", "told"),
    [
        ("attention", "2windw+mha", "did you mean window"),
        ("norm", "LayerNorm+rms", "did you mean ln"),
        ("attention", "window+window", "attention=window"),
        ("attention", "window+", "no such attention"),
        ("attention", "window...+mha...", "behind one of them"),
        ("attention", "0window+mha", "from 1"),
        ("attention", "2window...+mha", "..."),
        ("init", "gpt2+xavier", "norm, ffn, residual, attention"),
    ],
)
def test_what_is_no_pattern_says_why(group, text, told):
    with pytest.raises(ValueError, match=re.escape(told)):
        parse_choice(group, text, VARIANTS)
