"""What the results of a program show to be wrong with its command: a seed or a value that it ignores."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from ablate.runs.records import Manifest

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
    return f"{text}: {line}" if line else text


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


def values_ignored(manifest: Manifest, results: Mapping[tuple[str, int], float]) -> list[str]:
    """That two values have the same results at every seed, with at least two of them."""
    lines = []
    reference = next(cell for cell in manifest.cells if cell.reference)
    for cell in manifest.cells:
        seeds = [seed for name, seed in results if name == cell.id and (reference.id, seed) in results]
        pairs = [(results[cell.id, seed], results[reference.id, seed]) for seed in seeds]
        if cell is not reference and len(pairs) > 1 and all(value == base for value, base in pairs):
            same = "the program ignores what differs between them, or it makes no difference"
            lines.append(f"{cell.label} and {reference.label} gave the same results with every seed: {same}")
    return lines
