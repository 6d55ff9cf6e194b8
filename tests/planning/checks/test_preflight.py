"""Cells that are tried out before training: seeded mistakes are found, and nothing that is right is accused."""

import dataclasses
from pathlib import Path
from typing import Any

import pytest
from empty_task import Blank
from model.test_variants import ALONE, CONTEXT, IN_FORMS, LM, SETTINGS, VOCAB, configuration, in_a_test, read
from own_module import write_module

from ablate.config.groups import defaults, groups
from ablate.model import cost
from ablate.model.dropout import Dropout
from ablate.planning.checks import examine, preflight, small_models, user_code, validate
from ablate.planning.checks.preflight import Signature, alike, refuse_equal
from ablate.planning.plan import PlanError, check_study, plan_study
from ablate.runs.code_digest import Code
from ablate.training.vectors import is_pretrained

MINE = "user=[mistakes_of_mine]"
SAME = "make the same network"
pytestmark = pytest.mark.usefixtures("uncounted")


@pytest.fixture
def here(monkeypatch: pytest.MonkeyPatch) -> None:
    """User code that is tried out in this process, which is a third cheaper than one of its own for each question."""
    monkeypatch.setattr(user_code, "loads_user_code", True)


SEPARATE = "design=one_at_a_time"
MISTAKES = {
    f"position=rope,fixedbase ffn=mlp,gateofone norm=unread norm.strength=1.0,2.0 {SEPARATE}": [
        ["ffn=mlp and ffn=gateofone", SAME, "leave one out, or write allow_duplicates=true"],
        ["norm.strength=1 and norm.strength=2", SAME],
        ["position=rope and position=fixedbase", SAME],
    ],
    f"norm=ln,drawing {SEPARATE}": [["norm: mistakes_of_mine.Drawing keeps state where no checkpoint has it"]],
    f"norm=ln,overtime,overbatch,counting,idle attention=mha,odd,edge {SEPARATE}": [
        ["norm: mistakes_of_mine.OverTime looks ahead"],
        ["norm: mistakes_of_mine.OverBatch mixes rows"],
        ["norm: mistakes_of_mine.Counting is another model each time it is built", "`layer`"],
        ["norm: mistakes_of_mine.Idle never uses blocks.0.norms.0.extra, which counts all the same"],
        *([f"attention: mistakes_of_mine.{name} looks ahead"] for name in ("Odd", "Edge")),
    ],
    f"norm=ln,far residual=pre,forgetful eval.lengths=[24] {SEPARATE}": [
        ["norm: mistakes_of_mine.Far looks ahead at lengths beyond the context"],
        ["norm: norm.LayerNorm is built but never used", "blocks.0.norms.0"],
    ],
}


@pytest.mark.parametrize("overrides", MISTAKES)
def test_seeded_mistakes_are_found_a_line_each(overrides: str, refused: Any, faulty: str, here: None) -> None:
    found = refused(MINE, *overrides.split(), config_dir=faulty)
    assert len(found) == len(MISTAKES[overrides]), found
    for line, words in zip(found, MISTAKES[overrides], strict=True):
        assert "\n" not in line and all(word in line for word in words), found


def test_at_the_base_width_two_parametrizations_are_one_network_and_the_plan_says_so(plan, refused, monkeypatch):
    monkeypatch.setattr(examine, "DRAWS", 2)
    made = plan("parametrization=standard,mup", "model.dim=64,128")
    [note] = [note for note in made.notes if "are one network" in note]
    assert note.startswith("parametrization=standard and parametrization=mup are one network at model.dim=64, the base")
    assert len(made.manifest.cells) == 4 and SAME in refused("parametrization=standard,mup", "model.dim=64")[0]


def test_attention_that_ignores_the_padding_mask(plan: Any, small: list[str], faulty: str, here: None) -> None:
    """Refused where the task pads; where nothing is padded it is only noted."""
    rest = [text for text in small if not text.startswith("data")]
    for form in ("decoder", "encoder_decoder"):
        with pytest.raises(PlanError, match=r"^attention: mistakes_of_mine.Blind reads padding[^\n]*$"):
            plan_study((*rest, MINE, "attention=blind", "data=copy", "data.length=6", f"model={form}"), faulty)
    notes = plan(MINE, "attention=blind", config_dir=faulty).notes
    assert [note for note in notes if "Blind reads padding" in note and "pads nothing" in note]


