"""What of a cell is user code.  Needs no torch."""

from omegaconf import MISSING

from ablate.config.schema import Config
from ablate.runs.key import is_foreign, parts_of


def foreign_parts(config: Config) -> str:
    """The `_target_`s of a cell's user components, as text."""
    return " or ".join(sorted({target for _, target in parts_of(config) if is_foreign({"_target_": target})}))


def runs_user_code(config: Config) -> bool:
    """Whether to check a cell imports user code."""
    return is_foreign(config) or config.user not in ([], MISSING)
