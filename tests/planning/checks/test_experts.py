"""Good parts that are not accused: experts that no token was sent to, dispatch by the data, layers dropped rarely."""

import sys
from typing import Any

import pytest
from conftest import latest

from ablate.config.errors import PlanError
from ablate.planning.plan import plan_study

CODE = """
import torch
from torch import nn

from ablate.model.residual import PreNorm


class Dispatching(nn.Module):
    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.hidden = hidden
        self.router = nn.Linear(dim, 4, bias=False)
        self.experts = nn.ModuleList(
            nn.Sequential(nn.Linear(dim, hidden), nn.ReLU(), nn.Linear(hidden, dim)) for _ in range(4)
        )

    def forward(self, x):
        flat = x.flatten(0, -2)
        p, chosen = self.router(flat).softmax(-1).max(-1)
        y = torch.zeros_like(flat)
        for i, expert in enumerate(self.experts):
            at = (chosen == i).nonzero()[:, 0]
            if len(at):
                y = y.index_add(0, at, expert(flat[at]) * p[at, None])
        return y.view_as(x)


class Skipping(PreNorm):
    rate = 1.0

    def __init__(self, shape, sublayers, p: float):
        super().__init__(shape, sublayers)
        self.p = p

    def wire(self, x, sublayers, norms):
        dropped = self.training and float(torch.rand(())) < self.p * self.rate
        return x if dropped else super().wire(x, sublayers, norms)


class Idle(nn.Module):
    def __init__(self, dim: int, hidden: int):
        super().__init__()
        self.maps = nn.ModuleList(nn.Linear(*ends) for ends in ((dim, hidden), (hidden, dim), (dim, dim)))

    def forward(self, x):
        return self.maps[1](self.maps[0](x).relu())


class NeverSkipping(Skipping):
    rate = 0.0

    def __init__(self, shape, sublayers, p: float):
        super().__init__(shape, sublayers, p)
"""


@pytest.fixture(scope="module")
def conf(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """The configuration folder of a package of sparse parts, which is importable meanwhile."""
    folder = tmp_path_factory.mktemp("sparse")
    (folder / "sparse_parts.py").write_text(CODE)
    for group, name, settings in (
        ("ffn", "Dispatching", "hidden: 16"),
        ("ffn", "Idle", "hidden: 16"),
        ("residual", "Skipping", "p: 0.0"),
        ("residual", "NeverSkipping", "p: 0.0"),
    ):
        (folder / "conf" / group).mkdir(parents=True, exist_ok=True)
        text = f"# {name}.\n_target_: sparse_parts.{name}\n_partial_: true\n{settings}\n"
        (folder / "conf" / group / f"{name.lower()}.yaml").write_text(text)
    sys.path.insert(0, str(folder))
    yield str(folder / "conf")
    sys.path.remove(str(folder))


def notes(small: list[str], conf: str, *words: str) -> list[str]:
    return plan_study(tuple(latest(*small, "user=[sparse_parts]", *words)), conf).notes


def test_dispatch_by_the_data_is_counted_on_an_example_and_experts_that_few_tokens_reach_are_not_accused(small, conf):
    plan = plan_study(tuple(latest(*small, "user=[sparse_parts]", "ffn=dispatching")), conf)
    [cell] = plan.manifest.cells
    assert [note for note in cell.notes if "one random example" in note] and cell.flops_per_token
    assert not [note for note in plan.notes if "never uses" in note]


def test_a_part_that_nothing_reads_is_no_expert_for_having_a_number(small: list[str], conf: str) -> None:
    with pytest.raises(PlanError) as caught:
        notes(small, conf, "ffn=idle")
    [line] = map(str, caught.value.problems)
    assert "never uses" in line and "maps.2.weight" in line and "maps.1" not in line


def test_layers_that_are_dropped_rarely_are_another_network_and_ones_that_never_are_not(small, conf) -> None:
    assert notes(small, conf, "residual=skipping", "residual.p=0.0,0.1") is not None
    with pytest.raises(PlanError) as caught:
        notes(small, conf, "residual=neverskipping", "residual.p=0.0,0.1")
    assert "make the same network" in str(caught.value.problems[0])
