"""What of a cell is user code, and what importing it changes."""

import importlib

from omegaconf import MISSING

from ablate.config.schema import Config
from ablate.config.targets import within
from ablate.planning.checks import child
from ablate.runs.key import is_foreign, parts_of


def foreign_parts(config: Config) -> str:
    """The `_target_`s of a cell's user components, as text."""
    return " or ".join(sorted({target for _, target in parts_of(config) if is_foreign({"_target_": target})}))


def runs_user_code(config: Config) -> bool:
    """Whether to check a cell imports user code."""
    return is_foreign(config) or config.user not in ([], MISSING)


def import_problems(config: Config) -> list[str]:
    """The settings of the process that importing a cell's user modules changes, as sentences."""
    modules = {target.rpartition(".")[0] for _, target in parts_of(config)}
    problems = []
    for module in sorted(module for module in modules if within(module, config.user)):  # nothing else may be imported
        try:
            importlib.import_module(module)
        except Exception:  # reported where the target is looked up
            continue
        problems += child.changed_settings(f"importing {module}")
    return problems
