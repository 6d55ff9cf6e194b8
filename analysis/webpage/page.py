"""Self-contained HTML pages: scripts and pictures are embedded, and network access is blocked."""

import base64
import hashlib
import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import jinja2
from markupsafe import Markup

from ablate.formatting import visible

TEMPLATES = Path(__file__).parents[1] / "templates"


def render(template: str, **content: Any) -> str:
    """A rendered template; values in `content` are escaped unless they are Markup."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(TEMPLATES),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=lambda value: visible(value) if type(value) is str else value,  # not Markup
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.tests["short"] = _short
    return environment.get_template(template).render(**content)


def _short(text: str) -> bool:
    """Whether a table cell must stay on one line: a few words, an interval, or a path."""
    return len(text) < (30 if "[" in text else 24) or (len(text) < 80 and " " not in text)


def asset(name: str) -> Markup:
    """A style sheet or script from the templates folder, not escaped."""
    return script((TEMPLATES / name).read_text(encoding="utf-8"))


def script(text: str) -> Markup:
    """Code to embed in a script or style element, not escaped.  Raises ValueError if it would end the element."""
    if re.search(r"</(script|style)|<!--|\r", text, re.IGNORECASE):
        raise ValueError("a script or style sheet holds what would end it inside a page")
    return Markup(text)


def data(content: Any) -> Markup:
    """JSON to embed in a script element, escaped so that nothing ends it.  Raises ValueError for NaN and infinities."""
    text = json.dumps(content, allow_nan=False, ensure_ascii=False, separators=(",", ":"))
    return Markup(text.replace("&", "\\u0026").replace("<", "\\u003c").replace(">", "\\u003e"))


def policy(scripts: Sequence[str]) -> str:
    """A Content-Security-Policy that allows only these scripts and no network access."""
    hashes = [base64.b64encode(hashlib.sha256(text.encode()).digest()).decode() for text in scripts]
    allowed = " ".join(f"'sha256-{each}'" for each in hashes) or "'none'"
    rules = ["default-src 'none'", f"script-src {allowed}", "style-src 'unsafe-inline'", "img-src data:"]
    return "; ".join([*rules, "base-uri 'none'", "form-action 'none'"])
