"""The content of `experiments/`: study files, and the tables of those that were trained."""

import dataclasses
import functools
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

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
from analysis.writing import tables
from analysis.writing.tables import Table
from gallery.answers import answer_of

RESULTS = Path("experiments") / "results"
BY_HAND = "finding.md"  # what people wrote about a study, beside its tables
CROWDED = 24  # effects above which a forest of them is not shown unless they are tested
ANSWER = "Answer:"  # how the first line of that begins, if it is the answer to the study's question
FIGURES = "figures"  # the generated folder beside a study's tables
SHEETS = ("claims", "effects", "ladder", "speed", "cells")


@dataclasses.dataclass(frozen=True)
class Trained:
    """A study with tables: its case, and what people wrote about it, if anything: an answer in one line, and a text."""

    case: Case
    written_answer: str
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
        name = f"{manifest.experiment}-{manifest.tier}" if manifest.tier else manifest.experiment
        if self.name == name:
            return command(str(manifest.experiment), manifest.tier)
        return manifest.command

    @property
    def answer(self) -> str:
        """The answer to its question in one line; the verdicts, as long as nobody has written one."""
        return self.written_answer or answer_of(self.case)

    @functools.cached_property
    def plotted(self) -> dict[str, pandas.DataFrame]:
        """The table of each figure by name: the one that reproduces the paper's, then mirror, effects (unless they are
        many, and none is tested) and claims."""
        names = [self.manifest.figure, "mirror"]
        is_crowded = len(evidence.headline(self.case.effects)) > CROWDED
        if not (is_crowded and evidence.described(self.manifest)):
            names.append("effects")
        names.append("claims")
        wanted = [name for name in dict.fromkeys(names) if name]
        edits = dataclasses.replace(figures.edits(self.case), figures=wanted)
        drawable = figures.tables(self.case, edits)
        return {name: drawable[name] for name in wanted if name in drawable}

    @functools.cached_property
    def sheets(self) -> list[Table]:
        """The tables for reading that are written beside the figures."""
        return [sheet for sheet in tables.tables(self.case) if sheet.name in SHEETS]


@dataclasses.dataclass(frozen=True)
class StudyFile:
    """A study file: its name, question, published result, tiers, and the studies that were trained from it."""

    name: str
    question: str
    published: str
    tiers: list[str]
    trained: list[Trained]

    @property
    def missing(self) -> list[str | None]:
        """The tiers without tables; None is the study without a tier."""
        trained = {study.manifest.tier for study in self.trained}
        return [tier for tier in (None, *self.tiers) if tier not in trained]


def missing_variants(factors: Mapping[str, Sequence[object]]) -> str:
    """The variants missing from a study of every component, "ffn=none; attention=mla"; empty for other studies."""
    if not set(NAMED) <= factors.keys():
        return ""
    missing = []
    for group in NAMED:
        names = [name for name in groups()[group] if name not in factors[group]]
        if names:
            missing.append(f"{group}={', '.join(names)}")
    return "; ".join(missing)


def command(name: str, tier: str | None = None) -> str:
    """The command that trains a study file, or one of its tiers."""
    return f"ablate +experiment={name} tier={tier}" if tier else f"ablate +experiment={name}"


def study_files(root: Path) -> list[StudyFile]:
    """The study files of a checkout in the order of `make studies`, then tables without a study file.  Raises
    `Refused` and `Corrupt` if a folder's study is incomplete."""
    folder = root / RESULTS
    studies = []
    if folder.is_dir():
        studies = [trained_in(path) for path in sorted(folder.iterdir()) if path.is_dir()]
    contents = {path.stem: read_plain(path) or {} for path in sorted((root / "experiments").glob("*.yaml"))}
    files = [study_file(name, contents[name], studies) for name in by_value(contents)]
    for study in studies:
        if study.manifest.experiment not in contents:
            files.append(StudyFile(study.name, study.manifest.question or "", "", [], [study]))
    return files


def study_file(name: str, content: dict[str, Any], studies: list[Trained]) -> StudyFile:
    """The study file of a name and content, with those of `studies` that were trained from it."""
    trained = [study for study in studies if study.manifest.experiment == name]
    trained.sort(key=lambda study: (study.manifest.tier or "", study.name))
    question = " ".join(str(content.get("question") or "").split())
    published = " ".join(str(content.get("published") or "").split())
    return StudyFile(name, question, published, list(content.get("tiers") or {}), trained)


def trained_in(folder: Path) -> Trained:
    """The study whose tables a folder holds.  Raises `Refused` and `Corrupt` if they are incomplete."""
    if not holds_tables(folder):
        raise Refused(f"{folder} holds no tables of a study; remove it, or write them anew with make studies")
    file = folder / BY_HAND
    try:
        words = file.read_text(encoding="utf-8").strip() if file.exists() else ""
    except UnicodeDecodeError:
        raise Refused(f"{file} is no text in UTF-8") from None
    first, _, rest = words.partition("\n")
    answer = ""
    if first.startswith(ANSWER):
        answer = first.removeprefix(ANSWER).strip()
        words = rest.strip()
    with refusing(folder):
        return Trained(case_of(read_tables(folder), folder), answer, words)
