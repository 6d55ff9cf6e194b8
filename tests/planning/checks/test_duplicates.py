"""Cells that are one network under two names are found, and nothing that differs is accused."""

import dataclasses
from types import SimpleNamespace

import pytest
from composed import check_study
from model_variants import ALONE

from ablate.config.groups import defaults, groups
from ablate.planning import cache
from ablate.planning.checks import duplicates
from ablate.planning.checks.duplicates import refuse_equal
from ablate.planning.plan import PlanError

SAME = "make the same network"
SEPARATE = "design=one_at_a_time"
pytestmark = pytest.mark.usefixtures("uncounted")


SAME_NETWORKS = {
    "residual=pre,post norm=none ffn=mlp,gelu": ["pre + mlp and post + mlp", "pre + gelu and post + gelu"],
    f"attention=mha,window,gqa model.share_layers=true,false {SEPARATE}": [
        "mha + model.share_layers=true and attention=window",
        "mha + model.share_layers=true and attention=gqa",
        "mha + model.share_layers=true and model.share_layers=false",
    ],
    f"attention=window attention.window=8,16,32 norm=scale norm.eps=1e-5,1e-6 {SEPARATE}": [
        "attention.window=16 and attention.window=32",
        "attention.window=8 + norm.eps=1e-05 and norm.eps=1e-06",
    ],
}


@pytest.mark.parametrize("overrides", SAME_NETWORKS)
def test_one_network_under_two_names_is_refused(overrides, refused):
    found = refused(*overrides.split())
    assert [line.partition(" make the same network")[0] for line in found] == SAME_NETWORKS[overrides]


DIFFERENT = [
    f"residual=pre,post model.dropout=0,0.1 train.batch_size=4,8 init=normal init.std=0.02,0.03 norm=rms "
    f"norm.eps=1e-5,1e-6 position=rope position.base=1000.0,10000.0 data.context=8,16 {SEPARATE}",
    f"norm=powernorm norm.warmup=100,200 position=t5 position.max_distance=20,40 data.context=32 {SEPARATE}",
    f"norm=bn norm.momentum=0.1,0.2 schedule=wsd schedule.decay=0.2,0.4 optim.grad_clip=1,2 optim.warmup=1,2 "
    f"optim.lr=1e-3,2e-3 {SEPARATE}",
]


@pytest.mark.parametrize("overrides", DIFFERENT)
def test_what_differs_is_not_accused(overrides, plan):
    assert len(plan(*overrides.split(), "seeds=1").manifest.cells) > 2


def test_duplicates_go_on_where_they_are_allowed(plan, refused):
    made = plan("residual=pre,post", "norm=none", "allow_duplicates=true")
    said = [note for note in made.notes if SAME in note]
    assert len(made.manifest.cells) == 2 and len(said) == 1 and "pre and post" in said[0]
    for level in ("norm=ln,ln(eps=1e-5)", "attention=mha(sink=zero,qk_norm=rms),mha(qk_norm=rms,sink=zero)"):
        assert "is the same configuration as" in refused(level, "allow_duplicates=true")[0]


def test_scaling_beyond_the_context_is_compared_where_lengths_are(plan, refused):
    """Equal while training is no duplicate where models are tested on longer sequences."""
    sweep = ("+position.scaling=null,linear", "data.context=16", "seeds=1")
    [line] = refused(*sweep, "eval.lengths=[8,16]")
    assert SAME in line
    assert len(plan(*sweep, "eval.lengths=[8,32]").manifest.cells) == 2


def test_classes_of_one_name_need_variants_of_their_own(small):
    """A cell is named by its variants and its classes' own names, wherever these stand: two must not be one."""
    [row] = check_study(small, None).rows
    config = row.planned_config
    nodes = [config.norm | {"_target_": f"mine.{module}.Norm"} for module in ("left", "right")]
    budget = SimpleNamespace(unused=())
    cells = [SimpleNamespace(config=config.with_value("norm", node), budget=budget) for node in nodes]
    rows = [dataclasses.replace(row, label=label) for label in ("left", "right")]
    with pytest.raises(PlanError, match="left are classes of one name"):
        refuse_equal(rows, cells, False)
    refuse_equal([rows[0], dataclasses.replace(rows[1], id="c1")], cells, False)


# Ten CPU-seconds, most of them for attention: in short the group whose variants differ least, and the loud one.
GROUPS = [pytest.param(group, marks=() if group in ("norm", "init") else pytest.mark.slow) for group in ALONE]


@pytest.mark.parametrize("group", GROUPS)
def test_every_variant_beside_all_others_passes(group, plan):
    """At sizes at which a window, groups of heads and pairs of features are still others."""
    untied = ["model.tie_embeddings=false"] * (group == "embedding")  # one of which is frozen, and so no head
    sizes = ["model.dim=32", "model.heads=4", "model.layers=1", "data.context=40", "seeds=1", *untied]
    rates = ["optim.lr=choice(1e-3,3e-3)"] * (group == "position")
    found = plan(f"{group}=glob(*)", *sizes, *rates)
    # A glob means every variant, compared with the reference model's.
    assert {*found.manifest.factors[group]} == {*groups()[group]}
    assert found.manifest.reference == {group: defaults()[group]}
    if rates:
        assert found.manifest.factors["optim.lr"] == [0.001, 0.003]
        assert sum(cell.reference for cell in found.manifest.cells) == 2, "one reference per stratum"


def test_cells_that_differ_in_the_optimiser_share_a_copy(plan, monkeypatch):
    trained = []
    real = duplicates.loss_without_training
    monkeypatch.setattr(cache, "results", {})
    monkeypatch.setattr(duplicates, "loss_without_training", lambda spec: trained.append(spec) or real(spec))
    plan("norm=ln,rms", "optim.lr=1e-3,2e-3")
    assert len(trained) == 2
