"""Tab completion of `ablate`, from what is on disk.  In bash and zsh: eval "$(register-python-argcomplete ablate)"."""

import argparse
import dataclasses
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from ablate.config.groups import experiments, groups
from ablate.config.schema import SECTIONS, WHOLE
from ablate.results.manifest import studies

ADDED = ("preset", "experiment")  # groups outside the reference model need a plus: +preset=llama


def complete(commands: Iterable[str]) -> None:
    """Print completions for the shell and exit."""
    import argcomplete

    parser = argparse.ArgumentParser(add_help=False)
    words: Any = parser.add_argument("words", nargs="*")
    words.completer = lambda prefix, parsed_args, **_: choices(parsed_args.words or [], prefix, commands)
    argcomplete.autocomplete(parser, always_complete_options=False)


def choices(before: list[str], prefix: str, commands: Iterable[str]) -> list[str]:
    """The completions of a word that begins with `prefix`, after the words `before`."""
    there = studies(Path(os.environ.get("ABLATE_RESULTS", "results")))
    if before and before[0] in commands:
        return ["rename", "delete", "compare"] * (before == ["studies"]) + there
    key, is_set, values = prefix.partition("=")
    if is_set:
        (head, comma, _), name = values.rpartition(","), key.lstrip("+")
        known = there if name == "study" else groups().get(name, [])
        known = experiments() if name == "experiment" else known
        return [f"{key}={head}{comma}{each}" for each in known if each not in head.split(",")]
    keys = [f"{'+' * (name in ADDED)}{name}=" for name in [*groups(), "experiment"]]
    own = [(section, field.name) for section, frame in SECTIONS.items() for field in dataclasses.fields(frame)]
    keys += [f"{section}.{name}=" for section, name in own if not name.startswith("_")]
    return [*([] if before else commands), *keys, *(f"{key}=" for key in WHOLE)]
