"""The cells of a design composed: Hydra's configurations, with the arguments that `hold` names set alike."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Sequence
from typing import Any

from hydra import compose
from omegaconf import OmegaConf

from ablate.config.blame import blame, unreached
from ablate.config.claims import metric_problems
from ablate.config.command import Command, read_command
from ablate.config.compose import COMPOSING, Composed, Composer
from ablate.config.errors import PlanError, Problem, first_line
from ablate.config.factors import BASE, Design, arrange, factors_of, labels_of, levels_of
from ablate.config.schema import Config
from ablate.config.study_file import Asked
from ablate.config.study_keys import study_problems
from ablate.planning.cells import describe_task
from ablate.planning.checks.validate import Checked, Validator
from ablate.planning.hold import hold_equal

PARTS = ("job", "hydra", "all")  # of what Hydra composes


@dataclasses.dataclass(frozen=True)
class Composition:
    """Composed cells, in the same order their levels and labels, and what is wrong with holding them equal."""

    design: Design
    cells: list[Composed]
    levels: list[dict[str, Any]]
    labels: list[str]
    factors: dict[str, list[Any]]
    reference: dict[str, Any]
    at: list[int]  # which cell each one is compared with: the reference of its stratum
    held: list[str]  # what `hold` changed, in words
    missed: list[str]  # settings that do not reach some variants, in words
    problems: list[Problem]

    @property
    def settings(self) -> Config:
        """The configuration that holds the study's own keys."""
        return self.cells[0].config

    @property
    def remarks(self) -> list[str]:
        """Remarks on the cells for readers of the results."""
        whole = ", ".join(f"{name}={level}" for name, level in self.levels[0].items())
        return [*self.design.notes, *self.missed, *self.held, *[f"{BASE} is {whole}"] * (self.labels[0] == BASE)]


def compose_cells(design: Design) -> Composition:
    """Every cell of a design.  Raises PlanError with all problems of the command line where it has any."""
    overrides = list(design.overrides())
    with Composer(design.command.groups) as composer:
        try:
            cells, problems = [composer.compose(each) for each in overrides], design.problems
        except COMPOSING as error:
            found, rest = blame(composer, design.command.parsed, overrides)
            cells = compose_rest(composer, dataclasses.replace(design.command, parsed=rest))
            problems = design.problems + (found or [Problem("", first_line(error))])
    if problems:  # what can be composed is checked all the same, so that every mistake is reported at once
        raise PlanError(problems + problems_of(cells, design.command.asked))
    levels, labels = [levels_of(cell, design) for cell in cells], labels_of(cells, design)
    factors, reference = factors_of(levels, design)
    at = [levels.index(level | reference) for level in levels]
    missed = unreached(list(zip(cells, overrides, strict=True)), design.command.groups.variants["preset"])
    cells, held, wrong = hold_equal(cells, at, design.varied)
    return Composition(design, cells, levels, labels, factors, reference, at, held, missed, wrong)


def configuration_of(words: Sequence[str], config_dir: str | None, part: str) -> str:
    """The configuration that words make, in YAML, as Hydra composes it: of the job, of Hydra itself, or all of it.

    Raises PlanError.
    """
    if part not in PARTS:
        raise PlanError([Problem("--cfg", f"{part} is no answer; write --cfg {', '.join(PARTS)}")])
    command = read_command(words, config_dir)
    if command.swept:
        message = "shows one configuration; leave out -m, and write one value for each key"
        raise PlanError([Problem("--cfg", message)])
    with Composer(command.groups) as composer:
        try:
            composer.compose(command.fixed)
            whole = compose("config", [*composer.search, *command.fixed], return_hydra_config=True)
        except COMPOSING as error:
            found = blame(composer, command.parsed, [command.fixed])[0]
            raise PlanError(command.problems + (found or [Problem("", first_line(error))])) from None
    if command.problems:
        raise PlanError(command.problems)
    job = OmegaConf.masked_copy(whole, [key for key in whole if key != "hydra"])
    return OmegaConf.to_yaml({"job": job, "hydra": OmegaConf.masked_copy(whole, ["hydra"]), "all": whole}[part])


def compose_rest(composer: Composer, command: Command) -> list[Composed]:
    """The cells of a command without its bad overrides, or none when those that are left do not go together."""
    try:
        return [composer.compose(each) for each in arrange(command).overrides()]
    except COMPOSING:
        return []


def problems_of(cells: list[Composed], asked: Asked) -> list[Problem]:
    """What is wrong with some of a study's cells and with its own keys."""
    checked, problems = Validator().validate(cell.config for cell in cells)
    return problems + about_metrics(asked, checked) + (study_problems(cells[0].config) if cells else [])


def about_metrics(asked: Asked, checked: Iterable[Checked]) -> list[Problem]:
    """Problems of the metrics that claims name; nothing where no cell passed."""
    passed = list(checked)
    lengths = [length for cell in passed for length in cell.config.eval.lengths]
    if not passed:
        return []
    timed = passed[0].config.timing == "isolated"
    found = metric_problems(asked.claims, [dict(describe_task(cell).metrics) for cell in passed], lengths, timed)
    return [Problem(f"{asked.file}: {problem.key}", problem.message) for problem in found]
