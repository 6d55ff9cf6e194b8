"""The same run on the CPU and on the device, in float32 and bf16, eager and compiled; compiled cells in a row."""

from gpu_parts.setup import Report, Setup, compiler, losses, on, one_cell, reason, trainer_of, wait

SIZE = ["model.dim=128", "model.layers=3", "model.heads=4", "data.context=128", "train.batch_size=16", "optim.warmup=5"]
NEAR = {"fp32": 5e-3, "bf16": 5e-2}  # of losses near 3: chaos doubles what rounding begins
CELLS = ["norm=ln", "norm=rms", "position=alibi", "position=t5", "norm=bn"]  # two graphs each, of a limit of 8


def parity(setup: Setup, report: Report) -> None:
    """Losses of the first and last step, and of the test split after them, against those of the CPU in float32."""
    config = one_cell(setup.words(*setup.pick([], SIZE))).config
    expected = some_losses(setup, "CPU", on(config, "cpu", "fp32"))
    report.add(CPU=expected)
    for precision, near in NEAR.items():
        for compiled in (False, True):
            name = f"{precision}, compiled" if compiled else precision
            measured = some_losses(setup, name, on(config, setup.device, precision, compiled))
            report.add(**{name: measured})
            for key, loss in measured.items():
                failure = f"{name}: the {key} loss is {loss:.5f}, on the CPU {expected[key]:.5f}"
                report.expect(abs(loss - expected[key]) < near, failure)


def some_losses(setup: Setup, name: str, config: object) -> dict[str, float]:
    """The first, the last and the test loss of a short run."""
    from ablate.training.evaluation import measure

    with compiler(setup):
        trainer = trainer_of(setup, name, config)
        logged = losses(trainer, setup.pick(3, 30))
        test = measure(trainer.average.model, trainer.task, "test", trainer.evaluation).metrics["test/loss"]
    return {"first": logged[0], "last": logged[-1], "test": test}


def compiled_cells(setup: Setup, report: Report) -> None:
    """More cells than the recompile limit allows, one after another in one process, with EMA; their graph breaks."""
    import torch._dynamo.utils as dynamo

    for words in setup.pick(CELLS[:2], CELLS):
        cell = one_cell(setup.words(*setup.pick([], SIZE), words, "train.average=ema", "model.dropout=0.1"))
        try:
            with compiler(setup):
                trainer = trainer_of(setup, words, on(cell.config, setup.device, "bf16", True))
                losses(trainer, 3)
                trainer.evaluate(0)
                wait(setup)
        except Exception as error:
            report.expect(False, f"{words}: {reason(error)}")
        graphs = dynamo.counters["stats"].get("unique_graphs", 0)
        breaks = dict(dynamo.counters["graph_break"])
        report.add(**{words: graphs})
        report.expect(graphs, f"{words} was not compiled")
        report.expect(not breaks, f"{words}: graph breaks: {breaks}")
