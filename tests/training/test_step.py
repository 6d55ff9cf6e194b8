"""Training steps: SAM by hand, what a step is given, what its gradients cost, the steps of the how-to page."""

import copy
import dataclasses
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch
from conftest import latest
from one_run import after, rows_of, sweep_here, write_plan
from own_module import write_module
from page_code import code
from torch import Tensor, nn

from ablate.data.task import Batch
from ablate.execution.train_run import train_run
from ablate.model.objective import Objective
from ablate.planning.plan import plan_study
from ablate.runs.folder import Run
from ablate.runs.study import load_study
from ablate.training.gradients import Gradients
from ablate.training.optim import SGD
from ablate.training.step import SAM

NOISE, SHARP, ALTERNATING = code("own-step.md", "python")[:3]
SETTINGS = {"noise": "scale: 0.1", "sharp": "rho: 0.05", "alternating": "period: 2"}
MORE = """
class Half(Step):
    def update(self, batch, lr, gradients):
        rows = len(batch.targets) // 2
        part = type(batch)({name: x[:rows] for name, x in batch.inputs.items()}, batch.targets[:rows])
        return gradients(part), self.clip_and_step(lr)

class Fourth(Step):
    number = 0

    def update(self, batch, lr, gradients):
        self.number += 1
        losses = gradients(batch)
        if self.number % 4 == 0:
            gradients(batch)
            gradients(batch)
        return losses, self.clip_and_step(lr)"""


@pytest.fixture
def own(tmp_path, small, monkeypatch, checks_here) -> list[str]:
    """A command line of the steps of the how-to page and more."""
    source = "\n".join([NOISE, SHARP, ALTERNATING, MORE])
    variants = SETTINGS | {"half": "", "fourth": ""}
    name = write_module(tmp_path, monkeypatch, source, "step", variants)
    return [*small, f"user=[{name}]"]


def planned(own: list[str], tmp_path: Path, *words: str) -> Any:
    return plan_study(tuple(latest(*own, *words)), str(tmp_path / "conf"))


def quadratic(curvature: Tensor, start: Tensor) -> tuple[nn.Module, Any]:
    """A model whose loss is ½ Σ c θ², and its `gradients`."""
    model = nn.Module()
    model.theta = nn.Parameter(start.clone())

    def gradients(batch: Any) -> dict[str, Tensor]:
        model.theta.grad = None
        loss = (curvature * model.theta.square()).sum() / 2
        loss.backward()
        return {"loss": loss.detach()}

    return model, gradients


def test_sam_is_its_formula():
    curvature = torch.tensor([1.0, 10.0])
    theta = torch.tensor([3.0, -0.5])
    model, gradients = quadratic(curvature, theta)
    optimiser = SGD([{"params": model.parameters(), "lr_share": 0.5}], lr=1.0, momentum=0.0, nesterov=False)
    step = SAM(model, optimiser, 2.0, rho=0.3)
    for _ in range(3):
        losses, norm = step.update(Batch({}, torch.empty(0)), 0.1, gradients)
        slope = curvature * theta
        there = curvature * (theta + 0.3 * slope / slope.norm())
        assert losses["loss"].item() == pytest.approx(float((curvature * theta.square()).sum() / 2))
        assert norm.item() == pytest.approx(there.norm().item())
        theta = theta - 0.1 * 0.5 * there * min(1.0, 2.0 / there.norm().item())
        assert torch.allclose(model.theta.detach(), theta, atol=1e-6)
    with pytest.raises(ValueError, match=r"step\.rho"):
        SAM(model, optimiser, 1.0, rho=0.0)


def test_gradients_of_one_step_have_its_draws_and_count_once_in_running_statistics(config_of, untried):
    from ablate.data.task import build_task
    from ablate.model.build import initialised_model

    config = config_of("norm=bn", "model.dropout=0.3")
    task = build_task(config)
    model = initialised_model(config, task, 0)
    batch = task.batch(0, 0, 4)
    gradients = Gradients(model, Objective(), config.train, 7, False, pytest.fail)

    def taken():
        loss = gradients(batch)["loss"].item()
        return loss, [p.grad.clone() for p in model.parameters() if p.grad is not None]

    gradients.begin_step(3)
    loss, first = taken()
    running = copy.deepcopy([*model.buffers()])
    again, second = taken()
    assert again == loss and all(map(torch.equal, first, second))
    assert all(map(torch.equal, model.buffers(), running))
    gradients.begin_step(4)
    assert taken()[0] != loss and not all(map(torch.equal, model.buffers(), running))


def test_steps_of_the_how_to_page_train_and_go_on_exactly_and_passes_are_measured(own, tmp_path, untried):
    steps = "step=default,noise,alternating,sharp,sam,half,fourth"
    plan = planned(own, tmp_path, steps, "seeds=[0]", "train.checkpoint_seconds=0", "model.dropout=0.1")
    write_plan(plan)
    cells = {cell.label: cell for cell in plan.manifest.cells}
    for name, passes in {"half": 0.5, "fourth": 1.5}.items():
        assert cells[name].flops_per_token / cells["default"].flops_per_token == pytest.approx(passes)
        assert any(f"takes {passes:.3g} gradients of a batch in a step" in note for note in cells[name].notes)
    orders = {order.cell.label: dataclasses.replace(order, wait=True) for order in plan.orders()}

    def trained(name, *stops):
        shutil.rmtree(plan.results / "runs", ignore_errors=True)
        statuses = [train_run(orders[name], after(stop)) for stop in (*stops, 99)]
        assert statuses == [*["interrupted"] * len(stops), "done"]
        return rows_of(Run(plan.results, orders[name].path))

    for name in ("noise", "alternating"):
        assert trained(name, 3) == trained(name), "stopped after three steps or not"
    sharp = trained("sharp")
    sam = trained("sam")
    assert all(one == pytest.approx(other, rel=1e-5) for one, other in zip(sharp, sam, strict=True))


def test_a_study_of_steps_trains_pairs_and_charges_gradients(small, tmp_path, untried):
    assert sweep_here(*small, "step=default,sam", "seeds=[0,1]", "study=steps") == 0
    study = load_study(tmp_path / "results", "steps")
    plain, sam = study.manifest.cells
    assert sam.flops_per_token == 2 * plain.flops_per_token and sam.flops_per_step == 2 * plain.flops_per_step
    assert plain.batches == sam.batches and sam.shared_draws == 1 and plain.name != sam.name
    assert study.curves["step"].max() == plain.config.train.steps, "the column of logged steps stays"
    losses = study.runs.pivot(index="seed", columns="step", values="test/loss")
    assert losses.notna().all().all() and (losses["default"] != losses["sam"]).all()
