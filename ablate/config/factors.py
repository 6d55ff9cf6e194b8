"""The factors of a study (swept keys; zipped keys are one factor), its cells, and the settings of each cell."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.config.choices import Choice, level_names, named_settings
from ablate.config.claims import Level, Levels, level, spell
from ablate.config.command import Command
from ablate.config.compose import Composed, Composer
from ablate.config.depth import value_at
from ablate.config.designs import DESIGNS, NOTES, Cell, size
from ablate.config.errors import Problem
from ablate.config.groups import defaults
from ablate.config.ladder import KEYS, RUNG, rungs
from ablate.config.read_config import check
from ablate.config.schema import BY_STEPS, NAMED, VARIED
from ablate.config.study_file import StudyFile
from ablate.config.words import MOST, Setting

MOST_NAMED = 4  # the reference's label lists at most this many factors
BASE = "base"  # its label if there are more
ONE_CHANGE = ("one_at_a_time", "leave_one_out", "ladder")  # designs whose cells change one level of the reference

Settings = Mapping[str, Setting]


@dataclass(frozen=True)
class Factor:
    """A swept key, or several that are zipped, and for each level the value of each key."""

    keys: list[str]
    levels: list[tuple[Any, ...]]
    reference: int | None = 0  # the level that others are compared with; None if it only defines strata

    @property
    def name(self) -> str:
        """The key, or zipped keys joined by +; the six keys of a ladder are the factor `rung`."""
        return RUNG if self.keys == [*KEYS] else "+".join(self.keys)


@dataclass(frozen=True)
class Design:
    """Which combinations of levels are cells."""

    kind: str
    settings: Settings  # of the command and its study file
    factors: list[Factor]
    cells: list[Cell]  # for each factor, the index of its level
    notes: list[str] = dataclasses.field(default_factory=list)
    rungs: list[Level] = dataclasses.field(default_factory=list)  # the levels of the factor `rung`, of a ladder

    def level_settings(self, cell: Cell) -> dict[str, Any]:
        """The values of swept keys in a cell."""
        values: dict[str, Any] = {}
        for factor, i in zip(self.factors, cell, strict=True):
            values |= dict(zip(factor.keys, factor.levels[i], strict=True))
        return values

    def changed_keys(self, cell: Cell) -> list[str]:
        """The swept keys that have another level than the reference's."""
        keys = []
        for factor, i in zip(self.factors, cell, strict=True):
            if factor.reference is not None and i != factor.reference:
                keys += factor.keys
        return keys

    def settings_of(self, cell: Cell) -> dict[str, Any]:
        """All settings of a cell.  Later ones win: those of all cells and its levels, then what comes with a choice in
        parentheses, then the levels that it changes from the reference."""
        values = {key: setting.value for key, setting in self.settings.items()} | self.level_settings(cell)
        beside: dict[str, Any] = {}
        for choice in self.choices_with_settings(cell):
            beside |= choice.beside
        changed = {key: values[key] for key in self.changed_keys(cell)}
        return values | beside | changed

    def choices_with_settings(self, cell: Cell) -> list[Choice]:
        """The choices of a cell that bring settings of other components; not one that a changed level replaces."""
        values = {key: setting.value for key, setting in self.settings.items()} | self.level_settings(cell)
        choices = [value for value in values.values() if isinstance(value, Choice) and value.beside]
        changed = self.changed_keys(cell)
        replaced: set[str] = set()
        for choice in choices:
            if choice.group in changed:
                replaced |= set(choice.beside)
        return [choice for choice in choices if choice.group in changed or choice.group not in replaced]


def compose_design(command: Command) -> tuple[Design, list[Composed], list[Problem]]:
    """The design of a command, its composed cells, and the problems of both."""
    with Composer(command.groups) as composer:
        design, problems = arrange(command.settings, composer)
        added = added_keys(command.settings)
        cells = [composer.compose(design.settings_of(cell), added) for cell in design.cells]
        problems += composer.all_problems()
        design = dataclasses.replace(design, notes=[*design.notes, *composer.remarks])
        if command.study_file:
            problems += problems_of_tiers(command.study_file, value_of(command.settings, "tier"), composer)
        return design, cells, problems


