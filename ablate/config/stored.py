"""A configuration that a file of results holds.  No torch."""

from __future__ import annotations

from typing import Any

import msgspec

from ablate.config.schema import MISSING, SECTIONS, Config, typed


def stored(value: object) -> Config:
    """The configuration that a file holds.

    Files allow no packages: `user` is empty.  Raises ValueError with what is amiss, as "has no train.steps in a
    configuration".
    """
    try:
        plain = msgspec.convert(value, dict[str, Any])
        plain = plain | {"user": []} if plain else plain
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
