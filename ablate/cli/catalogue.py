"""`ablate catalogue`: the pages of `docs/` that the code knows best, the variants and the keys."""

from __future__ import annotations

from pathlib import Path

from ablate.cli.key_tables import key_tables, setting_tables
from ablate.config.citations import Entry, papers, short
from ablate.config.groups import CHECKOUT, PACKAGE, Groups, first_line, read_groups
from ablate.config.json_output import Outcome
from ablate.config.schema import VARIED
from ablate.config.subcommands import PlainParser, conclude

SHOWN = (*VARIED, "model", "preset", "data", "scale", "optim")
WRITTEN = "<!-- written by `make catalogue`: edit conf/ instead -->"
CATALOGUE = """\
# Catalogue

Every variant: the first line of its YAML in [conf/](../conf), as `ablate --help` prints it, and the papers that it
cites from [papers.bib](../conf/papers.bib).
A variant of your own: [how to](how-to/own-component.md).
"""
KEYS = """\
# Keys

Every key of a command line or a study file. Any of them but those of the study can be swept: `optim.lr=1e-3,3e-3`.
"""
SETTINGS = """\
## Settings of variants

`group.setting=value` changes one of a variant's settings: `norm.eps=1e-6`, `attention.kv_heads=1`, `data.length=40`.
Settings that no YAML holds are added with a plus: [options](models-and-tasks.md#options).
"""


def pages() -> dict[str, str]:
    """Each generated page of `docs/` by its name, as it ought to be."""
    return {
        "catalogue.md": "\n".join([WRITTEN, "", CATALOGUE, catalogue()]),
        "keys.md": "\n".join([WRITTEN, "", KEYS, key_tables(), SETTINGS, setting_tables(SHOWN)]),
    }


def catalogue() -> str:
    """Every group as a table of its variants: name, what it is, source."""
    found = read_groups()
    return "\n".join(_table(group, found) for group in SHOWN)


def _table(group: str, found: Groups) -> str:
    variants, default = found.variants[group], found.defaults.get(group)
    cited = papers(({group: name} for name in variants), found)
    head = f"| `{group}=` | what it is | source |\n|---|---|---|\n"
    rows = (_row(name, file, name == default, cited.get(f"{group}={name}", {})) for name, file in variants.items())
    return head + "".join(rows)


def _row(name: str, file: Path, default: bool, cited: dict[str, Entry]) -> str:
    what = first_line(file).removesuffix(".").replace("|", "\\|")
    sources = "; ".join(map(_linked, cited.values()))
    return f"| `{name}`{' (default)' * default} | {what} | {sources} |\n"


def _linked(entry: Entry) -> str:
    """A paper by author and year, with a link where it is on arXiv."""
    named, arxiv = short(entry), entry.get("eprint")
    return f"[{named}](https://arxiv.org/abs/{arxiv})" if arxiv else named


def main(arguments: list[str] | None = None) -> int:
    """Write the generated pages of a checkout, or print the catalogue of an installed package; the exit code."""
    about = "Every variant with its source, as tables; in a checkout, written to docs/."
    parser = PlainParser("ablate catalogue", about)
    given = parser.parse_args(arguments)
    return conclude(parser.prog, given.json, _write if CHECKOUT and not given.json else _show)


def _write() -> Outcome:
    for name, text in pages().items():
        file = PACKAGE.parent / "docs" / name
        file.write_text(text, encoding="utf-8")
        print(file)
    return Outcome(0)


def _show() -> Outcome:
    print(catalogue())
    found = read_groups()
    return Outcome(0, [_variant(group, name, found) for group in SHOWN for name in found.variants[group]])


def _variant(group: str, name: str, found: Groups) -> dict[str, object]:
    cited = papers([{group: name}], found).get(f"{group}={name}", {})
    default = name == found.defaults.get(group)
    what = first_line(found.variants[group][name])
    return {"group": group, "variant": name, "default": default, "what": what, "papers": list(cited)}
