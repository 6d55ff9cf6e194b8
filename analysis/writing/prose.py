"""Prose from Jinja templates: each line is a sentence; lines that begin with `%` are conditions."""

import functools
from typing import Any

import jinja2

from ablate import formatting
from analysis.case.figures_yaml import TEMPLATES


def prose(template: str, **content: Any) -> list[str]:
    """The sentences, or paragraphs, of a template rendered with this content, without empty ones."""
    return [line for line in _environment().get_template(template).render(**content).split("\n") if line.strip()]


@functools.cache
def _environment() -> jinja2.Environment:
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        undefined=jinja2.StrictUndefined,
        line_statement_prefix="%",
        finalize=lambda value: formatting.visible(str(value).replace("\n", " ")),
    )
    environment.globals |= {"listed": lambda texts: formatting.listed(map(str, texts)), "ranged": formatting.ranged}
    environment.globals |= {"counted": formatting.counted, "rough": formatting.rough}
    environment.filters["sentence"] = sentence
    return environment


def sentence(text: str) -> str:
    """A remark as a sentence: capitalised, or after "Note:" if it begins with a configuration key; "" stays ""."""
    capitalised = f"Note: {text}" if {*"=._"} & {*text.partition(" ")[0]} else f"{text[:1].upper()}{text[1:]}"
    return f"{capitalised.rstrip('.')}." if text else ""
