"""Words about Hydra itself, such as hydra/launcher=joblib: what is wrong with them."""

from collections.abc import Sequence

from hydra import compose
from hydra.core.global_hydra import GlobalHydra

from ablate.config.compose import HYDRAS_ERRORS, Composer
from ablate.config.errors import Problem, first_line
from ablate.config.extra import INSTALL
from ablate.config.groups import read_groups
from ablate.formatting import instead

# The extra in pyproject.toml that installs each launcher.
EXTRAS = {"joblib": "joblib", "submitit_slurm": "slurm", "submitit_local": "slurm", "ray": "ray"}
RESERVED = ("hydra.mode", "hydra/sweeper", "hydra.sweeper")
USED = ("hydra/launcher", "hydra.launcher.", "hydra.job.name")
INSTEAD = {  # of settings of Hydra's that have no effect here
    "hydra.run": "write results_dir=FOLDER for where results are written",
    "hydra.sweep": "write results_dir=FOLDER for where results are written",
    "hydra.searchpath": "write --config-dir FOLDER for a folder of your own variants",
}


def launcher_problems(words: Sequence[str]) -> list[Problem]:
    """Problems of command-line words about Hydra itself."""
    reserved = [word for word in words if word.lstrip("+~").startswith(RESERVED)]
    if reserved:
        return [Problem(word, "ablate plans every study itself; leave it out") for word in reserved]
    unused = [word for word in words if not word.lstrip("+~").startswith(USED)]
    if unused:
        return [Problem(word, f"has no effect here; {instead_of(word)}") for word in unused]
    if not words:
        return []
    groups = read_groups()
    with Composer(groups):
        try:
            compose("config", list(words), return_hydra_config=True)
        except (*HYDRAS_ERRORS, TypeError, AttributeError) as error:  # Hydra does not check the types of its settings
            return [problem_of_launcher(words, error)]
    return []


def instead_of(word: str) -> str:
    """What to write instead of a setting of Hydra's that has no effect."""
    for beginning, message in INSTEAD.items():
        if word.lstrip("+~").startswith(beginning):
            return message
    return "leave it out: hydra/launcher and hydra.launcher.* choose where runs are trained"


def problem_of_launcher(words: Sequence[str], error: Exception) -> Problem:
    """Why Hydra cannot compose words about itself."""
    installed = GlobalHydra.instance().config_loader().get_group_options("hydra/launcher")
    for word in words:
        key, _, name = word.partition("=")
        if key != "hydra/launcher" or name in installed:
            continue
        if name in EXTRAS:
            return Problem(word, f"is not installed; {INSTALL.format(EXTRAS[name])}")
        return Problem(word, f"no such launcher; {instead(name, [*installed, *EXTRAS])}")
    return Problem(" ".join(words), f"Hydra cannot read this ({first_line(error)})")
