"""Which runs to analyse: a study of ablate, or runs of other programs from files or W&B.

For the latter, `files` (with `readers`) and `wandb_api` fill the two tables of `logged`, `roles` says what their
columns are, `points` which point of each curve counts, and `design` how the configurations are compared; `study` makes
a study of these.  What nobody named and what is doubtful is proposed as a command, and not carried out.
"""

import dataclasses
import shlex
from pathlib import Path
from typing import Any, NamedTuple

from ablate.config.errors import Refused
from ablate.runs.kept_tables import holds_tables, read_tables
from ablate.runs.manifest import choose_study, refusing, studies, study_folder
from ablate.runs.study import Study, load_study


class Request(NamedTuple):
    """What the user named about runs of other programs; the rest is proposed.

    source      the option and the value that name the runs: ("--runs", "runs.csv")
    factors     what is compared
    metrics     the metric to compare by; further ones are kept
    lower       whether less of it is better
    reference   pairs of factor and level, as texts
    margin      the difference that does not matter, in the metric's unit
    unpaired    runs of one seed share nothing, or there are no seeds
    group       of W&B, the group of runs
    names       a pattern of the runs' names with {fields}, which become columns
    seed_from, step_from   the columns of seed and step
    at          the point of a curve that counts: last or best
    ends        where runs that end at different steps are compared: common or own
    """

    source: tuple[str, str] = ("--runs", "")
    factors: tuple[str, ...] = ()
    metrics: tuple[str, ...] = ()
    lower: bool | None = None
    reference: tuple[tuple[str, str], ...] = ()
    margin: float | None = None
    unpaired: bool = False
    group: str = ""
    names: str = ""
    seed_from: str = ""
    step_from: str = ""
    at: str = ""
    ends: str = ""

    @property
    def command(self) -> str:
        """The command line that makes this request."""
        options = {
            "--factors": ",".join(self.factors),
            "--metric": ",".join(self.metrics),
            "--reference": ",".join(f"{name}={level}" for name, level in self.reference),
            "--margin": self.margin,
            "--names": self.names,
            "--seed-from": self.seed_from,
            "--step-from": self.step_from,
            "--group": self.group,
        }
        words = ["ablate", "analyse", *self.source]
        for option, value in options.items():
            if value:
                words += [option, str(value)]
        flags = {
            "--lower": self.lower is True,
            "--higher": self.lower is False,
            "--unpaired": self.unpaired,
            f"at={self.at}": self.at,
            f"ends={self.ends}": self.ends,
        }
        return shlex.join([*words, *(flag for flag, is_named in flags.items() if is_named)])

    def refusal(self, why: str, **named: Any) -> Refused:
        """An error that ends with the command to write instead: this one with what is `named`."""
        return Refused(f"{why}; write: {self._replace(**named).command}")


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
