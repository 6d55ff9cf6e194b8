"""torch.compile of a model in place, and where it pays."""

from __future__ import annotations

from torch import nn

# Inductor computes a value of so many operations once, where it would else do so again in each kernel that reads it:
# rotary sines in the kernels of every layer.  A step of scale=small takes 0.87 times as long (benchmarks/step.py).
REALIZED = 7


def compile_in_place(model: nn.Module) -> None:
    """Compile a model's forward and backward pass at its first call, which takes 10 to 60 seconds on a CPU."""
    import torch._functorch.config as autograd

    # Else a ReLU's derivative is kept for the backward pass as a mask of truth values, which inductor's CPU kernels
    # write one by one: the step takes 1.4 times as long (benchmarks/step.py).
    autograd.recompute_views = True
    model.compile(options={"realize_opcount_threshold": REALIZED})
