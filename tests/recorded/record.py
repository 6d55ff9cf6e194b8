"""Writes norm_ffn_tiny.csv from a results folder: `python tests/recorded/record.py RESULTS [STUDY]`, complete seeds."""

import sys
from pathlib import Path

from ablate.runs.manifest import newest_study
from ablate.runs.study import load_study

COLUMNS = ["norm", "ffn", "seed", "status", "test/loss", "val/loss", "params", "batches"]


def main(results: Path, study: str | None = None) -> None:
    """Write the runs of every seed that has all of its cells."""
    found = load_study(results, study or newest_study(results) or "", curves=False)
    ended = found.runs[found.runs["status"].isin(["done", "diverged"])]
    whole = ended.groupby("seed")["cell"].transform("nunique") == len(found.manifest.cells)
    table = ended[whole].sort_values(["seed", "norm", "ffn"]).assign(batches=ended["batches"].str[:8])
    table[COLUMNS].to_csv(Path(__file__).with_name("norm_ffn_tiny.csv"), index=False, lineterminator="\n")
    print(f"{table['seed'].nunique()} seeds, {len(table)} runs")


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
