"""What every variant on disk must keep to in a model of every form: one variant at a time beside the reference."""

import copy
import io
import re

import pytest
import torch
from model_variants import (
    CELLS,
    CONTEXT,
    COVER,
    FORMS,
    IN_FORMS,
    LM,
    REFERENCE,
    VOCAB,
    built,
    check_padding,
    in_a_test,
    jitter,
    loss_of,
    name_of,
    padded,
    some_inputs,
    some_tokens,
    variants,
)
from torch import Tensor, nn

from ablate.config.schema import COMPONENTS
from ablate.model.dropout import rekey
from ablate.model.ffn import MoE
from ablate.model.norm import PowerNorm, running_norms
from ablate.training.compiling import FASTER, supported

each_form = pytest.mark.parametrize(("form", "cell"), IN_FORMS, ids=in_a_test)


def exact(cell: dict[str, str], form: tuple[str, str]) -> nn.Module:
    """A cell's model in float64, larger weights than at initialisation, running statistics of one batch, evaluating."""
    made = jitter(built(cell, form=form).double(), 0.3)
    with torch.no_grad():
        made.train()(**some_inputs(form, seed=9))
    return made.eval()


def test_every_component_has_variants_and_a_reference_among_them():
    for group in COMPONENTS:
        assert REFERENCE[group] in variants(group)
    assert {name for cell in COVER for name in cell.values()} == {v for group in COMPONENTS for v in variants(group)}


STABLE = re.compile(
    r"((encoder|decoder)\.)?(embed|position|embed_norm|widen|blocks\.\d+\.((cross_)?attention|ffn|norms|alpha|scales|connections)"
    r"|final_norm|head)(\.[\w.]+)?"
)


@each_form
def test_a_model_evaluates_as_it_must(form, cell):
    """All that is asked of one model in float64, which no question changes."""
    model = exact(cell, form)
    if form[1] in ("lm", "seq2seq"):
        check_no_position_sees_a_later_one(model, form)
    if cell.get("attention") != "window":  # not to see some is its point
        check_every_position_sees_what_it_may(model, form)
    check_padding_on_the_right_is_as_if_it_were_not_there(model, form)
    inputs = some_inputs(form, 7)
    for training in (False, True)[: 1 + bool(running_norms(model))]:  # without dropout others compute alike in both
        check_padding(model.train(training), inputs, padded(inputs))


@each_form
def test_a_model_trains_as_it_must(form, cell):
    """All that is asked of two models of one layer and of one of two layers, as they are initialised."""
    models = [built(cell, seed, form, dropout=0.1, layers=1) for seed in range(2)]
    check_bf16_autocast_stays_finite_and_near(models[0], form)
    check_every_parameter_gets_a_gradient(models[0], form, cell)
    check_state_dict_round_trip(*models, form, cell)
    check_gradients_are_the_derivative(models[0], form)


def check_no_position_sees_a_later_one(model: nn.Module, form: tuple[str, str]) -> None:
    inputs = some_inputs(form)
    with torch.no_grad():
        before = model(**inputs)
    for now in (0, 4, CONTEXT - 2):
        other = inputs["tokens"].clone()
        other[:, now + 1 :] = (other[:, now + 1 :] + 1) % VOCAB
        with torch.no_grad():
            after = model(**(inputs | {"tokens": other}))
        torch.testing.assert_close(before[:, : now + 1], after[:, : now + 1], rtol=0, atol=1e-12)
        assert (before[:, now + 1 :] - after[:, now + 1 :]).abs().amax(-1).min() > 1e-6  # the test can see a change


def check_every_position_sees_what_it_may(model: nn.Module, form: tuple[str, str]) -> None:
    """All earlier tokens in a causal form, all tokens in the others, all of a source."""
    inputs = some_inputs(form)
    for name, tokens in inputs.items():
        at = -1 if form[1] not in ("lm", "seq2seq") or name == "source" else 0
        other = tokens.clone()
        other[:, at] = (other[:, at] + 1) % VOCAB
        with torch.no_grad():
            change = (model(**inputs) - model(**(inputs | {name: other}))).abs().amax(-1)
        assert change.min() > 0, name  # be it little, where attention is saturated


