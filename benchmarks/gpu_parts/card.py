"""What the machine is, and whether the plan's estimate of memory is what training takes."""

import os
import platform

import torch

from gpu_parts.given import Findings, Given, one_cell, trainer, wait

CELLS = {
    "reference": [],
    "fp32": ["train.precision=fp32"],
    "alibi": ["position=alibi"],
    "t5": ["position=t5"],
    "dropout": ["model.dropout=0.1"],
    "window": ["attention=window"],
    "swiglu, bn": ["ffn=swiglu", "norm=bn"],
}


def card(given: Given, found: Findings) -> None:
    """Versions, the card, and what is known of it."""
    from ablate.model.cost import peak_of
    from ablate.training.devices import configure_torch, device_name
    from ablate.training.hardware import cards, environments

    configure_torch()
    name = device_name(given.torch_device)
    found.tell(
        card=name,
        python=platform.python_version(),
        torch=torch.__version__,
        cuda=torch.version.cuda,
        cudnn=torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None,
        peak_bf16=peak_of(name),
        visible=os.environ.get("CUDA_VISIBLE_DEVICES"),
        cards=[one._asdict() for one in cards()],
        workers=environments(given.device, "auto"),
        cpus=os.cpu_count(),
    )
    if given.device == "cuda":
        found.expect(cards(), "the planner's question in a process of its own has no answer")
        listed = environments("cuda", "auto")
        found.expect(len(listed) == torch.cuda.device_count(), f"{len(listed)} workers for the visible GPUs")
        found.expect(not torch.backends.cuda.cudnn_sdp_enabled(), "cuDNN's attention is on")


def memory_estimate(given: Given, found: Findings) -> None:
    """The estimate beside the most that tensors took, and what the allocator reserved, in three steps and one
    evaluation."""
    from ablate.planning.checks.memory import PROCESS, needed
    from ablate.training.evaluation import measure

    size = given.pick([], ["scale=base"])
    for name, words in CELLS.items():
        cell = one_cell(given.words(*size, *words))
        made = trainer(given, name, cell.config)
        for step in range(3):
            made.train_step(step)
        measure(made.average.model, made.task, "val", made.evaluation)
        wait(given)
        estimated = needed(cell) - PROCESS[given.device]
        row: dict[str, float] = {"estimated": round(estimated)}
        del made
        if given.device == "cuda":
            taken, held = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved()
            row |= {"tensors": taken, "reserved": held, "ratio": round(estimated / held, 3)}
            found.expect(0.6 < estimated / held < 1.6, f"{name}: estimated {estimated:.2e} bytes, reserved {held:.2e}")
            torch.cuda.empty_cache()
        found.tell(**{name: row})
