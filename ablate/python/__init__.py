"""The Python interface of `import ablate`: plans, trains and reads studies, whose `repr` is what commands print.

    import ablate

    plan = ablate.plan("norm=ln,rms", "scale=tiny", seeds=2)    # what would be trained, and its cost
    study = ablate.run("norm=ln,rms", "scale=tiny", seeds=2)    # trains what is missing, with a live view
    study.effects, study.runs, study.curves                     # tables, with a column for each factor
    study.run("rms", seed=0).model()                            # a trained model
    model = ablate.build("norm=rms", "ffn=swiglu")              # an untrained one, without a study

Words are those of `ablate -m ...`, each a string.  Keys can also be keyword arguments with Python values: seeds=5,
norm=["ln", "rms"], **{"optim.lr": [1e-3, 3e-3]}; see `words_of`.
"""

from __future__ import annotations

import contextlib
import dataclasses
import functools
import os
import sys
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from pathlib import Path, PurePath
from types import FrameType
from typing import TYPE_CHECKING

from ablate import api, evidence
from ablate.cli.preview import preview
from ablate.cli.status import Poll, follow
from ablate.cli.summary import summary
from ablate.config.claims import level
from ablate.config.errors import PlanError, Problem, Refused
from ablate.config.program_keys import OF_EVERY_STUDY, word_of
from ablate.config.schema import WHOLE
from ablate.config.study_file import value_text
from ablate.config.targets import allowed_packages
from ablate.execution.signals import DiskFull
from ablate.formatting import instead
from ablate.planning import runs
from ablate.planning.program import plan_program
from ablate.runs import study as tables
from ablate.runs.kept_tables import holds_tables, read_tables
from ablate.runs.manifest import studies
from ablate.training.load import LoadedRun, load_run, untrained

if TYPE_CHECKING:
    import pandas
    from torch import nn

FIRST = ["label", "mean", "low", "high", "n", "verdict"]  # columns of effects that are read first
ONE_VALUE = (*WHOLE, "eval")  # sections and keys that cannot be swept, so that a list is a single value


def plan(*words: str, config_dir: str | None = None, **keys: object) -> Plan:
    """Compose and check every cell of a study, and count its runs; nothing is trained or written.

    `config_dir` is the folder of your own variants.  Raises PlanError, whose text is what the command line prints: a
    line for each mistake; `problems` has them by key.
    """
    return Plan(**vars(api.plan(words_of(words, keys), config_dir)))


def run(*words: str, config_dir: str | None = None, reporter: api.Reporter | None = None, **keys: object) -> Study:
    """Train the missing runs of a study, and return it.

    Ended runs are on disk, so after an interruption the same call continues.  Failed runs are rows with that status.
    A `reporter` replaces the live view.  Raises PlanError as `plan` does, and Refused if the results folder cannot
    be written or the disk is full.
    """
    planned = api.plan(words_of(words, keys), config_dir)
    if planned.dry_run:
        raise PlanError([Problem("dry_run", "trains nothing; ablate.plan(...) shows what would be trained")])
    return train(planned, reporter, planned.study.settings.user)


def command(text: str, *words: str, reporter: api.Reporter | None = None, **keys: object) -> Study:
    """Run the missing runs of a study of any program, and return it.

    `text` is the command with fields, as in `ablate command`; words and keys are its settings and options:
    `ablate.command("python train.py --bias={bias} --seed={seed}", bias=[True, False], metric="val/loss")`.  Raises
    PlanError with all mistakes, and Refused if the results folder cannot be written or the disk is full.
    """
    of_study = {key: value for key, value in keys.items() if key in OF_EVERY_STUDY}
    of_program = [program_word(key, value) for key, value in keys.items() if key not in of_study]
    return train(plan_program(text, [*words_of(words, of_study), *of_program]), reporter, user=[])


def train(planned: api.Plan, reporter: api.Reporter | None, user: Sequence[str]) -> Study:
    """Train what a plan lacks, and return its study.  Raises Refused."""
    try:
        study = api.train(planned, reporter or Notebook())
    except DiskFull as full:  # it ends a command, but must not end a notebook's kernel
        raise Refused(api.no_space(planned, full)) from None
    return Study(**vars(study), user=user)


