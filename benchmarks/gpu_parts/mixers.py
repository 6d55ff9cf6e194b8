"""Mixers by flash-linear-attention's kernels and by the plain forms: numbers against float64, and time."""

import time
from typing import Any

import torch
from torch import Tensor, nn

from gpu_parts.given import Findings, Given, one_cell, wait

VARIANTS = ("linear", "retention", "gla", "gated_deltanet", "mamba2")
NEAR = {"fp32": 5e-3, "bf16": 0.05}  # of a tensor's norm; gated DeltaNet's kernel solves its systems in tf32
WAYS: dict[str, str | None] = {"plain": None, "kernels": "fla"}
WARM_UP, TIMES = 5, 20


def mixers(given: Given, found: Findings) -> None:
    """Outputs and all gradients by length, precision and form; a forward and backward pass of a long batch timed."""
    from ablate.config.extra import installed
    from ablate.training.devices import configure_torch

    configure_torch()
    found.tell(compared=given.device == "cuda")  # on a CPU both are the plain form
    try:
        for module in ("fla", "triton") if given.device == "cuda" else ():
            installed(module, "this part", "fla")
    except ValueError as error:
        found.tell(compared=False, left_out=str(error))
        return
    table: dict[str, float] = {}
    seconds: dict[str, dict[str, float]] = {}
    for variant in VARIANTS:
        try:
            for length in given.pick([20], [16, 200, 1024]):
                table |= compared(given, found, variant, length)
            seconds[variant] = {how: milliseconds(given, variant, by) for how, by in WAYS.items()}
        except Exception as error:  # one that fails must not end the others
            found.expect(False, f"{variant}: {type(error).__name__}: {str(error).strip().splitlines()[0]}")
    found.tell(worst=max(table.values(), default=None), apart=table, milliseconds=seconds)


def compared(given: Given, found: Findings, variant: str, length: int) -> dict[str, float]:
    """How far each form is from float64 on the CPU, in its output or one of its gradients; the worst of each."""
    exact = passed(made(given, variant, None).double(), inputs(given, 2, length).double(), "fp32")
    table = {}
    for how, by in WAYS.items():
        for precision, near in NEAR.items():
            x = inputs(given, 2, length).to(given.device)
            got = passed(made(given, variant, by).to(given.device), x, precision)
            pairs = zip(got, exact, strict=True)
            name = f"{variant}, T={length}, {how}, {precision}"
            table[name] = max(float((a.double().cpu() - b).norm() / b.norm().clamp(min=1e-12)) for a, b in pairs)
            found.expect(table[name] < near, f"{name}: {table[name]} of the norm is wrong")
    return table


def milliseconds(given: Given, variant: str, by: str | None) -> float:
    """Of a forward and backward pass in bf16."""
    module, x = made(given, variant, by).to(given.device), inputs(given, *given.pick((1, 20), (16, 2048)))
    x = x.to(given.device)
    for _ in range(given.pick(1, WARM_UP)):
        passed(module, x, "bf16")
    wait(given)
    start, times = time.perf_counter(), given.pick(1, TIMES)
    for _ in range(times):
        passed(module, x, "bf16")
    wait(given)
    return round(1000 * (time.perf_counter() - start) / times, 2)


def made(given: Given, variant: str, by: str | None) -> nn.Module:
    """A mixer with heads of 64 features, from seed 0."""
    from ablate.config.files import read_plain
    from ablate.config.groups import groups
    from ablate.model.build import initialised_model

    size = given.pick(["model.dim=32", "model.heads=1"], ["model.dim=512", "model.heads=8"])
    cell = one_cell(given.words(*size, "model.layers=1", "train.device=cpu"))
    config = cell.config.with_value("attention", read_plain(groups()["attention"][variant]) | {"kernels": by})
    model: Any = initialised_model(config, cell.task, 0)
    found: nn.Module = model.blocks[0].attention
    return found


def inputs(given: Given, batch: int, length: int) -> Tensor:
    """A stream (B, T, C)."""
    return torch.randn(batch, length, given.pick(32, 512), generator=torch.Generator().manual_seed(0))


def passed(module: nn.Module, x: Tensor, precision: str) -> list[Tensor]:
    """An output, and the gradients of a weighted sum of it in what the module reads and in its parameters."""
    from ablate.model.position import Places

    x = x.clone().requires_grad_()
    with torch.autocast(x.device.type, torch.bfloat16, enabled=precision == "bf16"):
        out = module(x, Places(), True)
    weights = torch.linspace(-1, 1, out.shape[-1], device=out.device, dtype=out.dtype)
    return [out.detach(), *torch.autograd.grad((out * weights).sum(), [x, *module.parameters()])]
