"""Compiled runs, one after another in one process: each is compiled anew, and none runs eagerly in silence."""

import copy
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import latest
from cyclic_task import VOCAB, Cycles, ended, model
from torch import nn
from torch._dynamo.exc import FailOnRecompileLimitHit

from ablate.planning.plan import plan_study
from ablate.runs.folder import Run
from ablate.training.compiling import FASTER, supported
from ablate.training.trainer import Trainer

COMPILE = nn.Module.compile


@pytest.fixture
def graphs(monkeypatch) -> list[Any]:
    """What is compiled, by a backend that computes as the graph says and leaves the gradients to autograd."""
    found: list[Any] = []

    def backend(graph: Any, inputs: Any) -> Callable[..., Any]:
        found.append(graph)
        return graph.forward

    monkeypatch.setattr(nn.Module, "compile", lambda model, options: COMPILE(model, backend=backend))
    return found


def trained(small: list[str], folder: Path, *overrides: str) -> float:
    words = latest(*small, "seeds=1", "train.steps=2", "train.compile=true", "train.matmul=torch", *overrides)
    config = plan_study(words).manifest.cells[0].config
    return Trainer(Run(folder, "a/b"), config, 0).train(lambda: False)["test/loss"]


def test_every_cell_of_a_process_is_compiled(small, tmp_path, graphs, untried):
    """One graph trains and evaluates, so that a limit of 1 leaves nothing for the second run."""
    with torch._dynamo.config.patch(recompile_limit=1):
        counts = []
        for number, norm in enumerate(["rms", "ln"]):
            trained(small, tmp_path / str(number), f"norm={norm}")
            counts.append(len(graphs))
    assert counts == [1, 2], "a run that was not compiled ran eagerly"


def test_the_limit_of_graphs_is_an_error(small, tmp_path, graphs, untried):
    """With dropout, evaluation has a graph of its own."""
    with torch._dynamo.config.patch(recompile_limit=1), pytest.raises(FailOnRecompileLimitHit):
        trained(small, tmp_path, "model.dropout=0.1")
    assert len(graphs) == 1


def test_the_cache_of_compiled_models_knows_their_code_and_not_what_trains_them(small, tmp_path, graphs, untried):
    tags = []
    for number, words in enumerate(["norm=rms", "norm=ln", "norm=ln optim=lion"]):
        trained(small, tmp_path / str(number), *words.split())
        tags.append(torch.compiler.config.cache_key_tag)
    assert all(tags) and tags[0] != tags[1] == tags[2]


def test_a_compiled_model_is_copied_to_be_recalibrated():
    made = model("bn", layers=1)
    task = Cycles(VOCAB)
    plain = ended(made, task)[0]
    compiled = copy.deepcopy(made)
    compiled.compile(backend="eager")
    assert ended(compiled, task)[0] == pytest.approx(plain, rel=1e-5)


def test_inductor_takes_what_makes_it_faster():
    """In this version of torch: each is an option, and of this type, which torch.compile refuses otherwise."""
    assert supported(FASTER) == FASTER
    torch.compile(torch.tanh, options=supported(FASTER))
    other = {"no_such_option": True, "cpp.use_decompose_tanh": "yes"}
    assert supported(FASTER | other) == {key: value for key, value in FASTER.items() if key not in other}
