"""What the machine is, and whether the plan's estimate of memory is what training takes."""

import os
import platform

import torch

from gpu_parts.setup import Report, Setup, losses, one_cell, trainer_of, wait

CELLS = {
    "reference": [],
    "fp32": ["train.precision=fp32"],
    "alibi": ["position=alibi"],
    "t5": ["position=t5"],
    "dropout": ["model.dropout=0.1"],
    "window": ["attention=window"],
    "swiglu, bn": ["ffn=swiglu", "norm=bn"],
}


def card(setup: Setup, report: Report) -> None:
    """Versions and the card, as planning sees it."""
    from ablate.model.cost import peak_of
    from ablate.training.devices import configure_torch, device_name
    from ablate.training.hardware import cards, environments

    configure_torch()
    name = device_name(setup.torch_device)
    cudnn = torch.backends.cudnn.version() if torch.backends.cudnn.is_available() else None
    report.add(card=name, python=platform.python_version(), torch=torch.__version__)
    report.add(cuda=torch.version.cuda, cudnn=cudnn, peak_bf16=peak_of(name), cpus=os.cpu_count())
    report.add(visible=os.environ.get("CUDA_VISIBLE_DEVICES"), cards=[row._asdict() for row in cards()])
    if setup.device == "cuda":
        report.expect(cards(), "the process in which planning asks for the cards has no answer")
        workers = len(environments("cuda", "auto"))
        report.expect(workers == torch.cuda.device_count(), f"{workers} workers for the visible GPUs")
        report.expect(not torch.backends.cuda.cudnn_sdp_enabled(), "cuDNN's attention is on")


def memory_estimate(setup: Setup, report: Report) -> None:
    """The estimate beside what the allocator reserved in three steps and one evaluation."""
    from ablate.planning.checks.memory import PROCESS, needed
    from ablate.training.evaluation import measure

    size = setup.pick([], ["scale=base"])
    for name, words in CELLS.items():
        cell = one_cell(setup.words(*size, *words))
        trainer = trainer_of(setup, name, cell.config)
        losses(trainer, 3)
        measure(trainer.average.model, trainer.task, "val", trainer.evaluation)
        wait(setup)
        estimated = needed(cell) - PROCESS[setup.device]
        del trainer
        if setup.device == "cuda":
            ratio = estimated / torch.cuda.max_memory_reserved()
            report.add(**{name: round(ratio, 3)})
            report.expect(0.6 < ratio < 1.6, f"{name}: the estimate is {ratio:.2f} times the reserved memory")
            torch.cuda.empty_cache()
            torch.cuda.reset_peak_memory_stats()
