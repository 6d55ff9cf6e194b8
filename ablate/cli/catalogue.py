"""`ablate catalogue`: every variant with its source, as tables."""

from collections.abc import Iterator
from typing import Any

from ablate.config.citations import papers, short
from ablate.config.groups import description, read_groups
from ablate.config.schema import VARIED
from ablate.config.subcommands import Outcome, PlainParser, conclude

SHOWN = (*VARIED, "model", "preset", "data", "scale", "optim")


def variants(group: str) -> Iterator[tuple[dict[str, Any], str]]:
    """Each variant of a group, for `--json` and as a row of its table: name, description, source."""
    found = read_groups()
    cited = papers(({group: name} for name in found.variants[group]), found)
    for name, file in found.variants[group].items():
        own, what, default = cited.get(f"{group}={name}", {}), description(file), name == found.defaults.get(group)
        links = [(short(entry), entry.get("eprint")) for entry in own.values()]
        sources = "; ".join(f"[{text}](https://arxiv.org/abs/{link})" if link else text for text, link in links)
        row = f"| `{name}`{' (default)' * default} | {cell(what.removesuffix('.'))} | {sources} |\n"
        yield {"group": group, "variant": name, "default": default, "what": what, "papers": list(own)}, row


def catalogue() -> str:
    """A table of variants for each group."""
    heads = {group: f"| `{group}=` | what it is | source |\n|---|---|---|\n" for group in SHOWN}
    return "\n".join(head + "".join(row for _, row in variants(group)) for group, head in heads.items())


def cell(text: str) -> str:
    """Text as it stands in a cell of a Markdown table."""
    return text.replace("|", "\\|")


def main(arguments: list[str] | None = None) -> int:
    """Print the catalogue; returns the exit code."""
    parser = PlainParser("ablate catalogue", "Every variant with its source, as tables.")
    given = parser.parse_args(arguments)

    def act() -> Outcome:
        print(catalogue())
        return Outcome(0, [variant for group in SHOWN for variant, _ in variants(group)])

    return conclude(parser.prog, given.json, act)