def test_parts_that_are_noted_and_not_accused(plan: Any, faulty: str, here: None) -> None:
    """float32 where a part takes nothing else, and a note where nothing could be tried; parts that are never the same;
    rows that are mixed in training, which is a look ahead where later positions are mixed in."""
    norms = "norm=ln,bn,single,broken,batchwise,windowwise"
    made = plan(MINE, norms, "attention=mha,trained", "seeds=1", SEPARATE, config_dir=faulty)
    assert len(made.manifest.cells) == 7
    assert [note for note in made.notes if "tried out" in note] == [
        "norm=broken: it could not be tried out on a small copy (RuntimeError: needs an accelerator)"
    ]
    mixing = {note.partition(": ")[0] for note in made.notes if "mixes rows in training" in note}
    assert mixing == {"norm=batchwise", "norm=windowwise"}
    ahead = [note.partition(" looks ahead in training")[0] for note in made.notes if "looks ahead" in note]
    assert [note.partition(": ")[0] for note in ahead] == ["norm=windowwise", "attention=trained"]
    assert ahead[1] == "attention=trained: mistakes_of_mine.Trained"
    notes = plan(MINE, "ffn=mlp,spectral", "data.context=64", config_dir=faulty).notes
    assert not [note for note in notes if "ahead" in note or "tried out" in note]


def test_dispatch_by_the_data_is_counted_on_an_example_and_experts_that_few_tokens_reach_are_not_accused(
    plan, faulty, uncounted, monkeypatch
):
    monkeypatch.setattr(cost, "forward_flops", uncounted)
    made = plan(MINE, "ffn=dispatching", config_dir=faulty)
    [cell] = made.manifest.cells
    assert [note for note in cell.notes if "one random example" in note] and cell.flops_per_token
    assert not [note for note in made.notes if "never uses" in note]


def test_a_part_that_nothing_reads_is_no_expert_for_having_a_number(refused: Any, faulty: str) -> None:
    [line] = refused(MINE, "ffn=thirdidle", config_dir=faulty)
    assert "never uses" in line and "maps.2.weight" in line and "maps.1" not in line


def test_layers_that_are_dropped_rarely_are_another_network_and_ones_that_never_are_not(plan, refused, faulty, here):
    assert plan(MINE, "residual=skipping", "residual.p=0.0,0.1", config_dir=faulty).todo
    assert SAME in refused(MINE, "residual=neverskipping", "residual.p=0.0,0.1", config_dir=faulty)[0]


SAME_NETWORKS = {
    "residual=pre,post norm=none ffn=mlp,gelu": ["residual=pre and residual=post"],
    f"attention=mha,window,gqa model.share_layers=true,false {SEPARATE}": [
        "attention=mha and attention=gqa",
        "attention=mha and attention=window",
        "model.share_layers=true and model.share_layers=false",
    ],
    f"attention=window attention.window=8,16,32 norm=scale norm.eps=1e-5,1e-6 {SEPARATE}": [
        "attention.window=16 and attention.window=32",
        "norm.eps=1e-05 and norm.eps=1e-06",
    ],
}


@pytest.mark.parametrize("overrides", SAME_NETWORKS)
def test_one_network_under_two_names_is_refused(overrides: str, refused: Any, monkeypatch: Any) -> None:
    monkeypatch.setattr(examine, "DRAWS", 2)
    found = refused(*overrides.split())
    assert all(("covers the context" in line) == ("window" in line.partition(SAME)[0]) for line in found)
    assert [line.partition(" make the same network")[0] for line in found] == SAME_NETWORKS[overrides]


DIFFERENT = [
    f"residual=pre,post model.dropout=0,0.1 train.batch_size=4,8 init=normal init.std=0.02,0.03 norm=rms "
    f"norm.eps=1e-5,1e-6 position=rope position.base=1000.0,10000.0 data.context=8,16 {SEPARATE}",
    f"norm=powernorm norm.warmup=100,200 position=t5 position.max_distance=20,40 data.context=32 {SEPARATE}",
    f"norm=bn norm.momentum=0.1,0.2 schedule=wsd schedule.decay=0.2,0.4 optim.grad_clip=1,2 optim.warmup=1,2 "
    f"optim.lr=1e-3,2e-3 {SEPARATE}",
]


