"""Explains overrides that cannot be composed, each tried by itself, and settings that a variant does not have."""

import dataclasses
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from omegaconf import DictConfig, OmegaConf

from ablate.config.command import STUDY_FILE_KEYS, Command
from ablate.config.components import offered_names, taken_by
from ablate.config.compose import COMPOSING, Composed, Composer
from ablate.config.depth import named_variants, patterned, variant_of
from ablate.config.errors import Problem, first_line
from ablate.config.files import read_plain
from ablate.config.groups import named_elsewhere, other_names
from ablate.config.overrides import chosen, key_of, parsed
from ablate.config.removed import removed
from ablate.config.schema import COMPONENTS, KEYS, LAYERS, RENAMED, SECTIONS, WHOLE, Config
from ablate.formatting import instead, nearest

KINDS = {"integer": "a whole number", "float": "a number", "bool": "true or false", "boolean": "true or false"}


def blame(composer: Composer, command: Command, cells: Iterable[list[str]]) -> tuple[list[Problem], Command]:
    """The problems of overrides that cannot be composed, and the command without these; `cells`: those of each cell."""
    problems, chosen, fixed, swept = list[Problem](), list[str](), list[str](), dict[str, list[str]]()
    entries = [(None, [text]) for text in command.fixed] + list(command.swept.items())
    # Variants determine which keys exist, so groups are tried first, and keys together with the valid groups.
    for key, levels in sorted(entries, key=lambda entry: composer.group_of(entry[1][0]) is None):
        good, found = [], []
        for text in levels:
            problem = _problem_of(composer, text, chosen)
            found += [_name_variants_with_key(composer, problem, text, command)] if problem else []
            good += [] if problem else [text]
        if len(found) > 1 and not good and not composer.group_of(levels[0]) and len({p.message for p in found}) == 1:
            found = [found[0]._replace(key=found[0].key.partition("=")[0])]  # the key is wrong, not a level
        problems += found
        if good and composer.group_of(good[0]):
            chosen.append(good[0])
        if key is None:
            fixed += good
        elif good:
            swept[key] = good
    valid = dataclasses.replace(command, fixed=fixed, swept=swept)
    return problems or _missing_keys(composer, command, cells), valid


def _name_variants_with_key(composer: Composer, problem: Problem, text: str, command: Command) -> Problem:
    """The problem; if other swept variants have this key, it says which."""
    levels = command.swept.get(text.lstrip("+").partition(".")[0], [])
    groups = [level for level in levels if composer.group_of(level)]
    variants = [*dict.fromkeys(map(composer.plain, groups))]  # a level may set the key of its variant itself
    lacking = [each for each in variants if _problem_of(composer, text.lstrip("+"), [each])]
    if not lacking or all(_problem_of(composer, text.lstrip("+"), [each]) for each in groups):
        return problem
    having = ", ".join(each for each in variants if each not in lacking)
    how = "sweep those that have it, or set it in a YAML of your own"
    return problem._replace(message=f"only {having} has this key, not {', '.join(lacking)}; {how}")


def _missing_keys(composer: Composer, command: Command, cells: Iterable[list[str]]) -> list[Problem]:
    """A key that the first of the swept variants have and others do not, or what comes with a level and cannot be."""
    typed = {*command.fixed, *(text for levels in command.swept.values() for text in levels)}
    for overrides in cells:
        groups = [text for text in overrides if composer.group_of(text)]
        for text in sorted(overrides, key=lambda text: text not in groups):
            if found := _problem_of(composer, text, [] if text in groups else groups):
                found = _name_variants_with_key(composer, found, text, command)
                return [found if text in typed else _of_level(command, text, found)]
    return []


def _of_level(command: Command, text: str, problem: Problem) -> Problem:
    """The problem of an override that comes with a level, reported by that level."""
    level = next(level for level, settings in command.beside.items() if text in settings.values())
    return Problem(f"{key_of(level)}={chosen(level)}", f"{problem.key}: {problem.message}")


