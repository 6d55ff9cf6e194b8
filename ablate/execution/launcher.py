"""Hydra launchers of other engines, as chosen on the command line: `hydra/launcher=joblib`, submitit, Ray."""

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
from ablate.config.extra import INSTALL
from ablate.config.groups import read_groups
from ablate.config.import_path import find_here, leave_current_folder
from ablate.execution.local import run_alone
from ablate.execution.pool import Order, line, order_of
from ablate.execution.signals import handling_signals
from ablate.formatting import instead

# The extra in pyproject.toml that installs each launcher.
EXTRAS = {"joblib": "joblib", "submitit_slurm": "slurm", "submitit_local": "slurm", "ray": "ray"}
RESERVED = ("hydra.mode", "hydra/sweeper", "hydra.sweeper")


def launcher_problems(words: Sequence[str]) -> list[Problem]:
    """Problems of command-line words about Hydra itself."""
    if fixed := [word for word in words if word.lstrip("+~").startswith(RESERVED)]:
        return [Problem(word, "ablate plans every study itself; leave it out") for word in fixed]
    if words:
        with Composer(read_groups()) as composer:
            try:
                composer.compose(list(words))
            except (*COMPOSING, TypeError, AttributeError) as error:  # Hydra does not check the types of its settings
                return [unread(words, error)]
    return []


def unread(words: Sequence[str], error: Exception) -> Problem:
    """The problem of words that Hydra rejects, such as a launcher that is not installed."""
    there = GlobalHydra.instance().config_loader().get_group_options("hydra/launcher")
    for word in words:
        key, _, name = word.partition("=")
        if key == "hydra/launcher" and name in EXTRAS.keys() - {*there}:
            return Problem(word, f"is not installed; {INSTALL.format(EXTRAS[name])}")
        if key == "hydra/launcher" and name not in there:
            return Problem(word, f"no such launcher; {instead(name, [*there, *EXTRAS])}")
    return Problem(" ".join(words), f"Hydra cannot read this ({first_line(error)})")


def launch(words: Sequence[str], orders: Sequence[Order]) -> str | None:
    """Run orders, each as one override, on the chosen launcher; returns the error of a failed job, or None."""
    jobs = [[f"+order={QuotedString(line(order).strip(), Quote.single).with_quotes()}"] for order in orders]
    with Composer(read_groups()):  # without the user's variants: a launcher's file there would be read as Hydra's
        config = compose("config", list(words), return_hydra_config=True)
        context = HydraContext(config_loader=GlobalHydra.instance().config_loader(), callbacks=Callback())
        launcher = Plugins.instance().instantiate_launcher(hydra_context=context, task_function=job, config=config)
        for returned in launcher.launch(jobs, 0) or ():
            if returned.status == JobStatus.FAILED:
                return f"a job failed ({whole_line(returned._return_value)})"
    return None


def job(config: DictConfig) -> str:
    """Task function of a launcher's job: runs the order and returns its status."""
    found: Any = OmegaConf.to_container(config)  # unresolved: a path may contain ${…}
    order = order_of(found["order"])
    leave_current_folder()
    find_here(order.user)
    with handling_signals():
        return run_alone(order, int(HydraConfig.get().job.num))
