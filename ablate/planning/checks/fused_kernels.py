"""Whether there is what a mixer's kernels need: a GPU, and the library that has them."""

from __future__ import annotations

from ablate.config.errors import BadComponent
from ablate.config.extra import installed
from ablate.config.schema import Config
from ablate.results.run_key import kernels_of

MODULES = {"fla": ("fla", "triton")}  # of what is imported, by kernels


def refuse_without_kernels(config: Config) -> None:
    """Raise BadComponent for kernels on a CPU, or of a library that is not installed."""
    for kernels in kernels_of(config):
        if config.train.device != "cuda":
            told = f"{kernels} has kernels for a GPU, and train.device={config.train.device}; leave it out"
            raise BadComponent("attention.kernels", told)
        for module in MODULES[kernels]:
            try:
                installed(module, f"attention.kernels={kernels}", "fla")
            except ValueError as error:
                raise BadComponent("", str(error)) from None
