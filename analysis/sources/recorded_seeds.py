"""The recorded seeds of the README's sweep as a study: the losses in the checkout's `tests/recorded`, with its plan."""

from __future__ import annotations

from pathlib import Path

import pandas

from ablate.config.typed_json import parse
from ablate.results.atomic import read_json
from ablate.results.records import Manifest
from ablate.results.study import Study

FOLDER = Path(__file__).parents[2] / "tests" / "recorded"


def recorded_study(folder: Path = FOLDER) -> Study:
    """The study that norm_ffn_tiny.csv is of, without curves: its manifest names cells, and no runs."""
    manifest = parse(Manifest, read_json(folder / "norm_ffn_tiny.manifest.json"))
    table = pandas.read_csv(folder / "norm_ffn_tiny.csv")
    cells = {tuple(cell.levels.values()): cell for cell in manifest.cells}
    whose = [cells[each] for each in zip(*(table[name] for name in manifest.factors), strict=True)]
    runs = table.assign(cell=[cell.id for cell in whose], label=[cell.label for cell in whose])
    return Study(manifest, runs, pandas.DataFrame(columns=["cell", "seed", "step"]), [])
