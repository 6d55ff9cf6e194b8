"""The Hydra launcher of another engine that a command line chooses: `hydra/launcher=joblib`, submitit, Ray."""

from collections.abc import Sequence
from typing import Any

from hydra import compose
from hydra.core.global_hydra import GlobalHydra
from hydra.core.hydra_config import HydraConfig
from hydra.core.override_parser.types import Quote, QuotedString
from hydra.core.plugins import Plugins
from hydra.core.utils import JobStatus
from hydra.experimental.callback import Callback
from hydra.types import HydraContext
from omegaconf import DictConfig, OmegaConf

from ablate.config.compose import COMPOSING, Composer
from ablate.config.errors import Problem, first_line, whole_line
from ablate.config.groups import read_groups
from ablate.config.import_path import find_here, leave_current_folder
from ablate.execution.local import run_alone
from ablate.execution.pool import Order, line, order_of
from ablate.execution.signals import heeding_signals
from ablate.formatting import instead

# The extra of pyproject.toml that brings a launcher.
EXTRAS = {"joblib": "joblib", "submitit_slurm": "slurm", "submitit_local": "slurm", "ray": "ray"}
OURS = ("hydra.mode", "hydra/sweeper", "hydra.sweeper")


def launcher_problems(words: Sequence[str]) -> list[Problem]:
    """What Hydra would refuse of words about itself."""
    if fixed := [word for word in words if word.lstrip("+~").startswith(OURS)]:
        return [Problem(word, "ablate plans every study itself; leave it out") for word in fixed]
    if words:
        with Composer(read_groups()) as composer:
            try:
                composer.compose(list(words))
            except (*COMPOSING, TypeError, AttributeError) as error:  # of its own settings Hydra checks no types
                return [unread(words, error)]
    return []


def unread(words: Sequence[str], error: Exception) -> Problem:
    """What to say of words that Hydra refuses; of a launcher that is not there, which are."""
    there = GlobalHydra.instance().config_loader().get_group_options("hydra/launcher")
    for word in words:
        key, _, name = word.partition("=")
        if key == "hydra/launcher" and name in EXTRAS.keys() - {*there}:
            return Problem(word, f"is not installed; pip install 'ablate[{EXTRAS[name]}]' brings it")
        if key == "hydra/launcher" and name not in there:
            return Problem(word, f"no such launcher; {instead(name, [*there, *EXTRAS])}")
    return Problem(" ".join(words), f"Hydra cannot read this ({first_line(error)})")


def launch(words: Sequence[str], orders: Sequence[Order]) -> str | None:
    """Hand orders, each as one override, to the launcher that words about Hydra choose: what a job failed by."""
    jobs = [[f"+order={QuotedString(line(order).strip(), Quote.single).with_quotes()}"] for order in orders]
    with Composer(read_groups()):  # never the folder of a user's variants: a launcher's file there would be Hydra's
        config = compose("config", list(words), return_hydra_config=True)
        context = HydraContext(config_loader=GlobalHydra.instance().config_loader(), callbacks=Callback())
        launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=job, config=config)
        for returned in launcher.launch(jobs, 0) or ():
            if returned.status == JobStatus.FAILED:
                return f"a job failed ({whole_line(returned._return_value)})"
    return None


def job(config: DictConfig) -> str:
    """One job of any launcher: how the run of its order ended."""
    found: Any = OmegaConf.to_container(config)  # unresolved: a path may hold what would refer to something
    order = order_of(found["order"])
    leave_current_folder()
    find_here(order.user)
    with heeding_signals():
        return run_alone(order, int(HydraConfig.get().job.num))