def added_keys(settings: Settings) -> set[str]:
    """The keys that are written with a plus."""
    return {key for key, setting in settings.items() if setting.adds}


def problems_of_tiers(file: StudyFile, chosen: Any, composer: Composer) -> list[Problem]:
    """Problems of the tiers that are not chosen: each value is composed once with the file's other settings."""
    problems = []
    for tier, changes in file.tiers.items():
        if tier == chosen:  # its settings are those of the cells
            continue
        of_tier = file.settings | changes
        settings = {key: setting.values[0] for key, setting in of_tier.items()}
        trial = composer.without_problems()
        for key, setting in changes.items():
            for value in setting.values:
                trial.compose(settings | {key: value}, added_keys(of_tier))
        for problem in trial.all_problems():
            if problem.key in changes:
                problems.append(Problem(f"{file.file}: tiers.{tier}.{problem.key}", problem.message))
    return problems


def arrange(settings: Settings, composer: Composer) -> tuple[Design, list[Problem]]:
    """The design of a command, and its problems; with problems, the design has one cell for each level."""
    written = value_of(settings, "design")
    kind = written if isinstance(written, str) and written in DESIGNS else "grid"  # the schema reports other values
    factors, problems = factors_of(settings)
    levels_of_rung: list[Level] = []
    if kind == "ladder":
        steps, wrong = climb(settings, composer)
        problems += wrong
        levels_of_rung = [*steps]
        if steps:
            factors.append(Factor([*KEYS], [tuple(values) for values in steps.values()]))
        else:
            kind = "grid"
    factors = with_references(kind, factors)
    problems += conflicts(settings, kind)
    counts = [len(factor.levels) for factor in factors]
    start = tuple(factor.reference or 0 for factor in factors)
    count = size(kind, counts)
    if count > MOST:
        smaller = "design=one_at_a_time" if kind == "grid" else "fewer values"
        problems.append(Problem("design", f"{kind} has {count:,} configurations here; write {smaller}"))
    cells = DESIGNS["one_at_a_time" if problems else kind](counts, start)
    notes = [NOTES[kind]] if kind in NOTES else []
    design = Design(kind, settings, factors, cells, notes, levels_of_rung)
    return design, problems + clashes(design)


def value_of(settings: Settings, key: str) -> Any:
    """The value of a key that is not swept, or None."""
    return settings[key].value if key in settings and not settings[key].swept else None


def factors_of(settings: Settings) -> tuple[list[Factor], list[Problem]]:
    """The factors in the order given; zipped keys are one factor."""
    swept = {key: setting.values for key, setting in settings.items() if setting.swept}
    zipped = value_of(settings, "zip") or []
    zipped = [str(key) for key in zipped] if isinstance(zipped, list) else []  # the schema reports other values
    problems = zip_problems(zipped, swept)
    if problems:
        zipped = []
    factors = []
    for key, values in swept.items():
        if key not in zipped:
            factors.append(Factor([key], [(value,) for value in values]))
        elif not any(factor.keys == zipped for factor in factors):
            columns = [swept[each] for each in zipped]
            factors.append(Factor(zipped, list(zip(*columns, strict=True))))
    return factors, problems


def zip_problems(zipped: list[str], swept: Mapping[str, Sequence[Any]]) -> list[Problem]:
    """What is wrong with `zip`."""
    messages = []
    missing = [key for key in zipped if key not in swept]
    if missing:
        verb = "is" if len(missing) == 1 else "are"
        there = f"choose from {', '.join(swept)}" if swept else "give each several values"
        messages.append(f"{', '.join(missing)} {verb} not swept; {there}")
    if len(zipped) == 1 or len(set(zipped)) < len(zipped):
        messages.append(f"[{','.join(zipped)}] must name two different keys or more")
    counts = {key: len(swept[key]) for key in zipped if key in swept}
    if len(set(counts.values())) > 1:
        sizes = ", ".join(f"{key} has {count} values" for key, count in counts.items())
        messages.append(f"{sizes}; write equally many for each")
    return [Problem("zip", message) for message in messages]


