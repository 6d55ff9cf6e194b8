"""The launcher for one machine, thin: the published joblib launcher loses the whole batch when one worker dies, and
gives no worker a device of its own."""

from __future__ import annotations

from collections.abc import Sequence

from hydra.core.config_store import ConfigStore
from hydra.core.utils import JobReturn, JobStatus
from hydra.plugins.launcher import Launcher
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class AblateLauncher(Launcher):
    """Hands units to a pool of worker processes."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Nothing to keep: a job says what its worker needs."""

    def launch(self, job_overrides: Sequence[Sequence[str]], initial_job_idx: int) -> Sequence[JobReturn]:
        """Carry out one job per list of overrides."""
        from ablate.execution.jobs import run_here

        outcomes = run_here(job_overrides)
        return [JobReturn(status=JobStatus.COMPLETED, _return_value=outcome) for outcome in outcomes]


ConfigStore.instance().store(
    group="hydra/launcher",
    name="ablate",
    node={"_target_": "hydra_plugins.ablate_plugins.launcher.AblateLauncher"},
    provider="ablate",
)
