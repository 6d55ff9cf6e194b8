"""Parses the overrides of a command line into fixed ones, swept ones and problems."""

import dataclasses
import functools
import math
import re
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Glob, Override, Quote, QuotedString, RangeSweep
from hydra.errors import HydraException

from ablate.config.depth import SETTINGS, is_pattern, pattern_problem
from ablate.config.errors import Problem
from ablate.config.files import DEEPEST
from ablate.config.groups import Groups, named_elsewhere
from ablate.config.key_checks import misshapen, suggestion
from ablate.config.removed import removed
from ablate.config.schema import KEYS, OWNED, PLACED, SECTIONS, VARIED, WHOLE, Config
from ablate.formatting import instead

FUNCTIONS = {"choice", "range", "interval", "glob", "shuffle", "sort", "tag", "str", "int", "float", "bool", "json_str"}
# What is quoted already, and a choice with settings, which Hydra would take for the call of a function.
CALL = re.compile(rf"""'[^']*'|"[^"]*"|(?:[\w.+-]*?([A-Za-z_][\w-]*){SETTINGS.pattern})+[\w.+-]*""")
PLAIN = re.compile(r"[A-Za-z_][\w./-]*", re.ASCII)
WORDS = {"true", "false", "null", "nan", "inf"}
MOST = 10_000  # the most values of a sweep, and cells, since composing more takes too long


def parse(overrides: list[str], groups: Groups) -> tuple[list[str], dict[str, list[str]], list[Problem]]:
    """Fixed overrides, swept ones (key -> the overrides of its levels), and the problems of invalid ones."""
    fixed: list[str] = []
    swept: dict[str, list[str]] = {}
    problems: list[Problem] = []
    given: dict[str, str] = {}
    zipped = any(text.startswith("zip=") for text in overrides)  # then a value may repeat, as only pairs must differ
    for text in overrides:
        if depth_of(text) > DEEPEST:
            problems.append(
                Problem(key_of(text)[:40], f"its value is more than {DEEPEST} levels deep; write a flatter one")
            )
            continue
        try:
            override = parsed(plain := with_quotes(text, groups.variants))
            if (count := _size_of_range(override)) > MOST:
                many = f"{count:,.0f} values" if count < 1e12 else "values without end"
                problems.append(Problem(text, f"has {many}; a sweep has at most {MOST:,}"))
                continue
            levels = list(expand(override, groups))
        except (HydraException, ValueError):
            problems.append(Problem(text, _unreadable(text, groups.variants)))
            continue
        key = override.key_or_group
        first = given.get(key)
        given[key] = text
        if key in swept or (first and levels):
            problems.append(Problem(text, f"{key} is swept already; write its values in one place"))
        elif first:
            typed, _, value = first.partition("=")
            second, either = text.partition("=")[2], typed not in WHOLE and not typed.startswith("eval.")
            compare = f", or {typed}={value},{second} to compare them" * either
            each = f", as {value} and {second}; write one{compare}" if value != second else "; write it once"
            problems.append(Problem(text, f"{typed} is given twice{each}"))  # Hydra would silently use the last value
        elif wrong := _misused(override, levels, groups.variants):
            problems.append(Problem(text, wrong))
        elif len(set(levels)) < len(levels) and not zipped:
            problems.append(Problem(text, "has a value twice; write each once"))
        elif levels:
            swept[key] = levels
        else:
            fixed.append(plain)
    return fixed, swept, problems


def depth_of(text: str) -> int:
    """The most brackets that are open at a time in a word; Hydra's parser recurses once for each."""
    depth = deepest = 0
    for letter in text:
        if letter in "[{(":
            depth += 1
            deepest = max(deepest, depth)
        elif letter in "]})":
            depth -= 1
    return deepest


def _size_of_range(override: Override) -> float:
    """The number of values of a range, without expanding it; 0 for other overrides."""
    value = override.value()
    if not isinstance(value, RangeSweep) or value.start is None or value.stop is None or not value.step:
        return 0
    span = (value.stop - value.start) / value.step
    return math.inf if not math.isfinite(span) else max(0.0, span)


@functools.lru_cache(maxsize=100_000)
def parsed(text: str) -> Override:
    """An override as Hydra parses it.  Raises what Hydra raises."""
    return OverridesParser.create().parse_override(text)


def with_quotes(text: str, groups: Mapping[str, Collection[str]]) -> str:
    """An override with quotes around choices that have settings, as Hydra's grammar needs: norm='group(groups=4)'."""
    key, equals, value = text.rstrip().partition("=")
    if "(" not in value or (group := key.lstrip("+~")) not in groups:
        return text
    kept = {None, *FUNCTIONS} - {*groups.get(group, ())}  # sort is a variant of data
    return key + equals + CALL.sub(lambda found: found[0] if found[1] in kept else quoted(found[0]), value)


def quoted(text: str) -> str:
    """A string, in quotes if Hydra would not read it as the same string."""
    plain = PLAIN.fullmatch(text) and text.lower() not in WORDS
    return text if plain else QuotedString(text=text, quote=Quote.single).with_quotes()