def check_padding_on_the_right_is_as_if_it_were_not_there(model: nn.Module, form: tuple[str, str]) -> None:
    inputs = some_inputs(form)
    masks = {"source_mask" if name == "source" else "mask": torch.ones(x.shape) for name, x in inputs.items()}
    with torch.no_grad():
        torch.testing.assert_close(model(**inputs, **masks), model(**inputs), rtol=1e-9, atol=1e-12)
        for length in (7, 1):
            for mask in masks.values():
                mask[:, length:] = 0
            short = model(**{name: tokens[:, :length] for name, tokens in inputs.items()})
            long = model(**inputs, **masks)
            torch.testing.assert_close(long[:, :length] if long.ndim == 3 else long, short, rtol=1e-9, atol=1e-12)


FLAGS = ("tie_embeddings", "share_layers", "scale_embeddings", "norm_embeddings")


def check_every_parameter_gets_a_gradient(plain: nn.Module, form: tuple[str, str], cell: dict[str, str]) -> None:
    """By its stable name.  With all flags off and on beside every variant, and each alone beside the reference."""
    possible = [flag for flag in FLAGS if form[1] != "classification" or flag != "tie_embeddings"]  # classes: no tokens
    still = {"embed.weight"} if cell.get("embedding") == "random" else set()  # frozen, and so no head
    possible = [flag for flag in possible if flag != "tie_embeddings" or not still]
    for on in ([], possible, *([] if cell else [[flag] for flag in possible])):
        model = jitter(built(cell, form=form, **{name: name in on for name in FLAGS}) if on else plain, 0.05)
        loss_of(model, some_inputs(form, 8)).backward()
        assert {name for name, parameter in model.named_parameters() if not parameter.requires_grad} == still
        for name, parameter in model.named_parameters():
            assert STABLE.fullmatch(name), name
            if name in still:
                assert parameter.grad is None
                continue
            assert parameter.grad is not None, f"{on}: {name} is connected to nothing"
            assert parameter.grad.isfinite().all() and parameter.grad.any(), f"{on}: {name}"


def check_state_dict_round_trip(
    first: nn.Module, second: nn.Module, form: tuple[str, str], cell: dict[str, str]
) -> None:
    first(**some_inputs(form, seed=3))  # moves running statistics, where there are any
    file = io.BytesIO()
    torch.save(first.state_dict(), file)
    file.seek(0)
    second.load_state_dict(torch.load(file, weights_only=True))
    assert torch.equal(first.eval()(**some_inputs(form)), second.eval()(**some_inputs(form)))
    if form[1] == "lm":
        ties = any(parameter is second.embed.weight for parameter in second.head.parameters())
        assert ties == (cell.get("embedding") != "random")


def check_bf16_autocast_stays_finite_and_near(model: nn.Module, form: tuple[str, str]) -> None:
    inputs = some_inputs(form, 8)
    rekey(model, 0, 0)
    picked = {module: module.top_k for module in model.modules() if isinstance(module, MoE)}
    for module in picked:
        module.top_k = 8  # all: where few are picked, rounding can turn which
    with torch.no_grad():
        full = (copy.deepcopy(model) if running_norms(model) else model)(**inputs)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        logits = model(**inputs)
    logits.float().square().mean().backward()
    assert logits.isfinite().all()
    assert all(p.grad.isfinite().all() for p in model.parameters() if p.grad is not None)
    torch.testing.assert_close(logits.float(), full, rtol=0.1, atol=0.05 * full.abs().max().item())
    model.zero_grad()
    for module, count in picked.items():
        module.top_k = count


