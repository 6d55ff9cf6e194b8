"""The Python interface of `import ablate`: plans, trains and reads studies, as objects that notebooks display.

    import ablate

    plan = ablate.plan("norm=ln,rms", "scale=tiny", seeds=2)    # what would be trained, and its cost
    study = ablate.run("norm=ln,rms", "scale=tiny", seeds=2)    # trains what is missing, with a progress bar
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
import io
import itertools
import os
import sys
import threading
import traceback
import warnings
from collections.abc import Iterable, Mapping, Sequence
from contextlib import AbstractContextManager
from html import escape
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from ablate import api, evidence, formatting
from ablate.cli.effect_text import effect_lines, effect_sentence, verdict_word
from ablate.cli.status import counts, follow
from ablate.cli.sweep import heads, preview, row
from ablate.config.command import value_text
from ablate.config.errors import PlanError, Problem, Refused
from ablate.config.overrides import key_of
from ablate.config.schema import WHOLE
from ablate.config.targets import allowed_packages
from ablate.execution.signals import DiskFull
from ablate.formatting import instead
from ablate.planning import runs
from ablate.planning.only_variant import about_one_variant
from ablate.runs import naming
from ablate.runs import study as tables
from ablate.runs.kept_tables import holds_tables, read_tables
from ablate.runs.manifest import studies
from ablate.runs.progress import Runs
from ablate.runs.tables import named_rows
from ablate.training.load import LoadedRun, load_run, untrained

if TYPE_CHECKING:
    import pandas
    from torch import nn

FIRST = ["label", "mean", "low", "high", "n", "verdict"]  # columns of effects that are read first
SHOWN = 16  # the most rows in a representation; the tables have all
TICK = 0.5  # seconds between polls
FORMAT = "{percentage:3.0f} % {bar:30} {desc}"
OF_STUDIES = ("seed", "seeds", "seeds_max", "confirm", "dry_run")
ONE_VALUE = (*WHOLE, "eval")  # sections and keys that cannot be swept, so that a list is a single value
HOW = 'write each as a separate string, as in ablate.run("norm=ln,rms", seeds=5)'


def plan(*words: str, config_dir: str | None = None, **keys: object) -> Plan:
    """Compose and check every cell of a study, and count its runs; nothing is trained or written.

    `config_dir` is the folder of your own variants.  Raises PlanError, whose text is what the command line prints: a
    line for each mistake; `problems` has them by key.
    """
    return Plan(**vars(api.plan(words_of(words, keys), config_dir)))


def run(*words: str, config_dir: str | None = None, reporter: api.Reporter | None = None, **keys: object) -> Study:
    """Train the missing runs of a study, and return it.

    Ended runs are on disk, so after an interruption the same call continues.  Failed runs are rows with that status.
    A `reporter` replaces the progress bar.  Raises PlanError as `plan` does, and Refused if the results folder cannot
    be written or the disk is full.
    """
    planned = api.plan(words_of(words, keys), config_dir)
    if planned.dry_run:
        raise PlanError([Problem("dry_run", "trains nothing; ablate.plan(...) shows what would be trained")])
    try:
        study = api.train(planned, reporter or Bar())
    except DiskFull as full:  # it ends a command, but must not end a notebook's kernel
        raise Refused(api.no_space(planned, full)) from None
    return Study(**vars(study), user=planned.study.settings.user)


def build(*words: str, config_dir: str | None = None, seed: int = 0, **keys: object) -> nn.Module:
    """The untrained model of one cell, on the CPU, with the initial values of its run with this seed; writes no study.

    Called with ids below `data`'s vocabulary, `tokens` (B, T), it returns logits (B, T, outputs), or (B, outputs) for
    classification; an encoder-decoder takes `source` (B, S) and `tokens`.  Raises PlanError as `plan` does, also for a
    sweep, and imports the packages in `user` here.
    """
    import torch

    from ablate.planning.plan import check_cell

    given, own = words_of(words, keys), words_of([], {"seed": seed})[0].removeprefix("seed=")
    about = "is of a study; build makes one model, whose seed is a keyword: build(..., seed=5)"
    wrong = [Problem(key, about) for key in map(key_of, given) if key in OF_STUDIES]
    wrong += [Problem("seed", f"must be a whole number ≥ 0, not {own}")] * (not own.isdecimal())
    if wrong:
        raise PlanError(wrong)
    folder = os.path.abspath(config_dir) if config_dir else None
    with torch.device("cpu"), torch.random.fork_rng(devices=[]):  # even if the caller has set another default
        return untrained(check_cell([*given, f"seeds=[{own}]", "dry_run=true"], folder).config, int(own))


def load(path: str | Path, user: Iterable[str] = ()) -> LoadedRun | Study:
    """Load a run by its folder, or a study by its folder, the folder of its tables, or its name in `results` (or the
    folder in ABLATE_RESULTS).

    `user` names your packages that models of its runs may import, which files cannot allow.  Damaged parts are left out
    with a warning.  Raises FileNotFoundError if it is neither, `Corrupt` if it cannot be read.
    """
    results = Path(os.environ.get("ABLATE_RESULTS", "results"))
    for folder in (Path(path).resolve(), (results / "studies" / path).resolve()):
        if any((folder / name).exists() for name in ("config.yaml", "result.json")):
            return load_run(folder, user)
        if (kept := holds_tables(folder)) or (folder / "manifest.json").exists():
            study = read_tables(folder) if kept else tables.load_study(folder.parents[1], folder.name)
            for note in study.notes:
                warnings.warn(note, stacklevel=2)
            return Study(**vars(study), user=allowed_packages(user))
    parent = Path(path).parent
    there = studies(parent.parent if parent.name == "studies" else results)
    how = "name a folder results/runs/<cell>/s<seed>-<key> or results/studies/<study>"
    how += f"; {instead(Path(path).name, there)}" * bool(there)
    raise FileNotFoundError(f"{path} is no run and no study; {how}")


def words_of(words: Sequence[str], keys: Mapping[str, object]) -> list[str]:
    """Words unchanged, and keyword arguments as KEY=VALUE.

    A list sweeps, as commas do: norm=["ln", "rms"] is norm=ln,rms; for a key of the whole study it is the value:
    seeds=[3, 7].  A tuple is a list as a single value: **{"optim.betas": (0.9, 0.95)}.  Values are strings, numbers,
    booleans, None, paths, and lists and mappings of these.  Raises PlanError with all invalid ones.
    """
    problems = [Problem("", f"{word!r} is no word; {HOW}") for word in words if not isinstance(word, str)]
    found = [word for word in words if isinstance(word, str)]
    option = "is an option of the command line; leave -m out, and write others as keywords: config_dir=..."
    problems += [Problem(word, option) for word in found if word.startswith("-")]
    for key, value in keys.items():
        several = isinstance(value, list | range) and key.lstrip("+").partition(".")[0] not in ONE_VALUE
        try:
            if several and not value:
                raise ValueError("is an empty list; write at least one value")
            texts = (value_text(_plain(each)) for each in (value if several else [value]))  # type: ignore[attr-defined]
            found.append(f"{key}={','.join(texts)}")
        except ValueError as error:
            problems.append(Problem(key, str(error)))
    if problems:
        raise PlanError(problems)
    return found


def _plain(value: object) -> object:
    """A value converted to plain types.  Raises ValueError if that is not possible."""
    if isinstance(value, Mapping):
        return {str(key): _plain(each) for key, each in value.items()}
    if isinstance(value, list | tuple | range):
        return [_plain(each) for each in value]
    if isinstance(value, PurePath):
        return str(value)
    if (item := getattr(value, "item", None)) and getattr(value, "ndim", None) == 0:  # a scalar of NumPy or torch
        value = item()
    if value is None or type(value) in (bool, int, float, str):
        return value
    shown = repr(value).partition("\n")[0][:40]
    raise ValueError(f"{shown} cannot be written down; write a string, a number, True or False, or a list of these")


class Plan(runs.Plan):
    """The plan that `ablate.plan` returns: `manifest` has its cells and runs, `todo` the runs to train."""

    def __repr__(self) -> str:
        return preview(self)

    def _repr_html_(self) -> str:
        below = preview(self).partition("\n\n")[2].splitlines()
        return html_table(heads(self), [row(self, cell) for cell in self.manifest.cells]) + paragraph(below)


@dataclasses.dataclass(frozen=True, repr=False)
class Study(tables.Study):
    """The study that `ablate.run` and `ablate.load` return: see `ablate.runs.study.Study` for its tables."""

    user: Sequence[str] = ()  # your packages that models of its runs may import

    @functools.cached_property
    def effects(self) -> pandas.DataFrame:
        """The effects in the study's metric, one row per contrast, with a column for each factor.  A factor's column
        holds its level in all cells on the side of the contrast's level; None if they differ."""
        found, cells = evidence.effects(self), {cell.id: cell.levels for cell in self.manifest.cells}
        sides = [[cells[cell] for cell in contrast.side(1)] for contrast in evidence.contrasts(self.manifest)]
        columns = {}
        for factor in [name for name in self.manifest.factors if name not in found]:
            levels = [[cell.get(factor) for cell in side] for side in sides]
            columns[factor] = [each[0] if each and each.count(each[0]) == len(each) else None for each in levels]
        rest = found.columns.difference(FIRST, sort=False)
        return found.assign(**columns)[[*FIRST, *columns, *rest]]

    def run(self, cell: str, seed: int, user: Iterable[str] | None = None) -> LoadedRun:
        """A run by its cell's label or id and its seed, with its configuration, steps, result and `model()`.

        `user` names your packages that its model may import; without it, those of the study.  Raises KeyError if the
        study has no such run, and FileNotFoundError if the run has not begun or the study was read from tables without
        runs.
        """
        labels = {one.id: one.label for one in self.manifest.cells}
        found = [run for run in self.manifest.runs if cell in (run.cell, labels[run.cell]) and run.seed == seed]
        if not found:
            there = dict.fromkeys(labels.values()) if cell not in (*labels, *labels.values()) else self.manifest.seeds
            raise KeyError(f"no run of {cell} with seed {seed}; {instead(str(cell), map(str, there))}")
        if self.results is None:
            raise FileNotFoundError(f"{self.manifest.study} was read from kept tables, which hold no runs")
        return load_run(self.results / "runs" / found[0].path, self.user if user is None else user)

    def __repr__(self) -> str:
        cells = evidence.cells(self)
        places = formatting.decimals([cells["sd"].max()])
        rows = [("configuration", evidence.endpoint(self.manifest))]
        for cell in named_rows(cells.head(SHOWN)):
            mean = formatting.number(cell.mean, places) if cell.n else ""
            spread = f" ± {formatting.number(cell.sd, places)} SD (n = {cell.n})" if cell.n > 1 else ""
            rows.append((cell.name, ", ".join(filter(None, [mean + spread, *formatting.lost(cell)]))))
        effects = [
            *evidence.claim_lines(self.manifest, evidence.claims(self)),
            *effect_lines(self.manifest, self.effects),
        ]
        tested = evidence.families(self.manifest, int(self.effects["family"].sum()))
        effects += filter(None, [tested, evidence.unadjusted(self.manifest)])
        effects += about_one_variant(self.manifest)
        return "\n".join([self._title(), *formatting.columns(rows), *self._below(cells), *effects])

    def _repr_html_(self) -> str:
        shown = evidence.headline(self.effects)
        rows = [
            (effect_sentence(self.manifest, effect), formatting.over(effect), verdict_word(effect))
            for effect in named_rows(shown.head(SHOWN))
        ]
        heads = (f"effect on {evidence.endpoint(self.manifest)}", "over", "verdict")
        above = [self._title(), *evidence.claim_lines(self.manifest, evidence.claims(self))]
        below = [*self._below(shown), evidence.unadjusted(self.manifest), *about_one_variant(self.manifest)]
        return paragraph(above) + html_table(heads, rows) + paragraph(list(filter(None, below)))

    def _title(self) -> str:
        status = self.runs["status"].value_counts()
        ended = ", ".join(f"{count} {name}" for name, count in status.items())
        return (
            f"{naming.title(self.manifest)}: {formatting.counted(len(self.manifest.cells), 'configuration')}, {ended}"
        )

    def _below(self, table: pandas.DataFrame) -> list[str]:
        """Lines with the number of rows left out and the number of notes."""
        lines = [f"… {len(table) - SHOWN} more"] * (len(table) > SHOWN)
        notes = formatting.counted(len(self.notes), "note")
        return lines + [f"{notes} of what is damaged or missing: .notes"] * bool(self.notes)


