"""Parses a command line: the groups on disk, the study file that it names, fixed and swept overrides."""

from __future__ import annotations

import dataclasses
import functools
import hashlib
import itertools
import json
import re
import shlex
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from omegaconf import OmegaConf
from omegaconf.errors import OmegaConfBaseException
from yaml import YAMLError

from ablate.config.claims import Claim, Criterion, level, read_claims, read_criterion
from ablate.config.depth import level_names, split_settings
from ablate.config.designs import RUNG
from ablate.config.errors import Corrupt, PlanError, Problem
from ablate.config.files import calls, read_plain
from ablate.config.groups import CONF, EXPERIMENTS, Groups, figures, named_elsewhere, read_groups
from ablate.config.ladder import levels_of_rungs
from ablate.config.mirror import Mirror, read_mirror
from ablate.config.overrides import chosen, key_of, parse, quoted
from ablate.config.removed import removed
from ablate.config.schema import KEYS, PACE, Config
from ablate.formatting import flat, grouped, instead, nearest


@dataclasses.dataclass(frozen=True)
class Command:
    """A parsed command line; later stages need neither its words nor the folders."""

    words: tuple[str, ...]
    groups: Groups
    request: StudyRequest
    fixed: list[str]  # overrides of one value
    swept: dict[str, list[str]]  # the overrides of each swept key's levels
    problems: list[Problem]

    @functools.cached_property
    def beside(self) -> dict[str, dict[str, str]]:
        """The overrides that come with a choice, by the choice's override and their keys."""
        found = {}
        for text in self.choices_with_settings():
            group = key_of(text)
            _, others = split_settings(group, chosen(text), self.groups.variants[group])
            if others:
                found[text] = {name: f"{self.groups.plus(name)}{name}={value}" for name, value in others}
        return found

    def choices_with_settings(self) -> list[str]:
        """The overrides, fixed or swept, that choose a variant with settings in parentheses: norm=group(groups=8)."""
        texts = [*self.fixed, *itertools.chain.from_iterable(self.swept.values())]
        return [text for text in texts if "(" in text and key_of(text) in self.groups.variants]

    def with_level_names(self, choices: dict[str, str]) -> dict[str, str]:
        """The choice of each group by its level's name: without the settings of other groups that come with it, as in
        dyt(model.scale_embeddings=true), if the name alone tells the levels apart."""
        names = dict(choices)
        for group, choice in choices.items():
            if "(" not in choice:
                continue
            levels = [chosen(text) for text in self.swept.get(group, [])]
            if not levels:  # the group is not swept: its choice is the only level
                levels = [choice]
            name_of = level_names(group, levels, self.groups.variants[group])
            names[group] = name_of.get(choice, choice)
        return names

    @property
    def typed(self) -> str:
        """The command as the user would type it."""
        swept = any(key_of(word) in self.swept for word in self.words)
        folder = ["--config-dir", self.groups.folder] if self.groups.folder else []
        return shlex.join(["ablate", *(["-m"] * swept), *folder, *self.words])

    @property
    def given(self) -> set[str]:
        """The keys that the command line sets itself, without those of its study file."""
        return {*map(key_of, self.request.overrides)} - self.request.of_file


def read_command(words: Sequence[str], config_dir: str | None) -> Command:
    """Parse a command line; its mistakes are in `problems`.  Raises PlanError for a folder with wrong variants."""
    lost = config_dir is not None and not (config_dir and Path(config_dir).is_dir())
    groups = read_groups(None if lost else config_dir)
    variants = [file for file in groups.own if file.parent.name != "experiment"]  # study files are read separately
    if wrong := list(_folder_problems(groups, variants)):
        raise PlanError(wrong)
    request = read_study(list(words), groups)
    fixed, swept, misread = parse(request.overrides, groups)
    # A user's file with the name of a built-in variant or study would shadow it.
    own = {file: EXPERIMENTS if file.parent.name == "experiment" else CONF / file.parent.name for file in groups.own}
    same = [file for file, folder in own.items() if (folder / file.name).exists()]
    message = "has the name of a variant or a study of ablate's; give it another"
    problems = [Problem("--config-dir", f"{file} {message}") for file in same]
    problems += [Problem("--config-dir", f"{config_dir!r} is not a folder")] * lost
    return Command(tuple(words), groups, request, fixed, swept, [*problems, *request.problems, *misread])


