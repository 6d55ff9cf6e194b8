"""Sentences from the templates beside: the methods paragraph, captions of figures, rows and notes of tables, facts."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import jinja2

from ablate import evidence, formatting
from ablate.runs import naming

TEMPLATES = Path(__file__).parent / "templates"


def prose(template: str | Path, **content: Any) -> list[str]:
    """The lines of a template rendered with this content, without empty ones; its name is below `templates`."""
    return [line for line in ENVIRONMENT.get_template(str(template)).render(**content).split("\n") if line.strip()]


def fields(template: str, **content: Any) -> dict[str, str]:
    """The lines "name | text" of a template by name: a row of a table, or the numbers of an effect."""
    return {name: text for name, _, text in (line.partition(" | ") for line in prose(template, **content))}


def macros(template: str) -> dict[str, Callable[..., str] | str]:
    """The macros and texts that a template defines, by name."""
    defined = vars(ENVIRONMENT.get_template(template).module).items()
    return {name: value for name, value in defined if not name.startswith("_")}


def sentence(text: str) -> str:
    """A remark as a sentence: capitalised, or after "Note:" if it begins with a configuration key; "" stays ""."""
    capitalised = f"Note: {text}" if {*"=._"} & {*text.partition(" ")[0]} else f"{text[:1].upper()}{text[1:]}"
    return f"{capitalised.rstrip('.')}." if text else ""


ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FunctionLoader(lambda name: (TEMPLATES / name).read_text(encoding="utf-8")),
    undefined=jinja2.StrictUndefined,
    line_statement_prefix="%",
    finalize=lambda value: formatting.visible(str(value).replace("\n", " ")),
)
ENVIRONMENT.globals |= {"formatting": formatting, "evidence": evidence, "naming": naming}
ENVIRONMENT.globals |= {"listed": lambda texts: formatting.listed(map(str, texts)), "ranged": formatting.ranged}
ENVIRONMENT.globals |= {"counted": formatting.counted, "rough": formatting.rough}
ENVIRONMENT.filters |= {"sentence": sentence, "show": formatting.show, "setting": formatting.setting}
ENVIRONMENT.filters |= {"times": evidence.times, "size": formatting.size, "commas": "{:,}".format}