def with_references(design: str, factors: list[Factor]) -> list[Factor]:
    """The factors with their reference levels: the last ones with design=leave_one_out, else the first.

    In a grid the factors of components are compared, and others define strata; all are compared if no component varies.
    """
    compared = factors
    if design == "grid":
        components = [factor for factor in factors if set(VARIED) & set(factor.keys)]
        compared = components or factors
    if design == "ladder":
        compared = [factor for factor in factors if factor.name != RUNG]
    result = []
    for factor in factors:
        reference = len(factor.levels) - 1 if design == "leave_one_out" else 0
        result.append(dataclasses.replace(factor, reference=reference if factor in compared else None))
    return result


def clashes(design: Design) -> list[Problem]:
    """Problems of choices of one cell that set the same key to different values."""
    problems = []
    for cell in design.cells:
        for choice, other in itertools.combinations(design.choices_with_settings(cell), 2):
            for key in choice.beside.keys() & other.beside.keys():
                if choice.beside[key] != other.beside[key]:
                    both = f"{choice.group}={choice.text} and {other.group}={other.text}"
                    problems.append(Problem(both, f"have different values of {key} in one configuration; write one"))
    return list(dict.fromkeys(problems))


def conflicts(settings: Settings, design: str) -> list[Problem]:
    """Problems of settings in parentheses that something else sets, too."""
    problems = []
    for setting in settings.values():
        for i, choice in enumerate(setting.values):
            if not isinstance(choice, Choice) or choice.is_pattern:
                continue
            # In designs that change one level at a time, another level than the reference's may replace a level.
            reference = len(setting.values) - 1 if design == "leave_one_out" else 0
            is_change = setting.swept and design in ONE_CHANGE and i != reference
            own_keys = named_settings(choice.group, choice.text)
            for key in sorted(own_keys | set(choice.beside)):
                message = ""
                if key == value_of(settings, "tune.key"):
                    message = f"tune.key={key} chooses it for each configuration; leave it out of one"
                elif key not in settings:
                    continue
                elif key in own_keys or not (setting.swept or settings[key].swept):
                    message = f"{key} is given twice; leave it out of one"
                elif settings[key].swept and (not is_change or are_zipped(settings, key, setting.key)):
                    message = f"{key} is swept, too; leave it out of one"
                if message:
                    problems.append(Problem(f"{setting.key}={choice.text}", message))
    return problems


def are_zipped(settings: Settings, key: str, other: str) -> bool:
    """Whether two keys change together."""
    zipped = value_of(settings, "zip") or []
    return key in zipped and other in zipped


def climb(settings: Settings, composer: Composer) -> tuple[dict[Level, list[Any]], list[Problem]]:
    """The values of `ladder.KEYS` at each level of `rung`, and the problems of a ladder."""
    problems = []
    for key in (*KEYS, "scale", "model.heads", "parametrization"):
        if key in settings and settings[key].swept:
            problems.append(Problem(key, "is that of the top rung with design=ladder; write one value"))
    trial = composer.without_problems()
    config = trial.compose({key: setting.value for key, setting in settings.items()}, added_keys(settings)).config
    if trial.all_problems() or check(config):  # reported for all cells
        return {}, problems
    wrong = {
        "ladder carries the learning rate over widths by parametrization=mup; write it, too": "MuP"
        not in config.parametrization["_target_"],
        "ladder compares nothing here; sweep a component": not any(setting.swept for setting in settings.values()),
        "ladder and seeds=auto do not go together; write seeds=8, say": config.seeds == "auto",
        "ladder carries one learning rate to all rungs; leave tune.key out": config.tune.key is not None,
        "ladder trains its references for other steps by itself; leave step_equivalents out": config.step_equivalents,
        f"ladder sets the steps of each rung; leave match={config.match} out": config.match == BY_STEPS,
        "ladder gives worths with intervals, which no margin judges; leave margin out": config.margin is not None,
    }
    problems += [Problem("design", message) for message, is_wrong in wrong.items() if is_wrong]
    return rungs(config, config.ladder), problems


