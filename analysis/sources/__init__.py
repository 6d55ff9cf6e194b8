"""Sources of the runs to analyse: a study, logs of other programs or W&B; unreadable input is refused in one line.

`read` loads a study of ablate.  For runs of other programs, `files` (with `readers`) and `wandb_api` fill the two
tables of `logged.Logged`, `columns` and `design` decide what these mean, and `logged.study_of` makes them a study.
What nobody named and what is doubtful is proposed as a command, and not carried out.
"""

import dataclasses
import shlex
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from ablate.runs.kept_tables import holds_tables, read_tables
from ablate.runs.manifest import choose_study, refusing, studies, study_folder
from ablate.runs.study import Study, load_study

Levels = Annotated[list[str], msgspec.Meta(min_length=1)]


class StudyDescription(msgspec.Struct, frozen=True):
    """The content of a study file, as texts except for the margin; `factors` holds levels in order.  `at` is the point
    of a curve, or the levels at which claims are made."""

    study: Annotated[str, msgspec.Meta(pattern=r"^((?!-)(?=.*\w)[\w.-]{1,100})?$")] = ""
    question: str = ""
    factors: dict[str, Levels] = {}
    reference: dict[str, str] = {}
    design: str = ""
    margin: Any = None
    claims: Any = None
    at: Any = None
    seed: str = ""
    metric: str = ""
    better: Literal["", "lower", "higher"] = ""
    ends: Literal["", "common", "own"] = ""
    file: str = ""

    @property
    def metrics(self) -> list[str]:
        """The metrics that claims name, even if the claims are invalid."""
        claims = self.claims.values() if isinstance(self.claims, dict) else ()
        names: list[Any] = []
        for claim in claims:
            metric = claim.get("metric") if isinstance(claim, dict) else None
            names += metric if isinstance(metric, list) else [metric]
        return [name for name in names if isinstance(name, str)]


class Request(NamedTuple):
    """What the user named about imported runs; the rest is inferred.  `reference` maps factors to levels as texts.  The
    factors in `within` are not compared: effects are given at each of their levels.  `names` is a pattern of the runs'
    names with {fields}, which become columns.  `at` is the point of a curve that counts (last or best), `ends` says
    whether runs that end at different steps are compared at a common step or at their own ends (common or own)."""

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
    at: str = ""
    ends: str = ""
    described: StudyDescription = StudyDescription()  # by a study file; the command line takes precedence

    def with_study_file(self) -> "Request":
        """The request, with what the study file names and the command line does not."""
        file = self.described
        return self._replace(
            metrics=self.metrics or ((file.metric,) if file.metric else ()),
            lower=(file.better == "lower" if file.better else None) if self.lower is None else self.lower,
            seed_from=self.seed_from or file.seed,
            at=self.at or (file.at if isinstance(file.at, str) else ""),
            ends=self.ends or file.ends,
        )

    def command(self, flag: str, source: str) -> str:
        """The command line that makes this request of these runs."""
        reference = [f"{name}={level}" for name, level in self.reference]
        options = {
            "--factors": ",".join(self.factors),
            "--metric": ",".join(self.metrics),
            "--within": ",".join(self.within),
            "--reference": ",".join(reference),
            "--names": self.names,
            "--seed-from": self.seed_from,
            "--step-from": self.step_from,
            "--group": self.group,
            "--study": self.described.file,
        }
        words = ["ablate", "analyse", flag, source]
        for option, value in options.items():
            words += [option, value] if value else []
        if self.lower is not None:
            words.append("--lower" if self.lower else "--higher")
        if self.unpaired:
            words.append("--unpaired")
        words += [f"{key}={value}" for key, value in (("at", self.at), ("ends", self.ends)) if value]
        return shlex.join(words)


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