def html_table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Rows of texts as an HTML table; texts are escaped."""
    lines = [("th", heads), *(("td", row) for row in rows)]
    cells = ("".join(f"<{tag}>{escape(text)}</{tag}>" for text in texts) for tag, texts in lines)
    return f"<table>{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"


def paragraph(lines: Iterable[str]) -> str:
    """Lines of text as an HTML paragraph."""
    return f"<p>{'<br>'.join(map(escape, lines))}</p>"


class Bar:
    """A reporter for notebooks and terminals: a progress bar on standard error, and remarks as warnings."""

    def remark(self, text: str) -> None:
        """Issue a warning about the line that called ablate."""
        frames = (frame.f_globals.get("__name__", "") for frame, _ in traceback.walk_stack(sys._getframe()))
        own = itertools.takewhile(lambda name: name.partition(".")[0] == "ablate", frames)
        warnings.warn(text, stacklevel=1 + len(list(own)))

    def training(self, plan: runs.Plan) -> AbstractContextManager[None]:
        """Show the progress bar on a terminal or in a notebook."""
        if not sys.stderr.isatty() and "ipykernel" not in sys.modules:  # nobody sees standard error
            return contextlib.nullcontext()
        return follow(plan.results, plan.manifest.study, plan.todo, _show)

    def ended(self, plan: runs.Plan, study: tables.Study, seconds: float | None) -> None:
        """Do nothing: the caller gets the study, which displays itself."""


def _show(runs: Runs, stop: threading.Event) -> None:
    from tqdm import tqdm

    last, file, cell = False, sys.stderr, None
    if "ipykernel" in sys.modules:  # a saved notebook would keep each state of a line on standard error
        from IPython.display import display

        file, cell = io.StringIO(), display({"text/plain": ""}, raw=True, display_id=True)
    with tqdm(total=sum(run.steps or 0 for run in runs), bar_format=FORMAT, file=file) as bar:
        while not last:
            last = stop.wait(TICK)
            runs.poll()
            steps = [run.steps or 0 if run.result else min(run.pace.step, run.steps or 0) for run in runs]
            bar.n = sum(steps)
            bar.set_description_str(counts(runs))
            if cell:
                cell.update({"text/plain": str(bar)}, raw=True)