def _problem_of(composer: Composer, text: str, chosen: list[str]) -> Problem | None:
    typed, group = text.partition("=")[0], composer.group_of(text)
    key = typed.lstrip("+~")
    value = str(parsed(text).value()) if group and not text.startswith("~") else text.partition("=")[2]
    shown = f"{typed}={value}" if "(" in value else text  # without the quotes that Hydra needs
    variants = composer.known.get(group or "", {})
    names = [variant_of(name) for name in composer.pattern_of(text) or [value]] if group and typed[0] != "~" else []
    if (lost := next((name for name in names if name not in variants), None)) is not None:
        which = f" {lost!r}" * (len(names) > 1)
        near = "quote a level that has a comma" if "(" in lost else instead(lost, variants, other_names(variants))
        return Problem(shown, removed(f"{group}={lost}") or f"no such {group}{which}; {near}")
    if key == group and typed.startswith("+") == (group in composer.defaults):
        has, plus = ("a", "") if group in composer.defaults else ("no", "+")
        return Problem(shown, f"the reference model has {has} {group}; write {plus}{shown.lstrip('+')}")
    try:
        composer.compose([*chosen, text])
    except COMPOSING as error:
        why = _explain(composer, key, error, chosen)
        listed, of_cell = parsed(text).value(), key.partition(".")[0] not in (*WHOLE, "eval") and key != "optim.betas"
        several = of_cell and isinstance(listed, list) and len(listed) > 1 and why.endswith((" number", "one value"))
        return Problem(shown, why + f"; to compare several write {key}={value[1:-1]}" * several)
    return None


def _explain(composer: Composer, key: str, error: Exception, chosen: list[str]) -> str:
    """One line that explains why Hydra or OmegaConf refuses a key, given the groups chosen so far."""
    message, head = str(error.__cause__ or error), key.rpartition(".")[0]
    if re.match(r"token recognition|extraneous input|no viable|mismatched", str(error)):  # of Hydra's parser
        return "has a value that cannot be read; write a number, a word, a list, or a text in double quotes"
    if head and re.search(r"Cannot convert 'dict'|Value '\{\}'", message):  # OmegaConf made a mapping to hold the key
        return f"{head} takes one value; write {head}=VALUE"
    if "Cannot convert" in message:
        return "takes one value"
    if match := re.search(r"Value '(.*)' (?:of type '.*' could not be converted to|is not a valid) (\w+)", message):
        return f"{match[1]!r} is not {KINDS.get(match[2].lower(), match[2])}"
    if "is not Optional" in message:
        return "cannot be null; write a value"
    if "Invalid value assigned" in message or "with ListConfig" in message:
        return "takes a list; write [...]"
    if "Invalid type assigned" in message and key in KEYS and key not in SECTIONS:
        return "takes a list of names or numbers"
    if "Invalid type assigned" in message:
        section = f"is a section of keys; set one of them, as in {key}.KEY=VALUE"
        return section + "; or did you mean seeds?" * (key == "seed")
    if "already at" in message:
        return f"already exists; write {key}=... without the plus"
    if "not in struct" in message or "not in '" in message or "Could not override" in str(error):
        return _no_such_key(composer, key, tuple(chosen))
    return first_line(message).rstrip(".")


