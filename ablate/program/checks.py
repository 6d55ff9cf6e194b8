"""What the results of a program show to be wrong with its command: a seed or a value that it ignores."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from ablate.program.order import LAST_LINE

if TYPE_CHECKING:
    from ablate.runs.study import Study

LITERAL_SEED = re.compile(
    r"^.*\b(manual_seed|random\.seed|set_seed|seed_everything|default_rng)\(\s*\d+\b[^)]*\).*$", re.M
)

Results = Mapping[str, Mapping[int, float]]  # by the labels of configurations, and by seed


def seed_ignored(program: str, results: Results) -> str:
    """That each configuration has the same result with all its seeds; empty if not, or if this could be chance: two
    equal results of one configuration."""
    repeated = [by_seed for by_seed in results.values() if len(by_seed) > 1]
    if any(len({*by_seed.values()}) > 1 for by_seed in repeated):
        return ""
    if len(repeated) < 2 and not any(len(by_seed) > 2 for by_seed in repeated):
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


def values_ignored(reference: str, results: Results) -> list[str]:
    """A sentence on each configuration with the same results as the reference at every seed, of two seeds or more."""
    lines = []
    for label, by_seed in results.items():
        seeds = by_seed.keys() & results.get(reference, {}).keys()
        if label == reference or len(seeds) < 2 or any(by_seed[seed] != results[reference][seed] for seed in seeds):
            continue
        name, _, value = label.partition("=")
        line = f"{label} and {reference} gave the same results with every seed"
        line += ": the program ignores what differs between them, or it makes no difference"
        if value.lower() in ("true", "false"):
            line += f"; argparse's type=bool takes every text for true, {{{name}?--{name}}} passes a flag"
        lines.append(line)
    return lines


def ignored(study: Study) -> list[str]:
    """What the results of a study show to be ignored by its program: the seed, or values."""
    done = study.runs[study.runs["status"] == "done"]
    if study.manifest.endpoint not in done:
        return []
    results: dict[str, dict[int, float]] = {cell.label: {} for cell in study.manifest.cells}
    for label, seed, value in zip(done["label"], done["seed"], done[study.manifest.endpoint], strict=True):
        results[label][seed] = value
    seed = seed_ignored(str(study.manifest.program), results)
    reference = next(cell.label for cell in study.manifest.cells if cell.reference)
    return [seed] if seed else values_ignored(reference, results)


def shows_nothing(study: Study) -> bool:
    """Whether a program's seed or all of its values seem to be ignored, which the same command would repeat."""
    lines = ignored(study)
    return bool(lines) and len(lines) >= len(study.manifest.cells) - 1


def fails_alike(study: Study) -> bool:
    """Whether no run of a program has a result, and two or more failed, all in the same way."""
    failed = study.runs[study.runs["status"] == "failed"]
    errors = {str(error).partition(LAST_LINE)[0] for error in failed["error"]}
    return study.runs["status"].isin(["failed", "missing"]).all() and len(failed) > 1 and len(errors) == 1
