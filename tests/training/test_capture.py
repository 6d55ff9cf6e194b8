"""Passes as CUDA graphs: on a CPU, graphs that run the pass again into the tensors of the first time."""

import gc
import weakref

import pytest
import torch

from ablate.planning import measured
from ablate.planning.measured import speed_of
from ablate.runs.folder import Run
from ablate.training import capture
from ablate.training.trainer import Trainer

pytestmark = pytest.mark.usefixtures("untried")
STEPS = 6


@pytest.fixture
def graphs(monkeypatch):
    """The passes that were recorded, and how often each ran, with graphs that a CPU can run."""
    runs = []

    def capture_pass(model, compute):
        losses = compute()
        made = [p.grad for p in model.parameters()]
        index = len(runs)
        runs.append(0)

        def run():
            if runs[index]:  # a graph records without computing, so that the first time is done
                model.zero_grad(set_to_none=True)
                for name, value in compute().items():
                    losses[name].copy_(value)
                for own, parameter in zip(made, model.parameters(), strict=True):
                    assert (own is None) == (parameter.grad is None)
                    if own is not None:
                        own.copy_(parameter.grad)
            runs[index] += 1

        return losses, made, run

    monkeypatch.setattr(capture, "available", lambda device: True)
    monkeypatch.setattr(capture, "never_waiting", lambda compute: compute())
    monkeypatch.setattr(capture, "capture_pass", capture_pass)
    return runs


def steps(folder, config, **settings):
    """Losses of some steps, the weights after them, and their average."""
    for key, value in settings.items():
        config = config.with_value(f"train.{key}", value)
    trainer = Trainer(Run(folder, "a/b"), config, 0)
    losses = [{name: value.item() for name, value in trainer.train_step(step)[0].items()} for step in range(STEPS)]
    return losses, [*trainer.model.state_dict().values(), *trainer.average.model.state_dict().values()]


@pytest.mark.parametrize(
    ("words", "recorded"),
    [
        ((), [STEPS - 2]),
        (("objective=multi_token", "ffn=moe"), [STEPS - 2]),
        (("norm=bn", "step=sam"), [2 * STEPS - 2]),
        (("data=mlm", "model=encoder"), [STEPS - 2]),
    ],
    ids=str,
)
def test_steps_by_graphs_have_the_numbers_of_the_loop(words, recorded, config_of, graphs, tmp_path):
    """With dropout, weight averaging, terms, running statistics, two passes a step: the same bits."""
    config = config_of(*words, "model.dropout=0.1", "train.average=ema")
    losses, weights = steps(tmp_path / "a", config)
    expected, own = steps(tmp_path / "b", config, capture=False)
    assert losses == expected and all(map(torch.equal, weights, own))
    assert graphs == recorded


@pytest.mark.parametrize(("settings", "recorded"), [({"parts": 2}, 0), ({"capture": True}, 1)], ids=str)
def test_auto_leaves_large_steps_and_parts_alone(settings, recorded, config_of, graphs, monkeypatch, tmp_path):
    monkeypatch.setattr(capture, "WORTH", 1.0)
    config = config_of()
    steps(tmp_path / "a", config)
    assert not graphs
    steps(tmp_path / "b", config, **settings)
    assert len(graphs) == recorded


def test_a_pass_that_waits_for_the_gpu_is_told_and_not_captured(config_of, graphs, monkeypatch, tmp_path, capsys):
    def waiting(compute):
        compute()
        raise RuntimeError("called a synchronizing CUDA operation")

    config = config_of("norm=bn")
    expected = steps(tmp_path / "a", config, capture=False)
    monkeypatch.setattr(capture, "never_waiting", waiting)
    found = steps(tmp_path / "b", config)
    assert found[0] == expected[0] and all(map(torch.equal, found[1], expected[1])) and not graphs
    assert capsys.readouterr().err == (
        "ablate: a/b: train.capture: its steps wait for the GPU and cannot be CUDA graphs "
        "(called a synchronizing CUDA operation)\n"
    )


def test_draws_of_ones_own_components_are_not_captured(config_of, graphs, monkeypatch, tmp_path, capsys):
    monkeypatch.setattr("ablate.training.trainer.is_foreign", lambda config: True)
    config = config_of()
    steps(tmp_path / "a", config)
    assert not graphs and capsys.readouterr().err == ""
    steps(tmp_path / "b", config, capture=True)
    assert not graphs and "train.capture: not captured as CUDA graphs, which would repeat" in capsys.readouterr().err


def test_the_time_of_a_plan_is_that_of_captured_steps(plan, graphs, tmp_path):
    speed_of(plan("seeds=1").manifest.cells[0], tmp_path)
    assert graphs == [1 + measured.STEPS], "the first is left out"


def test_graphs_are_freed_with_their_run(config_of, graphs, monkeypatch, tmp_path):
    """Without garbage collection, which does not know of the GPU's memory that the next run of the process needs."""

    def capture_pass(model, compute):  # keeps nothing, as a graph of CUDA
        return compute(), [p.grad for p in model.parameters()], lambda: None

    monkeypatch.setattr(capture, "capture_pass", capture_pass)
    config = config_of()
    gc.disable()
    try:
        trainer = Trainer(Run(tmp_path, "a/b"), config, 0)
        for step in range(STEPS):
            trainer.train_step(step)
        assert trainer.gradients.graphs.graphs
        model = weakref.ref(trainer.model)
        del trainer
        assert model() is None
    finally:
        gc.enable()