def program_word(key: str, value: object) -> str:
    """A setting of a program, or an option, as a word: bias=true,false for a list of values."""
    values = value if isinstance(value, list | tuple | range) else [value]
    return word_of(key, [level(_plain(item)) for item in values])


def build(*words: str, config_dir: str | None = None, seed: int = 0, **keys: object) -> nn.Module:
    """The untrained model of one cell, on the CPU, with the initial values of its run with this seed; writes no study.

    Called with ids below `data`'s vocabulary, `tokens` (B, T), it returns logits (B, T, outputs), or (B, outputs) for
    classification; an encoder-decoder takes `source` (B, S) and `tokens`.  Raises PlanError as `plan` does, also for a
    sweep, and imports the packages in `user` here.
    """
    import torch

    from ablate.planning.plan import check_cell

    if type(seed) is not int or seed < 0:
        raise PlanError([Problem("seed", f"must be a whole number ≥ 0, not {seed}")])
    words_of_cell = words_of(words, keys)
    folder = os.path.abspath(config_dir) if config_dir else None
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):  # even if the caller has set another default
        config = check_cell([*words_of_cell, f"seeds=[{seed}]", "dry_run=true"], folder)
        return untrained(config, seed)


def load(path: str | Path, user: Iterable[str] = ()) -> LoadedRun | Study:
    """Load a run by its folder, or a study by its folder, the folder of its tables, or its name in `results` (or the
    folder in ABLATE_RESULTS).

    `user` names your packages that models of its runs may import, which files cannot allow.  Damaged parts are left out
    with a warning.  Raises FileNotFoundError if it is neither, `Corrupt` if it cannot be read.
    """
    results = Path(os.environ.get("ABLATE_RESULTS", "results"))
    for folder in (Path(path).resolve(), (results / "studies" / path).resolve()):
        if (folder / "config.yaml").exists() or (folder / "result.json").exists():
            return load_run(folder, user)
        if holds_tables(folder):
            study = read_tables(folder)
        elif (folder / "manifest.json").exists():
            study = tables.load_study(folder.parents[1], folder.name)
        else:
            continue
        for note in study.notes:
            warnings.warn(note, stacklevel=2)
        return Study(**vars(study), user=allowed_packages(user))
    message = f"{path} is no run and no study; "
    message += "name a folder results/runs/<cell>/s<seed>-<key> or results/studies/<study>"
    parent = Path(path).parent
    names = studies(parent.parent if parent.name == "studies" else results)
    if names:
        message += f"; {instead(Path(path).name, names)}"
    raise FileNotFoundError(message)


def words_of(words: Sequence[str], keys: Mapping[str, object]) -> list[str]:
    """Words unchanged, and keyword arguments as KEY=VALUE.

    A list sweeps, as commas do: `norm=["ln", "rms"]` is `norm=ln,rms`; for a key of the whole study it is the value:
    `seeds=[3, 7]`.  A tuple is a list as a single value: `**{"optim.betas": (0.9, 0.95)}`.  Values are strings,
    numbers, booleans, None, paths, and lists and mappings of these.  Raises PlanError with all invalid ones.
    """
    problems = []
    texts = []
    for word in words:
        if not isinstance(word, str):
            how = 'write each as a separate string, as in ablate.run("norm=ln,rms", seeds=5)'
            problems.append(Problem("", f"{word!r} is no word; {how}"))
        elif word.startswith("-"):
            how = "leave -m out, and write others as keywords: config_dir=..."
            problems.append(Problem(word, f"is an option of the command line; {how}"))
        else:
            texts.append(word)
    for key, value in keys.items():
        section = key.lstrip("+").partition(".")[0]
        values = [value]
        if isinstance(value, list | range) and section not in ONE_VALUE:
            values = list(value)
        if not values:
            problems.append(Problem(key, "is an empty list; write at least one value"))
            continue
        try:
            texts.append(f"{key}={','.join(value_text(_plain(item)) for item in values)}")
        except ValueError as error:
            problems.append(Problem(key, str(error)))
    if problems:
        raise PlanError(problems)
    return texts


