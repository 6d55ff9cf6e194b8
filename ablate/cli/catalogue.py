"""`ablate catalogue`: every variant with its source, as tables."""

from ablate.config.citations import papers, short
from ablate.config.groups import Groups, first_line, read_groups
from ablate.config.schema import VARIED
from ablate.config.subcommands import Outcome, PlainParser, conclude

SHOWN = (*VARIED, "model", "preset", "data", "scale", "optim")


def catalogue() -> str:
    """A table of variants for each group: name, description, source."""
    found = read_groups()
    return "\n".join(_table(group, found) for group in SHOWN)


def _table(group: str, found: Groups) -> str:
    variants, default = found.variants[group], found.defaults.get(group)
    cited = papers(({group: name} for name in variants), found)
    lines = [f"| `{group}=` | what it is | source |\n|---|---|---|\n"]
    for name, file in variants.items():
        what = cell(first_line(file).removesuffix("."))
        sources = []
        for entry in cited.get(f"{group}={name}", {}).values():
            arxiv = entry.get("eprint")
            sources.append(f"[{short(entry)}](https://arxiv.org/abs/{arxiv})" if arxiv else short(entry))
        lines.append(f"| `{name}`{' (default)' * (name == default)} | {what} | {'; '.join(sources)} |\n")
    return "".join(lines)


def cell(text: str) -> str:
    """Text as it stands in a cell of a Markdown table."""
    return text.replace("|", "\\|")


def main(arguments: list[str] | None = None) -> int:
    """Print the catalogue; returns the exit code."""
    parser = PlainParser("ablate catalogue", "Every variant with its source, as tables.")
    given = parser.parse_args(arguments)

    def act() -> Outcome:
        print(catalogue())
        found = read_groups()
        return Outcome(0, [_variant(group, name, found) for group in SHOWN for name in found.variants[group]])

    return conclude(parser.prog, given.json, act)


def _variant(group: str, name: str, found: Groups) -> dict[str, object]:
    cited = papers([{group: name}], found).get(f"{group}={name}", {})
    default = name == found.defaults.get(group)
    what = first_line(found.variants[group][name])
    return {"group": group, "variant": name, "default": default, "what": what, "papers": list(cited)}
