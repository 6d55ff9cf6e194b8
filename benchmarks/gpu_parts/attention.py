"""Attention's kernels, each against products in float64; and dropout's masks on every device, bit for bit."""

import itertools
import unittest.mock
from typing import Any

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpu_parts.given import Findings, Given

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
OURS = ("flash", "efficient", "math", "explicit", "chosen")  # what must be right, cuDNN's without mask and bias only
NEAR = 0.03  # of the largest entry: outputs and gradients of bf16 products
HEADS, FEATURES = 4, 32


def attention(given: Given, found: Findings) -> None:
    """Outputs and gradients by kernel, length, padding and bias, in bf16; padded queries may see nothing at all."""
    from ablate.training.devices import configure_torch

    configure_torch()
    lengths = given.pick([24], [64, 192, 256, 576, 1024])
    table: dict[str, dict[str, Any]] = {}
    for length, causal, padded, biased in itertools.product(
        lengths, (True, False), (None, "right", "left"), (None, "T5", "−100")
    ):
        exact = gradients("explicit", *made(length, padded, biased, torch.float64, "cpu"), causal)
        how = ["causal"] * causal + [f"padded {padded}"] * bool(padded) + [f"bias {biased}"] * bool(biased)
        name = " ".join([f"T={length}", *how])
        for kernel in ("explicit", "chosen", *KERNELS):
            table.setdefault(kernel, {})[name] = apart = tried(given, kernel, length, padded, biased, causal, exact)
            wrong = isinstance(apart, float) and not apart < NEAR
            used = kernel in OURS or not (padded or biased)
            found.expect(not (wrong and used), f"{kernel}, {name}: {apart} of the largest entry is wrong")
    found.tell(worst={kernel: worst(row) for kernel, row in table.items()})
    found.tell(refused={kernel: sum(isinstance(x, str) for x in row.values()) for kernel, row in table.items()})
    if bad := {name: x for name, x in table["cudnn"].items() if isinstance(x, float) and not x < NEAR}:
        found.tell(cudnn_wrong=bad)


def worst(row: dict[str, Any]) -> float | None:
    """The largest difference of a kernel that took anything; nan counts as the largest."""
    numbers = [x for x in row.values() if isinstance(x, float)]
    return max(numbers, key=lambda x: (x != x, x), default=None)


def tried(
    given: Given, kernel: str, length: int, padded: str | None, biased: str | None, causal: bool, exact: list[Tensor]
) -> float | str:
    """The largest relative difference of a kernel's output and gradients; why, where it does not take them."""
    try:
        got = gradients(kernel, *made(length, padded, biased, torch.bfloat16, given.device), causal)
    except RuntimeError as error:
        return str(error).strip().splitlines()[0]
    pairs = [(a.double().cpu(), b) for a, b in zip(got, exact, strict=True)]
    return max(float((a - b).abs().max() / b.abs().max()) for a, b in pairs)


def rules(given: Given, found: Findings) -> None:
    """Windows and ALiBi's slopes told to FlexAttention, compiled, in bf16; at a toy size eagerly, without gradients."""
    from ablate.model.attend import Rules, attend_explicit, attend_flex
    from ablate.model.position import ALiBi

    table: dict[str, float] = {}
    for length, causal, (window, sloped) in itertools.product(
        given.pick([24], [192, 1024]), (True, False), ((16, False), (None, True), (16, True))
    ):
        told = ALiBi(HEADS).places(torch.zeros(1, length, 1, device=given.device), causal)
        torch.compiler.reset()
        by_rules = attend_flex if given.toy else torch.compile(attend_flex, fullgraph=True, dynamic=False)
        tensors, _ = made(length, None, None, torch.bfloat16, given.device)
        exact, _ = made(length, None, None, torch.float64, "cpu")
        bias = told.bias.double().cpu() if sloped else None
        if given.toy:
            tensors, exact = [x.detach() for x in tensors], [x.detach() for x in exact]
        out = by_rules(*tensors, causal, Rules(slopes=told.slopes if sloped else None, window=window))
        expected = attend_explicit(*exact, causal, Rules(bias, window=window))
        pairs = list(zip(with_gradients(out, tensors), with_gradients(expected, exact), strict=True))
        name = " ".join([f"T={length}", *["causal"] * causal, *["window"] * bool(window), *["slopes"] * sloped])
        table[name] = max(float((a.double().cpu() - b).abs().max() / b.abs().max()) for a, b in pairs)
        found.expect(table[name] < NEAR, f"{name}: {table[name]} of the largest entry is wrong")
    found.tell(worst=worst(table), apart=table)


