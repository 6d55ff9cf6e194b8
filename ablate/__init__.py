"""Ablation studies for Transformers: paired seeds, counted budgets, and a verdict with an interval.

study = ablate.run(["norm=ln,rms", "scale=tiny", "seeds=2"])    # as `ablate -m norm=ln,rms ...` does
plan = ablate.plan(["norm=ln,rms", "scale=tiny", "seeds=2"])    # what it would train
model = ablate.load("results/runs/...").model()                 # a run that has ended
"""

from typing import TYPE_CHECKING, Any

from ablate.training.load import load

if TYPE_CHECKING:
    from ablate.api import plan, run

__all__ = ["load", "plan", "run"]
__version__ = "0.1.0"


def __getattr__(name: str) -> Any:
    """`plan` and `run` at first use: they load torch, which `import ablate` never does."""
    if name in ("plan", "run"):
        from ablate import api

        return getattr(api, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
