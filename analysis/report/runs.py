"""Every run of a study as a row: its factors, how it ended, and its numbers."""

from __future__ import annotations

import math
from typing import Any

import pandas

from ablate import evidence, words
from analysis.case import Case
from analysis.report.blocks import Row, Runs

KNOWN = ("done", "diverged", "failed", "missing")
MOST = 4  # metrics that are shown; runs.csv has all


def runs(case: Case) -> Runs:
    """The table of runs with the endpoint first and a few metrics beside it."""
    study = case.study
    metrics = _metrics(case)
    places = {name: words.decimals([float(study.runs[name].std())]) for name in metrics}
    texts = [name for name in ("path", "error") if name in study.runs and study.runs[name].notna().any()]
    rows = [_row(run, metrics, places, texts) for run in study.runs.to_dict("records")]
    head = ["cell", "seed", "status", *metrics, *texts]
    return Runs(head, rows, sorted({row.status for row in rows}, key=_rank))


def _rank(status: str) -> tuple[int, str]:
    return (KNOWN.index(status) if status in KNOWN else len(KNOWN), status)


def _metrics(case: Case) -> list[str]:
    """The endpoint and the metrics of its split, as many as fit."""
    found, endpoint = case.study.runs, evidence.endpoint(case.study.manifest)
    split = endpoint.split("/")[0] + "/"
    others = [name for name in found if name.startswith(split) and name != endpoint and found[name].notna().any()]
    return ([endpoint] if endpoint in found else []) + others[: MOST - 1]


def _row(run: dict[str, Any], metrics: list[str], places: dict[str, int], texts: list[str]) -> Row:
    status = str(run["status"])
    values = [words.number(float(run[name]), places[name]) if _known(run[name]) else "–" for name in metrics]
    said = [run[name] if isinstance(run[name], str) else "" for name in texts]
    return Row(str(run["label"]), str(run["seed"]), status, status if status in KNOWN else "", values, said)


def _known(value: Any) -> bool:
    return bool(pandas.api.types.is_number(value)) and math.isfinite(value)
