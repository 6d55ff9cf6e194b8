"""What the committed runs of nope_lengths say in the paper's terms: exact matches, and mean reciprocal ranks.

    python benchmarks/nope_ranks.py

A rank is an encoding's place by its mean accuracy per token over seeds at twice the length, within a task; its
reciprocal is averaged over the tasks, as in Kazemnejad 2023 (arXiv 2305.19466), figure 1.
"""

from pathlib import Path

from ablate.results.kept_tables import read_tables

FOLDER = Path(__file__).parents[1] / "experiments" / "results" / "nope_lengths"


def main() -> None:
    """Print both tables."""
    means = read_tables(FOLDER).runs.groupby(["data", "position"], sort=False).mean(numeric_only=True)
    exact = means[[f"test/exact{length}" for length in ("", "@12", "@16")]]
    print("share of exact matches, mean over seeds", exact.round(3).to_string(), sep="\n")
    ranks = means["test/accuracy@16"].unstack("position").rank(axis=1, ascending=False)
    print("mean reciprocal rank of accuracy at length 16", (1 / ranks).mean().round(2).to_string(), sep="\n")


if __name__ == "__main__":
    main()
