"""The recurrences of `chunked`, optionally with the Triton kernels of flash-linear-attention (package fla-core).

The kernels need a GPU; on the meta device, on a CPU and in float64 `chunked` is used.
"""

import functools
import os
from collections.abc import Callable
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ablate.config.extra import extra
from ablate.model.mixers import chunked

Kernels = Literal["fla"]
LEAST = 16  # smallest inner dimension of a product in Triton
NOTE = "computed by flash-linear-attention's kernels; FLOPs and memory are those of the plain form"


def by_rule(
    plain: Callable[..., Tensor], rule: str, query: Tensor, key: Tensor, *rest: Tensor, kernels: Kernels | None
) -> Tensor:
    """A recurrence of `chunked`, or the library's rule for it; `rest` are values, log decay, and β if there is one."""
    if kernels is None or not supports(query):
        return plain(query, key, *rest)
    value, *rates = rest
    return computed(rule, query, key, value, **dict(zip(("g", "beta"), rates, strict=False)))


by_head = functools.partial(by_rule, chunked.by_head, "simple_gla")
by_feature = functools.partial(by_rule, chunked.by_feature, "gla")
by_delta = functools.partial(by_rule, chunked.by_delta, "gated_delta_rule")


def supports(x: Tensor) -> bool:
    """Whether the kernels support a tensor."""
    return x.is_cuda and x.dtype is not torch.float64


@torch.compiler.disable  # as in the library: causes a graph break in a compiled model
def computed(rule: str, query: Tensor, key: Tensor, value: Tensor, **rates: Tensor) -> Tensor:
    """Apply one of the library's rules: Q, K (B, H or 1, T, D), V (B, H, T, V), rates (B, H, T, …) -> (B, H, T, V).  Q,
    K and V get one dtype, that of autocast if it is enabled, as in the products of `chunked`; rates keep theirs."""
    dtype = torch.promote_types(torch.promote_types(query.dtype, key.dtype), value.dtype)
    if torch.is_autocast_enabled(query.device.type):
        dtype = torch.get_autocast_dtype(query.device.type)
    shape = (-1, rates["g"].shape[1], -1, -1)
    made = (x.to(dtype).expand(shape).transpose(1, 2) for x in (query, key, value))
    found: Tensor = function(rule)(*made, **{name: x.transpose(1, 2) for name, x in rates.items()}, scale=1.0)[0]
    return found.transpose(1, 2)


@functools.cache
def function(rule: str) -> Any:
    """The chunked function of a rule.  Raises ValueError if the library is not installed.  Uses true float32 instead of
    TF32, and the library's own kernels, whatever other packages are installed."""
    os.environ |= {"TRITON_F32_DEFAULT": "ieee", "FLA_DISABLE_BACKEND_DISPATCH": "1"}
    return getattr(extra(f"fla.ops.{rule}", "attention.kernels=fla", "fla"), f"chunk_{rule}")


def choose_kernels(mixer: nn.Module, kernels: Kernels | None, keys: int, values: int, most: int | None = None) -> None:
    """Set a mixer's kernels, given the features of a head's keys, of which there may be at most `most`, and values.
    Raises ValueError for unsupported sizes."""
    mixer.kernels = kernels
    if kernels is None:
        return
    sizes = f"not {keys} of a head's keys and {values} of its values"
    if min(keys, values) < LEAST or keys % 2 or values % 2:
        problem = f"takes even numbers of features ≥ {LEAST}, {sizes}; write fewer model.heads, or leave it out"
        raise ValueError(f"attention.kernels={kernels} {problem}")
    if most and keys > most:
        raise ValueError(f"attention.kernels={kernels} takes at most {most} features of keys, {sizes}; leave it out")
    mixer.note = "; ".join([*filter(None, [getattr(mixer, "note", None)]), NOTE])
