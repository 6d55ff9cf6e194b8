"""PowerNorm against the algorithm of its paper, step by step.  Its backward pass is deliberately not the derivative."""

import numpy as np
import pytest
import torch
from norms import DIM, EPS, some, some_mask, trained

from ablate.model.norm import PowerNorm

MOMENTUM, STEPS = 0.3, 6


class Paper:
    """Algorithm 2 of arXiv 2003.07845 in NumPy, on the real rows (N, C); its PN-V for the first updates."""

    def __init__(self, gain: np.ndarray, shift: np.ndarray, warmup: int):
        self.gain, self.shift, self.warmup, self.alpha, self.step = gain, shift, warmup, 1 - MOMENTUM, 0
        self.square, self.nu = np.ones(DIM), np.zeros(DIM)

    def forward(self, x: np.ndarray) -> np.ndarray:
        batch, self.own = (x**2).mean(0), self.step < self.warmup
        self.root = np.sqrt((batch if self.own else self.square) + EPS)
        self.normal = x / self.root
        self.square = self.alpha * self.square + (1 - self.alpha) * batch
        self.step += 1
        return self.gain * self.normal + self.shift

    def backward(self, upstream: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        inner = self.gain * upstream
        gamma, lamda = (self.normal**2).mean(0), (inner * self.normal).mean(0)
        if self.own:  # x̂ᵢ = xᵢ / √(mean x² + ε): each xⱼ acts on its own x̂, and by way of the mean on all
            n, x = len(upstream), self.normal * self.root
            gradient = inner / self.root - x * (inner * x).sum(0) / (n * self.root**3)
        else:
            gradient = (inner - self.nu * self.normal) / self.root
        self.nu = self.nu * (1 - (1 - self.alpha) * gamma) + (1 - self.alpha) * lamda
        return gradient, (upstream * self.normal).sum(0), upstream.sum(0)


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("warmup", [0, 2, 100])
def test_the_paper_s_algorithm(masked, warmup):
    norm, mask = trained(PowerNorm(DIM, EPS, MOMENTUM, warmup)), some_mask() if masked else None
    real = torch.ones(4, 5, dtype=torch.bool) if mask is None else mask.bool()
    paper = Paper(norm.weight.detach().numpy().copy(), norm.bias.detach().numpy().copy(), warmup)
    for step in range(STEPS):
        x, upstream = some(4, 5, DIM, seed=step).requires_grad_(), some(4, 5, DIM, seed=100 + step) * real[..., None]
        norm.zero_grad()
        y = norm(x, mask)
        np.testing.assert_allclose(y[real].detach().numpy(), paper.forward(x[real].detach().numpy()), rtol=1e-12)
        y.backward(upstream)
        gradient, gain, shift = paper.backward(upstream[real].numpy())
        np.testing.assert_allclose(x.grad[real].numpy(), gradient, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(norm.weight.grad.numpy(), gain, rtol=1e-9)
        np.testing.assert_allclose(norm.bias.grad.numpy(), shift, rtol=1e-9)
        np.testing.assert_allclose(norm.running_square.numpy(), paper.square, rtol=1e-12)
        np.testing.assert_allclose(norm.nu.numpy(), paper.nu, rtol=1e-9, atol=1e-12)
        assert not x.grad[~real].any()  # padded positions were given no gradient and get none
    assert norm.updates == STEPS
    evaluated = x.detach().numpy() / np.sqrt(paper.square + EPS) * paper.gain + paper.shift
    np.testing.assert_allclose(norm.eval()(x).detach().numpy(), evaluated, rtol=1e-12)


def test_one_backward_pass_per_forward_pass():
    """Two forward passes before a backward pass would use a ν that is not theirs: torch refuses."""
    norm, x = trained(PowerNorm(DIM, EPS, MOMENTUM, 0)), some(4, 5, DIM).requires_grad_()
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        (norm(x).sum() + norm(x).sum()).backward()