def check_gradients_are_the_derivative(model: nn.Module, form: tuple[str, str]) -> None:
    """In float64, along random directions, in training mode; PowerNorm's is deliberately another there: compared with
    the paper's in test_norm_power.py."""
    model = jitter(model.double(), 0.1)
    model.train(not any(isinstance(module, PowerNorm) for module in model.modules()))
    inputs, parameters = some_inputs(form, 2, 5), dict(model.named_parameters())

    def forward(values: Tensor) -> Tensor:  # all parameters in one vector: few directions cover them all
        parts = values.split([parameter.numel() for parameter in parameters.values()])
        given = {name: part.view(p.shape) for (name, p), part in zip(parameters.items(), parts, strict=True)}
        return torch.func.functional_call(model, given, (), inputs, tie_weights=True)

    flat = torch.cat([parameter.detach().flatten() for parameter in parameters.values()])
    assert torch.autograd.gradcheck(forward, flat.requires_grad_(), fast_mode=True)


def check_compiled(cell: dict[str, str], form: tuple[str, str], backend: str) -> None:
    """Eager and compiled a cell computes the same losses, gradients and running statistics, step after step."""
    eager = jitter(built(cell, form=form, layers=1, dropout=0.2), 0.05)
    compiled = copy.deepcopy(eager)
    torch._dynamo.reset()
    compiled.compile(backend=backend, fullgraph=True, options=supported(FASTER) if backend == "inductor" else None)
    assert list(dict(compiled.named_parameters())) == list(dict(eager.named_parameters()))
    losses = []
    for step in range(2):
        for one in (eager, compiled):
            rekey(one, 0, step)
            loss = loss_of(one, some_inputs(form))
            loss.backward()
            losses.append(loss.detach())
    torch.testing.assert_close(losses[0::2], losses[1::2], rtol=1e-5, atol=1e-6)
    assert losses[0] != losses[2], "a mask that the compiler baked in would not change with the step"
    for (name, mine), theirs in zip(eager.named_parameters(), compiled.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-3, atol=1e-5, msg=name)
    for mine, theirs in zip(eager.buffers(), compiled.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs)


def test_compiled_it_computes_the_same():
    """As Dynamo traces one cell; every variant and form in the slow tests below."""
    check_compiled(COVER[1] | {"embedding": "learned"}, LM, "eager")


@pytest.mark.parametrize("form", FORMS, ids="-".join)
def test_heads_have_a_soft_cap(form):
    inputs, plain = some_inputs(form), jitter(built(form=form), 0.5)
    capped = jitter(built(form=form, soft_cap=2.0), 0.5)
    torch.testing.assert_close(capped(**inputs), 2 * torch.tanh(plain(**inputs) / 2))


def test_a_classifier_refuses_what_it_could_not_learn_with():
    with pytest.raises(ValueError, match="sets the mean over positions"):
        built({"norm": "instance"}, form=("encoder", "classification"))


@pytest.mark.slow
@pytest.mark.parametrize(("form", "cell"), [(form, cell) for form, cell in IN_FORMS if form != LM], ids=in_a_test)
def test_other_forms_compile_too(form, cell):
    check_compiled(cell, form, "aot_eager")


@pytest.mark.slow
@pytest.mark.parametrize("cell", CELLS, ids=name_of)
def test_inductor_computes_the_same(cell):
    check_compiled(cell, LM, "inductor")


@pytest.mark.parametrize(("name", "share"), [("bn", True), ("powernorm", False)])
def test_settled_statistics_are_those_of_training(name, share):
    """Evaluation computes what training does, once running statistics have seen enough.

    Not so of instance norms: each sequence has its statistics, and the running ones are those of all.
    """
    model, tokens = built({"norm": name}, share_layers=share).double(), some_tokens(16)
    with torch.no_grad():
        for _ in range(100):
            training = model(tokens)
        evaluating = model.eval()(tokens)
    assert (training - evaluating).square().mean().sqrt() < 0.02 * training.std()
