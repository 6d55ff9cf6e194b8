"""A command line with the study file that it names: one setting for each key, and what else the file holds."""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import re
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ablate.config.errors import Corrupt, PlanError, Problem
from ablate.config.files import calls, read_plain
from ablate.config.groups import COMMENTS, CONF, EXPERIMENTS, Groups, comments, read_groups
from ablate.config.groups import groups as built_in_groups
from ablate.config.study_file import RUNNING, SAME_STUDY, StudyFile, is_one_of, quoted, read_study_file
from ablate.config.words import Setting, key_of, read_words
from ablate.formatting import instead

Settings = dict[str, Setting]


@dataclass(frozen=True)
class Command:
    """The settings of a command line and of its study file."""

    words: Sequence[str]
    groups: Groups
    settings: Settings
    study_file: StudyFile | None = None
    changed: bool = False  # whether the command line or the tier changes the file's study
    digest: str = ""  # of all settings, claims and criteria of a file: tells whether it was edited since it was planned

    @property
    def typed(self) -> str:
        """The command as the user would type it."""
        swept = any(key_of(word) in self.swept for word in self.words)
        folder = ["--config-dir", self.groups.folder] if self.groups.folder else []
        return shlex.join(["ablate", *(["-m"] if swept else []), *folder, *self.words])

    @property
    def swept(self) -> list[str]:
        """The swept keys."""
        return [key for key, setting in self.settings.items() if setting.swept]

    def placed(self, problem: Problem) -> Problem:
        """A problem, with the file's name before the key if the study file sets that key."""
        setting = self.settings.get(key_of(problem.key))
        if setting is None or not setting.file:
            return problem
        return Problem(f"{setting.file}: {problem.key}", problem.message)

    @contextlib.contextmanager
    def naming_study_file(self) -> Iterator[None]:
        """Have the problems of keys that the study file sets name that file."""
        try:
            yield
        except PlanError as error:
            raise PlanError([self.placed(problem) for problem in error.problems]) from None


def read_command(words: Sequence[str], config_dir: str | None) -> tuple[Command, list[Problem]]:
    """A command line, and all that is wrong with its words, its study file and the user's folder.  Raises PlanError for
    a folder with wrong variants."""
    is_missing = config_dir is not None and not (config_dir and Path(config_dir).is_dir())
    groups = read_groups(None if is_missing else config_dir)
    wrong = list(folder_problems(groups))
    if wrong:
        raise PlanError(wrong)
    problems = [Problem("--config-dir", f"{config_dir!r} is not a folder")] if is_missing else []
    settings, misread = read_words(words, groups)
    command, wrong_file = with_study_file(words, groups, settings)
    return command, [*problems, *wrong_file, *misread]


def with_study_file(words: Sequence[str], groups: Groups, typed: Settings) -> tuple[Command, list[Problem]]:
    """A command whose settings replace those of the study file that it names, and what is wrong with the file."""
    typed = dict(typed)
    experiment = typed.pop("experiment", None)
    command = Command(words, groups, typed)
    tier = typed["tier"].value if "tier" in typed else None
    if experiment is None:
        message = "is one of a study file's tiers; write +experiment=NAME, too"
        return command, [Problem(typed["tier"].text, message)] if tier else []
    name = str(experiment.value)
    if name not in groups.studies:
        return command, [Problem(experiment.text, f"no such study file; {instead(name, groups.studies)}")]
    study_file, problems = read_study_file(name, groups)
    if study_file is None:
        return command, problems
    if tier and tier not in study_file.tiers:
        message = f"{study_file.file} has no such tier; {instead(str(tier), study_file.tiers)}"
        problems.append(Problem(f"tier={tier}", message))
    tier_settings = study_file.tiers.get(str(tier), {})
    settings = study_file.settings | tier_settings
    changes = sorted(setting.text for key, setting in typed.items() if not is_one_of(key, SAME_STUDY))
    if tier or changes or "study" not in settings:
        settings["study"] = named_study(study_file, tier, changes)
    file_keys = set(settings)
    settings |= typed  # keeps the file's order of keys, and so of factors
    digest = digest_of(study_file, settings, file_keys)
    is_changed = bool(changes or tier_settings)
    return Command(words, groups, settings, study_file, is_changed, digest), problems


