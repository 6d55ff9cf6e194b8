"""Norms that keep running statistics: their formulas, what moves them, what they let a causal decoder see."""

import copy

import pytest
import torch
from model_variants import CONTEXT, VOCAB, built, some_tokens
from norms import DIM, EPS, from_disk, some, some_mask, trained
from torch import Tensor, nn

from ablate.model.norm import BatchNorm, InstanceNorm, running_norms

KEEPING = ["bn", "instance", "powernorm"]
each = pytest.mark.parametrize("variant", KEEPING)


def state(norm: nn.Module) -> dict[str, Tensor]:
    """The buffers as they are."""
    return {name: buffer.clone() for name, buffer in norm.named_buffers()}


def moved(norm: nn.Module, before: dict[str, Tensor]) -> list[str]:
    """The buffers that are not what they were."""
    return [name for name, buffer in norm.named_buffers() if not torch.equal(buffer, before[name])]


def rows(x: Tensor, mask: Tensor, b: int) -> list[Tensor]:
    """Real positions of one sequence."""
    return [x[b, t] for t in range(x.shape[1]) if mask[b, t]]


@pytest.mark.parametrize("make", [BatchNorm, InstanceNorm])
@pytest.mark.parametrize("masked", [False, True])
def test_moments_formula_and_running_statistics(make, masked):
    norm, x, mask, m = trained(make(DIM, EPS, 0.3)), some(4, 5, DIM), some_mask() if masked else torch.ones(4, 5), 0.3
    y = norm(x, mask if masked else None)
    every = [rows(x, mask, b) for b in range(4)]
    groups = every if make is InstanceNorm else [[row for group in every for row in group]]
    means = [sum(group) / len(group) for group in groups]
    squares = [sum((row - mean) ** 2 for row in group) for group, mean in zip(groups, means, strict=True)]
    for b, t in mask.nonzero().tolist():
        g = b if make is InstanceNorm else 0
        expected = (x[b, t] - means[g]) / (squares[g] / len(groups[g]) + EPS).sqrt() * norm.weight + norm.bias
        torch.testing.assert_close(y[b, t], expected)
    n = sum(map(len, groups))
    torch.testing.assert_close(norm.running_mean, m * sum(row for group in every for row in group) / n)
    torch.testing.assert_close(norm.running_var, (1 - m) + m * sum(squares) / (n - len(groups)))  # unbiased
    norm.eval()
    expected = (x - norm.running_mean) / (norm.running_var + EPS).sqrt() * norm.weight + norm.bias
    torch.testing.assert_close(norm(x), expected)


@each
def test_frozen_statistics_of_the_batch_move_nothing(variant):
    """Frozen training computes what training from a fresh start does, and leaves all as it was."""
    norm, x, mask = from_disk(variant), some(4, 5, DIM, seed=1).requires_grad_(), some_mask()
    fresh = copy.deepcopy(norm)
    for step in range(3):
        norm(some(4, 5, DIM, seed=step))
    before, norm.frozen = state(norm), True
    y = norm(x, mask)
    y.sum().backward()
    torch.testing.assert_close(y, fresh(x, mask))
    norm.eval()(x)  # nor does evaluation
    assert moved(norm, before) == []
    norm.frozen = False
    norm.train()(x, mask)
    assert {*moved(norm, before)} >= before.keys() - {"nu"}


@each
def test_momentum_none_averages_over_the_updates_since_the_reset(variant):
    norm, batches = from_disk(variant), [some(4, 5, DIM, seed=seed) for seed in range(4)]
    start = state(norm)
    norm(100 * batches[0]).sum().backward()
    norm.reset()
    assert moved(norm, start) == []
    norm.momentum = None
    single = []
    for batch in batches:
        one = from_disk(variant, momentum=1.0)
        one(batch)
        single.append(state(one))
        norm(batch)
    assert norm.updates == 4
    for name in start.keys() - {"updates", "nu"}:
        torch.testing.assert_close(getattr(norm, name), sum(s[name] for s in single) / 4)


@each
@pytest.mark.parametrize("real", [0, 1])
def test_a_batch_without_statistics_moves_nothing(variant, real):
    """One real position has a quadratic mean, but no variance."""
    norm, mask = from_disk(variant), torch.zeros(4, 5)
    mask[2, 1] = real
    norm(some(4, 5, DIM))
    before = state(norm)
    assert norm(some(4, 5, DIM, seed=1), mask).isfinite().all()
    assert moved(norm, before) == (["updates", "running_square"] if variant == "powernorm" and real else [])


def test_short_sequences_count_by_their_positions():
    """Sequences of one position say nothing about a variance, and pull the running one nowhere."""
    norm, x, mask = InstanceNorm(DIM, EPS, 1.0).double(), some(4, 5, DIM), torch.ones(4, 5)
    mask[1:, 1:] = 0
    norm(x, mask)
    torch.testing.assert_close(norm.running_var, x[0].var(0))


@pytest.mark.parametrize("masked", [False, True])
@each
def test_drift(variant, masked):
    norm, x, mask = from_disk(variant), some(4, 5, DIM, seed=1), some_mask() if masked else torch.ones(4, 5)
    norm(some(4, 5, DIM))
    before = state(norm)
    real = torch.stack([row for b in range(4) for row in rows(x, mask, b)])
    if variant == "powernorm":
        away = (real.square().mean(0) - norm.running_square) / (norm.running_square + norm.eps)
    else:
        away = (real.mean(0) - norm.running_mean) / (norm.running_var + norm.eps).sqrt()
    expected = torch.linalg.vector_norm(away) / DIM**0.5
    torch.testing.assert_close(norm.drift(x, mask if masked else None), expected)
    assert moved(norm, before) == []


def leak(model: nn.Module, now: int) -> float:
    """How much logits up to position `now` change with the tokens after it, relative to their spread."""
    tokens = some_tokens()
    other = tokens.clone()
    other[:, now + 1 :] = (other[:, now + 1 :] + 1) % VOCAB
    with torch.no_grad():
        before, after = copy.deepcopy(model)(tokens), copy.deepcopy(model)(other)
    return float((before - after)[:, : now + 1].abs().amax() / before.std())


@each
def test_a_causal_decoder_sees_the_future_in_training_and_not_at_evaluation(variant):
    """What their training statistics leak: much; at evaluation, and once PowerNorm's warm-up is over: nothing."""
    model, now = built({"norm": variant}, layers=1).double(), CONTEXT // 2
    for norm in running_norms(model):
        norm.warmup = 2
    for seen in range(4):
        assert (leak(model.train(), now) > 0.01) == (seen < 2 or variant != "powernorm")
        assert leak(model.eval(), now) == 0
        model.train()(some_tokens(seed=seen))
