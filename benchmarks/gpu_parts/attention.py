"""Attention's kernels, each against products in float64; and dropout's masks on every device, bit for bit."""

import itertools
import unittest.mock
from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention import SDPBackend, sdpa_kernel

from gpu_parts.setup import Report, Setup

KERNELS = {
    "flash": SDPBackend.FLASH_ATTENTION,
    "efficient": SDPBackend.EFFICIENT_ATTENTION,
    "cudnn": SDPBackend.CUDNN_ATTENTION,
    "math": SDPBackend.MATH,
}
NEAR = 0.03  # of the largest entry: outputs and gradients of bf16 products
HEADS = 4
FEATURES = 32


class Case(NamedTuple):
    """A length, the direction, the side that is padded ("" for none), and what is added to a normal bias, if any."""

    length: int
    causal: bool
    padded: str = ""
    bias: float | None = None

    def tensors(self, dtype: torch.dtype, device: str) -> list[Tensor]:
        """Queries, keys, values (B, H, T, D) and the bias (H, T, T) if there is one, rounded to bf16 in every type; the
        bias is float32 at least, as position encodings make it."""
        generator = torch.Generator().manual_seed(0)
        tensors = []
        for _ in range(3):
            x = torch.randn(2, HEADS, self.length, FEATURES, generator=generator)
            tensors.append(x.bfloat16().to(device, dtype))
        if self.bias is not None:
            bias = torch.randn(HEADS, self.length, self.length, generator=generator) + self.bias
            tensors.append(bias.bfloat16().to(device, torch.promote_types(dtype, torch.float32)))
        return [x.requires_grad_() for x in tensors]

    def mask(self, device: str) -> Tensor | None:
        """A mask (B, T), 0 where padded."""
        if not self.padded:
            return None
        third = self.length // 3
        mask = torch.ones(2, self.length)
        if self.padded == "left":
            mask[1, :third] = 0
        else:
            mask[1, -third:] = 0
        return mask.to(device)


def attention(setup: Setup, report: Report) -> None:
    """Outputs and gradients by kernel, length, padding and bias, in bf16; padded queries may see nothing at all."""
    from ablate.training.devices import configure_torch

    configure_torch()
    lengths = setup.pick([24], [64, 192, 256, 576, 1024])
    names = ["explicit", "chosen", *KERNELS]
    worst = dict.fromkeys(names, 0.0)
    refused = dict.fromkeys(names, 0)
    for case in itertools.starmap(
        Case, itertools.product(lengths, (True, False), ("", "right", "left"), (None, 0.0, -100.0))
    ):
        exact = outputs("explicit", case, torch.float64, "cpu")
        for kernel in names:
            try:
                difference = largest(outputs(kernel, case, torch.bfloat16, setup.device), exact)
            except RuntimeError:  # it does not take such tensors
                refused[kernel] += 1
                continue
            # cuDNN's is used without padding and bias alone
            if kernel != "cudnn" or (not case.padded and case.bias is None):
                worst[kernel] = max(worst[kernel], difference)
                report.expect(difference < NEAR, f"{kernel}, {case}: {difference} of the largest entry is wrong")
    report.add(worst=worst, refused=refused)


def outputs(kernel: str, case: Case, dtype: torch.dtype, device: str) -> list[Tensor]:
    """The output of attention at real positions, and the gradients of all that it reads."""
    from ablate.model import attend

    tensors = case.tensors(dtype, device)
    mask = case.mask(device)
    bias = tensors[3] if len(tensors) > 3 else None
    rules = attend.Rules(bias, mask)
    if kernel == "explicit":
        out = attend.attend_explicit(*tensors[:3], case.causal, rules)
    elif kernel == "chosen":
        out = attend.attend_fused(*tensors[:3], case.causal, rules)
    else:
        with sdpa_kernel(KERNELS[kernel]), unittest.mock.patch.object(attend, "KERNELS", [KERNELS[kernel]]):
            out = attend.attend_fused(*tensors[:3], case.causal, rules)
    if mask is not None:
        out = out * mask[:, None, :, None].to(out.dtype)
    return with_gradients(out, tensors)


def with_gradients(out: Tensor, tensors: list[Tensor]) -> list[Tensor]:
    """An output and the gradients of a weighted sum of it, where there are any."""
    if not out.requires_grad:
        return [out]
    weights = torch.linspace(-1, 1, out.shape[-1], device=out.device, dtype=out.dtype)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), tensors)]


def largest(tensors: list[Tensor], exact: list[Tensor]) -> float:
    """The largest difference of tensors, relative to the largest entry of each; infinite if one is not a number."""
    differences = []
    for x, expected in zip(tensors, exact, strict=True):
        difference = (x.double().cpu() - expected).abs().max() / expected.abs().max()
        differences.append(float(difference.nan_to_num(nan=torch.inf)))
    return max(differences)


def rules(setup: Setup, report: Report) -> None:
    """Windows and ALiBi's slopes by FlexAttention, compiled, in bf16; at a toy size eagerly, without gradients."""
    from ablate.model.attend import Rules, attend_explicit, attend_flex
    from ablate.model.position import ALiBi

    differences: dict[str, float] = {}
    for length, causal in itertools.product(setup.pick([24], [192, 1024]), (True, False)):
        case = Case(length, causal)
        places = ALiBi(HEADS).places(torch.zeros(1, length, 1, device=setup.device), causal)
        for window, sloped in ((16, False), (None, True), (16, True)):
            tensors = case.tensors(torch.bfloat16, setup.device)
            exact = case.tensors(torch.float64, "cpu")
            if setup.toy:
                flex = attend_flex
                tensors = [x.detach() for x in tensors]
                exact = [x.detach() for x in exact]
            else:
                torch.compiler.reset()
                flex = torch.compile(attend_flex, fullgraph=True, dynamic=False)
            slopes = places.slopes if sloped else None
            bias = places.bias.double().cpu() if sloped else None
            out = flex(*tensors, causal, Rules(slopes=slopes, window=window))
            expected = attend_explicit(*exact, causal, Rules(bias, window=window))
            name = f"T={length}, causal {causal}, window {window}, slopes {sloped}"
            differences[name] = largest(with_gradients(out, tensors), with_gradients(expected, exact))
            report.expect(differences[name] < NEAR, f"{name}: {differences[name]} of the largest entry is wrong")
    report.add(differences=differences)


def dropout_masks(setup: Setup, report: Report) -> None:
    """One key gives one mask: on the CPU, on the device, compiled, and in parts of the batch."""
    from ablate.model.dropout import Dropout, begin_at, rekey

    shape = setup.pick((4, 3, 7), (64, 6, 256, 256))
    dropout = Dropout(0.1)
    rekey(dropout, 3, 5)
    dropout.key.fill_(0x1234_5678_9ABC_DEF)
    expected = dropout(torch.ones(shape)) > 0
    report.add(share=float(expected.double().mean()))
    dropout.to(setup.device)
    x = torch.ones(shape, device=setup.device)
    eager = (dropout(x) > 0).cpu()
    report.expect(torch.equal(eager, expected), "entries differ from the CPU's")
    compiled = (torch.compile(dropout)(x) > 0).cpu()
    report.expect(torch.equal(compiled, expected), "entries differ when compiled")
    half = shape[0] // 2
    begin_at(dropout, half)
    second = (dropout(x[half:]) > 0).cpu()
    report.expect(torch.equal(second, expected[half:]), "the second half of a batch has other masks")
