"""Runs of other programs for tests: small tables, and what `ablate analyse --runs` makes of them."""

import itertools
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from ablate import evidence
from ablate.config.errors import Refused
from ablate.config.subcommands import Parser
from ablate.runs.study import Study
from analysis.cli import arguments

NOISE = (0.0, 0.003, 0.001, 0.004, 0.002, 0.005)


def analysed(path: Path, *words: str) -> Study:
    """The study that `ablate analyse --runs PATH WORD …` reads."""
    parser = Parser("ablate analyse", "")
    arguments.add_arguments(parser)
    return arguments.study_of(parser.parse_args(["--runs", str(path), *arguments.as_options([*words])]))


def effects(study: Study) -> dict[str, tuple[int, float]]:
    """By label, the number of pairs and the mean of the main comparisons."""
    table = evidence.effects(study)
    table = table[table["family"]]
    return {row.label: (row.n, round(row.mean, 6)) for row in table.itertuples()}


def refused(path: Path, *words: str) -> str:
    """What is said where the command is refused, in one line."""
    with pytest.raises(Refused) as error:
        analysed(path, *words)
    assert "\n" not in str(error.value)
    return str(error.value)


def proposed(path: Path, *words: str) -> Study:
    """The study of the command that is proposed where the first was refused."""
    command = shlex.split(refused(path, *words).partition("write: ")[2])
    assert command[:4] == ["ablate", "analyse", "--runs", str(path)]
    return analysed(path, *command[4:])


def loss(i: int, seed: int, effect: float = -0.1) -> float:
    """The loss of variant number i: an effect, and noise of its own."""
    return round(2 + effect * i + NOISE[(seed + 2 * i) % 6], 4)


def table(
    folder: Path, head: str, row: Callable[[str, int, float], str], variants: str = "ln rms", seeds: int = 4
) -> Path:
    """A CSV with a row for each variant and seed."""
    rows = []
    for (i, variant), seed in itertools.product(enumerate(variants.split()), range(seeds)):
        rows.append(row(variant, seed, loss(i, seed)))
    file = folder / "runs.csv"
    file.write_text("\n".join([head, *rows]) + "\n")
    return file
