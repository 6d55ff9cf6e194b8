"""Sources of the runs to analyse: a study, logs of other programs or W&B; unreadable input is refused in one line.

`read` loads a study of ablate.  For runs of other programs, readers (`files`, `wandb_api`) fill the two
tables of `logged.Logged`; `columns` and `design` infer their meaning, and `logged.study_of` makes them a study.
"""

import dataclasses
import shlex
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import msgspec

from ablate.runs.kept_tables import holds_tables, read_tables
from ablate.runs.manifest import choose_study, refusing, studies, study_folder
from ablate.runs.study import Study, load_study

Levels = Annotated[list[str], msgspec.Meta(min_length=1)]


class StudyDescription(msgspec.Struct, frozen=True):
    """The content of a study file, as texts except for the margin; `factors` holds levels in order."""

    study: Annotated[str, msgspec.Meta(pattern=r"^((?!-)(?=.*\w)[\w.-]{1,100})?$")] = ""
    question: str = ""
    factors: dict[str, Levels] = {}
    reference: dict[str, str] = {}
    design: str = ""
    margin: Any = None
    claims: Any = None
    at: Any = None
    file: str = ""

    @property
    def metrics(self) -> list[str]:
        """The metrics that claims name, even if the claims are invalid."""
        claims = self.claims.values() if isinstance(self.claims, dict) else ()
        given = [claim.get("metric") for claim in claims if isinstance(claim, dict)]
        named = [metric for each in given for metric in (each if isinstance(each, list) else [each])]
        return [metric for metric in named if isinstance(metric, str)]


class Request(NamedTuple):
    """What the command line specifies about imported runs; the rest is inferred.  `reference` maps factors to levels as
    texts.  The factors in `within` are not compared: effects are given at each of their levels.  `names` is a pattern
    of the runs' names with {fields}, which become columns."""

    factors: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    lower: bool | None = None
    reference: tuple[tuple[str, str], ...] = ()
    within: tuple[str, ...] = ()
    unpaired: bool = False
    group: str = ""
    names: str = ""
    seed_from: str = ""
    step_from: str = ""
    described: StudyDescription = StudyDescription()  # by a study file; the command line takes precedence

    def command(self, flag: str, source: str) -> str:
        """The command line that repeats this analysis of these runs."""
        lists = {"--factors": self.factors, "--metric": self.metrics, "--within": self.within}
        lists |= {"--reference": tuple(map("=".join, self.reference))}
        options = {name: ",".join(words) for name, words in lists.items()}
        options |= {"--names": self.names, "--seed-from": self.seed_from, "--step-from": self.step_from}
        options |= {"--group": self.group, "--study": self.described.file}
        given = [word for pair in options.items() if pair[1] for word in pair]
        way = [] if self.lower is None else ["--lower" if self.lower else "--higher"]
        return shlex.join(["ablate", "analyse", flag, source, *given, *way, *["--unpaired"] * self.unpaired])


def read(results: Path, name: str | None) -> Study:
    """The study called `name`, or with tables in the folder `name`; by default the newest.  Raises `Refused`."""
    if name and holds_tables(Path(name)) and name not in studies(results):
        return read_saved(Path(name))
    chosen = choose_study(results, name)
    with refusing(study_folder(results, chosen)):
        study = load_study(results, chosen)
    notes = [note.replace(f"{results}/", "") for note in study.notes]  # no local paths in reports
    return dataclasses.replace(study, notes=notes)


def read_saved(folder: Path) -> Study:
    """The study whose tables are saved in a folder.  Raises `Refused`."""
    with refusing(folder):
        return read_tables(folder)
