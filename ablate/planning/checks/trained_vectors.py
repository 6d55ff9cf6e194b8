"""Whether an embedding that begins with vectors has a text, and a library, to train them with."""

from __future__ import annotations

from typing import Any

from ablate.config.errors import BadComponent
from ablate.config.extra import installed
from ablate.config.schema import Config
from ablate.data.task import Task
from ablate.results.tables import own_name
from ablate.results.versions import LIBRARIES
from ablate.training.vectors import is_pretrained


def refuse_without_text(config: Config, task: Task | Any) -> None:
    """Raise BadComponent for vectors of a task that has no words, or without the library that trains them."""
    if not is_pretrained(config):
        return
    name = own_name(config.embedding["_target_"])
    if task.training_text() is None:
        told = f"{name} trains vectors on a text, and {task.name} has no words; write a data of texts, or leave it out"
        raise BadComponent("embedding", told)
    for library in LIBRARIES.get(name, ()):
        try:
            installed(library, name, "vectors")
        except ValueError as error:
            raise BadComponent("embedding", str(error)) from None
