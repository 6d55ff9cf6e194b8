"""The factors of a command line (swept keys; zipped keys form one factor) and the cells of its design."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from ablate.config.claims import Level, Levels, level, spell
from ablate.config.command import Command
from ablate.config.compose import COMPOSING, Composed, Composer
from ablate.config.depth import is_pattern, names_of, settings_of, split_settings, value_at
from ablate.config.designs import DESIGNS, Cell, size
from ablate.config.errors import Problem
from ablate.config.groups import defaults
from ablate.config.key_checks import CHOSEN, check
from ablate.config.ladder import KEYS, RUNG, rungs
from ablate.config.overrides import MOST, chosen, key_of, parsed
from ablate.config.schema import BY_STEPS, NAMED, OWNED, VARIED

FEW = 4  # the reference's label lists at most this many factors
BASE = "base"  # its label if there are more
ONE_CHANGE = ("one_at_a_time", "leave_one_out", "ladder")  # designs whose cells change one level of the reference


@dataclasses.dataclass(frozen=True)
class Design:
    """The design of a command: swept keys and levels of each factor, the cells, the reference, notes and problems."""

    command: Command
    kind: str
    keys: dict[str, list[str]]
    typed: dict[str, list[tuple[Any, ...]]]  # for each factor and level, the value of each key
    base: dict[str, int]  # the reference's level of each compared factor
    rungs: list[Level]  # the levels of the factor `rung`, if it is a ladder
    cells: list[Cell]
    notes: list[str]
    problems: list[Problem]

    def overrides(self) -> Iterator[list[str]]:
        """The overrides of every cell, with the settings that come with its levels."""
        for cell in self.cells:
            texts, changed = self._texts(cell)
            more = {name: text for settings in self._beside(cell).values() for name, text in settings.items()}
            yield [*(texts | more | {key: texts[key] for key in changed}).values()]

    def clashes(self) -> list[Problem]:
        """Problems of levels of one cell that set the same key to different values."""
        problems = []
        for cell in self.cells:
            seen: dict[str, tuple[str, str]] = {}
            for choice, settings in self._beside(cell).items():
                for name, text in settings.items():
                    other, before = seen.setdefault(name, (choice, text))
                    if before != text:
                        both = f"{key_of(other)}={chosen(other)} and {key_of(choice)}={chosen(choice)}"
                        problems.append(
                            Problem(both, f"have different values of {name} in one configuration; write one")
                        )
        return list(dict.fromkeys(problems))

    def _texts(self, cell: Cell) -> tuple[dict[str, str], list[str]]:
        """The override of each key in a cell, and the keys at another level than the reference's."""
        at = {key: level for keys, level in zip(self.keys.values(), cell, strict=True) for key in keys}
        texts = {key_of(text): text for text in self.command.fixed}
        texts |= {key: levels[at[key]] for key, levels in self.command.swept.items()}
        changed = [key for name, usual in self.base.items() for key in self.keys[name] if at[key] != usual]
        return texts, changed

    def _beside(self, cell: Cell) -> dict[str, dict[str, str]]:
        """The overrides that come with a cell's levels, by the level's override.  A changed level may replace the
        reference's level of another factor, with what comes with that."""
        texts, changed = self._texts(cell)
        beside = self.command.beside
        replaced = {name for key in changed for name in beside.get(texts[key], {})}
        kept = [text for key, text in texts.items() if key in changed or key not in replaced]
        return {text: beside[text] for text in kept if text in beside}


