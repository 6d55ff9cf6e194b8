"""What plan and summary say of a study of one cell: that nothing is compared, and what to write for a comparison."""

import shlex

from ablate.config.command import Command
from ablate.config.schema import VARIED
from ablate.runs.records import Manifest

ONLY = "only one variant"
OTHER = {"norm": "rms", "ffn": "swiglu"}  # compared with the reference variant in the example


def only_variant(command: Command, choices: dict[str, str]) -> str:
    """The remark on a study of one cell; the example is of the first group that the command chose a variant of."""
    settings = command.settings
    group = next((name for name in (*VARIED, "optim") if name in settings), "norm")
    usual = command.groups.defaults[group]
    variant = str(settings[group].value) if group in settings else usual
    first = usual
    second = variant
    if variant == usual:
        first = choices.get(group, usual)
        others = [OTHER.get(group), usual, *command.groups.variants[group]]
        second = next(name for name in others if name not in (None, first))
    example = shlex.quote(f"{command.groups.plus(group)}{group}={first},{second}")
    return f"{ONLY}; for a comparison write {example}"


def about_one_variant(manifest: Manifest) -> list[str]:
    """The remark of `only_variant`, if a study has it."""
    return [remark for remark in manifest.remarks if remark.startswith(ONLY)]
