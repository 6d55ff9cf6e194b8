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


def settings_changed_by_imports(config: Config) -> list[str]:
    """Sentences on the settings of the process that importing a cell's user modules changes.  Modules that cannot be
    imported are left out; that is reported where their targets are looked up."""
    targets = [target for _, target in parts_of(config)]
    modules = {target.rpartition(".")[0] for target in targets}
    problems = []
    for module in sorted(modules):
        if not within(module, config.user):  # nothing else may be imported
            continue
        try:
            importlib.import_module(module)
        except Exception:
            continue
        problems += child.changed_settings(f"importing {module}")
    return problems
