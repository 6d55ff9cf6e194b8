"""Sentences from the templates beside: the methods paragraph, captions of figures, rows and notes of tables, facts."""

import functools
from pathlib import Path
from typing import Any

import jinja2

from ablate import evidence, formatting
from ablate.results import naming

TEMPLATES = Path(__file__).parent / "templates"


def prose(template: str | Path, **content: Any) -> list[str]:
    """The lines of a template rendered with this content, without empty ones; its name is below `templates`."""
    return [line for line in _template(TEMPLATES / template).render(**content).split("\n") if line.strip()]


def fields(template: str, **content: Any) -> dict[str, str]:
    """The lines "name | text" of a template by name: a row of a table, or the numbers of an effect."""
    return {name: text for name, _, text in (line.partition(" | ") for line in prose(template, **content))}


def sentence(text: str) -> str:
    """A remark as a sentence: capitalised, or after "Note:" if it begins with a configuration key; "" stays ""."""
    capitalised = f"Note: {text}" if {*"=._"} & {*text.partition(" ")[0]} else f"{text[:1].upper()}{text[1:]}"
    return f"{capitalised.rstrip('.')}." if text else ""


@functools.cache
def _template(file: Path) -> jinja2.Template:
    environment = jinja2.Environment(
        undefined=jinja2.StrictUndefined,
        line_statement_prefix="%",
        finalize=lambda value: formatting.visible(str(value).replace("\n", " ")),
    )
    environment.globals |= {"formatting": formatting, "evidence": evidence, "naming": naming}
    environment.globals |= {"listed": lambda texts: formatting.listed(map(str, texts)), "ranged": formatting.ranged}
    environment.globals |= {"counted": formatting.counted, "rough": formatting.rough}
    environment.filters |= {"sentence": sentence, "show": formatting.show, "setting": formatting.setting}
    environment.filters |= {"size": formatting.size, "commas": "{:,}".format}
    return environment.from_string(file.read_text(encoding="utf-8"))
