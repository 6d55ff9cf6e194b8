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
        product = by_onednn(x.flatten(0, -2), self.weight).unflatten(0, x.shape[:-1])
        return product if self.bias is None else product + self.bias


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
    x_gradient = by_onednn(gradient, weight.t()) if ctx.needs_input_grad[0] else None
    weight_gradient = by_onednn(gradient.t(), x.t()) if ctx.needs_input_grad[1] else None
    return x_gradient, weight_gradient


class PaddedLinear(nn.Linear):
    """y = x Wᵀ + b: (..., in) -> (..., out), with rows of zeros added to W for the product: with an odd number of
    outputs, as of GPT-2's 50,257 logits, a GPU uses slow kernels.  With `returns_padding` their outputs are returned,
    and are −∞."""

    returns_padding: bool

    def forward(self, x: Tensor) -> Tensor:
        added = -self.out_features % MULTIPLE
        bias = self.bias
        if bias is None and self.returns_padding:
            bias = self.weight.new_zeros(self.out_features)
        if bias is not None:
            bias = pad(bias, (0, added), value=-math.inf)
        outputs = linear(x, pad(self.weight, (0, 0, 0, added)), bias)
        return outputs if self.returns_padding else outputs[..., : self.out_features]


def as_given(x: Tensor) -> AbstractContextManager[None]:
    """A context in which products keep the precision of their factors, even under autocast.  Does nothing where
    autocast is off: torch's cache refuses graphs with an autocast context."""
    device = "cuda" if x.is_cuda else "cpu"  # autocast does not know the meta device
    return torch.autocast(device, enabled=False) if torch.is_autocast_enabled(device) else nullcontext()


MULTIPLE = 64  # outputs are padded to a multiple of this
MIN_OUTPUTS = 1024  # where there are at least so many


@contextmanager
def padded_logits(model: nn.Module) -> Iterator[None]:
    """A model's logits get columns of −∞ up to a multiple of MULTIPLE where its head is a padded layer: cross-entropies
    and their gradients are the same, and kernels read rows of that length in half the time."""
    head = getattr(model, "head", None)
    is_built_in = type(model).__module__ == "ablate.model.transformer"  # a user's model may compute with its logits
    if not is_built_in or model.soft_cap is not None or not isinstance(head, PaddedLinear):
        yield
        return
    head.returns_padding = True
    try:
        yield
    finally:
        head.returns_padding = False


def use(backend: str, model: nn.Module, device: str = "cpu") -> None:
    """Make a model's linear layers use a backend on a device; parameters and their names do not change."""
    for module in model.modules():
        if type(module) is not nn.Linear:
            continue
        if device == "cuda" and module.out_features >= MIN_OUTPUTS and module.out_features % MULTIPLE:
            module.__class__ = PaddedLinear
            module.returns_padding = False  # on the module, or its code is compiled twice
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
        x = torch.ones(rows, features, dtype=dtype)
        weight = torch.ones(outputs, features, dtype=dtype)
        gradient = torch.ones(rows, outputs, dtype=dtype)
        forward = fastest(product, x, weight)
        of_input = fastest(product, gradient, weight.t())
        of_weight = fastest(product, gradient.t(), x.t())
        total += count * (forward + of_input + of_weight)
    return total


def fastest(product: Callable[[Tensor, Tensor], Tensor], left: Tensor, right: Tensor) -> float:
    """Seconds of the fastest repetition."""
    best = math.inf
    end = time.perf_counter() + SECONDS
    start = time.perf_counter()
    while start < end:
        product(left, right)
        now = time.perf_counter()
        best = min(best, now - start)
        start = now
    return best