def arrange(command: Command) -> Design:
    """The factors and cells of a command; if there are problems, one cell per level."""
    design = given(command, "design")
    kind = design if isinstance(design, str) and design in DESIGNS else "grid"  # the schema reports other values
    keys, problems = zipped(command)
    steps, wrong = climb(command) if kind == "ladder" else ({}, [])
    if steps:
        swept = {key: [f"{key}={values[place]}" for values in steps.values()] for place, key in enumerate(KEYS)}
        command = dataclasses.replace(command, swept=command.swept | swept)
        keys |= {RUNG: [*KEYS]}
    problems += wrong
    values = {key: [parsed(level).value() for level in levels] for key, levels in command.swept.items()}
    typed = {name: list(zip(*(values[key] for key in members), strict=False)) for name, members in keys.items()}
    counts = {name: len(levels) for name, levels in typed.items()}
    base = base_levels(kind, counts, keys)
    problems += setting_problems(command, kind, base, keys)
    kind = kind if steps or kind != "ladder" else "grid"
    start = tuple(base.get(name, 0) for name in counts)
    if (cells := size(kind, counts)) > MOST:
        smaller = "design=one_at_a_time" if kind == "grid" else "fewer values"
        problems.append(Problem("design", f"{kind} has {cells:,} configurations here; write {smaller}"))
    made = DESIGNS[kind if not problems else "one_at_a_time"](counts, start)
    arranged = Design(command, kind, keys, typed, base, [*steps], made.cells, made.notes, command.problems + problems)
    return dataclasses.replace(arranged, problems=[*arranged.problems, *arranged.clashes()])


def setting_problems(command: Command, design: str, base: dict[str, int], keys: dict[str, list[str]]) -> list[Problem]:
    """Problems of the settings that come with the levels of a command."""
    problems = []
    for text in command.choices_with_settings():
        group, choice = key_of(text), chosen(text)
        variants = command.groups.variants[group]
        shown = f"{group}={choice}"
        if is_pattern(choice, variants):
            inside = [
                name for each in names_of(choice, variants) for name, _ in split_settings(group, each, variants)[1]
            ]
            problems += [Problem(shown, f"{name} cannot change over the layers; leave it out") for name in inside[:1]]
            continue
        _, others = split_settings(group, choice, variants)
        every = [name for name, _ in settings_of(choice)]
        names = [name for name, _ in others]
        wrong = [why for name, value in others if (why := wrong_setting(command, name, value))]
        wrong += [why for name in names if (why := chosen_elsewhere(command, text, name, design, base, keys))]
        wrong += [f"gives {name} twice; write it once" for name in names if names.count(name) > 1]
        if names and any(not name for name in every[every.index(names[0]) :]):
            wrong.append(f"does not say which setting has the value after {names[0]}; write SETTING=VALUE")
        problems += [Problem(shown, why) for why in wrong[:1]]
    return problems


def wrong_setting(command: Command, name: str, value: str) -> str | None:
    """What is wrong with a setting that comes with a level, whatever the design; None if nothing."""
    if name.partition(".")[0] not in (*VARIED, *OWNED):
        return f"{name} cannot come with a level; only components, their settings, and those of model and optim can"
    if "${" in value:
        return f"{value} stands for a value; write the value itself"
    variants = command.groups.variants.get(name, {})
    if variants and split_settings(name, value.strip("\"'"), variants)[1]:
        return f"{name}={value} has settings of other components; write these beside it"
    return None


def chosen_elsewhere(
    command: Command, text: str, name: str, design: str, base: dict[str, int], keys: dict[str, list[str]]
) -> str | None:
    """Why a setting cannot come with the level of this override: what else chooses it; None if nothing does."""
    level = key_of(text)
    match = given(command, "match")
    factors = {key: factor for factor, members in keys.items() for key in members}
    if name in CHOSEN.get(str(match), ()):
        return f"match={match} chooses {name}; leave it out or write match=none"
    if name == given(command, "tune.key"):
        return f"tune.key={name} chooses it for each configuration; leave it out of one"
    if text in command.fixed and name in map(key_of, command.fixed):
        return f"{name} is given twice; leave one out"
    if name not in factors:
        return None
    factor = factors.get(level)
    if factors[name] == factor:
        return f"{name} is zipped with {level}; leave it out of one"
    is_reference = factor is None or factor not in base or command.swept[level].index(text) == base[factor]
    if design in ONE_CHANGE and factors[name] in base and not is_reference:
        return None  # this cell differs from the reference in this level alone
    how = (
        "leave it out, or zip both"
        if design not in ONE_CHANGE
        else "only another level than the reference's can set it"
    )
    return f"{name} is swept, too; {how}"


