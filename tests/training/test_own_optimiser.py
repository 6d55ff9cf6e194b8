"""Optimisers are called with what their signature names: classes of torch.optim, and two for two groups."""

import inspect
from typing import Any

import pytest
import torch
import yaml
from conftest import latest
from one_run import rows_of, trained_anew
from own_module import write_module
from page_code import code

from ablate.config.errors import PlanError
from ablate.planning.plan import plan_study
from ablate.runs.folder import Run
from ablate.training.trainer import Trainer

CANNOT = {"LBFGS": "closure", "SparseAdam": "dense", "Muon": "2D"}


pytestmark = pytest.mark.usefixtures("untried", "checks_here")


@pytest.fixture
def own(tmp_path, small, monkeypatch) -> Any:
    """Plans a command whose optimiser has these settings."""
    source = "import torch\n" + code("own-objective.md", "python")[3]
    name = write_module(tmp_path, monkeypatch, source, "optim", {})

    def planned(settings: dict[str, Any], *words: str) -> Any:
        settings = {key: value.replace("MINE", name) if key == "_target_" else value for key, value in settings.items()}
        text = f"# Mine.\n{yaml.safe_dump({'grad_clip': 1.0, 'min_lr_ratio': 0.1} | settings)}"
        (tmp_path / "conf" / "optim" / "mine.yaml").write_text(text)
        user = [f"user=[{name}]"] * (name in settings["_target_"])
        words = (*small, *user, "optim=mine", "seeds=1", "train.checkpoint_seconds=0", *words)
        return plan_study(tuple(latest(*words)), str(tmp_path / "conf"))

    return planned


def settings_of(name: str) -> dict[str, Any]:
    """What a YAML of a class of torch.optim must say of the keys of the frame."""
    taken = inspect.signature(getattr(torch.optim, name)).parameters
    betas = [0.9, 0.99] if "betas" in taken else None
    return {"_target_": f"torch.optim.{name}", "betas": betas, "weight_decay": 0.1 * ("weight_decay" in taken)}


@pytest.mark.parametrize("name", [*CANNOT, "Rprop"])
def test_a_class_of_torch_trains_from_its_yaml_alone_or_is_refused(name, own):
    if name in CANNOT:
        with pytest.raises(PlanError, match=rf"optim\._target_: {name} cannot take .*{CANNOT[name]}"):
            own(settings_of(name))
        return
    plan = own(settings_of(name), "train.steps=4")
    losses = [row["train/loss"] for row in rows_of(trained_anew(plan)) if "train/loss" in row]
    assert len({*losses}) == len(losses) > 0


def test_the_nadam_of_the_how_to_page_goes_on_exactly(own):
    settings = yaml.safe_load(code("own-objective.md", "yaml")[1])
    plan = own(settings)
    whole = rows_of(trained_anew(plan))
    assert rows_of(trained_anew(plan, 3)) == whole
    swept = own(settings, "optim.momentum_decay=0.004,0.01")
    assert swept.manifest.factors == {"optim.momentum_decay": [0.004, 0.01]}


def test_two_optimisers_for_two_groups_of_parameters(own, tmp_path):
    """Each group keeps its own rate, as a multiple of the scheduled one."""
    plan = own({"_target_": "MINE.split", "betas": [0.9, 0.99], "weight_decay": 0.1, "embedding_lr": 10.0})
    whole = rows_of(trained_anew(plan))
    assert rows_of(trained_anew(plan, 3)) == whole
    trainer = Trainer(Run(tmp_path, "a/b"), plan.manifest.cells[0].config, 0)
    for step in range(3):
        lr = trainer.train_step(step)[2]
        rates = sorted(group["lr"] for group in trainer.optimiser.param_groups)
        assert rates == pytest.approx([lr, 10 * lr])


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"betas": [0.9, 0.99]}, r"optim\.betas: SGD has none"),
        ({"_target_": "torch.optim.Rprop", "weight_decay": 0.1}, r"optim\.weight_decay: Rprop has none; write 0"),
        ({"momentun": 0.9}, r"optim\.momentun: SGD has no such argument"),
        ({"momentum": -1.0}, r"SGD cannot take a training step here \(Invalid momentum value"),
        ({"_target_": "torch.optim.lr_scheduler.StepLR"}, r"has not the base class"),
    ],
)
def test_what_does_not_fit_is_refused_in_a_line(changed, message, own):
    with pytest.raises(PlanError, match=message) as caught:
        own({"_target_": "torch.optim.SGD", "betas": None, "weight_decay": 0.0} | changed)
    assert len(str(caught.value).strip().splitlines()) == 1
