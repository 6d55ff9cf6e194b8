"""The words of a command line: norm=ln,rms sweeps a group, optim.lr=1e-3 sets a key."""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from hydra.core.override_parser.types import Override, QuotedString, ValueType
from hydra.errors import HydraException

from ablate.config.choices import Choice, Variant, parse_choice
from ablate.config.errors import Problem
from ablate.config.groups import STUDY_FILE_KEYS, Groups
from ablate.config.hydra_parser import parser
from ablate.config.read_config import takes_sweep
from ablate.config.schema import KEYS, PLACED
from ablate.config.unknown_keys import instead_of_word, unknown_section
from ablate.formatting import instead, split

MOST = 10_000  # the most values of a sweep, and cells, since composing more takes too long
LISTS = ("seeds", "tune.values", "zip", "eval.lengths")  # keys whose value is a list
HYDRA_FUNCTION = re.compile(r"(choice|glob|range|sort|shuffle|interval|tag)\(.*\)", re.DOTALL)


@dataclass(frozen=True)
class Setting:
    """A key with its value, or with the values that it is swept over; of a group these are choices of variants."""

    key: str
    values: Sequence[Any]
    text: str  # as typed
    swept: bool = False
    adds: bool = False  # written +key=value: the variant's YAML need not have the key
    file: str = ""  # the study file that sets it

    @property
    def value(self) -> Any:
        """The value of a setting that is not swept."""
        return self.values[0]


def read_words(words: Iterable[str], groups: Groups) -> tuple[dict[str, Setting], list[Problem]]:
    """The settings of a command line by key, and all that is wrong with it."""
    settings: dict[str, Setting] = {}
    problems: list[Problem] = []
    for word in words:
        try:
            setting = read_word(word, groups, problems)
        except ValueError as error:
            problems.append(Problem(word, str(error)))
            continue
        if setting and setting.key in settings:
            message = f"{setting.key} is given twice; write it once, with all values that are compared"
            problems.append(Problem(word, message))
        elif setting:
            settings[setting.key] = setting
    if "zip" not in settings:  # then a value may repeat, since only pairs must differ
        problems += repeated_values(settings)
    return settings, problems


def read_word(word: str, groups: Groups, problems: list[Problem]) -> Setting | None:
    """The setting that a word stands for; of several choices of a group, wrong ones are reported and left out.  Raises
    ValueError."""
    typed_key, equals, text = word.partition("=")
    key = typed_key.lstrip("+")
    if key.startswith("~"):
        raise ValueError("nothing can be taken out of the model; choose a variant, such as none where there is one")
    if not equals:
        raise ValueError(f"must be key=value; {instead_of_word(word)}")
    refuse_unknown_key(key, groups)
    adds = typed_key != key
    if key in groups.variants and key != "track":
        texts = texts_of_choices(key, text, groups)
        choices = read_values(key, texts, groups, problems)
        # A sweep also if only one of its choices is right.
        return Setting(key, choices, word, swept=len(texts) > 1) if choices else None
    override = parse_override(key, text)
    if override.is_sweep_override():
        refuse_sweep(key, text)
        return Setting(key, swept_values(override, text), word, swept=True, adds=adds)
    value = override.value()
    return Setting(key, [services_of(value, groups) if key == "track" else value], word, adds=adds)


def key_of(word: str) -> str:
    """The key of a word, of +norm=rms as of norm=rms."""
    return word.partition("=")[0].lstrip("+")


def repeated_values(settings: dict[str, Setting]) -> list[Problem]:
    """Problems of sweeps that have a value twice."""
    problems = []
    for setting in settings.values():
        texts = [str(value) for value in setting.values]
        if len(set(texts)) < len(texts):
            problems.append(Problem(setting.text, "has a value twice; write each once"))
    return problems


def refuse_unknown_key(key: str, groups: Groups) -> None:
    """Raise ValueError for a key that no configuration has."""
    section = key.partition(".")[0]
    if key in STUDY_FILE_KEYS:
        raise ValueError(
            "belongs in a study file, DIR/experiment/NAME.yaml; --config-dir DIR +experiment=NAME trains it"
        )
    if section not in (*groups.variants, *KEYS, "experiment"):
        raise ValueError(unknown_section(key, groups))


def parse_override(key: str, text: str) -> Override:
    """A setting as Hydra's grammar reads it.  Raises ValueError."""
    try:
        return parser().parse_override(f"{key}={text}")
    except (HydraException, ValueError, RecursionError):
        raise ValueError(UNREADABLE) from None


