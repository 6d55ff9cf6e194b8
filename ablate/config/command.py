"""The words of a command line, read once: the groups on disk, the study file that it names, what is fixed and swept."""

import dataclasses
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from ablate.config.errors import Corrupt, PlanError, Problem
from ablate.config.files import calls, read_plain, unread
from ablate.config.groups import Groups, read_groups
from ablate.config.overrides import Overrides, parse
from ablate.config.study_file import Asked, key_of, read_study


@dataclasses.dataclass(frozen=True)
class Command:
    """A parsed command line; later stages read no words and list no folder."""

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
    """Parse a command line; its problems stand beside what can be read.

    Raises PlanError where the folder of the user's variants is none, or holds what may not be read.
    """
    if config_dir is not None and not (config_dir and Path(config_dir).is_dir()):
        raise PlanError([Problem("--config-dir", f"{config_dir!r} is not a folder")])
    groups = read_groups(config_dir)
    variants = [file for file in groups.own if file.parent.name != "experiment"]  # the study file is read by itself
    if wrong := list(_folder_problems(groups, variants)):
        raise PlanError(wrong)
    asked = read_study(list(words), groups)
    parsed = parse(asked.overrides, groups)
    taken = [
        Problem("--config-dir", f"{file} has the name of a variant or a study of ablate's; give it another")
        for file in groups.shadowed()
    ]
    return Command(tuple(words), groups, asked, parsed, asked.problems + parsed.problems + taken)


def _folder_problems(groups: Groups, files: Iterable[Path]) -> Iterator[Problem]:
    """What a user folder may not hold: settings of Hydra, unreadable files, and files that set more than a variant."""
    if groups.folder is None:
        return
    folder = Path(groups.folder)
    if (folder / "hydra").exists():
        yield Problem(str(folder / "hydra"), "Hydra's own settings belong on the command line; take the folder away")
    for file in (folder / "schema.yaml", folder / "config.yaml"):
        if file.exists():
            yield Problem(str(file), "has the name of a file of ablate's; give it another")
    for file in files:
        try:
            found = read_plain(file)
        except Corrupt as error:
            yield Problem(str(file), unread(error, file))
            continue
        if found is not None and not isinstance(found, dict):
            yield Problem(str(file), "must be a mapping; write settings and their values, as in eps: 1.0e-5")
        if call := calls(found):
            yield Problem(str(file), f"{call!r} calls a resolver; write the value")
        if isinstance(found, dict) and "hydra" in found and file.parent.name != "experiment":
            yield Problem(str(file), "sets hydra; Hydra's own settings belong on the command line")
        if isinstance(found, dict) and (entry := _no_variant(found.get("defaults"))):
            yield Problem(str(file), f"takes {entry!r} from where no variants lie; name a file of its own folder")


def _no_variant(defaults: Any) -> str | None:
    """The first of a list of defaults that is neither NAME nor /GROUP: NAME: its file would not be checked; or None."""
    for entry in defaults if isinstance(defaults, list) else [defaults] * (defaults is not None):
        key, name = next(iter(entry.items()), ("", "")) if isinstance(entry, dict) else ("", entry)
        parts = (str(part).removeprefix("override ").removeprefix("optional ") for part in (key, name))
        words = [part.partition("@")[0] for part in parts]
        if not re.fullmatch(r"(/\w+/)?\w[\w.-]*", "/".join(filter(None, words))):
            return f"{key}: {name}" if key else str(name)
    return None
