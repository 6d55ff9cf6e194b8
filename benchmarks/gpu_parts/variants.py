"""Every variant in every form, with masks and with dropout: bf16 steps on the device, float32 steps on the CPU."""

import contextlib
import itertools
import math
import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import torch

from gpu_parts.given import Findings, Given, losses, on, one_cell, trainer

FORMS = {
    "decoder": ["data.context=64"],
    "decoder, masks": ["data=reverse"],
    "encoder": ["model=encoder", "data=mlm", "data.context=64"],
    "encoder-decoder, masks": ["model=encoder_decoder", "data=addition"],
}
SIZE = ["model.dim=64", "model.layers=2", "model.heads=4", "train.batch_size=8", "optim.warmup=1"]
STEPS = 5  # the last two of which are replayed as CUDA graphs
PROCESSES = 6  # that share the cells: most of a small cell's time is the CPU's
NEAR, LATER = 0.05, 0.5  # of losses near 4 at the first step, and at the last, which Adam's first steps lead to
NARROW: dict[str, dict[str, Any]] = {"window": {"window": 16}}  # the default is wider than these contexts
# Families by what their operators are called.
KERNELS = {"flash_attention": "flash", "efficient_attention": "efficient", "cudnn_attention": "cudnn"}


def sample(given: Given, found: Findings) -> None:
    """Every eighth cell of `variants`."""
    variants(given, found, 8)


def variants(given: Given, found: Findings, every: int = 1) -> None:
    """Losses, gradients and kernels of each cell; at a toy size each variant in one form."""
    processes = given.pick(1, PROCESSES)
    with ProcessPoolExecutor(processes, multiprocessing.get_context("spawn")) as pool:
        firsts = range(0, processes * every, every)
        shares = list(pool.map(share, itertools.repeat(given), firsts, itertools.repeat(processes * every)))
    kernels: dict[str, list[str]] = {}
    for name, used in (pair for *_, pairs in shares for pair in pairs):
        kernels.setdefault("+".join(used) or "explicit", []).append(name)
    found.failures += [said for failures, *_ in shares for said in failures]
    found.tell(cells=sum(count for _, count, *_ in shares), worst_difference=max(worst for *_, worst, _, _ in shares))
    found.tell(left_out_for_vectors_of_the_cpu=shares[0][3])
    found.tell(kernels={kernel: len(names) for kernel, names in kernels.items()}, kernels_of=kernels)
    if given.device == "cuda":
        found.expect("cudnn" not in "".join(kernels), f"cuDNN's attention is used: {kernels}")


def share(given: Given, first: int, every: int) -> tuple[list[str], int, float, list[str], list[tuple[str, list[str]]]]:
    """One cell of so many: what failed, their number, the worst difference, the variants that are left out for their
    vectors, and the kernels of those whose attention is looked at."""
    from ablate.config.components import resolve
    from ablate.config.files import read_plain
    from ablate.config.groups import groups
    from ablate.config.schema import COMPONENTS

    found, kernels = Findings(), list[tuple[str, list[str]]]()
    given = given._replace(folder=given.folder / str(first))
    given.folder.mkdir()
    references = {form: one_cell(given.words(*SIZE, *words)).config for form, words in FORMS.items()}
    vectors: list[str] = []
    worst, count, mine = 0.0, 0, 0
    for number, group in enumerate(COMPONENTS):
        for turn, variant in enumerate(sorted(groups()[group])):
            node = read_plain(groups()[group][variant]) | NARROW.get(variant, {})
            if hasattr(resolve(group, node["_target_"]), "begin_with"):  # on a GPU it is the table of `learned`
                vectors.append(variant)
                continue
            cells = placed(references, group, node)
            for form in given.pick([list(cells)[(number + turn) % len(cells)]], cells):
                for dropout in given.pick([0.1 * (turn % 2)], [0.0, 0.1]):
                    count += 1
                    if count % every != first:
                        continue
                    config = cells[form].with_value("model.dropout", dropout)
                    name = f"{group}={variant}, {form}, dropout {dropout}"
                    apart, used = compared(given, found, f"c{count}", name, config)
                    worst, mine = max(worst, apart), mine + 1
                    if used is not None:
                        kernels.append((name, used))
    return found.failures, mine, worst, vectors, kernels


def placed(references: dict[str, Any], group: str, node: dict[str, Any]) -> dict[str, Any]:
    """A variant in each form that can do with it, and with what it needs there.

    What reads from left to right stands in no encoder, an attention of that kind beside another one across stacks; a
    table that is frozen beside a head of its own.
    """
    from ablate.config.components import resolve
    from ablate.config.files import read_plain
    from ablate.config.groups import groups

    cells = {form: config.with_value(group, node) for form, config in references.items()}
    if group == "embedding":
        return {form: config.with_value("model.tie_embeddings", False) for form, config in cells.items()}
    if getattr(resolve(group, node["_target_"]), "causal_only", False):
        if group != "attention":
            return {form: config for form, config in cells.items() if form.startswith("decoder")}
        across, both = read_plain(groups()["cross_attention"]["mha"]), "encoder-decoder, masks"
        cells = {form: config for form, config in cells.items() if form != "encoder"}
        return cells | {both: cells[both].with_value("cross_attention", across)}
    return cells


def compared(given: Given, found: Findings, folder: str, name: str, config: Any) -> tuple[float, list[str] | None]:
    """How far a cell's first losses are apart on the device in bf16 and on the CPU in float32.

    And the kernels of its attention, where that or its positions are what is looked at.
    """
    looked = name.startswith(("attention", "position"))
    try:
        here = losses(trainer(given, f"{folder}-cpu", on(config, "cpu", "fp32")), STEPS)
        there = trainer(given, folder, on(config, given.device, "bf16"))
        with torch.profiler.profile() if looked else contextlib.nullcontext() as profile:
            far = losses(there, STEPS)
        finite = all(bool(p.isfinite().all()) for p in there.model.parameters()) and all(map(math.isfinite, far))
    except Exception as error:  # one cell that fails must not end the others
        found.expect(False, f"{name}: {type(error).__name__}: {str(error).strip().splitlines()[0]}")
        return 0.0, None
    found.expect(finite, f"{name}: not finite after {STEPS} steps ({far})")
    near = abs(here[0] - far[0]) < NEAR and abs(here[-1] - far[-1]) < LATER
    found.expect(not finite or near, f"{name}: losses {far} in bf16, {here} on the CPU in float32")
    return abs(here[0] - far[0]), kernels_in(profile) if looked else None


def kernels_in(profile: torch.profiler.profile) -> list[str]:
    """The families of fused kernels of attention that a profile has."""
    names = " ".join(event.key for event in profile.key_averages()).lower()
    return sorted({family for part, family in KERNELS.items() if part in names})