def with_level_names(cells: list[Composed], settings: Settings) -> list[Composed]:
    """The cells with each choice by its level's name: without the settings of other components that come with it, where
    the name alone tells the levels apart."""
    names: dict[str, dict[str, str]] = {}
    for key, setting in settings.items():
        if isinstance(setting.value, Choice):
            names[key] = level_names(setting.values)
    renamed = []
    for cell in cells:
        choices = {group: names.get(group, {}).get(text, text) for group, text in cell.choices.items()}
        renamed.append(dataclasses.replace(cell, choices=choices))
    return renamed


def levels_and_factors(cells: list[Composed], design: Design) -> tuple[list[Levels], dict[str, list[Level]], Levels]:
    """Each cell's levels, each factor's distinct levels in the order given, and the levels of the reference."""
    levels: list[Levels] = [{} for _ in cells]
    levels_by_factor: dict[str, list[Level]] = {}
    reference: Levels = {}
    for place, factor in enumerate(design.factors):
        names = level_names_of(place, cells, design)
        levels_by_factor[factor.name] = list(dict.fromkeys(names[i] for i in sorted(names)))
        if factor.reference is not None:
            reference[factor.name] = names[factor.reference]
        for of_cell, cell in zip(levels, design.cells, strict=True):
            of_cell[factor.name] = names[cell[place]]
    return levels, levels_by_factor, reference


def level_names_of(place: int, cells: list[Composed], design: Design) -> dict[int, Level]:
    """The name of each level of a factor, by its index.

    What comes with a level may replace the level of another factor.  So a level is named by the cell that has it with
    the fewest changes of the reference.
    """
    factor = design.factors[place]
    if factor.name == RUNG:
        return dict(enumerate(design.rungs))
    names: dict[int, Level] = {}
    for i in sorted(range(len(cells)), key=lambda i: len(design.changed_keys(design.cells[i]))):
        values = [level_of(cells[i], key) for key in factor.keys]
        name = values[0] if len(values) == 1 else "+".join(spell(value) for value in values)
        names.setdefault(design.cells[i][place], name)
    return names


def level_of(cell: Composed, key: str) -> Any:
    """A cell's level of a swept key: a group's variant or a key's value."""
    if key in cell.choices:
        return cell.choices[key]
    return level(value_at(cell.config.as_json(), key.split(".")))


def labels_of(cells: list[Composed], design: Design) -> list[str]:
    """Labels of cells: all levels; where one factor changes at a time the change, and of the first cell all levels."""
    factors = [factor for factor in design.factors if factor.name != RUNG]
    names = [cell_label(cell, factors) for cell in cells]
    if design.rungs:
        rungs_of_cells = [design.rungs[cell[-1]] for cell in design.cells]
        return [f"{name} + {RUNG} {rung}" for name, rung in zip(names, rungs_of_cells, strict=True)]
    if design.kind == "grid" or len(design.factors) < 2:
        return names
    labels = [names[0] if len(design.factors) <= MOST_NAMED else BASE]
    before = design.cells[0]
    for cell, indices in zip(cells[1:], design.cells[1:], strict=True):
        place = next(i for i in range(len(before)) if before[i] != indices[i])
        changed = design.factors[place]
        if design.kind == "cumulative":
            before = indices
            labels.append(f"+ {cell_label(cell, [changed])}")
        else:
            labels.append(", ".join(f"{key}={spell(level_of(cell, key))}" for key in changed.keys))
    return labels


def cell_label(cell: Composed, factors: list[Factor]) -> str:
    """A cell's levels of these factors as text: variants by name, other values as key=value."""
    parts = []
    for factor in factors:
        texts = []
        for key in factor.keys:
            text = spell(level_of(cell, key))
            texts.append(text if key in cell.choices else f"{key}={text}")
        parts.append(", ".join(texts))
    return " + ".join(parts) or cell_name(cell.choices)


def cell_name(choices: Mapping[str, str]) -> str:
    """The variants of `NAMED` groups, then others that differ from the reference model's, joined by dashes."""
    usual = defaults()
    parts = [choices[group] for group in NAMED]
    for group in VARIED:
        if group not in NAMED and choices.get(group, usual[group]) != usual[group]:
            parts.append(f"{group}_{choices[group]}")
    return "-".join(parts)
