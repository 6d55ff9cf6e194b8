"""The factors of a study (swept keys; zipped keys are one factor), its cells, and the settings of each cell."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ablate.config.choices import Choice, named_settings, with_level_names
from ablate.config.claims import Level, Levels, level, spell
from ablate.config.command import Command
from ablate.config.compose import Composer, Draft
from ablate.config.depth import value_at
from ablate.config.designs import DESIGNS, NOTES, Indices, size
from ablate.config.errors import Problem
from ablate.config.groups import defaults
from ablate.config.ladder import KEYS, RUNG, rungs
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
    cells: list[Indices]  # for each factor, the index of its level
    notes: list[str] = dataclasses.field(default_factory=list)
    rungs: list[Level] = dataclasses.field(default_factory=list)  # the levels of the factor `rung`, of a ladder

    def level_settings(self, cell: Indices) -> dict[str, Any]:
        """The values of swept keys in a cell."""
        values: dict[str, Any] = {}
        for factor, i in zip(self.factors, cell, strict=True):
            values |= dict(zip(factor.keys, factor.levels[i], strict=True))
        return values

    def changed_keys(self, cell: Indices) -> list[str]:
        """The swept keys that have another level than the reference's."""
        keys = []
        for factor, i in zip(self.factors, cell, strict=True):
            if factor.reference is not None and i != factor.reference:
                keys += factor.keys
        return keys

    def settings_of(self, cell: Indices) -> dict[str, Any]:
        """All settings of a cell.  Later ones win: those of all cells and its levels, then what comes with a choice in
        parentheses, then the levels that it changes from the reference."""
        values = {key: setting.value for key, setting in self.settings.items()} | self.level_settings(cell)
        beside: dict[str, Any] = {}
        for choice in self.choices_with_settings(cell):
            beside |= choice.beside
        return values | beside | {key: values[key] for key in self.changed_keys(cell)}

    def choices_with_settings(self, cell: Indices) -> list[Choice]:
        """The choices of a cell that bring settings of other components."""
        values = {key: setting.value for key, setting in self.settings.items()} | self.level_settings(cell)
        return [value for value in values.values() if isinstance(value, Choice) and value.beside]


def compose_design(command: Command) -> tuple[Design, list[Draft], list[Problem]]:
    """The design of a command, its composed cells, and the problems of both."""
    settings = dict(command.settings)
    for key, setting in settings.items():
        if isinstance(setting.value, Choice):
            settings[key] = dataclasses.replace(setting, values=with_level_names(setting.values))
    with Composer(command.groups) as composer:
        design, problems = arrange(settings, composer)
        added = added_keys(settings)
        cells = [composer.compose(design.settings_of(cell), added) for cell in design.cells]
        problems += composer.all_problems()
        design = dataclasses.replace(design, notes=[*design.notes, *composer.remarks])
        if command.study_file:
            problems += problems_of_tiers(command.study_file, value_of(settings, "tier"), composer)
        return design, cells, problems


def added_keys(settings: Settings) -> set[str]:
    """The keys that are written with a plus."""
    return {key for key, setting in settings.items() if setting.adds}


def problems_of_tiers(file: StudyFile, chosen: Any, composer: Composer) -> list[Problem]:
    """Problems of the tiers that are not chosen, with the first value of each of their keys and of the file's."""
    problems = []
    for tier, changes in file.tiers.items():
        if tier == chosen:  # its settings are those of the cells
            continue
        of_tier = file.settings | changes
        trial = composer.without_problems()
        trial.compose({key: setting.value for key, setting in of_tier.items()}, added_keys(of_tier))
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
    count = size(kind, counts)
    if count > MOST:
        smaller = "design=one_at_a_time" if kind == "grid" else "fewer values"
        problems.append(Problem("design", f"{kind} has {count:,} configurations here; write {smaller}"))
    start = tuple(factor.reference or 0 for factor in factors)
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
        messages.append(f"{', '.join(missing)}: not swept; choose from {', '.join(swept)}, or give it several values")
    if zipped and len(set(zipped)) < max(2, len(zipped)):
        messages.append(f"[{','.join(zipped)}] must name two different keys or more")
    sizes = [f"{key} has {len(swept[key])} values" for key in zipped if key in swept]
    if len({len(swept[key]) for key in zipped if key in swept}) > 1:
        messages.append(f"{', '.join(sizes)}; write equally many for each")
    return [Problem("zip", message) for message in messages]


