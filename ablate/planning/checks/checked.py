"""What a cell is once it has passed the checks of itself."""

from __future__ import annotations

from typing import Any, NamedTuple

from ablate.config.schema import Config
from ablate.model.cost import Budget


class Checked(NamedTuple):
    """A cell that passed: its configuration with every `auto` and the FFN's width resolved, its task, its budget."""

    config: Config
    task: Any
    budget: Budget
