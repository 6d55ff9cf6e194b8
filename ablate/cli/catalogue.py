"""python -m ablate.catalogue: the tables of variants in the documentation, written from `conf/`."""

from __future__ import annotations

import re
from pathlib import Path

from ablate.config.groups import PACKAGE, defaults, first_line, groups

SHOWN = ("norm", "ffn", "residual", "position", "attention", "init", "model", "preset", "data", "scale", "optim")
BEGIN, END = "<!-- catalogue: written by `make catalogue` from conf/ -->", "<!-- /catalogue -->"


def markdown() -> str:
    """Every group as a table of its variants, as the README shows it."""
    found = groups()
    return "\n".join(_table(group, found[group]) for group in SHOWN)


def _table(group: str, variants: dict[str, Path]) -> str:
    head = f"| `{group}=` | what it is | source |\n|---|---|---|\n"
    return head + "".join(
        _row(name, first_line(file), name == defaults().get(group)) for name, file in variants.items()
    )


def _row(name: str, line: str, default: bool) -> str:
    what, _, source = line.partition("  ")
    source = re.sub(r"arXiv (\d{4}\.\d{4,5})", r"[\1](https://arxiv.org/abs/\1)", source.removesuffix("."))
    return f"| `{name}`{' (default)' * default} | {what.removesuffix('.').replace('|', chr(92) + '|')} | {source} |\n"


def renew(readme: Path) -> None:
    """Write the tables anew between the README's two marks."""
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(f"{before}{BEGIN}\n\n{markdown()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    renew(PACKAGE.parent / "README.md")
