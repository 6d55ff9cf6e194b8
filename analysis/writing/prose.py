"""Prose from templates: a line of the template is a sentence, `%` begins a line that says when it is said."""

import functools
from typing import Any

import jinja2

from ablate import formatting
from analysis.case.figures_yaml import TEMPLATES


def prose(template: str, **content: Any) -> list[str]:
    """The sentences, or paragraphs, of a template with this content, those that are empty left out."""
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
    """A remark as a sentence: capitalised, but for a configuration key, which follows "Note:"; "" stays ""."""
    capitalised = f"Note: {text}" if {*"=._"} & {*text.partition(" ")[0]} else f"{text[:1].upper()}{text[1:]}"
    return f"{capitalised.rstrip('.')}." if text else ""
