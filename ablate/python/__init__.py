"""What `import ablate` offers: studies planned, trained and read from Python, as objects that a notebook shows.

    import ablate

    plan = ablate.plan("norm=ln,rms", "scale=tiny", seeds=2)    # what would be trained, and what that costs
    study = ablate.run("norm=ln,rms", "scale=tiny", seeds=2)    # trains what is missing, with a progress bar
    study.effects, study.runs, study.curves                     # tables, with a column for each factor
    study.run("rms", seed=0).model()                            # a trained model

Words are those of `ablate -m ...`, each a string.  Keys can be keywords with Python's values: seeds=5,
norm=["ln", "rms"], **{"optim.lr": [1e-3, 3e-3]}; `ablate.python.words` says which.
"""

import os
import warnings
from collections.abc import Iterable
from pathlib import Path

from ablate import api
from ablate.config.errors import PlanError, Problem, Refused
from ablate.execution.signals import DiskFull
from ablate.formatting.suggest import instead
from ablate.python.progress import Bar
from ablate.python.shown import Plan, Study
from ablate.python.words import words_of
from ablate.results.choose import studies
from ablate.results.kept_tables import holds_tables, read_tables
from ablate.results.study import load_study
from ablate.training.load import LoadedRun, load_run


def plan(*words: str, config_dir: str | None = None, **keys: object) -> Plan:
    """Compose and check every cell of a study, and count its runs; nothing is trained or written.

    `config_dir` is the folder of your own variants.  Raises PlanError: its text is what the command line prints, a line
    for each mistake, and its `problems` are these lines by key.
    """
    return Plan.of(api.plan(words_of(words, keys), config_dir))


def run(*words: str, config_dir: str | None = None, reporter: api.Reporter | None = None, **keys: object) -> Study:
    """Train what a study still lacks, and return it.

    What has ended is on disk: interrupted at any moment, the same call continues.  Runs that failed are rows with that
    status.  A `reporter` takes the place of the progress bar.  Raises PlanError as `plan` does, and Refused
    where the results folder cannot be written or is full.
    """
    planned = api.plan(words_of(words, keys), config_dir)
    if planned.dry_run:
        raise PlanError([Problem("dry_run", "trains nothing; ablate.plan(...) shows what would be trained")])
    try:
        study = api.train(planned, reporter or Bar())
    except DiskFull as full:  # which ends a command, and must not end a notebook's kernel
        raise Refused(api.no_space(planned, full)) from None
    return Study.of(study)


def load(path: str | Path, user: Iterable[str] = ()) -> LoadedRun | Study:
    """A run by its folder, or a study by its folder, that of its kept tables, or its name in `results`, or where
    ABLATE_RESULTS says.

    `user` names the packages of your own that a run's model may be built from: files allow none.  What is damaged is
    left out, with a warning.  Raises FileNotFoundError where there is neither, `Corrupt` where it cannot be read.
    """
    results = Path(os.environ.get("ABLATE_RESULTS", "results"))
    for folder in (Path(path).resolve(), (results / "studies" / path).resolve()):
        if any((folder / name).exists() for name in ("config.yaml", "result.json")):
            return load_run(folder, user)
        if holds_tables(folder) or (folder / "manifest.json").exists():
            tables = read_tables(folder) if holds_tables(folder) else load_study(folder.parents[1], folder.name)
            for note in tables.notes:
                warnings.warn(note, stacklevel=2)
            return Study.of(tables)
    parent = Path(path).parent
    there = studies(parent.parent if parent.name == "studies" else results)
    raise FileNotFoundError(
        f"{path} is no run and no study; name a folder results/runs/<cell>/s<seed>-<key> or results/studies/<study>"
        + f"; {instead(Path(path).name, there)}" * bool(there)
    )
