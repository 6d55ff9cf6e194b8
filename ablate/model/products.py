"""Products of linear layers: the library for float32 on a CPU, its speed, and threads; padding on a GPU."""

import math
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import linear, pad


class OneDNNLinear(nn.Linear):
    """y = x Wᵀ + b through oneDNN, forward and backward, in float32: (..., in) -> (..., out).  MKL, torch's default, is
    less than half as fast as oneDNN on some CPUs and as fast or faster on others."""

    def forward(self, x: Tensor) -> Tensor:
        """See the class; other dtypes and devices use torch's default, which for bf16 is also oneDNN."""
        if x.dtype is not torch.float32 or x.device.type != "cpu" or torch.is_autocast_enabled("cpu"):
            return super().forward(x)
        made = by_onednn(x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])
        return made if self.bias is None else made + self.bias


# A custom operator, because inductor treats oneDNN's as one for inference, with constant weights.
@torch.library.custom_op("ablate::onednn_product", mutates_args=())
def by_onednn(x: Tensor, weight: Tensor) -> Tensor:
    """x Wᵀ with oneDNN, in float32 unless torch.backends.mkldnn.matmul.fp32_precision says otherwise."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")


@by_onednn.register_fake
def _shape_of_product(x: Tensor, weight: Tensor) -> Tensor:
    return x.new_empty(x.shape[0], weight.shape[0])


# As a decorator, since a statement of a module would count as code of every run.
@partial(by_onednn.register_autograd, setup_context=lambda ctx, inputs, output: ctx.save_for_backward(*inputs))
def _gradients(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor | None]:
    x, weight = ctx.saved_tensors
    of_x = by_onednn(gradient, weight.t()) if ctx.needs_input_grad[0] else None
    return of_x, by_onednn(gradient.t(), x.t()) if ctx.needs_input_grad[1] else None


class PaddedLinear(nn.Linear):
    """y = x Wᵀ + b: (..., in) -> (..., out), with rows of zeros added to W for the product: with an odd number of
    outputs, as of GPT-2's 50,257 logits, a GPU uses slow kernels.  If `whole`, their outputs are kept, and are −∞."""

    whole: bool

    def forward(self, x: Tensor) -> Tensor:
        spare = -self.out_features % PADDED
        bias = self.weight.new_zeros(self.out_features) if self.whole and self.bias is None else self.bias
        bias = None if bias is None else pad(bias, (0, spare), value=-math.inf)
        outputs = linear(x, pad(self.weight, (0, 0, 0, spare)), bias)
        return outputs if self.whole else outputs[..., : self.out_features]


def as_given(x: Tensor) -> AbstractContextManager[None]:
    """A context in which products keep the precision of their factors, even under autocast.  Does nothing where
    autocast is off: torch's cache refuses graphs with an autocast context."""
    device = "cuda" if x.is_cuda else "cpu"  # autocast does not know the meta device
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


PADDED, WIDE = 64, 1024  # outputs are padded to a multiple of PADDED where they are at least WIDE


@contextmanager
def whole_logits(model: nn.Module) -> Iterator[None]:
    """A model's logits get columns of −∞ up to a multiple of PADDED where its head is a padded layer: cross-entropies
    and their gradients are the same, and kernels read rows of that length in half the time."""
    head = getattr(model, "head", None)
    own = type(model).__module__ == "ablate.model.transformer"  # a model of a user's may compute with its logits
    padded = [head] if own and model.soft_cap is None and isinstance(head, PaddedLinear) else []
    for layer in padded:
        layer.whole = True
    try:
        yield
    finally:
        for layer in padded:
            layer.whole = False


def use(backend: str, model: nn.Module, device: str = "cpu") -> None:
    """Make a model's linear layers use a backend on a device; parameters and their names do not change."""
    for module in (module for module in model.modules() if type(module) is nn.Linear):
        if device == "cuda" and module.out_features >= WIDE and module.out_features % PADDED:
            module.__class__, module.whole = PaddedLinear, False  # on the module, or its code is compiled twice
        elif backend == "onednn":
            module.__class__ = OneDNNLinear


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute on one thread: several add sums in another order, and are no faster for small products."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(threads)


SECONDS = 0.02  # time to repeat each product; the fastest counts, since other processes can only slow it down
# torch's default, which is MKL in builds with it, and oneDNN.
PRODUCTS: dict[str, Callable[[Tensor, Tensor], Tensor]] = {"torch": linear, "onednn": by_onednn}

Shape = tuple[int, int]  # in and out features of a linear layer


def product_seconds(
    shapes: Counter[Shape], rows: int, backend: str = "torch", dtype: torch.dtype = torch.float32
) -> float:
    """Minimal seconds on one core for all products of one step over `rows` positions: for each linear layer the forward
    product and the gradients of inputs and weights."""
    product = PRODUCTS[backend]
    total = 0.0
    for (features, outputs), count in shapes.items():
        sizes = ((rows, features), (outputs, features), (rows, outputs))
        x, weight, gradient = (torch.ones(size, dtype=dtype) for size in sizes)
        of_layer = [(x, weight), (gradient, weight.t()), (gradient.t(), x.t())]
        total += count * sum(fastest(product, one, other) for one, other in of_layer)
    return total


def fastest(product: Callable[[Tensor, Tensor], Tensor], one: Tensor, other: Tensor) -> float:
    """Seconds of the fastest repetition."""
    best, end = float("inf"), time.perf_counter() + SECONDS
    while (start := time.perf_counter()) < end:
        product(one, other)
        best = min(best, time.perf_counter() - start)
    return best
