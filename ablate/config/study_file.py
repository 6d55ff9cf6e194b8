"""Study files, one YAML per study: its settings, factors and claims.  The command line overrides its settings."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString

from ablate.config.choices import Choice, with_level_names
from ablate.config.claims import Claim, Criterion, level, read_claims, read_criterion
from ablate.config.errors import Corrupt, Problem
from ablate.config.files import calls, read_plain
from ablate.config.groups import EXPERIMENTS, FIGURES, STUDY_FILE_KEYS, Groups
from ablate.config.ladder import RUNG, levels_of_rungs
from ablate.config.mirror import Mirror, read_mirror
from ablate.config.schema import PACE, Config
from ablate.config.words import Setting, read_values, refuse_unknown_key
from ablate.formatting import flat, instead

TEXTS = ("question", "published", "figure")  # entries that do not affect the study's runs
ON_COMMAND_LINE = {
    **dict.fromkeys(("hydra", "tier", "dry_run", "results_dir", "user"), "belongs on the command line"),
    "defaults": "a study file lists none; write groups as keys, such as norm: rms",
}
# Keys on the command line that leave a file's study as it is: how it runs, and in SAME_STUDY also how large it is.
RUNNING = {"study", "tier", "dry_run", "results_dir", "reuse", "keep", "user", "track", "experiment"}
RUNNING |= {"allow_duplicates", *PACE}
SAME_STUDY = RUNNING | {"seeds", "seeds_max", "confirm", "eval", "margin"}
MOST_RUNGS = 8  # of the schema

Settings = dict[str, Setting]
Problems = list[Problem]


@dataclass(frozen=True)
class StudyFile:
    """The settings of a study file, and what else it holds."""

    name: str
    file: str  # as messages name it
    settings: Settings
    tiers: dict[str, Settings]  # by name
    claims: dict[str, Claim] = field(default_factory=dict)
    replicated: Criterion | None = None
    mirror: Mirror | None = None
    texts: dict[str, str | None] = field(default_factory=dict)


def is_one_of(key: str, keys: set[str]) -> bool:
    """Whether a key, or its section, is one of some keys."""
    return key in keys or key.partition(".")[0] in keys


def read_study_file(name: str, groups: Groups) -> tuple[StudyFile | None, Problems]:
    """A study file and its problems; None if it is no mapping of plain data."""
    path = groups.studies[name]
    file = f"experiments/{name}.yaml" if path.parent == EXPERIMENTS else str(path)
    try:
        content = read_plain(path)
    except Corrupt as error:
        return None, [Problem("", str(error))]
    call = calls(content)
    if call:
        return None, [Problem(file, f"{call!r} calls a resolver; write the value")]
    if not isinstance(content, dict):
        return None, [Problem(file, "must be a mapping; write keys and values, as in study: NAME")]
    problems: Problems = []
    settings = settings_of(content, file, groups, problems)
    tiers = {}
    written_tiers = content.get("tiers", {})
    if isinstance(written_tiers, dict) and all(isinstance(tier, dict) for tier in written_tiers.values()):
        for tier, changes in written_tiers.items():
            tiers[str(tier)] = settings_of(changes, file, groups, problems, f"tiers.{tier}.")
    else:
        problems.append(Problem("tiers", "must be a mapping of mappings; write tiers: {gpu: {scale: base}}"))
    study_file = StudyFile(name, file, settings, tiers)
    return with_claims(study_file, content, levels_of_factors(content, settings), problems)


def with_claims(
    study_file: StudyFile, content: dict[str, Any], levels: dict[str, list[Any]], problems: Problems
) -> tuple[StudyFile, Problems]:
    """A study file with its claims over the levels of its factors and all else that it holds, and all its problems."""
    claims, wrong = read_claims(content.get("claims", {}), levels)
    problems += wrong
    replicated = read_criterion(content.get("replicated"), content.get("claims") or (), problems)
    mirror = read_mirror(content.get("mirror"), levels, problems)
    texts = {}
    for key in TEXTS:
        text = content.get(key)
        texts[key] = None if text is None else " ".join(str(text).split())
    figure = texts["figure"]
    if figure and figure not in FIGURES:
        problems.append(Problem("figure", f"{figure}: no such figure; {instead(figure, FIGURES)}"))
    study_file = dataclasses.replace(study_file, claims=claims, replicated=replicated, mirror=mirror, texts=texts)
    return study_file, [Problem(f"{study_file.file}: {problem.key}", problem.message) for problem in problems]


def settings_of(content: Mapping[Any, Any], file: str, groups: Groups, problems: Problems, where: str = "") -> Settings:
    """The settings of a study file or a tier, then its factors; `where` is the place in the file, such as tiers.gpu.
    with its dot."""
    entries: list[tuple[str, list[Any]]] = []
    for key, value in content.items():
        if key != "factors" and (where or key not in STUDY_FILE_KEYS):
            entries += [(name, [leaf]) for name, leaf in flat({str(key): value}).items()]
    factors = content.get("factors", {})
    if not isinstance(factors, dict):
        problems.append(Problem(f"{where}factors", "must be a mapping; write factors: {ffn: [mlp, swiglu]}"))
        factors = {}
    for key, levels in factors.items():
        if isinstance(levels, list) and levels:
            entries.append((str(key), levels))
        else:
            problems.append(Problem(f"{where}factors.{key}", "must be a list of levels; write [first, second]"))
    settings: Settings = {}
    for written, values in entries:
        key = written.replace("+", "")  # +attention.qk_norm, or +qk_norm within attention
        try:
            section = key.partition(".")[0]
            if section in ON_COMMAND_LINE:
                raise ValueError(ON_COMMAND_LINE[section])
            refuse_unknown_key(key, groups)
        except ValueError as error:
            problems.append(Problem(where + written, str(error)))
            continue
        if key in settings:
            problems.append(Problem(where + written, "is given twice; write it once"))
        plus = "+" if key != written else groups.plus(key)
        text = f"{plus}{key}={','.join(value_text(value) for value in values)}"
        read = read_values(key, values, groups, problems, where)
        if read:
            settings[key] = Setting(key, read, text, swept=len(values) > 1, adds=key != written, file=file)
    return settings


def levels_of_factors(content: dict[str, Any], settings: Settings) -> dict[str, list[Any]]:
    """The levels of each factor as claims name them; those of groups without the settings of other components."""
    levels: dict[str, list[Any]] = {}
    for key, setting in settings.items():
        if setting.swept and isinstance(setting.value, Choice):
            levels[key] = [choice.text for choice in with_level_names(setting.values)]
        elif setting.swept:
            levels[key] = [level(value) for value in setting.values]
    count = content.get("ladder", Config.ladder)
    if content.get("design") == "ladder" and type(count) is int:
        levels[RUNG] = levels_of_rungs(min(count, MOST_RUNGS))
    return levels


PLAIN_WORDS = {"true", "false", "null", "nan", "inf"}


def quoted(text: str) -> str:
    """A string, in quotes if Hydra would not read it as the same string."""
    is_word = text.isascii() and text[:1].isidentifier() and all(part.isalnum() or part in "_./-" for part in text)
    if is_word and text.lower() not in PLAIN_WORDS:
        return text
    return str(QuotedString(text=text, quote=Quote.single).with_quotes())


def value_text(value: Any) -> str:
    """A value in Hydra's command-line grammar, which parses back to the same value."""
    if isinstance(value, dict):
        items = [f"{quoted(str(key))}: {value_text(item)}" for key, item in value.items()]
        return "{" + ", ".join(items) + "}"
    if isinstance(value, list):
        return "[" + ",".join(value_text(item) for item in value) + "]"
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    return quoted(value) if isinstance(value, str) else repr(value)
