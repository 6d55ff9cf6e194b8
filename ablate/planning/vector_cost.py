"""What training the vectors that embeddings begin with will cost: kept ones say what they took, others are tried."""

from __future__ import annotations

from functools import partial
from typing import NamedTuple

from ablate.config.schema import Config, neutral_groups
from ablate.data.build import build_task
from ablate.format import counted
from ablate.model.build import build_model
from ablate.planning.checks.user_code import Failed, apart
from ablate.planning.runs import Plan
from ablate.results.tables import as_planned, own_name
from ablate.training.vectors import initial_seed, is_pretrained, kept, place, tables_of

SECONDS = 30.0  # that a trial may take


class Sets(NamedTuple):
    """The sets of vectors of one kind, settings and text: how many are kept, how many are to be trained, and the
    CPU-seconds of one; None where that is not known.
    """

    name: str
    kept: int
    lacking: int
    each: float | None


def expected_vectors(plan: Plan) -> list[str]:
    """What training the vectors of a plan's runs takes, a line for each kind of them."""
    plain, cells = neutral_groups()["embedding"]["_target_"], {cell.id: cell for cell in plan.manifest.cells}
    runs = [(as_planned(cells[run.cell], run).config, run.seed) for run in plan.manifest.runs]
    wanted = [(config, seed) for config, seed in runs if config.embedding["_target_"] != plain]
    try:
        return [told(Sets(*found)) for found in apart(partial(sets_of, wanted), SECONDS)]
    except Failed as error:
        return [f"no estimate of what vectors cost: {error}"]


def told(sets: Sets) -> str:
    """One kind of sets in words."""
    each = "" if sets.each is None else f"{sets.each:.2g} CPU-s each"
    parts = [f"{counted(sets.lacking, 'set')} to train" + f", about {each}" * bool(each)] if sets.lacking else []
    parts += [f"{counted(sets.kept, 'set')} kept" + f", {each} to train" * (bool(each) and not parts)] * bool(sets.kept)
    return f"vectors of {sets.name}: {'; '.join(parts)}"


def sets_of(wanted: list[tuple[Config, int]]) -> list[Sets]:
    """The sets of vectors of runs, each a configuration and a seed."""
    files: dict[str, dict[str, float | None]] = {}
    tables = {}
    for config, seed in wanted:
        if not is_pretrained(config):
            continue
        task = build_task(config)
        table, text = next(iter(tables_of(build_model(config, task)).values())), task.training_text()
        kind, file = str(place(table, config, text, 0)), place(table, config, text, initial_seed(config, seed))
        tables[kind] = (table, text, own_name(config.embedding["_target_"]))
        found = kept(file)
        files.setdefault(kind, {})[str(file)] = found.cpu_seconds if found else None
    sets = []
    for kind, (table, text, name) in tables.items():
        known = [seconds for seconds in files[kind].values() if seconds is not None]
        each = sum(known) / len(known) if known else table.expected_seconds(text)
        sets.append(Sets(name, len(known), len(files[kind]) - len(known), each))
    return sets
