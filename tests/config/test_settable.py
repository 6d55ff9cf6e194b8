"""Values set in plain data are what Hydra and OmegaConf make of them."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest

from ablate.config.compose import COMPOSING, Composer
from ablate.config.groups import read_groups

GROUPS = [(), ("scale=small", "norm=rms", "ffn=swiglu"), ("+preset=llama",), ("model=encoder", "data=mlm")]
KEYS = [
    ["optim.lr=1", "optim.warmup=3", "train.steps=7"],
    ["model.dim=32", "norm.eps=1e-3", "study=null", "train.compile=true", "dry_run=TRUE"],
    ["data.tokenizer='a b'", "seed.init=4", "margin='2 %'", "train.parallel=2", "model.tie_embeddings=null"],
    ["optim.betas=[0.8,0.9]", "seeds=[3,7]", "optim.lr=2e-3", "eval.lengths=[8]", "reference={norm:rms}"],
    ["seeds=3", "zip=[model.dim,model.heads]", "study=two", "results_dir=here", "user=[here]"],
    ["model.dim=${model.heads}", "model.heads=2"],
    ["data={context: 5}", "data.context=7"],
    ["+data.more=1", "data.more=2"],
    ["optim.lr=???", "study='${match}'"],
]
BAD = ["optim.lr=word", "optim.lr=null", "optim.typo=1", "typo=1", "train=3", "optim.lr.x=1", "tune=3", "zip=5"]


@pytest.fixture(scope="module")
def composer():
    with Composer(read_groups()) as made:
        yield made


@pytest.mark.parametrize("groups", GROUPS)
def test_values_are_what_hydra_sets(composer: Composer, groups: tuple[str, ...]) -> None:
    singles = [] if groups else [[one] for one in itertools.chain(*KEYS)]
    for keys in [*KEYS, *singles, *KEYS]:  # again, after others were set
        try:
            expected = composer._with_keys(groups, keys)
        except COMPOSING:
            continue
        assert (composer._with_values(groups, keys) or expected) == expected, keys
        assert repr(composer.compose([*groups, *keys]).config) == repr(composer.compose([*groups, *keys]).config)


def test_most_are_set_that_way(composer: Composer) -> None:
    quick = [composer._with_values(("norm=rms",), keys) is not None for keys in KEYS]
    assert quick == [True] * 5 + [False] * 4


@pytest.mark.parametrize("word", BAD)
def test_what_does_not_go_is_refused_as_before(composer: Composer, word: str) -> None:
    for _ in range(2):
        assert composer._with_values((), [word]) is None
        with pytest.raises(COMPOSING):
            composer.compose([word])
    assert composer.compose(["optim.lr=0.5"]).config.optim.lr == 0.5


def test_configurations_share_nothing_that_can_be_changed(composer: Composer) -> None:
    first, second = (composer.compose([f"optim.warmup={i}"]).config for i in (1, 2))
    first.norm["eps"] = first.data["context"] = -1
    assert second.norm["eps"] > 0 and second.data["context"] > 0
    assert composer.compose(["optim.warmup=1"]).config.norm["eps"] > 0


def test_what_refers_to_another_setting_is_left_to_hydra(tmp_path: Path) -> None:
    (tmp_path / "norm").mkdir()
    (tmp_path / "norm" / "wide.yaml").write_text("_target_: x\neps: ${optim.lr}\n")
    with Composer(read_groups(str(tmp_path))) as own:
        found = own.compose(["norm=wide", "optim.lr=0.25"]).config
        assert found.norm["eps"] == 0.25 and own._with_values(("norm=wide",), ["optim.lr=0.25"]) is None
