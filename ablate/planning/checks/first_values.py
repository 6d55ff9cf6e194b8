"""Whether what components write into their parameters at first is alike at all widths, as a parametrization has it."""

from __future__ import annotations

from functools import partial
from typing import Any

import torch
from torch import Tensor

from ablate.config.depth import fewest, first_layers, mapped
from ablate.config.errors import Problem
from ablate.config.schema import Config
from ablate.model.build import bare_model, base_of
from ablate.model.init import role_of
from ablate.planning.checks.cache import cached
from ablate.planning.checks.small_models import LAYERS, StandIn, facts_of
from ablate.planning.checks.user_code import Failed, isolate_user_code
from ablate.planning.checks.validate import Checked
from ablate.results.run_key import code_of

TIMES = 4  # the base width: what goes by its root differs by a factor of two
UNLIKE = 0.2  # relative, beside the errors of numbers that a constructor drew


def first_value_problems(cell: Checked) -> list[Problem]:
    """Parameters that their constructors write by the width, where the parametrization takes them to be as they are."""
    base = base_of(cell.config)
    if base is None or base.model.dim == cell.config.model.dim:
        return []
    base, facts = first_layers(base, fewest(base, LAYERS)), facts_of(cell.task)
    depends = [base.as_json(), facts, code_of(cell.config).content]
    try:
        found = cached("first values", depends, lambda: isolate_user_code(base, partial(_growing, base, facts)))
    except Failed:  # which other checks report
        return []
    message = "has no rule for {}, whose values at first go by the width; write parametrization=standard"
    return [Problem("parametrization", message.format(name)) for name in found["names"][:1]]


def _growing(base: Config, facts: dict[str, Any]) -> dict[str, Any]:
    """The parameters whose mean square at first is another one at a multiple of the base width."""
    configs = base, _widened(base, TIMES)
    one, other = (dict(bare_model(config, StandIn(facts)).named_parameters()) for config in configs)
    return {"names": [name for name in one if role_of(one[name]) == "constant" and _unlike(one[name], other[name])]}


def _widened(config: Config, times: int) -> Config:
    """A configuration of heads, FFNs and a residual stream that are so many times as wide."""

    def wide(ffn: dict[str, Any]) -> dict[str, Any]:
        return ffn | {"hidden": times * ffn["hidden"]} if ffn.get("hidden") else ffn

    for key in ("dim", "head_dim"):
        config = config.with_value(f"model.{key}", times * getattr(config.model, key))
    return config.with_value("ffn", mapped(config.ffn, wide))


def _unlike(one: Tensor, other: Tensor) -> bool:
    """Whether two vectors differ in their root mean square by more than chance would have it."""
    with torch.no_grad():
        sizes = sorted(float(x.square().mean().sqrt()) for x in (one, other))
        drawn = float(one.std(correction=0)) > 0
    chance = 3 / (2 * min(one.numel(), other.numel())) ** 0.5 if drawn else 0.0
    return sizes[1] > (1 + UNLIKE + chance) * sizes[0]
