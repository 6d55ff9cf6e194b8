"""What Hydra is asked about itself, `--cfg job` say: which mistakes there are in it, before Hydra is asked."""

from __future__ import annotations

import contextlib
from typing import Any

from hydra import compose
from omegaconf import OmegaConf

from ablate.config.blame import blame
from ablate.config.compose import COMPOSING, Composer
from ablate.config.errors import Problem, first_line
from ablate.config.groups import Groups, read_groups
from ablate.config.overrides import parse
from ablate.config.variant_files import damaged

ANSWERS = {
    "--cfg": ("job", "hydra", "all"),
    "--info": ("all", "config", "defaults", "defaults-tree", "plugins", "searchpath"),
}
ASKED = ("runtime", "overrides", "searchpath", "job")  # Hydra's settings that hold what was asked for


def question_problems(options: list[tuple[str, str]], overrides: list[str]) -> list[Problem]:
    """What is wrong with a question, and what in a folder of variants would change how Hydra answers it."""
    groups = read_groups(dict(options).get("--config-dir"))
    if unread := list(damaged(groups, groups.own)):
        return unread
    return misasked(options, overrides, groups) or (meddling(groups, overrides) if groups.folder else [])


def meddling(groups: Groups, overrides: list[str]) -> list[Problem]:
    """What in a folder of variants sets anything of Hydra's: loggers and callbacks would run before its answer."""
    try:
        with Composer(groups) as theirs:
            seen = hydras(theirs, overrides)
        with Composer(read_groups()) as ours:
            own = hydras(ours, [text for text in overrides if text.lstrip("+~").startswith(("hydra.", "hydra/"))])
    except COMPOSING as error:
        return [Problem("", first_line(error))]
    message = f"{groups.folder} sets hydra; Hydra's own settings belong on the command line"
    return [] if seen == own else [Problem("--config-dir", message)]


def hydras(composer: Composer, overrides: list[str]) -> dict[str, Any]:
    """Hydra's own settings under these overrides.  Raises what Hydra and OmegaConf raise."""
    found = OmegaConf.to_container(compose("config", [*composer.search, *overrides], return_hydra_config=True).hydra)
    assert isinstance(found, dict)
    return {str(key): value for key, value in found.items() if key not in ASKED}


def misasked(options: list[tuple[str, str]], overrides: list[str], groups: Groups) -> list[Problem]:
    """What is wrong with a question about one configuration; Hydra would tell it in a page, or a traceback."""
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
        return command.problems + blame(composer, command, [command.fixed])[0]
