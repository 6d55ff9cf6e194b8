"""python -m ablate.catalogue: the tables of variants in the documentation, written from `conf/`."""

from __future__ import annotations

from pathlib import Path

from ablate.config.citations import Entry, cited, entries, short
from ablate.config.groups import CONF, PACKAGE, defaults, first_line, groups

SHOWN = ("norm", "ffn", "residual", "position", "attention", "init", "model", "preset", "data", "scale", "optim")
BEGIN, END = "<!-- catalogue: written by `make catalogue` from conf/ -->", "<!-- /catalogue -->"


def markdown() -> str:
    """Every group as a table of its variants, as the README shows it."""
    found = groups()
    return "\n".join(_table(group, found[group]) for group in SHOWN)


def _table(group: str, variants: dict[str, Path]) -> str:
    head = f"| `{group}=` | what it is | source |\n|---|---|---|\n"
    return head + "".join(_row(name, file, name == defaults().get(group)) for name, file in variants.items())


def _row(name: str, file: Path, default: bool) -> str:
    what = first_line(file).removesuffix(".").replace("|", "\\|")
    sources = "; ".join(_linked(entries(CONF)[key]) for key in cited(file))
    return f"| `{name}`{' (default)' * default} | {what} | {sources} |\n"


def _linked(entry: Entry) -> str:
    """A paper by author and year, with a link where it is on arXiv."""
    named, arxiv = short(entry), entry.get("eprint")
    return f"[{named}](https://arxiv.org/abs/{arxiv})" if arxiv else named


def renew(readme: Path) -> None:
    """Write the tables anew between the README's two marks."""
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, _, after = rest.partition(END)
    readme.write_text(f"{before}{BEGIN}\n\n{markdown()}\n{END}{after}", encoding="utf-8")


if __name__ == "__main__":
    renew(PACKAGE.parent / "README.md")