def plain_value(value: Any) -> Any:
    """A value of a sweep as plain data, without Hydra's type of quoted text."""
    if isinstance(value, list):
        return [plain_value(item) for item in value]
    if isinstance(value, dict):
        return {plain_value(key): plain_value(item) for key, item in value.items()}
    return value.text if isinstance(value, QuotedString) else value


def swept_values(override: Override, text: str) -> list[Any]:
    """The values of a sweep.  Raises ValueError for too many, and for a random order."""
    sweep = override.value()
    if text.startswith("shuffle(") or getattr(sweep, "shuffle", False):
        raise ValueError("has another order, so another reference, each time; write the values in order")
    if override.value_type in (ValueType.INTERVAL_SWEEP, ValueType.GLOB_CHOICE_SWEEP):
        raise ValueError("has no values of its own; write them, or range(START,STOP,STEP)")
    values = [plain_value(value) for value in itertools.islice(override.sweep_iterator(), MOST + 1)]
    if len(values) > MOST:
        raise ValueError(f"has too many values; a sweep has at most {MOST:,}")
    if not values:
        raise ValueError("has no values")
    return values


def refuse_sweep(key: str, text: str) -> None:
    """Raise ValueError if a key takes one value."""
    if key == "track":
        raise ValueError(SERVICES)
    if key in LISTS:
        values = text.replace("[", "").replace("]", "")  # of several lists
        raise ValueError(f"would be a sweep of {key}, which takes a list; write {key}=[{values}]")
    if not takes_sweep(key):
        raise ValueError(f"{key} belongs to the whole study and takes one value")


def read_values(key: str, values: Iterable[Any], groups: Groups, problems: list[Problem], where: str = "") -> list[Any]:
    """The values of a key, of a group the choices that they stand for; wrong ones are reported and left out.  In a
    study file they stand at `where`."""
    read: list[Any] = []
    for value in values:
        try:
            if key == "track":
                read.append(services_of(value, groups))
            elif key in groups.variants:
                read.append(parse_choice(key, str(value), groups.variants))
            else:
                read.append(value)
        except ValueError as error:
            problems.append(Problem(f"{where}{key}={value}", str(error)))
    return read


def texts_of_choices(group: str, text: str, groups: Groups) -> list[str]:
    """The choices in `text`, what follows GROUP=, without quotes: ln,rms or glob(r*).  Raises ValueError."""
    call = HYDRA_FUNCTION.fullmatch(text.strip())
    if call and call[1] not in groups.variants[group]:  # a variant may be called `sort`
        return names_by_function(group, text.strip(), groups)
    texts = [part.strip() for part in split(text, ",")]
    if "" in texts:
        raise ValueError(UNREADABLE)
    if len(texts) == 1 and texts[0].startswith("["):
        names = split(texts[0][1:-1], ",")
        over_layers = f", to change it over the layers {group}={'+'.join(names)}" if group in PLACED else ""
        raise ValueError(f"takes one variant; to compare several write {group}={','.join(names)}{over_layers}")
    return [part[1:-1] if part[0] in "'\"" and part[-1] == part[0] else part for part in texts]


def names_by_function(group: str, text: str, groups: Groups) -> list[str]:
    """The variants that one of Hydra's functions names, as in glob(r*) or choice(ln,rms).  Raises ValueError."""
    override = parse_override(group, text)
    if override.value_type != ValueType.GLOB_CHOICE_SWEEP:
        return [str(value) for value in swept_values(override, text)]
    names: list[str] = override.value().filter([*groups.variants[group]])
    if not names:
        raise ValueError("matches no variant")
    # The others are compared with the first level, so the reference model's variant comes first.
    return sorted(names, key=lambda name: name != groups.defaults.get(group))


def services_of(value: Any, groups: Groups) -> Choice:
    """The tracking services that a value of `track` names: one, or a list.  Raises ValueError."""
    files = groups.variants["track"]
    names = [str(name) for name in value] if isinstance(value, list) else [str(value)]
    for name in names:
        if name not in files:
            which = f" {name!r}" if isinstance(value, list) else ""
            raise ValueError(f"no such track{which}; {instead(name, files)}")
    services = tuple(Variant(name, name, name) for name in names)
    if not isinstance(value, list):
        return Choice("track", names[0], services)
    if not names or "none" in names or len(set(names)) < len(names):
        raise ValueError(SERVICES)
    return Choice("track", f"[{','.join(names)}]", services, is_pattern=True)


UNREADABLE = (
    "cannot be read; close each bracket, leave no gap beside a comma, write - before negative numbers, "
    """and quote a text twice, as in "data.path='my file'\""""
)
SERVICES = "takes services, each named once, as in track=[wandb,tensorboard]; or none"
