"""ablate catalogue: the tables of variants in the documentation, written from `conf/`."""

from __future__ import annotations

import re
from pathlib import Path

from ablate.config.arguments import Parser, conclude
from ablate.config.errors import Refused
from ablate.config.groups import defaults, first_line, groups

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


def main(arguments: list[str] | None = None) -> int:
    """Print the tables, or write them anew into a file; the exit code."""
    parser = Parser("ablate catalogue", "Every variant of every group, with its source, as Markdown.")
    parser.add_argument("file", nargs="?", type=Path, help="write them there, between the two marks that it has")
    given = parser.parse_args(arguments)

    def act() -> int:
        renew(given.file) if given.file else print(markdown())
        return 0

    return conclude(parser.prog, act)


def renew(file: Path) -> None:
    """Write the tables anew between a file's two marks.  Raises Refused where it has none."""
    before, begin, rest = file.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise Refused(f"{file} has no place for the catalogue; it goes between {BEGIN} and {END}")
    file.write_text(f"{before}{BEGIN}\n\n{markdown()}\n{END}{after}", encoding="utf-8")
