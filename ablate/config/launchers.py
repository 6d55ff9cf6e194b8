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
USED = ("hydra/launcher", "hydra.launcher.", "hydra.job.name")
NO_EFFECT = (
    "has no effect here; hydra/launcher and hydra.launcher.* choose where runs are trained, results_dir=FOLDER where "
    "results are written, --config-dir FOLDER where variants of your own are"
)


def hydra_problems(words: Sequence[str]) -> list[Problem]:
    """Problems of words that are Hydra's own settings: those without effect here, or that Hydra cannot compose."""
    problems = []
    for word in words:
        if not word.lstrip("+~").startswith(USED):
            problems.append(Problem(word, NO_EFFECT))
    if problems or not words:
        return problems
    with Composer(read_groups()):
        try:
            compose("config", list(words), return_hydra_config=True)
        except (*HYDRAS_ERRORS, TypeError, AttributeError) as error:  # Hydra does not check the types of its settings
            return [problem_of_launcher(words, error)]
    return []


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