def with_references(design: str, factors: list[Factor]) -> list[Factor]:
    """The factors with their reference levels: the last ones with design=leave_one_out, else the first.

    In a grid the factors of components are compared, and others define strata; all are compared if no component varies.
    """
    components = [factor for factor in factors if set(VARIED) & set(factor.keys)]
    result = []
    for factor in factors:
        reference = len(factor.levels) - 1 if design == "leave_one_out" else 0
        is_stratum = factor.name == RUNG or (design == "grid" and components and factor not in components)
        result.append(dataclasses.replace(factor, reference=None if is_stratum else reference))
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
    zipped = value_of(settings, "zip") or []
    problems = []
    for setting in settings.values():
        reference = setting.values[-1] if design == "leave_one_out" else setting.values[0]
        for choice in setting.values:
            if not isinstance(choice, Choice) or choice.is_pattern:
                continue
            for key in (*named_settings(choice.group, choice.text), *choice.beside):
                other = settings.get(key)
                if key != value_of(settings, "tune.key"):
                    if other is None:
                        continue
                    # In designs that change one level at a time, another level than the reference's may replace one.
                    is_change = design in ONE_CHANGE and choice is not reference
                    may_replace = not other.swept or (is_change and not {key, setting.key} <= {*zipped})
                    if key in choice.beside and setting.swept and may_replace:
                        continue
                message = f"{key} is given, swept or tuned elsewhere, too; leave it out of one"
                problems.append(Problem(f"{setting.key}={choice.text}", message))
    return problems


def climb(settings: Settings, composer: Composer) -> tuple[dict[Level, list[Any]], list[Problem]]:
    """The values of `ladder.KEYS` at each level of `rung`, and the problems of a ladder."""
    problems = []
    for key in (*KEYS, "scale", "model.heads", "parametrization"):
        if key in settings and settings[key].swept:
            problems.append(Problem(key, "is that of the top rung with design=ladder; write one value"))
    trial = composer.without_problems()
    config = trial.compose({key: setting.value for key, setting in settings.items()}, added_keys(settings)).config
    if trial.all_problems():  # reported for all cells
        return {}, problems
    if "MuP" not in config.parametrization["_target_"]:
        message = "ladder carries the learning rate over widths by parametrization=mup; write it, too"
        problems.append(Problem("design", message))
    if not any(setting.swept for setting in settings.values()):
        problems.append(Problem("design", "ladder compares nothing here; sweep a component"))
    misfits = {
        "seeds=auto": config.seeds == "auto",
        "tune.key": config.tune.key is not None,
        "step_equivalents": config.step_equivalents,
        f"match={BY_STEPS}": config.match == BY_STEPS,
        "margin": config.margin is not None,
    }
    for word, is_set in misfits.items():
        if is_set:
            problems.append(Problem("design", f"ladder and {word} do not go together; leave one out"))
    return rungs(config, config.ladder), problems


def with_levels(drafts: list[Draft], design: Design) -> tuple[list[Draft], dict[str, list[Level]], Levels]:
    """The drafts with their levels and what each is compared with, each factor's distinct levels in the order given,
    and the levels of the reference."""
    levels: list[Levels] = [{} for _ in drafts]
    levels_by_factor: dict[str, list[Level]] = {}
    reference: Levels = {}
    for place, factor in enumerate(design.factors):
        names = level_names_of(place, drafts, design)
        levels_by_factor[factor.name] = list(dict.fromkeys(names[i] for i in sorted(names)))
        if factor.reference is not None:
            reference[factor.name] = names[factor.reference]
        for of_cell, cell in zip(levels, design.cells, strict=True):
            of_cell[factor.name] = names[cell[place]]
    leveled = []
    for draft, of_cell in zip(drafts, levels, strict=True):
        compared_with = levels.index(of_cell | reference)
        leveled.append(dataclasses.replace(draft, levels=of_cell, reference=compared_with))
    return leveled, levels_by_factor, reference


def level_names_of(place: int, cells: list[Draft], design: Design) -> dict[int, Level]:
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


def level_of(cell: Draft, key: str) -> Any:
    """A cell's level of a swept key: a group's variant or a key's value."""
    if key in cell.choices:
        return cell.choices[key]
    return level(value_at(cell.config.as_json(), key.split(".")))


def labels_of(cells: list[Draft], design: Design) -> list[str]:
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


def cell_label(cell: Draft, factors: list[Factor]) -> str:
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
