"""How many test tokens make differences between variants precise for the least compute.

ablate +experiment=test_text && python benchmarks/bench_test_tokens.py

Scores the weights of the study's runs on 16,384, 65,536 and 262,144 test tokens, and prints for each number the mean
and the SD over seeds of the paired differences, and the relative cost: their mean variance times the FLOPs of a run,
which is the compute that an interval of a given width needs.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas

from ablate.runs.study import Study, load_study
from ablate.training.evaluation import measure, setting_of
from ablate.training.load import LoadedRun, load_run

TEST_TOKENS = (16_384, 65_536, 262_144)
REFERENCE = "mlp"
VARIANTS = ("swiglu", "gelu")
RESAMPLES = 10_000
BACKWARD = 3  # a training step costs as much as three forward passes


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--results", type=Path, default=Path("results"))
    parser.add_argument("--study", default="test_text")
    options = parser.parse_args()
    study = load_study(options.results, options.study)
    rows = []
    for run in study.runs.itertuples():
        loaded = load_run(options.results / "runs" / run.path)
        model = loaded.model()
        task = loaded.task()
        setting = setting_of(loaded.own_config())
        for tokens in TEST_TOKENS:
            metrics = measure(model, task, "test", setting._replace(tokens=tokens)).metrics
            row = {"ffn": run.ffn, "seed": run.seed, "test_tokens": tokens, "loss": metrics["test/loss"]}
            rows.append(row | {"forward_tokens": forward_tokens(loaded, tokens)})
    scores = pandas.DataFrame(rows)
    check_recorded(study, scores)
    print(table(scores).to_string(index=False))


def forward_tokens(loaded: LoadedRun, test_tokens: int) -> float:
    """The cost of a run in tokens of a forward pass: training, validation as it was, and so many test tokens."""
    config = loaded.own_config()
    train = config.train
    trained = train.steps * train.batch_size * config.data["context"]
    evaluations = train.steps // train.eval_every
    validated = evaluations * config.eval.tokens * config.eval.val_share
    return BACKWARD * trained + validated + test_tokens


def check_recorded(study: Study, scores: pandas.DataFrame) -> None:
    """Raises ValueError unless scores on the study's own number of tokens are those of its runs."""
    recorded = study.runs.set_index(["ffn", "seed"])["test/loss"]
    again = scores[scores["test_tokens"] == TEST_TOKENS[0]].set_index(["ffn", "seed"])["loss"]
    if not np.allclose(recorded.loc[again.index], again, rtol=0, atol=1e-6):
        raise ValueError("the weights do not score as recorded")


def table(scores: pandas.DataFrame) -> pandas.DataFrame:
    """A row per number of test tokens: each difference's mean and SD over seeds, and the relative cost with a 95 %
    interval from a bootstrap of the seeds."""
    rows = []
    differences = {}
    flops = {}
    for tokens, group in scores.groupby("test_tokens"):
        losses = group.pivot(index="seed", columns="ffn", values="loss")
        of_variants = losses[list(VARIANTS)].sub(losses[REFERENCE], axis=0)
        differences[tokens] = of_variants.to_numpy()
        flops[tokens] = group["forward_tokens"].mean()
        row: dict[str, object] = {"test tokens": tokens}
        for variant in VARIANTS:
            row[f"{variant} − {REFERENCE}"] = f"{of_variants[variant].mean():+.5f}"
            row[f"SD of {variant}"] = f"{of_variants[variant].std():.5f}"
        rows.append(row)
    first = TEST_TOKENS[0]
    resampled = np.random.default_rng(0).integers(0, len(differences[first]), size=(RESAMPLES, len(differences[first])))
    for row in rows:
        tokens = row["test tokens"]
        ratio = flops[tokens] / flops[first]
        cost = ratio * variance(differences[tokens]) / variance(differences[first])
        costs = [ratio * variance(differences[tokens][i]) / variance(differences[first][i]) for i in resampled]
        low, high = np.quantile(costs, [0.025, 0.975])
        row["FLOPs"] = f"{ratio:.3f}"
        row["cost"] = f"{cost:.3f} [{low:.3f}, {high:.3f}]"
    return pandas.DataFrame(rows)


def variance(differences: np.ndarray) -> float:
    """The variance over seeds, averaged over the variants (columns)."""
    return float(differences.var(axis=0, ddof=1).mean())


if __name__ == "__main__":
    main()