def _plain(value: object) -> object:
    """A value converted to plain types.  Raises ValueError if that is not possible."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(item) for item in value]
    if isinstance(value, PurePath):
        return str(value)
    if hasattr(value, "item") and getattr(value, "ndim", None) == 0:  # a scalar of NumPy or torch
        value = value.item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    text = repr(value).partition("\n")[0][:40]
    raise ValueError(f"{text} cannot be written down; write a string, a number, True or False, or a list of these")


class Plan(runs.Plan):
    """The plan that `ablate.plan` returns: `manifest` has its cells and runs, `todo` the runs to train."""

    def __repr__(self) -> str:
        return preview(self)


@dataclasses.dataclass(frozen=True, repr=False)
class Study(tables.Study):
    """The study that `ablate.run` and `ablate.load` return: see `ablate.runs.study.Study` for its tables."""

    user: Sequence[str] = ()  # your packages that models of its runs may import

    @functools.cached_property
    def effects(self) -> pandas.DataFrame:
        """The effects in the study's metric, one row per contrast, with a column for each factor.  A factor's column
        holds its level in all cells on the side of the contrast's level; None if they differ."""
        effects = evidence.effects(self)
        levels = {cell.id: cell.levels for cell in self.manifest.cells}
        columns: dict[str, list[object]] = {}
        for factor in self.manifest.factors:
            if factor in effects:
                continue
            columns[factor] = []
            for contrast in evidence.contrasts(self.manifest):
                side = [levels[cell].get(factor) for cell in contrast.side(1)]
                is_one_level = bool(side) and all(level == side[0] for level in side)
                columns[factor].append(side[0] if is_one_level else None)
        others = effects.columns.difference(FIRST, sort=False)
        return effects.assign(**columns)[[*FIRST, *columns, *others]]

    def run(self, cell: str, seed: int, user: Iterable[str] | None = None) -> LoadedRun:
        """A run by its cell's label or id and its seed, with its configuration, steps, result and `model()`.

        `user` names your packages that its model may import; without it, those of the study.  Raises KeyError if the
        study has no such run, and FileNotFoundError if the run has not begun or the study was read from tables without
        runs.
        """
        labels = {planned.id: planned.label for planned in self.manifest.cells}
        for planned in self.manifest.runs:
            if planned.seed == seed and cell in (planned.cell, labels[planned.cell]):
                if self.results is None:
                    raise FileNotFoundError(f"{self.manifest.study} was read from kept tables, which hold no runs")
                return load_run(self.results / "runs" / planned.path, self.user if user is None else user)
        is_cell = cell in labels or cell in labels.values()
        choices = map(str, self.manifest.seeds) if is_cell else dict.fromkeys(labels.values())
        raise KeyError(f"no run of {cell} with seed {seed}; {instead(str(cell), choices)}")

    def __repr__(self) -> str:
        return summary(self, self.results or Path("results"))


class Notebook:
    """A reporter for notebooks and scripts: the live view if somebody sees it, and remarks as warnings."""

    def remark(self, text: str) -> None:
        """Issue a warning about the line that called ablate."""
        depth = 1
        frame: FrameType | None = sys._getframe()
        while frame and frame.f_globals.get("__name__", "").partition(".")[0] == "ablate":
            frame = frame.f_back
            depth += 1
        warnings.warn(text, stacklevel=depth)

    def training(self, plan: api.Plan) -> AbstractContextManager[None]:
        """Show the live view: on a terminal that of the command line, in a notebook a line, else nothing."""
        if in_notebook():
            return follow(plan.results, plan.manifest.study, plan.todo, show_in_notebook)
        if sys.stdout.isatty():
            return follow(plan.results, plan.manifest.study, plan.todo)
        return contextlib.nullcontext()

    def ended(self, plan: api.Plan, study: tables.Study, seconds: float | None) -> None:
        """Do nothing: the caller gets the study, which displays itself."""


def in_notebook() -> bool:
    """Whether this process is a notebook's kernel."""
    if "IPython" not in sys.modules:
        return False
    from IPython import get_ipython

    return hasattr(get_ipython(), "kernel")


def show_in_notebook(states_of_runs: Iterable[Poll]) -> None:
    """Show progress as one line of a notebook, which is replaced, so that a saved notebook has its last state alone."""
    from IPython.display import display

    line = display({"text/plain": ""}, raw=True, display_id=True)
    for _, [text] in states_of_runs:
        line.update({"text/plain": text}, raw=True)