def _folder_problems(groups: Groups, files: Iterable[Path]) -> Iterator[Problem]:
    """What a user's folder must not hold: Hydra's settings, unreadable files, and files that are no variants."""
    if groups.folder is None:
        return
    folder = Path(groups.folder)
    if (folder / "hydra").exists():
        yield Problem(str(folder / "hydra"), "Hydra's own settings belong on the command line; take the folder away")
    for file in (folder / "schema.yaml", folder / "config.yaml"):
        if file.exists():
            yield Problem(str(file), "has the name of a file of ablate's; give it another")
    for file in files:
        try:
            found = read_plain(file)
        except Corrupt as error:
            yield Problem("", str(error))
            continue
        if found is not None and not isinstance(found, dict):
            yield Problem(str(file), "must be a mapping; write settings and their values, as in eps: 1.0e-5")
        if call := calls(found):
            yield Problem(str(file), f"{call!r} calls a resolver; write the value")
        if isinstance(found, dict) and "hydra" in found:
            yield Problem(str(file), "sets hydra; Hydra's own settings belong on the command line")
        if isinstance(found, dict) and (entry := _unchecked_default(found.get("defaults"))):
            yield Problem(str(file), f"has the default {entry!r}, which is no variant; name a file of its own folder")


def _unchecked_default(defaults: Any) -> str | None:
    """The first entry of a defaults list that is neither NAME nor /GROUP: NAME, as its file would not be checked."""
    for entry in defaults if isinstance(defaults, list) else [defaults] * (defaults is not None):
        key, name = next(iter(entry.items()), ("", "")) if isinstance(entry, dict) else ("", entry)
        parts = (str(part).removeprefix("override ").removeprefix("optional ") for part in (key, name))
        words = [part.partition("@")[0] for part in parts]
        if not re.fullmatch(r"(/\w+/)?\w[\w.-]*", "/".join(filter(None, words))):
            return f"{key}: {name}" if key else str(name)
    return None


TEXTS = {  # keys of a study file that do not affect its runs, and what each must be
    "question": "must be a sentence",
    "published": "must be a line of text, the published numbers as people read them",
    "figure": "must be the name of a kind of figure",
    "effects": "must be all: effects are judged beside the claims, too",
}
STUDY_FILE_KEYS = (*TEXTS, "factors", "claims", "at", "replicated", "mirror", "tiers")
REFUSED = {
    "hydra": "Hydra's own settings belong on the command line",
    "defaults": "a study file lists none; write groups as keys, such as norm: rms",
    "tier": "belongs on the command line: tier=NAME",
    "dry_run": "belongs on the command line",
    "results_dir": "belongs on the command line: a study file cannot choose where results are written",
    "user": "belongs on the command line, 'user=[my_package]': no file says which code runs",
}
# Keys on the command line that leave a file's study as it is: how it runs, and in SAME_STUDY also how large it is.
RUNNING = {"study", "tier", "dry_run", "results_dir", "reuse", "keep", "user", "track", "experiment"}
RUNNING |= {"allow_duplicates", *PACE}
SAME_STUDY = RUNNING | {"seeds", "seeds_max", "confirm", "eval", "margin"}


@dataclasses.dataclass(frozen=True)
class StudyRequest:
    """A command line merged with its study file: plain overrides, and the other entries of the file."""

    overrides: list[str]
    name: str | None = None
    file: str = ""
    kept: dict[str, str | Mirror | None] = dataclasses.field(default_factory=dict)  # entries of the manifest
    claims: dict[str, Claim] = dataclasses.field(default_factory=dict)
    replicated: Criterion | None = None
    changed: bool = False  # whether the command line or the tier changes the file's study
    problems: list[Problem] = dataclasses.field(default_factory=list)
    of_file: frozenset[str] = frozenset()  # keys that the file sets

    def placed(self, problem: Problem) -> Problem:
        """A problem, with the file's name before the key if the file sets that key."""
        in_file = key_of(problem.key) in self.of_file
        return Problem(f"{self.file}: {problem.key}", problem.message) if in_file else problem


def read_study(overrides: list[str], groups: Groups) -> StudyRequest:
    """Merge the command line with the study file that it names, if any, into plain overrides."""
    named = [text for text in overrides if key_of(text) == "experiment"]
    rest = [text for text in overrides if text not in named]
    if not named:
        tiers = [text for text in rest if key_of(text) == "tier" and text.partition("=")[2] not in ("", "null")]
        problems = [Problem(text, "is one of a study file's tiers; write +experiment=NAME, too") for text in tiers]
        meant = [text for text in rest if nearest(key_of(text), ["experiment"])]
        rest = [text for text in rest if text not in meant]
        return StudyRequest(rest, problems=problems + [Problem(text, "did you mean +experiment?") for text in meant])
    known, name = groups.studies, named[0].partition("=")[2]
    if len(named) > 1 or "," in name:
        return StudyRequest(rest, problems=[Problem(" ".join(named), "a study is one file; write one name")])
    if name not in known:
        return StudyRequest(rest, problems=[Problem(named[0], f"no such study file; {instead(name, known)}")])
    file = str(known[name]) if known[name] in groups.own else f"experiments/{name}.yaml"
    try:
        call, found = calls(read_plain(known[name])), OmegaConf.to_container(OmegaConf.load(known[name]))
    except Corrupt as error:
        return StudyRequest(rest, problems=[Problem("", str(error))])
    except (YAMLError, OmegaConfBaseException, OSError, UnicodeDecodeError) as error:
        return StudyRequest(rest, problems=[Problem(file, f"cannot be read ({' '.join(str(error).split())})")])
    if call:
        return StudyRequest(rest, problems=[Problem(file, f"{call!r} calls a resolver; write the value")])
    if not isinstance(found, dict):
        wrong = Problem(file, "must be a mapping; write keys and values, as in study: NAME")
        return StudyRequest(rest, problems=[wrong])
    content = {str(key): value for key, value in found.items()}
    return _merged(name, file, content, rest, Reader(file, groups))