def key_of(text: str) -> str:
    """The key of an override."""
    return text.partition("=")[0].lstrip("+")


def choice_of(group: str, choice: str) -> str:
    """The override that makes this choice of a group, which may have settings."""
    return f"{group}={quoted(choice) if '(' in choice else choice}"


def chosen(text: str) -> str:
    """The value of an override as text without quotes, such as the variant of a group."""
    return str(parsed(text).value())


def _unreadable(text: str, groups: Collection[str]) -> str:
    key = key_of(text)
    if "=" not in text:
        tail = "; quote what holds spaces or brackets, as in 'seeds=[3,7]'" * (text.rstrip()[-1:] in ("]", "}", ")"))
        return f"must be key=value{tail or f'; {suggestion(text)}'}"
    if text.rstrip().endswith(","):
        return "ends in a comma; write values without spaces between them, as in norm=ln,rms"
    if re.search(r"[=,]\s*,", text):
        return "lacks a value before a comma; write values without gaps, as in norm=ln,rms"
    if any(text.count(left) > text.count(right) for left, right in ("[]", "{}", "()")):
        return "has a bracket that is not closed; quote what holds spaces, as in 'seeds=[3,7]'"
    if key.partition(".")[0] not in (top := {*KEYS, *groups}):
        return removed(key) or f"no such key; {instead(key, sorted(top), named_elsewhere())}"
    if "(" in text and key in groups:
        return "cannot be read; parentheses after a variant hold settings of one value each, as in norm=group(groups=4)"
    return f"""cannot be read; if the value is a text, quote it twice: "{key}='{text.partition("=")[2]}'\""""


def _misused(override: Override, levels: list[str], known: Mapping[str, Mapping[str, Path]]) -> str | None:
    """What is wrong with a parsed override, if anything; `known` maps groups to variants."""
    key, sweep = override.key_or_group, override.is_sweep_override()
    if override.is_delete():
        return "nothing can be taken out of the model; choose a variant, such as none where there is one"
    if key == "track" and (sweep or isinstance(override.value(), list)):
        names = [] if sweep else list(map(str, override.value()))
        unclear = len({*names} - {"none"}) < max(1, len(names))
        return "takes services, each named once, as in track=[wandb,tensorboard]; or none" if unclear else None
    if key in known and isinstance(override.value(), list):
        names = list(map(str, override.value()))
        over_layers = f", to change it over the layers {key}={'+'.join(names)}" * (key in PLACED)
        return f"takes one variant; to compare several write {key}={','.join(names)}{over_layers}"
    if key in known and (several := [text for text in levels if isinstance(parsed(text).value(), list | dict)]):
        example = ",".join([*known[key]][:2])
        return f"{several[0].partition('=')[2]} is not a variant; write names, as in {key}={example}"
    for choice in map(chosen, levels or [str(override.input_line)]) if key in known else ():
        if "(" in choice and key not in (*VARIED, *OWNED, "data"):
            return f"{key} takes no settings in parentheses; write keys, as in model.dim=128 or track.project=NAME"
        if is_pattern(choice, known[key]) and (wrong := pattern_problem(key, choice, known[key])):
            return f"{choice}: {wrong}" if levels else wrong
    if sweep and key in ("seeds", "tune.values", "zip", "eval.lengths"):
        values = ",".join(level.partition("=")[2] for level in levels)
        what = "would be several sweeps; for just these seeds" if key == "seeds" else "takes a list;"
        return f"{what} write {key}=[{values}]"
    if sweep and key.partition(".")[0] in WHOLE:
        return f"{key} belongs to the whole study and takes one value"
    if sweep and key.startswith("eval."):
        return f"{key} changes what is measured, not the model; it takes one value"
    return "matches no variant" if sweep and not levels else None


def expand(override: Override, groups: Groups) -> Iterator[str]:
    """The single overrides that a sweep override expands to."""
    if not override.is_sweep_override():
        return
    name, value = override.get_key_element(), override.value()
    if isinstance(value, Glob):
        variants = value.filter(list(groups.variants.get(override.key_or_group, {})))
        # The others are compared with the first level, so the reference model's variant comes first.
        values = sorted(map(str, variants), key=lambda level: level != groups.defaults.get(override.key_or_group))
    else:
        values = list(override.sweep_string_iterator())
    yield from (f"{name}={level}" for level in values)


def refuse_misshapen(config: dict[Any, Any]) -> None:
    """Raise ValueError if a section, list or value of the base schema has another type, as interpolations allow."""
    for name in (*SECTIONS, *VARIED, "data"):
        if not isinstance(config[name], dict):
            raise ValueError(f"is a section of keys; set one of them, as in {name}.KEY=VALUE")
    for schema, values in ((Config, config), *((SECTIONS[name], config[name]) for name in SECTIONS)):
        for field in dataclasses.fields(schema):
            if wrong := misshapen(str(field.type), values.get(field.name)):
                raise ValueError(wrong)
