"""What training descends, against formulas of its own; what a component adds; and that nothing changes without."""

import copy
import math
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from empty_task import Blank
from model_variants import CONTEXT, VOCAB, configuration, some_tokens, variants
from reference_config import component
from torch import Tensor, nn

from ablate.config.components import bind
from ablate.config.errors import BadComponent
from ablate.config.schema import Config
from ablate.model.build import build_model, build_objective, initialised_model
from ablate.model.cost import count
from ablate.model.objective import IGNORE, Objective, auxiliary, terms_of


def made(variant: str, **changed: Any) -> Any:
    """An objective as its YAML describes it."""
    return bind("objective", component("objective", variant) | changed, {})()


def some_logits(seed: int = 0) -> tuple[Tensor, Tensor]:
    """Logits (2, 5, 7) in float64, and targets, of which some are not scored."""
    draw = torch.Generator().manual_seed(seed)
    targets = torch.randint(7, (2, 5), generator=draw)
    targets[0, 3:] = IGNORE
    return 3 * torch.randn(2, 5, 7, dtype=torch.float64, generator=draw), targets


def by_hand(logits: Tensor, targets: Tensor) -> list[tuple[list[float], int]]:
    """The rows of scored targets, as plain numbers."""
    pairs = zip(logits.flatten(0, 1).tolist(), targets.flatten().tolist(), strict=True)
    return [(row, target) for row, target in pairs if target != IGNORE]


def test_every_variant_is_tested_here():
    assert variants("objective") == ["cross_entropy", "label_smoothing", "multi_token", "z_loss"]


def test_label_smoothing_is_the_cross_entropy_of_smoothed_targets():
    logits, targets = some_logits()
    expected = 0.0
    for row, target in by_hand(logits, targets):
        logs = [a - math.log(sum(map(math.exp, row))) for a in row]
        wanted = [0.1 / 7 + 0.9 * (k == target) for k in range(7)]
        expected -= sum(w * log for w, log in zip(wanted, logs, strict=True))
    plain = F.cross_entropy(logits.flatten(0, 1), targets.flatten(), reduction="sum")
    found = made("label_smoothing").terms(logits, targets, [])
    assert found.keys() == {"label_smoothing"}
    assert (plain + found["label_smoothing"]).item() == pytest.approx(expected, rel=1e-12)


def test_z_loss_is_the_square_of_log_z():
    logits, targets = some_logits()
    expected = sum(1e-4 * math.log(sum(map(math.exp, row))) ** 2 for row, _ in by_hand(logits, targets))
    found = made("z_loss").terms(logits, targets, [])
    assert found.keys() == {"z_loss"} and found["z_loss"].item() == pytest.approx(expected, rel=1e-12)


def test_each_later_token_is_scored_where_there_is_one():
    _, targets = some_logits()
    later = [some_logits(seed)[0] for seed in (1, 2, 3)]
    expected = 0.0
    for ahead, logits in enumerate(later, 1):
        for row in range(2):
            for at in range(5 - ahead):
                if (target := int(targets[row, at + ahead])) != IGNORE:
                    numbers = logits[row, at].tolist()
                    expected += math.log(sum(map(math.exp, numbers))) - numbers[target]
    found = made("multi_token", weight=0.3).terms(some_logits()[0], targets, later)
    assert found.keys() == {"multi_token"} and found["multi_token"].item() == pytest.approx(0.3 * expected, rel=1e-12)
    assert made("multi_token").later == 3


def multi_token(cell: dict[str, str] | None = None) -> Config:
    """A configuration that predicts three tokens."""
    return configuration(cell).with_value("objective", component("objective", "multi_token") | {"tokens": 3})


