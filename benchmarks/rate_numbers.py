"""Numbers on learning rates in the findings of qk_norm_sizes and mup_transfer that no table has, from committed runs.

    python benchmarks/rate_numbers.py

Each is taken within a seed and averaged, with a t interval over seeds for itself.  `sensitivity` is the mean over rates
of min(loss, log 256) minus the loss at the best rate (Wortsman 2023, arXiv 2309.14322); `above` is the part of it that
rates above the best cost.  `optimum` is the rate at the lowest point of a parabola in log2 of the rate through the best
rate and its neighbours; its change over widths is in octaves.
"""

import itertools
import math
from pathlib import Path

import numpy as np
import pandas

from ablate import evidence
from ablate.results.kept_tables import read_tables

FOLDER = Path(__file__).parents[1] / "experiments" / "results"
GUESS = math.log(256)  # of bytes


def losses(study: str, arm: str) -> dict[tuple[str, int], pandas.DataFrame]:
    """The test loss by arm and width: a row per seed, a column per rate."""
    runs = read_tables(FOLDER / study).runs
    found = runs.groupby([arm, "model.dim"], sort=False)
    return {
        (str(key[0]), int(key[1])): rows.pivot(index="seed", columns="optim.lr", values="test/loss")
        for key, rows in found
    }


def sensitivity(table: pandas.DataFrame) -> np.ndarray:
    """Of each seed."""
    return (table.clip(upper=GUESS).mean(axis=1) - table.min(axis=1)).to_numpy()


def above(table: pandas.DataFrame) -> np.ndarray:
    """The cost of the rates above each seed's best."""
    values, best = table.clip(upper=GUESS).to_numpy(), table.to_numpy().argmin(axis=1)
    return np.array([(row[at:] - row[at]).sum() / len(row) for row, at in zip(values, best, strict=True)])


def optimum(table: pandas.DataFrame) -> np.ndarray:
    """log2 of each seed's best rate, between the rates that were tried; at an edge the edge."""
    x, found = np.log2(table.columns.to_numpy(float)), []
    for row in table.to_numpy():
        at = int(row.argmin())
        if 0 < at < len(row) - 1:
            a, b, _ = np.polyfit(x[at - 1 : at + 2], row[at - 1 : at + 2], 2)
            found.append(-b / 2 / a)
        else:
            found.append(x[at])
    return np.array(found)


def worded(values: np.ndarray, places: int = 3, sign: str = "+") -> str:
    """Mean and interval."""
    estimate = evidence.paired(values)
    low, high = evidence.interval(estimate, evidence.ALPHA)
    mean, low, high = (f"{each:{sign}.{places}f}" for each in (estimate.mean, low, high))
    return f"{mean} [{low}, {high}]"


def qk_norm_sizes() -> None:
    """Sensitivity by width, its part above the best rate, and the arms at their own best, at 1e-3 and at 1e-1."""
    tables = losses("qk_norm_sizes", "attention+objective")
    arms, widths = (list(dict.fromkeys(each)) for each in zip(*tables, strict=True))
    first, last, plain = widths[0], widths[-1], arms[0]
    for name, of in (("sensitivity", sensitivity), ("above", above)):
        for arm in arms:
            each = {width: of(tables[arm, width]) for width in widths}
            means = "  ".join(f"{width} {values.mean():.2f}" for width, values in each.items())
            print(f"{name:12} {arm:34} {means}  change {worded(each[last] - each[first])}")
    growth = [above(tables[arm, last]) - above(tables[arm, first]) for arm in arms[:2]]
    print(f"above, growth of {arms[1]} minus that of {plain}: {worded(growth[1] - growth[0])}")
    for arm, width in itertools.product(arms[1:], widths):
        own, base = tables[arm, width], tables[plain, width]
        parts = [f"sensitivity {worded(sensitivity(own) - sensitivity(base))}"]
        parts += [f"own best {worded((own.min(axis=1) - base.min(axis=1)).to_numpy())}"]
        parts += [f"at {rate:g} {worded((own[rate] - base[rate]).to_numpy())}" for rate in (1e-3, 1e-1)]
        parts += [f"at 1e-1 above its own best {(own[1e-1] - own.min(axis=1)).mean():.2f}"]
        print(f"{arm:34} − {plain} at width {width}: {'; '.join(parts)}")
    for arm, width in itertools.product(arms, widths):
        print(f"best rate of {arm} at width {width}: {tables[arm, width].mean().idxmin():g}")


def mup_transfer() -> None:
    """The best rate by parametrisation and width, and how far it moves."""
    tables = losses("mup_transfer", "parametrization")
    arms, widths = (list(dict.fromkeys(each)) for each in zip(*tables, strict=True))
    for arm in arms:
        each = {width: optimum(tables[arm, width]) for width in widths}
        for width, values in each.items():
            print(
                f"{arm:17} width {width:3}: optimum {2 ** values.mean():.4f}, losses",
                *tables[arm, width].mean().round(3),
            )
        for width in widths[1:]:
            moved = worded(each[width] - each[widths[0]], 2)
            print(f"{arm:17} optimum from width {widths[0]} to {width}, octaves: {moved}")


def main() -> None:
    """Print the numbers of each study whose tables are there."""
    for study in (qk_norm_sizes, mup_transfer):
        if (FOLDER / study.__name__).is_dir():
            print(study.__name__)
            study()


if __name__ == "__main__":
    main()