def climb(command: Command) -> tuple[dict[Level, list[Any]], list[Problem]]:
    """The values of `ladder.KEYS` at each level of `rung`, and the problems of a ladder."""
    own = "is chosen by design=ladder for each rung; write one value, that of the top rung"
    problems = [Problem(key, own) for key in (*KEYS, "scale") if key in command.swept]
    same = "is that of all rungs with design=ladder; write one value"
    problems += [Problem(key, same) for key in ("model.heads", "parametrization") if key in command.swept]
    first = [*command.fixed, *(levels[0] for levels in command.swept.values())]
    with Composer(command.groups, lambda *_: False) as composer:  # which imports no user's code for sizes
        try:
            config = composer.compose(first).config
        except COMPOSING:  # which is reported where all cells are composed
            return {}, problems
    if check(config):  # which reports them for all cells
        return {}, problems
    uncarried = "MuP" not in config.parametrization["_target_"]
    wrong = {
        "ladder carries the learning rate over widths by parametrization=mup; write it, too": uncarried,
        "ladder compares nothing here; sweep a component": not any(len(each) > 1 for each in command.swept.values()),
        "ladder and seeds=auto do not go together; write seeds=8, say": config.seeds == "auto",
        "ladder carries one learning rate to all rungs; leave tune.key out": config.tune.key is not None,
        "ladder trains its references for other steps by itself; leave step_equivalents out": config.step_equivalents,
        f"ladder sets the steps of each rung; leave match={config.match} out": config.match == BY_STEPS,
        "ladder gives worths with intervals, which no margin judges; leave margin out": config.margin is not None,
    }
    problems += [Problem("design", message) for message, holds in wrong.items() if holds]
    return rungs(config, config.ladder), problems


def given(command: Command, key: str) -> Any:
    """The value of a fixed key on the command line, or None."""
    return next((parsed(text).value() for text in command.fixed if key_of(text) == key), None)


def zipped(command: Command) -> tuple[dict[str, list[str]], list[Problem]]:
    """The swept keys of each factor in the order given, and the problems of `zip`."""
    zip_keys, swept = given(command, "zip") or [], command.swept
    zip_keys = [str(key) for key in zip_keys] if isinstance(zip_keys, list) else []  # the schema reports other values
    counts = {key: len(swept[key]) for key in zip_keys if key in swept}
    misread = {key_of(problem.key) for problem in command.problems}
    unswept = [key for key in zip_keys if key not in swept and key not in misread]
    there = f"choose from {', '.join(swept)}" if swept else "give each several values"
    verb = "is" if len(unswept) == 1 else "are"
    problems = [Problem("zip", f"{', '.join(unswept)} {verb} not swept; {there}")] * bool(unswept)
    if len(zip_keys) == 1 or len(set(zip_keys)) < len(zip_keys):
        problems.append(Problem("zip", f"[{','.join(zip_keys)}] must name two different keys or more"))
    if len(set(counts.values())) > 1:
        sizes = ", ".join(f"{key} has {count} values" for key, count in counts.items())
        problems.append(Problem("zip", f"{sizes}; write equally many for each"))
    if problems or len(counts) < len(zip_keys) or not zip_keys:
        return {key: [key] for key in swept}, problems
    keys: dict[str, list[str]] = {}
    for key in swept:
        keys |= {"+".join(zip_keys): zip_keys} if key in zip_keys else {key: [key]}
    return keys, []


