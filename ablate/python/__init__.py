"""What `import ablate` offers: studies planned, trained and read from Python, as objects that a notebook shows.

    import ablate

    plan = ablate.plan("norm=ln,rms", "scale=tiny", seeds=2)    # what would be trained, and what that costs
    study = ablate.run("norm=ln,rms", "scale=tiny", seeds=2)    # trains what is missing, with a progress bar
    study.effects, study.runs, study.curves                     # tables, with a column for each factor
    study.run("rms", seed=0).model()                            # a trained model

Words are those of `ablate -m ...`, each a string.  Keys can be keywords with Python's values: seeds=5,
norm=["ln", "rms"], **{"optim.lr": [1e-3, 3e-3]}; `ablate.python.words` says which.
"""

from __future__ import annotations

from ablate import api
from ablate.config.errors import PlanError, Problem, Refused
from ablate.execution.signals import DiskFull
from ablate.python.on_disk import load as load
from ablate.python.progress import Bar
from ablate.python.shown_plan import Plan
from ablate.python.shown_study import Study
from ablate.python.words import words_of


def plan(*words: str, config_dir: str | None = None, **keys: object) -> Plan:
    """Compose and check every cell of a study, and count its runs; nothing is trained or written.

    `config_dir` is the folder of your own variants.  Raises PlanError: its text is what the command line would say, a
    line for each mistake, and its `problems` are these lines by key.
    """
    return Plan.of(api.plan(words_of(words, keys), config_dir))


def run(*words: str, config_dir: str | None = None, reporter: api.Reporter | None = None, **keys: object) -> Study:
    """Train what a study still lacks, and return it.

    What has ended is on disk: interrupted at any moment, the same call continues.  Runs that failed are rows with that
    status.  `reporter` is told how it goes in place of the progress bar.  Raises PlanError as `plan` does, and Refused
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
