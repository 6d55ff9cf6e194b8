"""Ablation studies for Transformers: paired seeds, counted budgets, and a verdict with an interval.

study = ablate.run("norm=ln,rms", "scale=tiny", seeds=2)    # as `ablate -m norm=ln,rms ...` does
plan = ablate.plan("norm=ln,rms", "scale=tiny", seeds=2)    # what it would train
model = ablate.load("results/runs/...").model()             # a run that has ended
model = ablate.build("norm=rms", "ffn=swiglu")              # an untrained model
study = ablate.command("python train.py --bias={bias} --seed={seed}", bias=[True, False], metric="val/loss")
"""

TYPE_CHECKING = False  # nothing is imported here: with `python -m ablate` the current folder is still on the path
if TYPE_CHECKING:
    from typing import Any

    from ablate.config.errors import PlanError
    from ablate.python import build, command, load, plan, run

__all__ = ["PlanError", "build", "command", "load", "plan", "run"]
__version__ = "0.1.0"


def __getattr__(name: str) -> "Any":
    """The functions at first use: what they need takes longer to load than `import ablate` may take."""
    if name == "pair":
        import importlib

        return importlib.import_module("ablate.pair")
    if name in __all__:
        from ablate import python

        return getattr(python, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