def _is_one_of(key: str, keys: set[str]) -> bool:
    return key in keys or key.partition(".")[0] in keys


def _merged(name: str, file: str, content: dict[str, Any], rest: list[str], reader: Reader) -> StudyRequest:
    """A file's overrides, replaced by those of its tier and of the command line."""
    entries = reader.entries(content)
    factors = content.get("factors", {})
    known = factors.items() if isinstance(factors, dict) else ()
    written = {str(key): each for key, each in known if isinstance(each, list)}
    names = {key: reader.names(key, each) for key, each in written.items() if key in reader.groups}
    levels = {key: [*map(level, each)] for key, each in written.items()}  # that claims may name
    levels |= {key: [*each.values()] for key, each in names.items()}
    if content.get("design") == "ladder" and type(count := content.get("ladder", Config.ladder)) is int:
        levels[RUNG] = levels_of_rungs(min(count, 8))  # the most that the schema accepts
    named = with_names(content.get("claims", {}), names)
    claims, wrong = read_claims(named, levels, with_names(content.get("at"), names))
    replicated, unfit = read_criterion(content.get("replicated"), named if isinstance(named, dict) else ())
    mirror, unlike = read_mirror(with_names(content.get("mirror"), names), levels, entries)
    problems = [Problem(f"{file}: {problem.key}", problem.message) for problem in [*wrong, *unfit, *unlike]]
    given = grouped((key_of(text), text) for text in rest)
    tier = next((text.partition("=")[2] for text in given.get("tier", ()) if text.partition("=")[2] != "null"), None)
    kept, text_problems = _texts(file, content)
    effects = filter(None, [kept["effects"]])
    tiered, found = _tier(file, content.get("tiers", {}), tier, reader)
    changes = sorted(text for text in rest if not _is_one_of(key_of(text), SAME_STUDY))
    other = "-" + hashlib.sha256("\n".join(changes).encode()).hexdigest()[:6] if changes else ""
    own = {"study": f"study={quoted(str(content.get('study') or name) + f'-{tier}' * bool(tier) + other)}"}
    made = entries | (own if tier or other or "study" not in entries else {}) | tiered
    placed = [text for key, text in made.items() for text in given.get(key, [text])]
    typed = [text for key, texts in given.items() if key not in made for text in texts]
    more = [text for text in typed if not _is_one_of(key_of(text), RUNNING)]
    # A digest of all settings, claims and criteria tells whether the file was edited since the study was planned.
    needed = [replicated.as_json()] if replicated else []
    whole = [sorted([*placed, *more, *effects]), {name: claim.as_json() for name, claim in claims.items()}, *needed]
    asks = hashlib.sha256(json.dumps(whole).encode()).hexdigest()[:16]
    of_manifest = {"experiment": name, "asks": asks, "mirror": mirror, **kept}
    changed, of_file = bool(changes or tiered), frozenset(made.keys() - given.keys())
    problems = reader.problems + problems + text_problems + found
    return StudyRequest([*placed, *typed], name, file, of_manifest, claims, replicated, changed, problems, of_file)


def with_names(content: Any, names: dict[str, dict[str, str]]) -> Any:
    """A part of a study file with the levels of factors by their names, at any depth."""
    if isinstance(content, list):
        return [with_names(item, names) for item in content]
    if not isinstance(content, dict):
        return content
    found = {}
    for key, value in content.items():
        known = names.get(key, {})
        levels = value if isinstance(value, list) else [value]
        renamed = [known.get(item, item) if isinstance(item, str) else with_names(item, names) for item in levels]
        found[key] = renamed if isinstance(value, list) else renamed[0]
    return found


