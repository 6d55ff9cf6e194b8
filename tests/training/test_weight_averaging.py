"""train.average: what is averaged, what is measured and kept, and that a stopped run continues to the same numbers."""

import gc
import weakref
from pathlib import Path

import pytest
import torch
from conftest import SHAPE, STEPS, latest
from one_run import rows_of, trained_anew, write_plan

import ablate
from ablate.data.metrics import loss
from ablate.planning.plan import plan_study
from ablate.runs.folder import Run
from ablate.training import optim
from ablate.training.evaluation import Setting, score
from ablate.training.trainer import Trainer

LONG = ["train.steps=10", "train.eval_every=5", "train.log_every=5", "train.checkpoint_seconds=0", "seeds=1"]
PARTS = ["norm=bn", "position=learned", "model.dropout=0.1"]


pytestmark = pytest.mark.usefixtures("untried")


@pytest.fixture(autouse=True)
def half(monkeypatch):
    """A horizon that bites in a few steps."""
    monkeypatch.setattr(optim, "HORIZON", 0.4)


def planned(small: list[str], *overrides: str):
    plan = plan_study(tuple(latest(*small, *LONG, *PARTS, *overrides)))
    write_plan(plan)
    return plan


def trainer(small: list[str], folder: Path, *overrides: str) -> Trainer:
    plan = planned(small, *overrides)
    return Trainer(Run(folder, "a/b"), plan.manifest.cells[0].config, 0)


def test_the_average_is_the_recursion_in_double_precision(small, tmp_path):
    run = trainer(small, tmp_path, "train.average=ema")
    before = run.average.model.state_dict()
    assert all(torch.equal(tensor, before[name]) for name, tensor in run.model.state_dict().items())
    expected: dict[str, torch.Tensor] = {}
    for step in range(10):
        run.train_step(step)
        share = 1 / min(0.4 * 10, 1 + (step + 1) / 2) if step else 1.0
        for name, tensor in run.model.state_dict().items():
            expected[name] = (1 - share) * expected.get(name, tensor.double()) + share * tensor.double()
    last = run.model.state_dict()
    for name, tensor in run.average.model.state_dict().items():
        if not tensor.is_floating_point():  # numbers of updates
            assert torch.equal(tensor, last[name]), name
            continue
        assert tensor.double() == pytest.approx(expected[name], abs=1e-5), name
        if name.endswith(("weight", "running_mean")):
            assert not torch.equal(tensor, last[name]), f"{name} is that of the last step"


@pytest.fixture(scope="module")
def runs(text, tmp_path_factory):
    """The same run without an average, with one, and with diagnostics beside it."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optim, "HORIZON", 0.4)
        patch.setattr("ablate.planning.checks.inspect.try_out", lambda *_: [])
        common = [*SHAPE, *STEPS, "data=text", f"data.path={text}", "model.tie_embeddings=true", "eval.lengths=[8]"]
        kinds = {"none": ["train.average=none"], "ema": ["train.average=ema"]}
        kinds["shown"] = [*kinds["ema"], "train.diagnostics=true"]
        folders = {kind: f"results_dir={tmp_path_factory.mktemp(kind)}" for kind in kinds}
        return {kind: trained_anew(planned(common, folders[kind], *words)) for kind, words in kinds.items()}


def test_training_itself_is_undisturbed_and_none_measures_the_last_step(runs, small, tmp_path):
    none, ema = (rows_of(runs[kind]) for kind in ("none", "ema"))
    for key in ("train/loss", "grad_norm"):
        assert [row.get(key) for row in none] == [row.get(key) for row in ema]
    assert none[0] == ema[0]
    for name in ("test/loss", "test/loss_recalibrated", "test/loss_batch"):
        assert runs["ema"].result().final[name] != runs["none"].result().final[name]
    plain = trainer(small, tmp_path, "train.average=none")
    assert plain.average.model is plain.model and plain.average.state_dict() == {}


@pytest.mark.parametrize("kind", ["none", "ema"])
def test_what_is_kept_is_what_was_scored(kind, runs):
    loaded = ablate.load(runs[kind].folder)
    for length, suffix in ((None, ""), (8, "@8")):
        held_out = loaded.task().held_out("test", 256, length)
        setting = Setting(0, torch.device("cpu"), "fp32")
        scores = score(loaded.model(), held_out, setting)
        assert loss(scores) == loaded.result.final[f"test/loss{suffix}"]


def test_a_stopped_run_continues_to_the_same_numbers(runs, small):
    whole = runs["ema"]
    stops = (6, 2)
    words = ["train.average=ema", "model.tie_embeddings=true", "eval.lengths=[8]"]
    run = trained_anew(planned(small, *words), *stops)
    assert run.result().resumed == len(stops)
    assert rows_of(run) == rows_of(whole) and run.result().final == whole.result().final
    assert run.weights_file.read_bytes() == whole.weights_file.read_bytes()


def test_a_run_is_the_same_with_diagnostics(runs):
    for row, plain in zip(rows_of(runs["shown"]), rows_of(runs["ema"]), strict=True):
        diagnostics = {key for key in row if key.startswith("diag/")}
        assert {key: value for key, value in row.items() if key not in diagnostics} == plain
        assert bool(diagnostics) == ("val/loss" in row)
    final = runs["shown"].result().final
    assert final.items() >= runs["ema"].result().final.items()
    assert {"diag/grad_norm/blocks.0", "diag/activation_rms/blocks.0", "diag/drift/final_norm"} <= final.keys()


def test_an_average_goes_with_its_run(small, tmp_path):
    """Without the garbage collector, which comes late: on a GPU the models of earlier runs would fill its memory."""
    gc.disable()
    try:
        run = trainer(small, tmp_path, "train.average=ema")
        run.train_step(0)
        models = [weakref.ref(run.model), weakref.ref(run.average.model)]
        del run
        assert [model() for model in models] == [None, None]
    finally:
        gc.enable()
