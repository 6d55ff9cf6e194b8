"""Choices of variants, put together without Hydra, are what Hydra composes."""

from pathlib import Path
from typing import Any

import pytest
from hydra import compose
from omegaconf import DictConfig, OmegaConf

from ablate.config.compose import Composer
from ablate.config.groups import Groups, read_groups
from ablate.config.schema import typed

FOUND = read_groups()
MOST = 4  # variants of a group, first to last


def alone(found: Groups) -> dict[str, list[str]]:
    """Every variant whose file chooses no groups, by group."""
    composer = Composer(found)
    choices = {
        group: [f"{group}={name}" for name in sorted(found.variants[group])]
        for group in found.variants
        if group in found.defaults
    }
    kept = {group: [text for text in texts if composer.part(text)] for group, texts in choices.items()}
    return {group: texts for group, texts in kept.items() if texts}


def nodes(config: DictConfig) -> list[Any]:
    """All that OmegaConf knows of a configuration: keys in their order, values, types and flags."""
    rows: list[Any] = []
    for key in config:
        node, known = config._get_node(key), config._get_node(key)._metadata
        rows.append((key, known.ref_type, known.object_type, known.optional, known.flags))
        rows.append(nodes(node) if isinstance(node, DictConfig) and node._value() is not None else node._value())
    return rows


@pytest.mark.parametrize("i", range(MOST))
def test_joined_choices_are_hydras(i: int) -> None:
    words = tuple(texts[round(i / (MOST - 1) * (len(texts) - 1))] for texts in alone(FOUND).values())
    with Composer(FOUND) as composer:
        joined, chosen = composer.joined(words) or ({}, {})
        composed, choices = composer.composed(words)
    assert list(chosen.items()) == list(choices.items()) and nodes(joined) == nodes(composed)


SIZED = ["scale=small", "norm=rms"]  # a scale sets keys of many groups
MANY = "optim.lr=1 optim.warmup=3 seeds=[3,7] optim.betas=[0.8,0.9] model.dim=32 norm.eps=1e-3"
KEYS = [
    [*MANY.split(), "study=null", "train.compile=true", "margin='2 %'", "seed.init=4"],
    ["model.dim=${model.heads}", "model.heads=2", "data={context: 5}", "data.context=7", "+data.more=1"],
]


@pytest.mark.parametrize("keys", KEYS)
def test_keys_that_are_set_are_hydras(keys: list[str]) -> None:
    with Composer(FOUND) as composer:
        expected = OmegaConf.to_container(compose("config", [*SIZED, *keys]), resolve=True)
        assert composer.compose([*SIZED, *keys]).config == typed(expected)


def test_a_variant_that_sets_more_than_its_group_is_left_to_hydra(tmp_path: Path) -> None:
    (tmp_path / "norm").mkdir()
    (tmp_path / "norm" / "wide.yaml").write_text("# @package _global_\nnorm: {_target_: x, eps: 1}\n")
    (tmp_path / "norm" / "rooted.yaml").write_text("defaults: [rms]\n")
    with Composer(read_groups(str(tmp_path))) as composer:
        parts = map(composer.part, ("norm=rms", "scale=tiny", "norm=wide", "norm=rooted", "+norm=ln", "norm=typo"))
        assert [each and next(iter(each)) for each in parts] == ["norm", "model", "norm", None, None, None]
        config, choices = composer.chosen(("norm=wide", "ffn=swiglu"))
    assert config.norm == {"_target_": "x", "eps": 1} and choices["norm"] == "wide" and choices["ffn"] == "swiglu"
