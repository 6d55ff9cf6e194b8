"""Study files, one YAML per study: its settings, factors and claims.  The command line overrides its settings."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from hydra.core.override_parser.types import Quote, QuotedString

from ablate.config.choices import Choice, level_names, parse_choice
from ablate.config.claims import Claim, Criterion, level, read_claims, read_criterion
from ablate.config.errors import Corrupt, Problem
from ablate.config.files import calls, read_plain
from ablate.config.groups import FIGURES, Groups, named_elsewhere
from ablate.config.ladder import RUNG, levels_of_rungs
from ablate.config.mirror import Mirror, read_mirror
from ablate.config.schema import KEYS, PACE, Config
from ablate.config.words import STUDY_FILE_KEYS, Setting, services_of
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
    file = str(path) if path in groups.user_files else f"experiments/{name}.yaml"
    try:
        content = read_plain(path)
    except Corrupt as error:
        return None, [Problem("", str(error))]
    call = calls(content)
    if call:
        return None, [Problem(file, f"{call!r} calls a resolver; write the value")]
    if not isinstance(content, dict):
        return None, [Problem(file, "must be a mapping; write keys and values, as in study: NAME")]
    content = {str(key): value for key, value in content.items()}
    reader = Reader(file, groups)
    settings = reader.settings(content)
    tiers = reader.tiers(content.get("tiers", {}))
    levels = levels_of_factors(content, settings)
    claims, wrong_claims = read_claims(content.get("claims", {}), levels)
    replicated, wrong_criterion = read_criterion(content.get("replicated"), content.get("claims") or ())
    mirror, wrong_mirror = read_mirror(content.get("mirror"), levels)
    texts, wrong_texts = read_texts(content)
    problems = [*reader.problems, *wrong_claims, *wrong_criterion, *wrong_mirror, *wrong_texts]
    problems = [Problem(f"{file}: {problem.key}", problem.message) for problem in problems]
    return StudyFile(name, file, settings, tiers, claims, replicated, mirror, texts), problems


def levels_of_factors(content: dict[str, Any], settings: Settings) -> dict[str, list[Any]]:
    """The levels of each factor as claims name them; those of groups without the settings of other components."""
    factors = content.get("factors", {})
    levels: dict[str, list[Any]] = {}
    written = map(str, factors) if isinstance(factors, dict) else ()
    for key in (text.removeprefix("+") for text in written):
        setting = settings.get(key)
        if setting is None:
            continue
        if all(isinstance(value, Choice) for value in setting.values):
            levels[key] = list(level_names(setting.values).values())
        else:
            levels[key] = [level(value) for value in setting.values]
    count = content.get("ladder", Config.ladder)
    if content.get("design") == "ladder" and type(count) is int:
        levels[RUNG] = levels_of_rungs(min(count, MOST_RUNGS))
    return levels


def read_texts(content: dict[str, Any]) -> tuple[dict[str, str | None], Problems]:
    """The texts of a study file, and what is wrong with them."""
    texts: dict[str, str | None] = dict.fromkeys(TEXTS)
    problems = []
    for key in TEXTS:
        text = content.get(key)
        if text is None:
            continue
        if isinstance(text, str):
            texts[key] = " ".join(text.split())
        else:
            problems.append(Problem(key, f"must be a text, not {text!r}"))
    figure = texts["figure"]
    if figure and figure not in FIGURES:
        problems.append(Problem("figure", f"{figure}: no such figure; {instead(figure, FIGURES)}"))
    return texts, problems


class Reader:
    """Reads the settings and factors in the mappings of one study file, and collects its mistakes."""

    def __init__(self, file: str, groups: Groups):
        self.file = file
        self.groups = groups
        self.sections = {*KEYS, *groups.variants}
        self.problems: Problems = []

    def settings(self, content: Mapping[str, Any], where: str = "") -> Settings:
        """Settings by key, then factors; `where` is the place in the file, such as tiers.gpu. with its dot."""
        settings: Settings = {}
        for key, value in content.items():
            is_entry = key == "factors" or (key in STUDY_FILE_KEYS and not where)
            if is_entry or not self.check_section(str(key), where):
                continue
            for name, leaf in flat({str(key): value}).items():
                self.add(settings, name, [leaf], where)
        factors = content.get("factors", {})
        if not isinstance(factors, dict):
            self.report(f"{where}factors", "must be a mapping; write factors: {ffn: [mlp, swiglu]}")
            return settings
        for key, levels in factors.items():
            if not isinstance(levels, list) or not levels:
                self.report(f"{where}factors.{key}", "must be a list of levels; write [first, second]")
            elif self.check_section(str(key), f"{where}factors."):
                self.add(settings, str(key), levels, where)
        return settings

    def tiers(self, tiers: Any) -> dict[str, Settings]:
        """The settings of each tier."""
        if not isinstance(tiers, dict) or not all(isinstance(content, dict) for content in tiers.values()):
            self.report("tiers", "must be a mapping of mappings; write tiers: {gpu: {scale: base}}")
            return {}
        return {str(tier): self.settings(content, f"tiers.{tier}.") for tier, content in tiers.items()}

    def add(self, settings: Settings, written: str, values: list[Any], where: str) -> None:
        """Add a setting, or one that is swept; its key is what is written, without the plus of an option."""
        key = written.replace("+", "")  # +attention.qk_norm, or +qk_norm within attention
        adds = written != key
        if key in settings:
            self.report(where + written, "is given twice; write it once")
        plus = "+" if adds else self.groups.plus(key)
        text = f"{plus}{key}={','.join(value_text(value) for value in values)}"
        read = values
        if key in self.groups.variants:
            read = list(self.choices(key, values, where))
        if read:
            settings[key] = Setting(key, read, text, swept=len(values) > 1, adds=adds, file=self.file)

    def choices(self, group: str, values: list[Any], where: str) -> Iterator[Choice]:
        """The choices of a group; reports those that are none."""
        for value in values:
            try:
                if group == "track":
                    yield services_of(value, self.groups)
                else:
                    yield parse_choice(group, str(value), self.groups.variants)
            except ValueError as error:
                self.report(f"{where}{group}={value}", str(error))

    def check_section(self, key: str, where: str) -> bool:
        """Whether the section of a key is known and allowed; else reports why not."""
        section = key.removeprefix("+").partition(".")[0]
        if section in ON_COMMAND_LINE:
            self.report(where + key, ON_COMMAND_LINE[section])
            return False
        if section not in self.sections:
            there = sorted({*self.sections, *STUDY_FILE_KEYS} - ON_COMMAND_LINE.keys() - {"seed"})
            self.report(where + key, f"no such key; {instead(section, there, named_elsewhere())}")
            return False
        return True

    def report(self, key: str, message: str) -> None:
        """Collect a mistake."""
        self.problems.append(Problem(key, message))


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