def named_study(study_file: StudyFile, tier: str | None, changes: list[str]) -> Setting:
    """The name of a study that a tier or the command line changes, or whose file gives it none."""
    written = study_file.settings.get("study")
    name = str((written and written.value) or study_file.name)
    if tier:
        name += f"-{tier}"
    if changes:
        name += "-" + hashlib.sha256("\n".join(changes).encode()).hexdigest()[:6]
    return Setting("study", [name], f"study={quoted(name)}", file=study_file.file)


def digest_of(study_file: StudyFile, settings: Settings, file_keys: set[str]) -> str:
    """A digest of all settings, claims and criteria that decide what a study's runs and verdicts are."""
    texts = [setting.text for key, setting in settings.items() if key in file_keys or not is_one_of(key, RUNNING)]
    whole: list[Any] = [sorted(texts), {name: claim.as_json() for name, claim in study_file.claims.items()}]
    if study_file.replicated:
        whole.append(study_file.replicated.as_json())
    return hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:16]


NOT_READ = ("hydra", "schema.yaml", "config.yaml", "names.yaml", "names.yml")  # of a user's folder


def folder_problems(groups: Groups) -> Iterator[Problem]:
    """What a user's folder must not hold: files that are no variants or study files, names of built-in ones."""
    if groups.folder is None:
        return
    folder = Path(groups.folder)
    for name in NOT_READ:
        if (folder / name).exists():
            elsewhere = "settings of Hydra belong on the command line, names of settings in figures.yaml"
            yield Problem(str(folder / name), f"is not read; {elsewhere}; take it away")
    known = [*built_in_groups(), "experiment"]
    for file in sorted(folder.glob("*/*.y*ml")):
        group = file.parent.name
        built_in = EXPERIMENTS if group == "experiment" else CONF / group
        if group not in known:
            yield Problem(str(file), f"{group} is no group of components; {instead(group, known)}")
        elif file.suffix != ".yaml":
            yield Problem(str(file), f"is not read; name it {file.stem}.yaml")
        elif (built_in / file.name).exists():
            yield Problem("--config-dir", f"{file} has the name of a variant or a study of ablate's; give it another")
        elif group != "experiment":
            yield from variant_problems(file)


def variant_problems(file: Path) -> Iterator[Problem]:
    """What is wrong with the YAML of a user's variant."""
    if not VARIANT.fullmatch(file.stem):
        yield Problem(str(file), "must have a name of letters, digits, _ and -, the first a letter; rename it")
    try:
        content = read_plain(file) or {}
    except Corrupt as error:
        yield Problem("", str(error))
        return
    for word, _ in comments(file):
        meant = difflib.get_close_matches(word, COMMENTS, 1, 0.7)  # other words may begin a comment, too
        if meant and word not in COMMENTS:
            yield Problem(str(file), f"has a comment # {word}:, which is not read; did you mean # {meant[0]}:?")
    call = calls(content)
    if call:
        yield Problem(str(file), f"{call!r} calls a resolver; write the value")
    if not isinstance(content, dict):
        yield Problem(str(file), "must be a mapping; write settings and their values, as in eps: 1.0e-5")
        return
    if "hydra" in content:
        yield Problem(str(file), "sets hydra; Hydra's own settings belong on the command line")
    defaults = content.get("defaults") or []
    for entry in defaults if isinstance(defaults, list) else [defaults]:
        if not is_checked(entry):
            yield Problem(str(file), f"has the default {entry!r}, which is no variant; name a file of its own folder")


VARIANT = re.compile(r"[^\W\d_][\w-]*")  # the name of a variant; others would be patterns over the layers


def is_checked(entry: Any) -> bool:
    """Whether an entry of a defaults list is NAME or [override] /GROUP[@PACKAGE]: NAME, whose file is checked, too."""
    group, name = next(iter(entry.items()), ("", "")) if isinstance(entry, dict) else ("", entry)
    is_group = re.fullmatch(r"((optional |override )*/\w+(@[\w.]+)?)?", str(group))
    return bool(is_group and re.fullmatch(r"(/\w+/)?\w[\w-]*(@[\w.]+)?", str(name)))