@pytest.mark.parametrize("overrides", DIFFERENT)
def test_what_differs_is_not_accused(overrides: str, plan: Any) -> None:
    assert len(plan(*overrides.split(), "seeds=1").manifest.cells) > 2


def test_a_dropout_that_never_drops_is_the_network_without_it(refused, tmp_path, monkeypatch):
    """Though with dropout the attention is computed in another order: its last bits are others."""
    monkeypatch.setattr(user_code, "cache_folder", lambda: tmp_path / "cache")
    monkeypatch.setattr(Dropout, "forward", lambda self, x: x)
    [said] = refused("model.dropout=0,0.1")
    assert said.startswith(f"model.dropout=0 and model.dropout=0.1 {SAME}") and "agree but for rounding" in said


def test_small_copies_accuse_nothing_that_differs_at_its_own_size(plan: Any) -> None:
    """The first 49 and 50 of 160 features are 10 of 32 alike: told apart by copies of the cells' own size."""
    sizes = ["model.dim=160", "model.heads=2", "norm=prms", "norm.share=0.305,0.31"]
    assert len(plan(*sizes).manifest.cells) == 2


def test_duplicates_go_on_where_they_are_allowed(plan: Any, refused: Any) -> None:
    made = plan("residual=pre,post", "norm=none", "allow_duplicates=true")
    said = [note for note in made.notes if SAME in note]
    assert len(made.manifest.cells) == 2 and len(said) == 1 and "residual=pre and residual=post" in said[0]
    assert "is the same configuration as" in refused("norm=ln,ln(eps=1e-5)", "allow_duplicates=true")[0]


def test_scaling_beyond_the_context_is_compared_where_lengths_are(plan: Any, refused: Any) -> None:
    """Equal while training is no duplicate where models are tested on longer sequences; else what to write is told."""
    sweep = ("+position.scaling=null,linear", "data.context=16", "seeds=1")
    [line] = refused(*sweep, "eval.lengths=[8,16]")
    assert SAME in line and "position.scaling" in line and "eval.lengths=[32]" in line
    assert len(plan(*sweep, "eval.lengths=[8,32]").manifest.cells) == 2


def test_classes_of_one_name_need_variants_of_their_own(small: list[str]) -> None:
    """A cell is named by its variants and its classes' own names, wherever these stand: two must not be one."""
    found = check_study(small, None).cells
    config, row = found.checked[0].config, found.rows[0]
    nodes = [config.norm | {"_target_": f"mine.{module}.Norm"} for module in ("left", "right")]
    cells = [found.checked[0]._replace(config=config.with_value("norm", node)) for node in nodes]
    rows = [dataclasses.replace(row, label=label) for label in ("left", "right")]
    with pytest.raises(PlanError, match="left are classes of one name"):
        refuse_equal(rows, cells, False)
    assert refuse_equal([rows[0], dataclasses.replace(rows[1], id="c1")], cells, False) == []


# Ten CPU-seconds, most of them for attention: in short the group whose variants differ least, and the loud one.
GROUPS = [pytest.param(group, marks=() if group in ("norm", "init") else pytest.mark.slow) for group in ALONE]


@pytest.mark.parametrize("group", GROUPS)
def test_every_variant_beside_all_others_passes(group: str, plan: Any) -> None:
    """At sizes at which a window, groups of heads and pairs of features are still others."""
    untied = ["model.tie_embeddings=false"] * (group == "embedding")  # one of which is frozen, and so no head
    sizes = ["model.dim=32", "model.heads=4", "model.layers=1", "data.context=40", "seeds=1", *untied]
    rates = ["optim.lr=choice(1e-3,3e-3)"] * (group == "position")
    found = plan(f"{group}=glob(*)", *sizes, *rates)
    loud = [note for note in found.notes if "loss at initialisation" in note]
    assert len(loud) == (group == "init"), "torch's embeddings, tied, give logits of size 8"
    # A glob means every variant, compared with the reference model's.
    assert {*found.manifest.factors[group]} == {*groups()[group]}
    assert found.manifest.reference == {group: defaults()[group]}
    if rates:
        assert found.manifest.factors["optim.lr"] == [0.001, 0.003]
        assert sum(cell.reference for cell in found.manifest.cells) == 2, "one reference per stratum"


