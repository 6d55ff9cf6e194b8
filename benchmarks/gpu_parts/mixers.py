"""Mixers by flash-linear-attention's kernels and by the plain forms: numbers against float64, and time."""

from typing import Any

import torch
from torch import Tensor, nn

from gpu_parts.setup import Report, Setup, one_cell, reason, seconds_of

VARIANTS = ("linear", "retention", "gla", "gated_deltanet", "mamba2")
FORMS = (None, "fla")  # of `kernels`
NEAR = {"fp32": 5e-3, "bf16": 0.05}  # of a tensor's norm; gated DeltaNet's kernel solves its systems in tf32
REPEATS = 20


def mixers(setup: Setup, report: Report) -> None:
    """Outputs and all gradients by length, precision and form, and the time of a long batch.  On a CPU both forms are
    the plain one."""
    from ablate.config.extra import installed
    from ablate.training.devices import configure_torch

    configure_torch()
    if setup.device == "cuda":
        try:
            installed("fla", "this part", "fla")
            installed("triton", "this part", "fla")
        except ValueError as error:
            report.add(left_out=str(error))
            return
    for variant in VARIANTS:
        try:
            for length in setup.pick([20], [16, 200, 1024]):
                compare(setup, report, variant, length)
            for form in FORMS:
                report.add(**{f"{variant}, {form or 'plain'}, ms": milliseconds(setup, variant, form)})
        except Exception as error:  # one that fails must not end the others
            report.expect(False, f"{variant}: {reason(error)}")


def compare(setup: Setup, report: Report, variant: str, length: int) -> None:
    """How far each form is from float64 on the CPU, in its output or one of its gradients."""
    x = inputs(setup, 2, length)
    exact = outputs(mixer(setup, variant, None).double(), x.double(), "fp32")
    for form in FORMS:
        for precision, near in NEAR.items():
            tensors = outputs(mixer(setup, variant, form).to(setup.device), x.to(setup.device), precision)
            worst = 0.0
            for tensor, expected in zip(tensors, exact, strict=True):
                difference = (tensor.double().cpu() - expected).norm() / expected.norm().clamp(min=1e-12)
                worst = max(worst, float(difference.nan_to_num(nan=torch.inf)))
            name = f"{variant}, T={length}, {form or 'plain'}, {precision}"
            report.add(**{name: worst})
            report.expect(worst < near, f"{name}: {worst} of the norm is wrong")


def milliseconds(setup: Setup, variant: str, form: str | None) -> float:
    """Of a forward and backward pass in bf16."""
    module = mixer(setup, variant, form).to(setup.device)
    batch, length = setup.pick((1, 20), (16, 2048))
    x = inputs(setup, batch, length).to(setup.device)
    repeats = setup.pick(1, REPEATS)

    def passes() -> None:
        for _ in range(repeats):
            outputs(module, x, "bf16")

    passes()
    return round(1000 * seconds_of(setup, passes) / repeats, 2)


def mixer(setup: Setup, variant: str, form: str | None) -> nn.Module:
    """A mixer with heads of 64 features, from seed 0."""
    from ablate.config.files import read_plain
    from ablate.config.groups import groups
    from ablate.model.build import initialised_model

    size = setup.pick(["model.dim=32", "model.heads=1"], ["model.dim=512", "model.heads=8"])
    cell = one_cell(setup.words(*size, "model.layers=1", "train.device=cpu"))
    node = read_plain(groups()["attention"][variant]) | {"kernels": form}
    model: Any = initialised_model(cell.config.with_value("attention", node), cell.task, 0)
    attention: nn.Module = model.blocks[0].attention
    return attention


def inputs(setup: Setup, batch: int, length: int) -> Tensor:
    """A stream (B, T, C)."""
    return torch.randn(batch, length, setup.pick(32, 512), generator=torch.Generator().manual_seed(0))


def outputs(module: nn.Module, x: Tensor, precision: str) -> list[Tensor]:
    """An output, and the gradients of a weighted sum of it in what the module reads and in its parameters."""
    from ablate.model.position import Places

    x = x.clone().requires_grad_()
    with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
        out = module(x, Places(), True)
    weights = torch.linspace(-1, 1, out.shape[-1], device=out.device, dtype=out.dtype)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), [x, *module.parameters()])]
