"""A configuration that a file of results holds, whichever release wrote it.  No torch."""

from __future__ import annotations

import dataclasses
from typing import Any

import msgspec

from ablate.config.groups import CONF
from ablate.config.schema import LATER, MISSING, SCHEDULES, SECTIONS, Config, neutral_groups, read_once, typed


def stored(value: object) -> Config:
    """The configuration that a file holds; what came after the file was written is as it was before.

    Files allow no packages: `user` is empty.  Raises ValueError with what is amiss, as "has no train.steps in a
    configuration".
    """
    try:
        plain = msgspec.convert(value, dict[str, Any])
        plain = _filled(plain) | {"user": []} if plain else plain
        msgspec.convert(plain, Config)
    except (msgspec.ValidationError, AttributeError, TypeError) as error:
        raise ValueError(f"has a configuration that cannot be read ({error})") from None
    found = typed(plain)
    parts = {"": found} | {f"{name}.": getattr(found, name) for name in SECTIONS} if plain else {}
    for name, part in parts.items():
        if lacking := [key for key, value in vars(part).items() if isinstance(value, str) and value == MISSING]:
            raise ValueError(f"has no {name}{lacking[0]} in a configuration")
    if plain and not isinstance(found.train.compile, bool):  # of which anything else would pass for true
        raise ValueError(f"has train.compile={found.train.compile!r}, neither true nor false, in a configuration")
    return found


def _filled(plain: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration with the keys and groups that came later, as all was before."""
    plain = neutral_groups() | _moved(regrouped(plain))
    for key, value in LATER.items():
        section, _, name = key.rpartition(".")
        if section in SECTIONS:
            if name in {field.name for field in dataclasses.fields(SECTIONS[section])}:  # others are a variant's own
                plain = plain | {section: {name: value} | plain.get(section, {})}
        elif not section:
            plain = {key: value} | plain
    return plain


def regrouped(plain: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration with the group that its `optim.schedule` names, as the first releases wrote it."""
    optim = plain.get("optim")
    if not isinstance(optim, dict) or "schedule" in plain or (word := optim.get("schedule")) not in SCHEDULES:
        return plain
    rest = {name: value for name, value in optim.items() if name != "schedule"}
    return plain | {"optim": rest, "schedule": read_once(CONF / "schedule" / f"{word}.yaml")}


def _moved(plain: dict[str, Any]) -> dict[str, Any]:
    """A stored configuration with the width of its embeddings where it stands now."""
    if "embedding_dim" not in plain.get("model", {}):
        return plain
    model = dict(plain["model"])
    width = model.pop("embedding_dim")
    return {"embedding": neutral_groups()["embedding"] | {"width": width}} | plain | {"model": model}
