"""The factors of a command line (swept keys; zipped keys form one factor) and the cells of its design."""

import contextlib
import dataclasses
import json
from collections.abc import Iterator, Sequence
from typing import Any

from ablate.config.claims import Level, Levels, level, spell
from ablate.config.command import Command, value_text
from ablate.config.compose import COMPOSING, Composed, Composer
from ablate.config.depth import value_at
from ablate.config.designs import DESIGNS, Cell, size
from ablate.config.errors import Problem
from ablate.config.groups import defaults
from ablate.config.key_checks import CHOSEN, check
from ablate.config.ladder import KEYS, RUNG, rungs
from ablate.config.overrides import MOST, key_of, parsed
from ablate.config.schema import BY_STEPS, NAMED, VARIED
from ablate.formatting import flat, instead

FEW = 4  # the reference's label lists at most this many factors
BASE = "base"  # its label if there are more


@dataclasses.dataclass(frozen=True)
class Design:
    """The design of a command: swept keys and levels of each factor, the cells, the reference, notes and problems."""

    command: Command
    kind: str
    keys: dict[str, list[str]]
    typed: dict[str, list[tuple[Any, ...]]]  # for each factor and level, the value of each key
    base: dict[str, int]  # the reference's level of each compared factor
    companions: dict[str, dict[str, str]]  # for the override of a level, those that come with it, by key
    rungs: list[Level]  # the levels of the factor `rung`, if it is a ladder
    cells: list[Cell]
    notes: list[str]
    problems: list[Problem]

    def overrides(self) -> Iterator[list[str]]:
        """The overrides of every cell, with what comes with those levels that are not the reference's."""
        for cell in self.cells:
            at = {key: level for keys, level in zip(self.keys.values(), cell, strict=True) for key in keys}
            chosen = {key: levels[at[key]] for key, levels in self.command.swept.items()}
            changed = [key for name, usual in self.base.items() for key in self.keys[name] if at[key] != usual]
            more = {key: text for each in changed for key, text in self.companions.get(chosen[each], {}).items()}
            given = {key_of(text): text for text in self.command.fixed} | chosen
            yield [*(given | more | {key: chosen[key] for key in changed}).values()]


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
    more, wrong = read_companions(command, kind, base, keys)
    problems += wrong
    kind = kind if steps or kind != "ladder" else "grid"
    start = tuple(base.get(name, 0) for name in counts)
    if (cells := size(kind, counts)) > MOST:
        smaller = "design=one_at_a_time" if kind == "grid" else "fewer values"
        problems.append(Problem("design", f"{kind} has {cells:,} cells here; write {smaller}"))
    made = DESIGNS[kind if not problems else "one_at_a_time"](counts, start)
    problems = command.problems + problems
    return Design(command, kind, keys, typed, base, more, [*steps], made.cells, made.notes, problems)


def read_companions(
    command: Command, design: str, base: dict[str, int], keys: dict[str, list[str]]
) -> tuple[dict[str, dict[str, str]], list[Problem]]:
    """The overrides that come with a level, by its override and their keys, and the problems of `companions`."""
    asked, found, problems = given(command, "companions"), dict[str, dict[str, str]](), list[Problem]()
    if isinstance(asked, str) and asked.startswith("{"):
        with contextlib.suppress(ValueError):
            asked = json.loads(asked)  # of a study file
    parts = [key_of(text) for text in command.fixed if key_of(text).startswith("companions.")]
    if parts or (asked and not isinstance(asked, dict)):
        form = "write all of them, by level, as in companions={norm:{dyt:{model.scale_embeddings:true}}}"
        return {}, [Problem((parts or ["companions"])[0], form)]
    if asked and design != "one_at_a_time":
        only = f"go with design=one_at_a_time, where cells change one level, not with {design}"
        return {}, [Problem("companions", only)]
    zipped_with = {key: members for members in keys.values() for key in members}
    usual = {command.swept[key][at] for name, at in base.items() for key in keys[name]}
    chosen = {str(given(command, "tune.key")), *CHOSEN.get(str(given(command, "match")), ())}
    held, fixed = given(command, "hold"), {*map(key_of, command.fixed)}
    names_held = set(map(str, held)) if isinstance(held, list) else set()
    for key, levels in (asked or {}).items():
        texts = {spell(parsed(text).value()): text for text in command.swept.get(key, [])}
        for at, more in levels.items() if isinstance(levels, dict) else [(levels, {})]:
            text, words = texts.get(spell(at), ""), flat(more) if isinstance(more, dict) else {}
            everywhere = key in fixed - command.swept.keys() and spell(given(command, key)) == spell(at)
            if not text and not everywhere and command.request.changed and "companions" in command.request.of_file:
                continue  # the command line compares other levels than the study file
            kept = [name for name in words if name.split(".")[0] not in MAY_COME or name in chosen]
            kept += [name for name in words if name in zipped_with.get(key, ())]
            arguments = [name for name in words if name.split(".")[0] in command.swept and "." in name]
            kept += [n for n in arguments if held == "all" or names_held & {n, n.rpartition(".")[2]}]
            reasons = {
                "is the level of all cells here; write what comes with it for all cells": everywhere,
                f"{key} is not swept; {instead(str(key), command.swept)}": not texts,
                f"is not a level of {key}; {instead(spell(at), texts)}": not text,
                "is the reference's level; write what comes with it for all cells": text in usual,
                "takes settings, as in {model.scale_embeddings:true}": not words,
                f"{', '.join(kept)} cannot come with it: only components, their keys, and those of model and optim "
                "that nothing else chooses": bool(kept),
            }
            wrong = [Problem(f"companions.{key}.{spell(at)}", why) for why, holds in reasons.items() if holds]
            plus, problems = command.groups.plus, problems + wrong[:1]
            found[text] = {name: f"{plus(name)}{name}={value_text(value)}" for name, value in words.items()}
    for name, members in keys.items():
        for together in zip(*(command.swept[key] for key in members), strict=False):
            every = [key for text in together for key in found.get(text, ())]
            if twice := [key for key in dict.fromkeys(every) if every.count(key) > 1]:
                both = f"{', '.join(twice)} comes with two keys of {name}, which go together; write it with one"
                problems.append(Problem("companions", both))
    return {} if problems else found, problems


MAY_COME = (*VARIED, "model", "optim")  # sections whose settings may come with a level


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
        "ladder measures in compute; leave step_equivalents out": config.step_equivalents,
        f"ladder sets the steps of each rung; leave match={config.match} out": config.match == BY_STEPS,
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
    base = [design.base.get(name) for name in design.keys]  # a level is named by a cell that no companion changes
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
