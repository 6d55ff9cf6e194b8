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

import os
import warnings
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path, PurePath
from typing import TYPE_CHECKING

from ablate import api
from ablate.config.command import value_text
from ablate.config.errors import PlanError, Problem, Refused
from ablate.config.overrides import key_of
from ablate.config.schema import WHOLE
from ablate.config.targets import allowed_packages
from ablate.execution.signals import DiskFull
from ablate.formatting import instead
from ablate.python.shown import Bar, Plan, Study
from ablate.results.kept_tables import holds_tables, read_tables
from ablate.results.manifest import studies
from ablate.results.study import load_study
from ablate.training.load import LoadedRun, load_run, untrained

if TYPE_CHECKING:
    from torch import nn


def plan(*words: str, config_dir: str | None = None, **keys: object) -> Plan:
    """Compose and check every cell of a study, and count its runs; nothing is trained or written.

    `config_dir` is the folder of your own variants.  Raises PlanError, whose text is what the command line prints: a
    line for each mistake; `problems` has them by key.
    """
    return Plan.of(api.plan(words_of(words, keys), config_dir))


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
    return Study.of(study, planned.study.settings.user)


def build(*words: str, config_dir: str | None = None, seed: int = 0, **keys: object) -> "nn.Module":
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
        if holds_tables(folder) or (folder / "manifest.json").exists():
            tables = read_tables(folder) if holds_tables(folder) else load_study(folder.parents[1], folder.name)
            for note in tables.notes:
                warnings.warn(note, stacklevel=2)
            return Study.of(tables, allowed_packages(user))
    parent = Path(path).parent
    there = studies(parent.parent if parent.name == "studies" else results)
    raise FileNotFoundError(
        f"{path} is no run and no study; name a folder results/runs/<cell>/s<seed>-<key> or results/studies/<study>"
        + f"; {instead(Path(path).name, there)}" * bool(there)
    )


OF_STUDIES = ("seed", "seeds", "seeds_max", "confirm", "placebo_seeds", "dry_run")
ONE_VALUE = (*WHOLE, "eval")  # sections and keys that cannot be swept, so that a list is a single value
HOW = 'write each as a separate string, as in ablate.run("norm=ln,rms", seeds=5)'


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
