"""Which library computes the products of linear layers in float32 on a CPU."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

BACKENDS = ("torch", "onednn")  # what torch takes by itself, which is MKL where it was built with it; oneDNN


class OneDNNLinear(nn.Linear):
    """y = x Wᵀ + b through oneDNN, forward and backward, in float32: (..., in) -> (..., out).

    What torch takes, MKL, reaches less than half of oneDNN's rate on some CPUs and as much or more on others.
    """

    def forward(self, x: Tensor) -> Tensor:
        """See the class; other data types, and devices, as torch does it, which for bf16 is oneDNN, too."""
        if x.dtype is not torch.float32 or x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        made: Tensor = _Product.apply(x.flatten(0, -2), self.weight)
        made = made.unflatten(0, x.shape[:-1])
        return made if self.bias is None else made + self.bias


class _Product(torch.autograd.Function):
    """x Wᵀ: (rows, in), (out, in) -> (rows, out)."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor) -> Tensor:
        return by_onednn(x, weight)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        ctx.save_for_backward(*inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
        x, weight = ctx.saved_tensors
        of_x = by_onednn(gradient, weight.t()) if ctx.needs_input_grad[0] else None
        return of_x, by_onednn(gradient.t(), x.t()) if ctx.needs_input_grad[1] else None


# An operator of our own, because inductor takes oneDNN's for one of inference, whose weights are constants.
@torch.library.custom_op("ablate::onednn_product", mutates_args=())
def by_onednn(x: Tensor, weight: Tensor) -> Tensor:
    """x Wᵀ by oneDNN, in true float32 unless torch.backends.mkldnn.matmul.fp32_precision says otherwise."""
    made: Tensor = torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")
    return made


@by_onednn.register_fake
def _shape_of_product(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


def use(backend: str, model: nn.Module) -> None:
    """Have a model's linear layers computed by a backend; parameters and their names stay."""
    for module in model.modules() if backend == "onednn" else ():
        if type(module) is nn.Linear:
            module.__class__ = OneDNNLinear
