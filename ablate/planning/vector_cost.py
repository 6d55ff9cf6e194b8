"""What training the vectors that embeddings begin with will cost: from kept ones, else from a short trial."""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import Any

from ablate.config.groups import default_settings
from ablate.config.schema import Config
from ablate.data.build import build_task
from ablate.formatting import counted
from ablate.model.build import build_model
from ablate.planning.checks.user_code import Failed, run_in_subprocess
from ablate.planning.runs import Plan
from ablate.planning.sweep_time import runs_to_train
from ablate.results.tables import own_name
from ablate.training.vectors import digest_of, initial_seed, is_pretrained, kept, place, tables_of

SECONDS = 30.0  # that a trial may take


def expected_vectors(plan: Plan) -> list[str]:
    """What training the vectors of the runs that a plan leaves to do takes, a line for each kind of them."""
    table = default_settings("embedding")["_target_"]  # which begins with none
    wanted = [(cell.config, run.seed) for run, cell in runs_to_train(plan)]
    wanted = [(config, seed) for config, seed in wanted if config.embedding["_target_"] != table]
    try:
        return [describe(*found) for found in run_in_subprocess(partial(sets_of, wanted), SECONDS)] if wanted else []
    except Failed as error:
        return [f"no estimate of what vectors cost: {error}"]


def describe(name: str, known: int, lacking: int, cpu_seconds: float | None) -> str:
    """The sets of vectors of one kind in words: how many are kept, how many are to be trained, and what one takes."""
    each = "" if cpu_seconds is None else f"{float(f'{cpu_seconds:.2g}'):,g} CPU-s each"
    parts = []
    if lacking:  # the time of the sweep is that of runs without vectors
        parts.append(f"{counted(lacking, 'set')} to train, {f'about {each}, ' * bool(each)}beside the time above")
    if known:
        parts.append(f"{counted(known, 'set')} kept" + f", {each} to train" * (bool(each) and not parts))
    return f"vectors of {name}: {'; '.join(parts)}"


def sets_of(wanted: list[tuple[Config, int]]) -> list[Any]:
    """See `describe`: the sets of vectors of runs, each a configuration and a seed, by kind, settings and text."""
    cells: dict[int, tuple[Config, set[int]]] = {}
    for config, seed in wanted:
        if is_pretrained(config):
            cells.setdefault(id(config), (config, set()))[1].add(initial_seed(config, seed))
    files, trials = dict[tuple[str, str], set[Path]](), {}
    for config, seeds in cells.values():
        task = build_task(config)
        table, text = next(iter(tables_of(build_model(config, task)).values())), task.training_text()
        digest, plain = digest_of(text), config.with_value("seed.placebo", None)
        kind = (own_name(config.embedding["_target_"]), str(place(table, plain, digest, 0)))
        files.setdefault(kind, set()).update(place(table, config, digest, seed) for seed in seeds)
        trials[kind] = partial(table.expected_seconds, text)
    sets = []
    for kind, places in files.items():
        known = [found.cpu_seconds for file in sorted(places) if (found := kept(file))]
        each = sum(known) / len(known) if known else trials[kind]()
        sets.append((kind[0], len(known), len(places) - len(known), each))
    return sets
