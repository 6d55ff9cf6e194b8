"""A grid of cells for tests of claims: three FFNs, two norms, two learning rates."""

import itertools
from typing import Any

from fake_studies import a_cell

from ablate.config.claims import Claim
from ablate.config.typed_json import parse
from ablate.runs.records import Cell

FACTORS: dict[str, list[Any]] = {"ffn": ["mlp", "gelu", "swiglu"], "norm": ["ln", "rms"], "optim.lr": [1e-3, 2e-3]}
LESS = {"less": [{"ffn": "swiglu"}, {"ffn": ["mlp", "gelu"]}], "metric": "test/loss"}
RANKED = {"rank_correlates": [{"ffn": ["mlp", "gelu", "swiglu"]}, [2.1, 2.0, 1.9]]}
LENGTHS = ["test/loss@512", "test/loss@64"]
CELLS: list[Cell] = []
for ffn, norm, rate in itertools.product(*FACTORS.values()):
    levels = {"ffn": ffn, "norm": norm, "optim.lr": rate}
    CELLS.append(a_cell(id=f"{ffn}-{norm}-{rate}", label=f"{ffn} + {norm}", levels=levels))


def typed(claim: dict[str, Any]) -> Claim:
    """A claim as it is read."""
    return parse(Claim, claim)
