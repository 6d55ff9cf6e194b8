"""Exact matches and mean reciprocal ranks, in the paper's terms, of the committed runs of nope_lengths and nope_exact.

    python benchmarks/nope_ranks.py

A rank is an encoding's place within a task by its mean over seeds at a length beyond training: accuracy per token at
twice the length in nope_lengths, exact matches one and two symbols beyond in nope_exact.  Its reciprocal is averaged
over tasks and lengths, as in Kazemnejad 2023 (arXiv 2305.19466), figure 1; encodings with equal means share their mean
place.
"""

from pathlib import Path

import pandas

from ablate.runs.kept_tables import read_tables

STUDIES = {"nope_lengths": ["test/accuracy@16"], "nope_exact": ["test/exact@9", "test/exact@10"]}
FOLDER = Path(__file__).parents[1] / "experiments" / "results"


def main() -> None:
    """Print both tables of each study."""
    for study, ranked in STUDIES.items():
        means = read_tables(FOLDER / study).runs.groupby(["data", "position"], sort=False).mean(numeric_only=True)
        exact = means.filter(like="test/exact")
        print(f"{study}: share of exact matches, mean over seeds", exact.round(3).to_string(), sep="\n")
        ranks = pandas.concat([means[each].unstack("position").rank(axis=1, ascending=False) for each in ranked])
        found = (1 / ranks).mean().round(2).to_string()
        print(f"mean reciprocal rank by {' and '.join(ranked)}", found, "", sep="\n")


if __name__ == "__main__":
    main()