@pytest.mark.slow  # every pair of variants in three more forms: four CPU-seconds
@pytest.mark.parametrize("form", sorted({form for form, _ in IN_FORMS if form[0] != "bert"} - {LM}), ids=in_a_test)
def test_no_variant_is_accused_in_any_form(form: tuple[str, str]) -> None:
    """But the decoder, which is half of an encoder-decoder and is tried out above, and BERT, an encoder but for its
    head."""
    task = Blank(VOCAB, CONTEXT, form[1], 5 if form[1] == "classification" else VOCAB)
    seen: list[tuple[Signature, dict[str, str]]] = []
    for cell in [cell for one, cell in IN_FORMS if one == form]:
        config = configuration(cell | {"model": form[0]}, tie_embeddings=False, layers=1)
        if cell.get("attention") == "window":
            config.attention["window"] = 5
        if cell.get("attention") == "gqa":
            config.attention["kv_heads"] = 1
        found = examine.examine(small_models.Spec(config, small_models.facts_of(task), 2, CONTEXT, True))
        assert found["problems"] == [] and found["signature"] is not None, cell
        if is_pretrained(config):
            continue  # the vectors that tell it from embedding=learned no copy has
        for signature, other in seen:
            assert same(other, cell) or not alike(signature, found["signature"]), f"{cell} is {other}"
        seen.append((found["signature"], cell))
    assert SETTINGS.keys() == {"prms", "factorised"}


def same(first: dict[str, str], second: dict[str, str]) -> bool:
    """Variants that are one by name, or with one group of heads."""
    if {*first.values(), *second.values()} == {"gqa", "mqa"}:
        return True
    texts = [read(group, variant) for one in (first, second) for group, variant in one.items()]
    return len(texts) == 2 and texts[0] == texts[1]


def test_what_was_found_is_kept_and_a_damaged_file_is_passed_over(plan, tmp_path, monkeypatch):
    folder, made, counted, real, count = tmp_path / "cache", [], [], examine.examine, validate.count
    folder.mkdir()
    monkeypatch.setattr(user_code, "cache_folder", lambda: folder)
    monkeypatch.setattr(preflight, "examine", lambda spec: made.append(spec) or real(spec))
    monkeypatch.setattr(validate, "count", lambda *cell: counted.append(cell) or count(*cell))
    first = plan("norm=ln,rms", "optim.lr=1e-3,2e-3")
    assert len(made) == len(counted) == 2, "cells that differ in the optimiser share a copy, and a budget"
    again = plan("norm=ln,rms", "optim.lr=1e-3,2e-3")
    assert len(made) == len(counted) == 2 and again.manifest.cells == first.manifest.cells
    for file in (folder / "preflight").iterdir():
        file.write_text(file.read_text()[:-20] if "problems" in file.read_text() else "[]")
    plan("norm=ln,rms", "optim.lr=1e-3,2e-3")
    assert len(made) == len(counted) == 4
    monkeypatch.setattr(preflight, "code_of", lambda *_: Code("other", {}))
    plan("norm=ln,rms", "optim.lr=1e-3,2e-3")
    assert len(made) == 6, "a copy is made again when the code changes"


CACHED = """
import functools
import torch
from torch import nn

@functools.lru_cache
def one(dim):
    return torch.ones(dim)

class Leak(nn.Module):
    def __init__(self, dim: int):
        super().__init__()
        self.register_buffer("one", one(dim), persistent=False)

    def forward(self, x, mask=None):
        return (x + x.mean(-2, keepdim=True)) * self.one
"""


def test_what_an_earlier_check_left_in_a_module_hides_no_leak(
    refused: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Checks count on the meta device, where this module's cached tensor would then lie."""
    name = write_module(tmp_path, monkeypatch, CACHED, "norm", {"leak": ""})
    [line] = refused(f"user=[{name}]", "norm=leak", "seeds=1", config_dir=str(tmp_path / "conf"))
    assert line.startswith(f"norm: {name}.Leak looks ahead")
