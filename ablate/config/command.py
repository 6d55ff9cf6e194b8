"""The words of a command line, read once: the groups on disk, the study file that it names, what is fixed and swept."""

from __future__ import annotations

import dataclasses
import shlex
from collections.abc import Sequence
from pathlib import Path

from ablate.config.errors import PlanError, Problem
from ablate.config.groups import Groups, read_groups
from ablate.config.overrides import Overrides, parse
from ablate.config.study_file import Asked, key_of, read_study
from ablate.config.variant_files import damaged


@dataclasses.dataclass(frozen=True)
class Command:
    """A command line taken apart; later stages read no words and list no folder."""

    words: tuple[str, ...]
    groups: Groups
    asked: Asked
    parsed: Overrides
    problems: list[Problem]

    @property
    def fixed(self) -> list[str]:
        """Overrides of one value."""
        return self.parsed.fixed

    @property
    def swept(self) -> dict[str, list[str]]:
        """The overrides of each swept key's levels."""
        return self.parsed.swept

    @property
    def typed(self) -> str:
        """The command as it is typed."""
        swept = any(key_of(word) in self.swept for word in self.words)
        folder = ["--config-dir", self.groups.folder] if self.groups.folder else []
        return shlex.join(["ablate", *(["-m"] * swept), *folder, *self.words])

    @property
    def given(self) -> set[str]:
        """The keys that the command line itself sets, not its study file."""
        return {*map(key_of, self.asked.overrides)} - self.asked.of_file


def read_command(words: Sequence[str], config_dir: str | None) -> Command:
    """Take a command line apart; its problems are kept beside what can be read.

    Raises PlanError where the folder of the user's variants is none, or holds what may not be read.
    """
    if config_dir is not None and not (config_dir and Path(config_dir).is_dir()):
        raise PlanError([Problem("--config-dir", f"{config_dir!r} is not a folder")])
    groups = read_groups(config_dir)
    variants = [file for file in groups.own if file.parent.name != "experiment"]  # the study file is read by itself
    if unread := list(damaged(groups, variants)):
        raise PlanError(unread)
    asked = read_study(list(words), groups)
    parsed = parse(asked.overrides, groups)
    taken = [
        Problem("--config-dir", f"{file} has the name of a variant or a study of ablate's; give it another")
        for file in groups.shadowed()
    ]
    return Command(tuple(words), groups, asked, parsed, asked.problems + parsed.problems + taken)
