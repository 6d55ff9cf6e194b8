"""The content of `experiments/`: study files, and the tables of those that were trained."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas
from common import by_value

from ablate import evidence
from ablate.config.errors import Refused
from ablate.config.files import read_plain
from ablate.config.groups import groups
from ablate.config.schema import NAMED
from ablate.runs.kept_tables import holds_tables, read_tables
from ablate.runs.manifest import refusing
from ablate.runs.records import Manifest
from analysis import figures
from analysis.case import Case, case_of
from analysis.figures.kind import MOST
from analysis.writing import tables
from analysis.writing.sheet import Sheet

RESULTS = Path("experiments") / "results"
BY_HAND = "finding.md"
FIGURES = "figures"  # the generated folder next to a study's tables
SHEETS = ("claims", "effects", "ladder", "speed", "cells")


@dataclasses.dataclass(frozen=True)
class Trained:
    """A study with tables: its case, and the hand-written paragraph, if any."""

    case: Case
    words: str

    @property
    def manifest(self) -> Manifest:
        """Its manifest."""
        return self.case.study.manifest

    @property
    def name(self) -> str:
        """The name of its folder."""
        return self.case.folder.name

    @property
    def command(self) -> str:
        """The command that trains it: that of its study file if unchanged, else the full one."""
        manifest = self.manifest
        plain = f"{manifest.experiment}-{manifest.tier}" if manifest.tier else manifest.experiment
        return command(str(manifest.experiment), manifest.tier) if self.name == plain else manifest.command

    @functools.cached_property
    def plotted(self) -> dict[str, pandas.DataFrame]:
        """The table of each figure by name: the one that reproduces the paper's, then mirror, effects (unless they are
        many that nothing is concluded from) and claims."""
        many = evidence.described(self.manifest) and len(evidence.headline(self.case.effects)) > MOST
        names = [self.manifest.figure, "mirror", *["effects"] * (not many), "claims"]
        wanted = [name for name in dict.fromkeys(names) if name]
        found = figures.tables(self.case, dataclasses.replace(figures.edits(self.case), figures=wanted))
        return {name: found[name] for name in wanted if name in found}

    @functools.cached_property
    def sheets(self) -> list[Sheet]:
        """The tables for reading that are written next to the figures."""
        return [each for each in tables.sheets(self.case) if each.name in SHEETS]


class StudyFile(NamedTuple):
    """A study file: its name, question, published result, tiers, and trained studies."""

    name: str
    question: str
    published: str
    tiers: list[str]
    trained: list[Trained]

    @property
    def missing(self) -> list[str]:
        """The commands that train the tiers without tables."""
        there = {each.manifest.tier for each in self.trained}
        return [command(self.name, tier) for tier in (None, *self.tiers) if tier not in there]


def lacking(factors: Mapping[str, Sequence[object]]) -> str:
    """The variants missing from a study of every component: "ffn=none; attention=mla"; "" for other studies."""
    known, missing = groups(), []
    if not set(NAMED) <= factors.keys():
        return ""
    for group in NAMED:
        lacks = [name for name in known[group] if name not in factors[group]]
        missing += [f"{group}={', '.join(lacks)}"] * bool(lacks)
    return "; ".join(missing)


def command(name: str, tier: str | None = None) -> str:
    """The command that trains a study file, or one of its tiers."""
    return f"ablate +experiment={name}" + f" tier={tier}" * bool(tier)


def study_files(root: Path) -> list[StudyFile]:
    """The study files of a checkout in the order of `make studies`, then tables without a study file.  Raises
    `Refused` and `Corrupt` if a folder's study is incomplete."""
    folder = root / RESULTS
    every = [trained_in(each) for each in sorted(folder.iterdir()) if each.is_dir()] if folder.is_dir() else []
    files = {file.stem: read_plain(file) for file in sorted((root / "experiments").glob("*.yaml"))}
    of_none = [each for each in every if each.manifest.experiment not in files]
    found = [_study_file(name, files[name] or {}, every) for name in by_value(files)]
    return found + [StudyFile(each.name, each.manifest.question or "", "", [], [each]) for each in of_none]


def _study_file(name: str, content: dict[str, Any], every: list[Trained]) -> StudyFile:
    trained = [each for each in every if each.manifest.experiment == name]
    trained.sort(key=lambda each: (each.manifest.tier or "", each.name))
    question, published = (" ".join(str(content.get(key) or "").split()) for key in ("question", "published"))
    return StudyFile(name, question, published, list(content.get("tiers") or {}), trained)


def trained_in(folder: Path) -> Trained:
    """The study whose tables a folder holds.  Raises `Refused` and `Corrupt` if they are incomplete."""
    if not holds_tables(folder):
        raise Refused(f"{folder} holds no tables of a study; remove it, or write them anew with make studies")
    words = folder / BY_HAND
    try:
        text = words.read_text(encoding="utf-8").strip() if words.exists() else ""
    except UnicodeDecodeError:
        raise Refused(f"{words} is no text in UTF-8") from None
    with refusing(folder):
        return Trained(case_of(read_tables(folder), folder), text)
