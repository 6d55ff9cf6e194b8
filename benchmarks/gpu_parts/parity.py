"""The same run on the CPU and on the device, in float32 and bf16, eager and compiled; compiled cells in a row."""

import time

from gpu_parts.given import Findings, Given, compiler, losses, on, one_cell, trainer, wait

SIZE = ["model.dim=128", "model.layers=3", "model.heads=4", "data.context=128", "train.batch_size=16", "optim.warmup=5"]
NEAR = {"fp32": 5e-3, "bf16": 5e-2}  # of losses near 3: chaos doubles what rounding begins
CELLS = ["norm=ln", "norm=rms", "position=alibi", "position=t5", "norm=bn"]  # two graphs each, of a limit of 8


def parity(given: Given, found: Findings) -> None:
    """Losses of the first steps, and of the test split after them, against those of the CPU in float32."""
    from ablate.training.evaluation import measure

    steps = given.pick(3, 30)
    config = one_cell(given.words(*given.pick([], SIZE))).config
    table = {}
    for name, device, precision, compiled in (
        ("CPU", "cpu", "fp32", False),
        ("fp32", given.device, "fp32", False),
        ("bf16", given.device, "bf16", False),
        ("fp32, compiled", given.device, "fp32", True),
        ("bf16, compiled", given.device, "bf16", True),
    ):
        with compiler(given):
            made = trainer(given, name, on(config, device, precision, compiled))
            logged = losses(made, steps)
            test = measure(made.average.model, made.task, "test", made.evaluation).metrics["test/loss"]
        table[name] = {"first": logged[0], "last": logged[-1], "test": test}
        for key, value in table[name].items():
            apart = abs(value - table["CPU"][key])
            said = f"{name}: the {key} loss is {value:.5f}, on the CPU {table['CPU'][key]:.5f}"
            found.expect(apart < NEAR[precision], said)
    found.tell(steps=steps, **table)


def compiled_cells(given: Given, found: Findings) -> None:
    """More cells than the recompile limit allows, one after another in one process, with EMA; their graph breaks."""
    import torch._dynamo.utils as dynamo

    seconds, graphs = {}, {}
    for number, words in enumerate(given.pick(CELLS[:2], CELLS)):
        cell = one_cell(given.words(*given.pick([], SIZE), words, "train.average=ema", "model.dropout=0.1"))
        start = time.perf_counter()
        try:
            with compiler(given):
                made = trainer(given, f"c{number}", on(cell.config, given.device, "bf16", True))
                losses(made, 3)
                made.evaluate(0)
                wait(given)
        except Exception as error:
            found.expect(False, f"{words}: {type(error).__name__}: {str(error).strip().splitlines()[0]}")
        seconds[words] = round(time.perf_counter() - start, 1)
        graphs[words] = dynamo.counters["stats"].get("unique_graphs", 0)
        found.expect(graphs[words], f"{words} was not compiled")
        breaks = dict(dynamo.counters["graph_break"])
        found.expect(not breaks, f"{words}: graph breaks: {breaks}")
    found.tell(seconds_with_compiling=seconds, graphs=graphs)
