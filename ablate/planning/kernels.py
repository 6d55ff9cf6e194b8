"""Which kernels a study uses where `train.matmul` and `train.compile` are `auto`: decided once, kept when it continues.

`ablate.model.attend` chooses the kernel of attention, in every forward pass.
"""

import dataclasses
from collections import Counter

from ablate.planning.cells import inspected
from ablate.planning.earlier_runs import begun
from ablate.planning.runs import can_compile
from ablate.planning.study import PlannedStudy, in_float32_on_cpu
from ablate.runs.records import Cell

# FLOPs of a run above which compiling pays: about a minute.  The value for GPUs is a guess.
LONG = {"cpu": 4e12, "cuda": 4e15}
CLEARLY = 1.15  # times as fast; less could be noise, and the next study of the same cells would not find their runs
ENOUGH = 1024  # rows of a product; more do not change its rate


def with_kernels(study: PlannedStudy) -> PlannedStudy:
    """The study with `train.matmul=onednn` and `train.compile=true` where they are `auto` and pay: as its earlier runs
    have them, else as this machine should.  What stays `auto` becomes the default later.  Raises PlanError."""
    trains = [draft.config.train for draft in study.drafts]
    if all(train.matmul != "auto" and train.compile != "auto" for train in trains):
        return study
    matmul, is_compiled = earlier_kernels(study) or fitting_kernels(study)
    drafts = []
    decided = set()
    for draft, row in zip(study.drafts, study.rows, strict=True):
        config = draft.config
        if is_compiled and config.train.compile == "auto":
            config = config.with_value("train.compile", True)
            decided.add("compiled")
        if matmul == "onednn" and config.train.matmul == "auto" and in_float32_on_cpu(row.planned_config):
            config = config.with_value("train.matmul", "onednn")
            decided.add("float32 products by oneDNN")
        drafts.append(dataclasses.replace(draft, config=config))
    if not decided:
        return study
    what = " and ".join(sorted(decided))
    note = f"{what}, which should be faster; train.compile=false train.matmul=torch: neither"
    return inspected(dataclasses.replace(study, drafts=drafts, notes=[*study.notes, note]))


def earlier_kernels(study: PlannedStudy) -> tuple[str, bool] | None:
    """The library and whether to compile that a study was begun with, on any machine; None if it is new."""
    manifests = begun(study)
    if not manifests:
        return None
    matmul = "torch"
    is_compiled = False
    for cell in manifests[0].cells:
        train = cell.planned_config.train
        if train.matmul == "onednn" and "train.matmul" not in cell.levels:
            matmul = "onednn"
        if train.compile is True and "train.compile" not in cell.levels:
            is_compiled = True
    return matmul, is_compiled


def fitting_kernels(study: PlannedStudy) -> tuple[str, bool]:
    """The faster library and whether to compile, for the runs of a study's first reference on this machine."""
    row = next(row for row in study.rows if row.reference)
    config = row.planned_config
    if row.flops_per_step * config.train.steps < LONG[config.train.device]:
        return "torch", False
    matmul = faster_products(row) if in_float32_on_cpu(config) else "torch"
    return matmul, can_compile(config.train.device)


def faster_products(cell: Cell) -> str:
    """The library with the faster matrix products of a layer of a cell's width, on this machine."""
    # These load torch.
    import torch

    from ablate.model.products import one_thread, product_seconds

    if not torch.backends.mkldnn.is_available():
        return "torch"
    dim = cell.planned_config.model.dim
    shapes = Counter({(dim, dim): 4, (dim, 4 * dim): 1, (4 * dim, dim): 1})  # of attention and FFN
    rows = min(int(cell.tokens_per_step or 1), ENOUGH)
    times: dict[str, list[float]] = {"torch": [], "onednn": []}
    with one_thread():
        for _ in range(3):  # in turns, since another process that begins meanwhile would slow one of them alone
            for library, seconds in times.items():
                seconds.append(product_seconds(shapes, rows, library))
    return "onednn" if min(times["torch"]) > CLEARLY * min(times["onednn"]) else "torch"
