"""What a folder of variants may hold: settings of components and data, and nothing that reaches further."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from ablate.config.errors import Corrupt, Problem
from ablate.config.groups import Groups
from ablate.config.plain_yaml import calls, read_plain, unread


def damaged(groups: Groups, files: Iterable[Path]) -> Iterator[Problem]:
    """What a user's folder may not hold, and which of these files of it cannot be read, or ask for more than a variant
    may.
    """
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
        if isinstance(found, dict) and (entry := no_variant(found.get("defaults"))):
            yield Problem(str(file), f"takes {entry!r} from where no variants lie; name a file of its own folder")


def no_variant(defaults: Any) -> str | None:
    """The first entry of a list of defaults that names no variant of a group, NAME or /GROUP: NAME, so that nobody
    would check its file or see that it has changed; or None.
    """
    for entry in defaults if isinstance(defaults, list) else [defaults] * (defaults is not None):
        key, name = next(iter(entry.items()), ("", "")) if isinstance(entry, dict) else ("", entry)
        words = [
            str(part).removeprefix("override ").removeprefix("optional ").partition("@")[0] for part in (key, name)
        ]
        if not re.fullmatch(r"(/\w+/)?\w[\w.-]*", "/".join(filter(None, words))):
            return f"{key}: {name}" if key else str(name)
    return None