def with_gradients(out: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """An output and the gradients of a weighted sum of it, where there are any."""
    weights = torch.linspace(-1, 1, out.shape[-1], device=out.device, dtype=out.dtype)
    return [out.detach(), *(torch.autograd.grad((out * weights).sum(), tensors) if out.requires_grad else ())]


def made(
    length: int, padded: str | None, biased: str | None, dtype: torch.dtype, device: str
) -> tuple[list[Tensor], Tensor | None]:
    """Queries, keys, values and a bias from a seed, rounded to bf16 for every type, and a mask (2, T), 0 where padded.

    The bias is float32 at least, as position encodings make it.
    """
    draw = torch.Generator().manual_seed(0)
    rounded = [torch.randn(2, HEADS, length, FEATURES, generator=draw).bfloat16() for _ in range(3)]
    if biased:
        rounded.append(((torch.randn(HEADS, length, length, generator=draw)) - 100 * (biased == "−100")).bfloat16())
    mask = torch.ones(2, length)
    mask[1, slice(0, length // 3) if padded == "left" else slice(length - length // 3, None)] = 0
    dtypes = [dtype] * 3 + [torch.promote_types(dtype, torch.float32)]
    tensors = [x.to(device, kind).requires_grad_() for x, kind in zip(rounded, dtypes, strict=False)]
    return tensors, mask.to(device) if padded else None


def gradients(kernel: str, tensors: list[Tensor], mask: Tensor | None, causal: bool) -> list[Tensor]:
    """The output of attention and the gradients of all that it reads, of a sum over real positions."""
    from ablate.model import attend

    query, key, value, *bias = tensors
    given: tuple[Any, ...] = (query, key, value, causal, attend.Rules(bias[0] if bias else None, mask))
    if kernel in ("explicit", "chosen"):
        out = (attend.attend_explicit if kernel == "explicit" else attend.attend_fused)(*given)
    else:
        with sdpa_kernel(KERNELS[kernel]), unittest.mock.patch.object(attend, "KERNELS", [KERNELS[kernel]]):
            out = attend.attend_fused(*given)
    weights = torch.linspace(-1, 1, out.shape[-1], device=out.device, dtype=out.dtype)
    real = out if mask is None else out * mask[:, None, :, None].to(out.dtype)
    return [real.detach(), *torch.autograd.grad((real * weights).sum(), tensors)]


def dropout_masks(given: Given, found: Findings) -> None:
    """One key gives one mask: on the CPU, on the device, compiled, and in parts of the batch."""
    from ablate.model.dropout import Dropout, begin_at, rekey

    shape = given.pick((4, 3, 7), (64, 6, 256, 256))
    site = Dropout(0.1)
    rekey(site, 3, 5)
    site.key.fill_(0x1234_5678_9ABC_DEF)
    expected = site(torch.ones(shape)) > 0
    found.tell(kept=float(expected.double().mean()))
    site.to(given.device)
    x = torch.ones(shape, device=given.device)
    eager = (site(x) > 0).cpu()
    found.expect(torch.equal(eager, expected), f"{int((eager != expected).sum())} entries differ from the CPU's")
    compiled = (torch.compile(site)(x) > 0).cpu()
    found.expect(torch.equal(compiled, expected), f"{int((compiled != expected).sum())} entries differ when compiled")
    half = shape[0] // 2
    begin_at(site, half)
    part = (site(x[half:]) > 0).cpu()
    found.expect(torch.equal(part, expected[half:]), "the second half of a batch has other masks")
