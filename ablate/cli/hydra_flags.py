"""What Hydra is asked about itself, `--cfg job` say: which mistakes there are in it, before Hydra is asked."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from typing import Any

from hydra import compose
from omegaconf import OmegaConf

from ablate.config.compose import COMPOSING, Composer
from ablate.config.errors import Problem
from ablate.config.groups import Groups, read_groups
from ablate.config.overrides import parse
from ablate.config.variant_files import damaged

ANSWERS = {
    "--cfg": ("job", "hydra", "all"),
    "--info": ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath"),
}
ASKED = ("runtime", "overrides", "searchpath", "job")  # Hydra's settings that hold what was asked for
SHORT = {"-c": "--cfg", "-i": "--info", "-m": "--multirun"}


def question_problems(arguments: Sequence[str], config_dir: str | None) -> list[Problem]:
    """What is wrong with a question, and what in a folder of variants would change how Hydra answers it."""
    groups = read_groups(config_dir)
    if unread := list(damaged(groups)):
        return unread
    found = misasked(arguments, groups)
    return found or (meddling(groups, split(arguments)[1]) if config_dir else [])


def meddling(groups: Groups, overrides: list[str]) -> list[Problem]:
    """What in a folder of variants sets anything of Hydra's: loggers and callbacks would run before its answer."""
    try:
        with Composer(groups) as theirs:
            seen = hydras(theirs, overrides)
        with Composer(read_groups()) as ours:
            own = hydras(ours, [text for text in overrides if text.lstrip("+~").startswith(("hydra.", "hydra/"))])
    except COMPOSING as error:
        return [Problem("", str(error).strip().split("\n")[0])]
    message = f"{groups.folder} sets hydra; Hydra's own settings belong on the command line"
    return [] if seen == own else [Problem("--config-dir", message)]


def hydras(composer: Composer, overrides: list[str]) -> dict[str, Any]:
    """Hydra's own settings under these overrides.  Raises what Hydra and OmegaConf raise."""
    found = OmegaConf.to_container(compose("config", [*composer.search, *overrides], return_hydra_config=True).hydra)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items() if key not in ASKED}


def misasked(arguments: Sequence[str], groups: Groups) -> list[Problem]:
    """What is wrong with a question about one configuration; Hydra would tell it in a page, or a traceback."""
    options, overrides = split(arguments)
    asked = [(name, value) for name, value in options if name in ANSWERS]
    if not asked:
        return []
    name, value = asked[0]
    if value not in ANSWERS[name] and (value or name == "--cfg"):
        return [Problem(name, f"{value or 'nothing'} is no answer; write {name} {', '.join(ANSWERS[name])}")]
    command = parse(overrides, groups)
    if "--multirun" in dict(options) or command.swept:
        return [Problem(name, "shows one configuration; leave out -m, and write one value for each key")]
    with Composer(groups) as composer:
        with contextlib.suppress(*COMPOSING):
            composer.compose(command.fixed)
            return command.problems
        return command.problems + composer.blame(command, [command.fixed])[0]


def in_order(arguments: Sequence[str]) -> list[str]:
    """The arguments as Hydra's parser takes them: no override behind an option."""
    options, overrides = split(arguments)
    if not any(name in ANSWERS for name, _ in options):
        return list(arguments)
    return [*overrides, *(word for pair in options for word in pair if word)]


def split(arguments: Sequence[str]) -> tuple[list[tuple[str, str]], list[str]]:
    """Options with their values, and overrides, in their order."""
    options: list[tuple[str, str]] = []
    overrides: list[str] = []
    rest = iter(arguments)
    for argument in rest:
        name, _, value = argument.partition("=")
        name = SHORT.get(name, name)
        if not name.startswith("-"):
            overrides.append(argument)
        elif name in ANSWERS or name in ("--config-dir", "-cd"):
            options.append((name, value or next(rest, "")))
        else:
            options.append((name, value))
    return options, overrides