def base_levels(design: str, counts: dict[str, int], keys: dict[str, list[str]]) -> dict[str, int]:
    """The reference's level of each compared factor: the last one with design=leave_one_out, else the first."""
    # In a grid, component factors are compared (all factors if no component varies), in other designs all factors.
    compared = [name for name in keys if {*VARIED} & {*keys[name]}] if design == "grid" else []
    compared += [name for name in keys if design == "ladder" and name != RUNG]
    return {name: counts[name] - 1 if design == "leave_one_out" else 0 for name in compared or keys}


def join(values: Sequence[Any]) -> Any:
    """A factor's level: a key's value, or the values of zipped keys joined by +."""
    return values[0] if len(values) == 1 else "+".join(map(spell, values))


def level_of(cell: Composed, key: str) -> Any:
    """A cell's level of a swept key: a group's variant or a key's value."""
    if key in cell.choices:
        return cell.choices[key]
    return level(value_at(cell.config.as_json(), key.split(".")))


def factors_of(cells: list[Composed], design: Design) -> tuple[list[Levels], dict[str, list[Level]], Levels]:
    """Each cell's levels, each factor's distinct levels in the order given, and the levels of the reference."""
    members = design.keys.items()
    levels = [{name: join([level_of(cell, key) for key in keys]) for name, keys in members} for cell in cells]
    if design.rungs:  # the last factor
        levels = [own | {RUNG: design.rungs[at[-1]]} for own, at in zip(levels, design.cells, strict=True)]
    rows = list(zip(design.cells, levels, strict=True))
    base = [
        design.base.get(name) for name in design.keys
    ]  # a level is named by a cell where no other level replaces it
    rows.sort(key=lambda row: sum(at != usual for at, usual in zip(row[0], base, strict=True)), reverse=True)
    found = {name: {cell[i]: level[name] for cell, level in rows} for i, name in enumerate(design.keys)}
    factors = {name: list(dict.fromkeys(known[i] for i in sorted(known))) for name, known in found.items()}
    levels = [{name: found[name][i] for name, i in zip(design.keys, at, strict=True)} for at in design.cells]
    return levels, factors, {name: found[name][at] for name, at in design.base.items()}


def labels_of(cells: list[Composed], design: Design) -> list[str]:
    """Labels of cells: all levels; where one factor changes at a time the change, and of the first cell all levels."""
    if design.rungs:
        arms = {name: keys for name, keys in design.keys.items() if name != RUNG}
        rungs = [design.rungs[at[-1]] for at in design.cells]
        return [f"{name_cell(cell, arms)} + {RUNG} {rung}" for cell, rung in zip(cells, rungs, strict=True)]
    if design.kind == "grid" or len(design.keys) < 2:
        return [name_cell(cell, design.keys) for cell in cells]
    first = name_cell(cells[0], design.keys) if len(design.keys) <= FEW else BASE
    labels, before = [first], design.cells[0]
    for cell, at in zip(cells[1:], design.cells[1:], strict=True):
        (name,) = (name for name, one, other in zip(design.keys, before, at, strict=True) if one != other)
        if design.kind == "cumulative":
            before = at
            labels.append(f"+ {name_cell(cell, {name: design.keys[name]})}")
        else:
            labels.append(", ".join(f"{key}={spell(level_of(cell, key))}" for key in design.keys[name]))
    return labels


def name_cell(cell: Composed, factors: dict[str, list[str]]) -> str:
    """A cell's levels of these factors as text: variants by name, other values as key=value."""

    def part(key: str) -> str:
        level = spell(level_of(cell, key))
        return level if key in cell.choices else f"{key}={level}"

    return " + ".join(", ".join(map(part, keys)) for keys in factors.values()) or cell_name(cell.choices)


def cell_name(choices: dict[str, str]) -> str:
    """The variants of `NAMED` groups, then others that differ from the reference model's, joined by dashes."""
    usual = defaults()
    others = [group for group in VARIED if group not in NAMED and choices.get(group, usual[group]) != usual[group]]
    return "-".join([*(choices[group] for group in NAMED), *(f"{group}_{choices[group]}" for group in others)])
