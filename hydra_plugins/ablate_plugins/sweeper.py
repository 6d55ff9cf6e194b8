"""The sweeper: a command line becomes a study, and each of its units one job for whatever launcher is chosen."""

from __future__ import annotations

import sys
from typing import Any

from hydra.core.config_store import ConfigStore
from hydra.core.plugins import Plugins
from hydra.plugins.sweeper import Sweeper
from hydra.types import HydraContext, TaskFunction
from omegaconf import DictConfig


class AblateSweeper(Sweeper):
    """Plans the command line, checked as a whole, and launches what is left to train."""

    def setup(self, *, hydra_context: HydraContext, task_function: TaskFunction, config: DictConfig) -> None:
        """Make the launcher that the command line chose."""
        self.config = config
        self.launcher = Plugins.instance().instantiate_launcher(
            hydra_context=hydra_context, task_function=task_function, config=config
        )

    def sweep(self, arguments: list[str]) -> Any:
        """Carry out the study; ends the process with its exit code when that is not 0."""
        from ablate.cli.sweep import carry_out
        from ablate.planning.plan import COMMAND, FOLDERS, Plan, plan_study

        asked = (*COMMAND, *arguments)
        folder = next(iter(FOLDERS), None)

        def replan() -> Plan:
            plan_study.cache_clear()
            return plan_study(asked, folder)

        code = carry_out(plan_study(asked, folder), self.launcher.launch, replan)
        if code:
            sys.exit(code)


ConfigStore.instance().store(
    group="hydra/sweeper",
    name="ablate",
    node={"_target_": "hydra_plugins.ablate_plugins.sweeper.AblateSweeper"},
    provider="ablate",
)