def _texts(file: str, content: dict[str, Any]) -> tuple[dict[str, str | None], list[Problem]]:
    given = {key: content[key] for key in TEXTS if content.get(key) is not None}
    problems = [Problem(f"{file}: {key}", TEXTS[key]) for key, text in given.items() if not isinstance(text, str)]
    found = {key: " ".join(text.split()) for key, text in given.items() if isinstance(text, str)}
    if (figure := found.get("figure")) and figure not in figures():
        why = removed(f"figure: {figure}") or f"no such figure; {instead(figure, figures())}"
        problems.append(Problem(f"{file}: figure", f"{figure}: {why}"))
    if found.get("effects", "all") != "all":
        problems.append(Problem(f"{file}: effects", TEXTS["effects"]))
    return dict.fromkeys(TEXTS) | found, problems


def _tier(file: str, tiers: Any, tier: str | None, reader: Reader) -> tuple[dict[str, str], list[Problem]]:
    """The overrides of the tier named on the command line; every tier of the file is checked."""
    if not isinstance(tiers, dict) or not all(isinstance(keys, dict) for keys in tiers.values()):
        return {}, [Problem(f"{file}: tiers", "must be a mapping of mappings; write tiers: {gpu: {scale: base}}")]
    found = {str(name): reader.entries(keys, f"tiers.{name}.") for name, keys in tiers.items()}
    if tier in (None, "null"):
        return {}, []
    if tier not in found:
        wanted = instead(str(tier), found) if tier != "cpu" else "leave tier out for what runs on a CPU"
        return {}, [Problem(f"tier={tier}", f"{file} has no such tier; {wanted}")]
    return found[tier], []


class Reader:
    """Turns the mappings of one file into overrides, one per key, and collects problems."""

    def __init__(self, file: str, groups: Groups):
        self.file, self.groups, self.plus = file, groups.variants, groups.plus
        self.top = {*KEYS, *groups.variants}
        self.problems: list[Problem] = []

    def entries(self, content: dict[str, Any], where: str = "") -> dict[str, str]:
        """Overrides by key: settings first, then factors, in the order of the file."""
        found: dict[str, str] = {}
        for key, value in content.items():
            if (key in STUDY_FILE_KEYS and (key == "factors" or not where)) or not self._is_known(str(key), where):
                continue
            for name, leaf in flat({str(key): value}).items():
                several = name == "track" and isinstance(leaf, list)
                if name in self.groups and not isinstance(leaf, str) and not several:
                    self._wrong(where + name, f"{value_text(leaf)} is not a variant; {instead('', self.groups[name])}")
                else:
                    self._add(found, name, f"{self.plus(name)}{name}={value_text(leaf)}", where)
        factors = content.get("factors", {})
        if not isinstance(factors, dict):
            self._wrong(f"{where}factors", "must be a mapping; write factors: {ffn: [mlp, swiglu]}")
            return found
        for key, levels in factors.items():
            if not isinstance(levels, list) or not levels:
                self._wrong(f"{where}factors.{key}", "must be a list of levels; write [first, second]")
            elif wrong := next((each for each in levels if not self._is_level(str(key), each)), None):
                what = f"a variant; {instead('', self.groups[key])}" if key in self.groups else "a level; write a value"
                self._wrong(f"{where}factors.{key}", f"{value_text(wrong)} is not {what}")
            elif self._is_known(str(key), f"{where}factors."):
                self._add(found, str(key), f"{self.plus(key)}{key}={','.join(map(value_text, levels))}", where)
        return found

    def names(self, group: str, levels: list[Any]) -> dict[str, str]:
        """The names of a group's levels, by what the file has."""
        return level_names(group, map(str, levels), self.groups[group])

    def _add(self, found: dict[str, str], key: str, text: str, where: str) -> None:
        if key in found:
            self._wrong(where + key, "is given twice; write it once")
        found[key] = text

    def _wrong(self, key: str, message: str) -> None:
        self.problems.append(Problem(f"{self.file}: {key}", message))

    def _is_known(self, key: str, where: str) -> bool:
        """Whether the first part of a key is known and allowed; else adds a problem."""
        top = key.partition(".")[0]
        if top in REFUSED:
            self._wrong(where + key, REFUSED[top])
        elif top not in self.top:
            there = sorted({*self.top, *STUDY_FILE_KEYS} - REFUSED.keys() - {"seed"})  # seedz means seeds
            self._wrong(where + key, removed(top) or f"no such key; {instead(top, there, named_elsewhere())}")
        return top in self.top and top not in REFUSED

    def _is_level(self, key: str, level: Any) -> bool:
        """Whether a level is valid for a key: a name for a group; a value or a list of values for any other key."""
        values = level if isinstance(level, list) and key not in self.groups else [level]
        return not any(isinstance(value, dict | list) for value in values)


def value_text(value: Any) -> str:
    """A value in Hydra's command-line grammar, which parses back to the same value."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(str(key))}: {value_text(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(value_text, value)) + "]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return quoted(value) if isinstance(value, str) else repr(value)
