"""What a folder of variants may hold: settings of components and data, and nothing that reaches further."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from ablate.config.errors import Corrupt, Problem
from ablate.config.groups import Groups
from ablate.config.plain_yaml import calls, read_plain, unread


def damaged(groups: Groups) -> Iterator[Problem]:
    """The files of a user's folder that cannot be read, or that ask for more than a variant may."""
    if groups.folder is None:
        return
    folder = Path(groups.folder)
    if (folder / "hydra").exists():
        yield Problem(str(folder / "hydra"), "Hydra's own settings belong on the command line; take the folder away")
    for file in (folder / "schema.yaml", folder / "config.yaml"):
        if file.exists():
            yield Problem(str(file), "has the name of a file of ablate's; give it another")
    for file in groups.own:
        try:
            found = read_plain(file)
        except Corrupt as error:
            yield Problem(str(file), unread(error, file))
            continue
        if call := calls(found):
            yield Problem(str(file), f"{call!r} calls a resolver; write the value")
        if isinstance(found, dict) and "hydra" in found and file.parent.name != "experiment":
            yield Problem(str(file), "sets hydra; Hydra's own settings belong on the command line")