def _no_such_key(composer: Composer, key: str, chosen: tuple[str, ...]) -> str:
    """For an unknown key: the variants that have it, else the key that may be meant, else the keys that exist."""
    if key in RENAMED:
        return RENAMED[key]
    if gone := removed(key):
        return gone
    if key in STUDY_FILE_KEYS:
        return "belongs in a study file, DIR/experiment/NAME.yaml; --config-dir DIR +experiment=NAME trains it"
    typed, _, last = key.rpartition(".")
    # wandb.project means track.project.
    head = typed if typed in {*composer.known, *KEYS} else named_elsewhere().get(typed, typed)
    configs = [composer.chosen(groups)[0] for groups in composer.each_variant(chosen)]
    node = OmegaConf.select(configs[0], head) if head else None
    if typed in KEYS and not isinstance(node, DictConfig):
        return f"{typed} takes one value; write {typed}=VALUE"
    if head != typed and node is not None and last in node:
        return f"no such key; did you mean {head}.{last}?"
    taken = taken_by(head, node, configs[0].user) if isinstance(node, DictConfig) else {}
    if last in taken and taken[last].default is None and last not in offered_names(head):
        return f"is optional and set in no variant's YAML; to set it write +{head}.{last}=..."
    having = [name for name, file in composer.known.get(head, {}).items() if last in (read_plain(file) or {})]
    if having and head != typed:
        return f"no such key; write {head}={having[0]} {head}.{last}=..."
    if having:
        return f"no such key here; {head}={', '.join(having)} {'has' if len(having) == 1 else 'have'} it"
    top = sorted({*KEYS, *composer.known} - {"seed"})  # a section; seedz means seeds
    if near := next(filter(None, (_similar_key(config, head, last, top) for config in configs)), None):
        return f"no such key; did you mean {near}?"
    return f"no such key; {instead(last, sorted(_keys_of(node)) if isinstance(node, DictConfig) else top)}"


def _similar_key(config: DictConfig, head: str, last: str, top: list[str]) -> str | None:
    """The key that a misspelt one may mean: the same name in another section, else the most similar one."""
    sections = {str(name): node for name, node in config.items() if isinstance(node, DictConfig)}
    known = [f"{name}.{key}" for name, node in sections.items() for key in _keys_of(node)]
    same = [key for key in known if key.rpartition(".")[2] == last]
    if same or last in top:
        return last if last in top else same[0]
    if head:
        return named_elsewhere().get(last.lower()) or nearest(f"{head}.{last}", known)
    return nearest(last, top, named_elsewhere() | {key.rpartition(".")[2]: key for key in reversed(known)})


def _keys_of(node: DictConfig) -> list[str]:
    return [str(key) for key in node if not str(key).startswith("_")]


def unreached(cells: list[tuple[Composed, list[str]]], presets: dict[str, Path]) -> list[str]:
    """Sentences on settings that some variants of these cells do not have; each cell comes with its overrides."""
    files = {name: read_plain(presets[name]) for name in {cell.choices.get("preset") for cell, _ in cells} if name}
    found = [line for cell, overrides in cells for line in _missing_in_pattern(cell.config, overrides)]
    found += [line for cell, _ in cells for line in _missing_from_preset(cell, files)]
    return list(dict.fromkeys(found))


def _missing_in_pattern(config: Config, overrides: list[str]) -> Iterator[str]:
    """Keys that some variants of a pattern over the layers have and others lack."""
    written = [parsed(text).key_or_group for text in overrides if "=" in text]
    keys = [key.split(".") for key in (*written, config.tune.key or "")]
    for group, settings in patterned(config):
        variants = named_variants(settings, "")
        for key in (path[1] for path in keys if path[0] == group and len(path) > 1):
            lacking = [name for name, node in variants.items() if key not in node]
            if lacking:
                taking = [name for name in variants if name not in lacking]
                yield f"{group}.{key} reaches {', '.join(taking)}, not {', '.join(lacking)}"


def _missing_from_preset(cell: Composed, files: dict[str, dict[str, Any]]) -> Iterator[str]:
    """Keys that a preset sets for its own variants and that the variants chosen instead lack."""
    preset, whole = cell.choices.get("preset", ""), cell.config.as_json()
    file = files.get(preset, {})
    for group in (name for name in (*COMPONENTS, "model") if name in file):
        sets, node = dict(file[group] or {}), whole[group] or {}
        if sets.pop(LAYERS, None) == node.get(LAYERS, ""):
            continue  # the preset's own pattern: each variant has its own settings
        for name, own in named_variants(node, cell.choices.get(group, "")).items():
            if lacking := sets.keys() - own.keys():
                yield f"{group}={name} is without {', '.join(sorted(lacking))}, which {preset} sets"
