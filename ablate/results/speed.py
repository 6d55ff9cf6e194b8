"""What runs that were timed one after another say about speed; the seconds of others are those of a shared machine."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from ablate.formatting import SPEED, counted
from ablate.results.records import Manifest
from ablate.results.result import Result

if TYPE_CHECKING:
    import pandas


def is_timed(manifest: Manifest) -> bool:
    """Whether the runs of a study are timed, so that their seconds can be compared."""
    return manifest.timing == "isolated"


def speed_of(manifest: Manifest, result: Result | None) -> dict[str, Any]:
    """The columns of a run that its study is timed for: its speed, and its sitting; none of other studies.

    The steps of a run that was continued were timed in several sittings, which is none of its partners'.
    """
    if not is_timed(manifest):
        return {}
    timed = result if result and result.timing == "isolated" else None
    found = {metric: getattr(timed, metric.removeprefix("train/"), None) for metric in SPEED}
    own = ", continued" if timed and timed.resumed else ""
    return found | {"sitting": f"{timed.sitting}{own}" if timed and timed.sitting else None}


def in_one_sitting(runs: pandas.DataFrame) -> tuple[pandas.DataFrame, list[str]]:
    """Runs without the speed of seeds whose cells were not all trained in one sitting, and what to say of those."""
    if "sitting" not in runs:
        return runs, []
    sittings = runs.groupby("seed")["sitting"].nunique()
    parted = [int(seed) for seed in sittings[sittings > 1].index]
    known = runs.drop(columns="sitting")
    known.loc[known["seed"].isin(parted), list(SPEED)] = None
    which = f"{counted(len(parted), 'seed')} ({', '.join(map(str, parted))})"
    note = f"the cells of {which} were not timed in one go, for the study was interrupted; their speed is left out"
    return known, [note] * bool(parted)
