"""Arguments that a user's model form and optimiser have of their own: keys as those of any component are."""

import re
from typing import Any

import pytest

from ablate.config.errors import PlanError
from ablate.config.groups import CONF
from ablate.data.task import build_task
from ablate.model.build import build_model
from ablate.planning.plan import plan_study

PARTS = """
import torch
from ablate.model.transformer import Decoder
from ablate.training.schedule import Schedule

class Periodic(Decoder):
    def __init__(self, shape, parts, period: int):
        super().__init__(shape, parts)
        self.period = period

    def forward(self, tokens, mask=None):
        x = self.embed(tokens) * self.scale
        x = torch.where((torch.arange(tokens.shape[-1]) % self.period == 0)[:, None], x / 2, x)
        return self.head(self.run(x, True, mask))

def sgd(model, lr: float, betas: list[float], weight_decay: float, momentum: float) -> torch.optim.Optimizer:
    return torch.optim.SGD(model.parameters(), lr=lr, momentum=momentum)

class Root(Schedule):
    def __init__(self, power: float):
        self.power = power

    def share(self, step, steps, warmup, floor):
        return (warmup / (step + 1)) ** self.power if self.power < 9 else float("nan")
"""

pytestmark = pytest.mark.usefixtures("untried", "uncounted", "checks_here")


@pytest.fixture
def own(tmp_path, small, monkeypatch) -> Any:
    """Plans a command of the user's form and optimiser, which stand in a package and a folder of theirs."""
    name = f"owned_{tmp_path.name.replace('-', '_')}"
    (tmp_path / f"{name}.py").write_text(PARTS)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    for group, variant, target, more in [
        ("model", "decoder", f"{name}.Periodic", "period: 3"),
        ("optim", "adamw", f"{name}.sgd", "momentum: 0.9"),
        ("schedule", "cosine", f"{name}.Root", "power: 0.5"),
    ]:
        text = re.sub("_target_: .*", f"_target_: {target}\n{more}", (CONF / group / f"{variant}.yaml").read_text())
        (tmp_path / "conf" / group).mkdir(parents=True)
        (tmp_path / "conf" / group / "mine.yaml").write_text(text)

    def planned(*words):
        return plan_study((*small, f"user=[{name}]", "seeds=1", *words), str(tmp_path / "conf"))

    return planned


def test_own_keys_are_set_swept_built_and_part_of_the_runs_key(own):
    plain = own("model=mine", "optim=mine")
    [cell] = plain.manifest.cells
    assert (cell.config.arguments("model"), cell.config.arguments("optim")) == ({"period": 3}, {"momentum": 0.9})
    assert build_model(cell.config, build_task(cell.config)).period == 3
    swept = own("model=mine", "optim=mine", "model.period=3,4", "optim.momentum=0.5,0.9")
    assert swept.manifest.factors == {"model.period": [3, 4], "optim.momentum": [0.5, 0.9]}
    assert len(set(swept.todo)) == 4 and set(plain.todo) < set(swept.todo)


MISSPELT = {"model.perid=2": "mean model.period?", "schedule.powr=1": "mean schedule.power?"}
MISSHAPEN = {"schedule.power=10": "gives a learning rate of nan at step 2"}


@pytest.mark.parametrize("mistakes", [MISSPELT | {"model.period=2.5": "is not of type int"}, MISSHAPEN])
def test_misspelt_and_misshapen_ones_are_a_line_each(own, mistakes):
    with pytest.raises(PlanError) as error:
        own("model=mine", "optim=mine", "schedule=mine", *mistakes)
    problems = [str(problem) for problem in error.value.problems]
    assert len(problems) == len(mistakes)
    assert all(sum(message in problem for problem in problems) == 1 for message in mistakes.values()), problems