def test_later_tokens_are_read_from_what_the_last_block_reads():
    model, tokens = initialised_model(multi_token(), Blank(VOCAB, CONTEXT), 0).double(), some_tokens()
    plain = initialised_model(configuration(), Blank(VOCAB, CONTEXT), 0).double()
    logits = model(tokens)
    assert torch.equal(logits, plain(tokens)), "the next token's path is that of the plain model, draws and all"
    for i, later in enumerate(model.later_logits):
        other = copy.deepcopy(plain)
        other.blocks[-1] = model.later[i]
        assert torch.equal(later, other(tokens)) and not torch.equal(later, logits)
    assert len(model.later_logits) == 2


def test_a_plan_says_what_serves_training_alone():
    [note] = count(multi_token(), Blank(VOCAB, CONTEXT)).notes
    model = initialised_model(multi_token(), Blank(VOCAB, CONTEXT), 0)
    spared = sum(p.numel() for name, p in model.named_parameters() if name.startswith("later."))
    assert f"{spared:,} of its parameters" in note and "in training only" in note and "match=" in note
    assert not count(configuration(), Blank(VOCAB, CONTEXT)).notes


def test_what_training_leaves_is_taken_away():
    """A model that holds what its gradient needs can be neither copied nor freed."""
    model, tokens = initialised_model(multi_token(), Blank(VOCAB, CONTEXT), 0), some_tokens()
    terms = terms_of(model, build_objective(multi_token()), model(tokens), tokens, {}, tokens.numel(), 1.0)
    assert terms["multi_token"].requires_grad and not model.later_logits
    copy.deepcopy(model)
    model.eval()(tokens)
    copy.deepcopy(model)


class Costly(nn.Module):
    """A part that leaves two losses."""

    auxiliary = ("balance", "other")

    def forward(self, x: Tensor) -> Tensor:
        self.balance, self.other = x.sum(), 2 * x.sum()
        return x


def test_losses_of_components_add_up_by_name_and_are_taken_once():
    model, x = nn.Sequential(Costly(), Costly()), torch.ones(3, requires_grad=True)
    model(x)
    logits, targets = some_logits()
    found = terms_of(model, made("z_loss"), logits, targets, {}, 7, 0.5)
    assert found.keys() == {"z_loss", "balance", "other"}
    assert found["balance"].item() == 3 and found["other"].item() == 6
    assert not list(auxiliary(model))
    copy.deepcopy(model)


def test_a_loss_cannot_bear_the_name_of_another():
    part = Costly()
    part.auxiliary = ("loss",)  # type: ignore[assignment]
    part.loss = torch.zeros(())
    with pytest.raises(ValueError, match=r"auxiliary.*'loss'"):
        terms_of(part, Objective(), *some_logits(), {}, 7, 1.0)


def test_more_later_tokens_than_a_context_has_are_refused():
    build_model(multi_token(), Blank(VOCAB, 3))
    with pytest.raises(BadComponent, match=r"2 later tokens.*context of 2"):
        build_model(multi_token(), Blank(VOCAB, 2))


@pytest.mark.parametrize("form", [("encoder", "classification"), ("encoder_decoder", "seq2seq")], ids="-".join)
def test_later_tokens_are_for_language_models_alone(form):
    with pytest.raises(BadComponent, match=f"MultiToken is for lm tasks, and data is {form[1]}") as caught:
        build_model(multi_token({"model": form[0]}), Blank(VOCAB, CONTEXT, form[1]))
    assert caught.value.key == "objective"


def test_a_last_norm_with_running_statistics_is_refused():
    with pytest.raises(ValueError, match="share the final norm"):
        build_model(multi_token({"norm": "bn"}), Blank(VOCAB, CONTEXT))


@pytest.mark.parametrize(
    ("variant", "key", "value"),
    [
        *(("label_smoothing", "label_smoothing", 1.0), ("z_loss", "z", -1.0)),
        *(("multi_token", "tokens", 1), ("multi_token", "weight", 0.0)),
    ],
)
def test_what_cannot_be_is_refused(variant, key, value):
    with pytest.raises(BadComponent, match="must be ") as caught:
        made(variant, **{key: value})
    assert caught.value.key == f"objective.{key}"
