"""What the results of a program show to be wrong with its command: a seed or a value that it ignores."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.program.order import LAST_LINE

if TYPE_CHECKING:
    from ablate.runs.study import Study

LITERAL_SEED = re.compile(
    r"^.*\b(manual_seed|random\.seed|set_seed|seed_everything|default_rng)\(\s*\d+\b[^)]*\).*$", re.M
)


def seed_ignored(program: str, values: Mapping[str, Sequence[float]]) -> str:
    """That each configuration has the same result with all its seeds, given results by configuration; empty if not, or
    if this could be chance: two equal results of one configuration."""
    repeated = [of_cell for of_cell in values.values() if len(of_cell) > 1]
    if any(len(set(of_cell)) > 1 for of_cell in repeated):
        return ""
    if len(repeated) < 2 and not any(len(of_cell) > 2 for of_cell in repeated):
        return ""
    text = "each configuration gave the same result with all its seeds, so the program seems to ignore {seed}"
    line = literal_seed(program)
    return f"{text}: {line}; change this line" if line else f"{text}; change how it sets its seed"


def literal_seed(program: str) -> str:
    """The line of a source named in the command that seeds with a number; empty if there is none."""
    for word in program.split():
        path = Path(word.strip("'\""))
        if path.suffix == ".py" and path.is_file():
            source = path.read_text(errors="replace")
            match = LITERAL_SEED.search(source)
            if match:
                number = source[: match.start()].count("\n") + 1
                return f"{path}:{number} has {match[0].strip()}"
    return ""


def steps_reached(steps: Mapping[str, Sequence[float]]) -> str:
    """The steps that the runs of each configuration reached in their time, given by configuration."""
    parts = []
    for label, of_cell in steps.items():
        parts.append(f"{label} {min(of_cell):,.0f} to {max(of_cell):,.0f}")
    return f"steps in the time given: {'; '.join(parts)}" if parts else ""


def values_ignored(reference: str, results: Mapping[str, Mapping[int, float]]) -> list[str]:
    """A sentence on each configuration with the same results as the reference at every seed, of two seeds or more;
    results are by the labels of configurations and by seed."""
    lines = []
    for label, by_seed in results.items():
        seeds = by_seed.keys() & results.get(reference, {}).keys()
        if label == reference or len(seeds) < 2:
            continue
        if all(by_seed[seed] == results[reference][seed] for seed in seeds):
            same = f"{label} and {reference} gave the same results with every seed"
            why = "the program ignores what differs between them, or it makes no difference"
            lines.append(f"{same}: {why}{flag_hint(label, reference)}")
    return lines


def flag_hint(label: str, reference: str) -> str:
    """How to pass a flag, where two configurations are one setting's true and false; else empty."""
    name, _, value = label.partition("=")
    reference_value = reference.partition("=")[2]
    if {value.lower(), reference_value.lower()} != {"true", "false"}:
        return ""
    return f"; argparse's type=bool takes every text for true, {{{name}?--{name}}} passes a flag"


def ignored(study: Study) -> list[str]:
    """What the results of a study show to be ignored by its program: the seed, or values."""
    done = study.runs[study.runs["status"] == "done"]
    results: dict[str, dict[int, float]] = {}
    if study.manifest.endpoint not in done:
        return []
    for label, seed, value in zip(done["label"], done["seed"], done[study.manifest.endpoint], strict=True):
        results.setdefault(label, {})[seed] = value
    seed = seed_ignored(str(study.manifest.program), {label: [*of_cell.values()] for label, of_cell in results.items()})
    if seed:
        return [seed]
    reference = next(cell.label for cell in study.manifest.cells if cell.reference)
    return values_ignored(reference, results)


def shows_nothing(study: Study) -> bool:
    """Whether a program's seed or all of its values seem to be ignored, which the same command would repeat."""
    lines = ignored(study)
    return bool(lines) and len(lines) >= len(study.manifest.cells) - 1


def fails_alike(study: Study) -> bool:
    """Whether no run of a program has a result, and two or more failed, all in the same way."""
    if not study.runs["status"].isin(["failed", "missing"]).all():
        return False
    errors = study.runs.loc[study.runs["status"] == "failed", "error"]
    return len(errors) > 1 and len({str(error).partition(LAST_LINE)[0] for error in errors}) == 1
