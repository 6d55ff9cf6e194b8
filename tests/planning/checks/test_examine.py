"""Cells that are tried out before training: seeded mistakes are found, and nothing that is right is accused."""

import pytest
from empty_task import Blank
from model_variants import CONTEXT, IN_FORMS, VOCAB, configuration, in_a_test
from own_module import write_module

from ablate.model import cost
from ablate.planning.checks import child, examine, small_models
from ablate.planning.plan import PlanError, plan_study

MINE = "user=[mistakes_of_mine]"
SAME = "make the same network"
pytestmark = pytest.mark.usefixtures("uncounted")


@pytest.fixture
def here(monkeypatch) -> None:
    """User code that is tried out in this process, which is a third cheaper than one of its own for each question."""
    monkeypatch.setattr(child, "loads_user_code", True)


SEPARATE = "design=one_at_a_time"
MISTAKES = {
    f"position=rope,fixedbase ffn=mlp,gateofone norm=unread norm.strength=1.0,2.0 {SEPARATE}": [
        [SAME, "leave one out, or write allow_duplicates=true"],
        [SAME],
        [SAME],
    ],
    f"norm=ln,drawing {SEPARATE}": [["mistakes_of_mine.Drawing keeps state where no checkpoint has it"]],
    f"norm=ln,overtime,overbatch,counting attention=mha,odd,edge ffn=mlp,gateofone {SEPARATE}": [
        ["mistakes_of_mine.OverTime looks ahead"],
        ["mistakes_of_mine.OverBatch mixes rows"],
        ["mistakes_of_mine.Counting is another model each time it is built", "`layer`"],
        *([f"mistakes_of_mine.{name} looks ahead"] for name in ("Odd", "Edge")),
        [SAME],
    ],
}


@pytest.mark.parametrize("overrides", MISTAKES)
def test_seeded_mistakes_are_found_a_line_each(overrides, refused, faulty, here):
    found = refused(MINE, *overrides.split(), config_dir=faulty)
    assert len(found) == len(MISTAKES[overrides]), found
    for line, words in zip(found, MISTAKES[overrides], strict=True):
        assert "\n" not in line and all(word in line for word in words), found


def test_attention_that_ignores_the_padding_mask(plan, small, faulty, here):
    """Refused where the task pads."""
    rest = [text for text in small if not text.startswith("data")]
    for form in ("decoder", "encoder_decoder"):
        with pytest.raises(PlanError, match=r"^mistakes_of_mine.Blind reads padding[^\n]*$"):
            plan_study((*rest, MINE, "attention=blind", "data=copy", "data.length=6", f"model={form}"), faulty)
    assert plan(MINE, "attention=blind", config_dir=faulty).manifest.cells


def test_parts_that_are_noted_and_not_accused(plan, faulty, here):
    """float32 where a part takes nothing else, a note where nothing could be tried, and running statistics."""
    made = plan(MINE, "norm=ln,bn,single,broken", "seeds=1", config_dir=faulty)
    assert len(made.manifest.cells) == 4
    assert [note for note in made.notes if "tried out" in note] == [
        "broken: it could not be tried out on a small copy (RuntimeError: needs an accelerator)"
    ]
    notes = plan(MINE, "ffn=mlp,spectral", "data.context=64", config_dir=faulty).notes
    assert not [note for note in notes if "ahead" in note or "tried out" in note]


def test_dispatch_by_the_data_is_counted_on_an_example(plan, faulty, uncounted, monkeypatch, checks_here):
    monkeypatch.setattr(cost, "forward_flops", uncounted)
    made = plan(MINE, "ffn=dispatching", config_dir=faulty)
    [cell] = made.manifest.cells
    assert [note for note in cell.notes if "one random example" in note] and cell.flops_per_token


def test_layers_that_are_dropped_rarely_are_another_network_and_ones_that_never_are_not(plan, refused, faulty, here):
    assert plan(MINE, "residual=skipping", "residual.p=0.0,0.1", config_dir=faulty).todo
    assert SAME in refused(MINE, "residual=neverskipping", "residual.p=0.0,0.1", config_dir=faulty)[0]


@pytest.mark.slow  # every variant in four forms
@pytest.mark.parametrize("form", sorted({form for form, _ in IN_FORMS if form[0] != "bert"}), ids=in_a_test)
def test_no_variant_is_accused_in_any_form(form):
    """But BERT, an encoder but for its head.  Plans do not examine built-in variants: this test does."""
    task = Blank(VOCAB, CONTEXT, form[1], 5 if form[1] == "classification" else VOCAB)
    for cell in [cell for one, cell in IN_FORMS if one == form]:
        config = configuration(cell | {"model": form[0]}, tie_embeddings=False, layers=1)
        spec = small_models.Spec(config, small_models.facts_of(task), CONTEXT)
        assert examine.examine(spec, "") == [], cell


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


def test_what_an_earlier_check_left_in_a_module_hides_no_leak(refused, tmp_path, monkeypatch):
    """Checks count on the meta device, where this module's cached tensor would then lie."""
    name = write_module(tmp_path, monkeypatch, CACHED, "norm", {"leak": ""})
    [line] = refused(f"user=[{name}]", "norm=leak", "seeds=1", config_dir=str(tmp_path / "conf"))
    assert line.startswith(f"{name}.Leak looks ahead")
