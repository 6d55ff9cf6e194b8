"""The cells of a study as plain data: inspected in this process, in the child process if they have user code, which
this process never imports, or as the cache has them.  Needs no torch."""

import dataclasses
import glob
import json
from functools import partial
from typing import Any

from ablate.config.components import bind
from ablate.config.compose import Draft
from ablate.config.errors import PlanError, Problem
from ablate.config.import_path import cores
from ablate.config.schema import STUDY_KEYS, Config
from ablate.config.typed_json import parse
from ablate.data.corpus import nothing_prepared
from ablate.planning.cache import read_cache, write_cache
from ablate.planning.checks import child
from ablate.planning.checks.user_code import runs_user_code
from ablate.planning.study import CHECK, MATCH, TRY, Inspection, PlannedStudy, runs_of


def inspect_cells(drafts: list[Draft], settings: Config, until: int = TRY) -> Inspection:
    """Inspect cells as far as `until`: CHECK, MATCH or TRY.  `settings` has the study's own keys.  See
    `ablate.planning.checks.inspect`."""
    has_user_code = any(runs_user_code(draft.config) for draft in drafts)
    if has_user_code and not child.loads_user_code:
        try:
            inspection = parse(Inspection, child.run_in_child(partial(inspect_in_child, drafts, settings, until)))
        except child.Failed as error:
            return Inspection(problems=[Problem("", str(error))])
        return with_study_keys(inspection, drafts)
    is_cached = until != CHECK and not has_user_code and not may_use_gpus(drafts)
    workers = min(runs_of(drafts, settings), cores())
    depends = [until, settings.match, settings.allow_duplicates, workers, *map(cache_key, drafts)]
    cached = from_cache(depends) if is_cached else None
    if cached:
        return with_study_keys(cached, drafts)
    from ablate.planning.checks.inspect import inspect  # loads torch

    inspection = inspect(drafts, settings, until)
    if is_cached and inspection.rows:
        write_cache(depends, {"data": data_of(inspection), "inspection": inspection.as_json()})
    return inspection


def cache_key(draft: Draft) -> list[Any]:
    """All of a draft that its inspection depends on: not the study's own keys."""
    config = {key: value for key, value in draft.config.as_json().items() if key == "track" or key not in STUDY_KEYS}
    return [draft.label, draft.levels, draft.reference, config, draft.choices]


def inspect_in_child(drafts: list[Draft], settings: Config, until: int) -> dict[str, Any]:
    """`inspect` in the child process."""
    from ablate.planning.checks.inspect import inspect

    return inspect(drafts, settings, until).as_json()


def with_study_keys(inspection: Inspection, drafts: list[Draft]) -> Inspection:
    """An inspection whose configurations have the study's own keys of these drafts, also the user's packages, which no
    JSON holds."""
    rows = []
    for row, draft in zip(inspection.rows, drafts, strict=False):  # there are no rows if there are problems
        keys = {key: getattr(draft.config, key) for key in STUDY_KEYS}
        rows.append(dataclasses.replace(row, config=dataclasses.replace(row.planned_config, **keys)))
    return dataclasses.replace(inspection, rows=rows)


def may_use_gpus(drafts: list[Draft]) -> bool:
    """Whether cells may be for GPUs of this machine: which ones respond can change, and torch has to ask them."""
    return bool(glob.glob("/dev/nvidia[0-9]*")) and any(draft.config.train.device != "cpu" for draft in drafts)


def data_of(inspection: Inspection) -> list[list[Any]]:
    """The task of each cell: its settings, kind and fingerprint, each once."""
    tasks = {}
    for row in inspection.rows:
        task = [row.planned_config.data, inspection.tasks[row.task].kind, row.task]
        tasks[json.dumps(task, sort_keys=True)] = task
    return list(tasks.values())


def from_cache(depends: list[Any]) -> Inspection | None:
    """An inspection in the cache, if it is there and its data are as they were."""
    try:
        record = read_cache(depends)
        with nothing_prepared():
            for settings, kind, fingerprint in record["data"]:
                if bind("data", settings, {"kind": kind})().fingerprint != fingerprint:
                    return None
        return parse(Inspection, record["inspection"])
    except Exception:  # data that are gone, damaged records; inspecting says what is wrong
        return None


def inspected(study: PlannedStudy) -> PlannedStudy:
    """A study whose drafts have changed, with their rows; they are not tried out again.  Raises PlanError."""
    inspection = inspect_cells(study.drafts, study.settings, MATCH)
    if inspection.problems:
        raise PlanError(inspection.problems)
    return dataclasses.replace(study, rows=inspection.rows, tasks=inspection.tasks)
