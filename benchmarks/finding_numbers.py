"""Numbers in the findings of experiments/ that no committed table or figure has, from the committed runs.

    python benchmarks/finding_numbers.py [STUDY ...]

Diverged runs count as a guess.  Differences are taken within seeds; an interval is a t interval over seeds, for itself
and not simultaneous.  Scores of tuning are means over tuning seeds on the validation split, as the manifest has them.

`sensitivity` is the mean over rates of min(loss, log 256) minus the loss at the best rate (Wortsman 2023, arXiv
2309.14322); `above` is the part of it that rates above the best cost.  `optimum` is the rate at the lowest point of a
parabola in log2 of the rate through the best rate and its neighbours; its change over widths is in octaves.
"""

import argparse
import functools
import itertools
import math
from pathlib import Path

import numpy as np
import pandas
from scipy import stats

from ablate import evidence, formatting
from ablate.evidence.ladder import reference_rungs
from ablate.runs.kept_tables import read_tables
from ablate.runs.study import Study

FOLDER = Path(__file__).parents[1] / "experiments" / "results"
GUESS = math.log(256)  # of bytes


@functools.cache
def study_of(name: str) -> Study:
    """The committed tables of a study."""
    return read_tables(FOLDER / name)


def worded(values: pandas.Series | np.ndarray, places: int = 3) -> str:
    """Mean and interval."""
    estimate = evidence.paired(np.asarray(values, float))
    return formatting.span(estimate.mean, *evidence.interval(estimate, evidence.ALPHA), places)


def by_seed(runs: pandas.DataFrame, of: str | list[str], value: str) -> pandas.DataFrame:
    """A row per seed, a column per level."""
    return runs.pivot(index="seed", columns=of, values=value)


def alibi_extrapolation_confirm() -> None:
    """Differences at lengths beyond training that are no claim."""
    runs = study_of("alibi_extrapolation-confirm-8").runs
    pairs = [(128, "t5", "rope"), (128, "rope", "alibi"), (512, "rope", "sinusoidal"), (512, "none", "t5")]
    for length, one, other in pairs:
        table = by_seed(runs, "position", f"test/loss@{length}")
        print(f"{one} − {other} at {length}: {worded(table[one] - table[other])}")


def xiong_gradients() -> None:
    """Gradients of the blocks at the start, and after 50 steps."""
    study = study_of("xiong_gradients")
    blocks = [name for name in study.curves if name.startswith("diag/grad_norm/blocks.")]
    curves = study.curves
    for init, rows in curves[curves["step"] == 0].groupby("init", sort=False):
        last = by_seed(rows, "residual", blocks[-1])
        log = evidence.paired(np.log(last["post"] / last["pre"]).to_numpy())
        ratio = np.round(np.exp([log.mean, *evidence.interval(log, evidence.ALPHA)]), 3)
        means = f"pre {last['pre'].mean():.3f}, post {last['post'].mean():.3f}"
        print(f"{init}: last block {means}, post / pre", *ratio)
        print(f"  post is larger in {int((last['post'] > last['pre']).sum())} of {len(last)} seeds")
    for (init, residual), rows in curves[curves["step"] == 50].groupby(["init", "residual"], sort=False):
        half, last = rows[blocks[: len(blocks) // 2]], rows[blocks[-1]]
        ends = f"last {last.min():.4f} to {last.max():.4f}, smallest of all {rows[blocks].min().min():.4f}"
        print(f"{init} {residual} after 50 steps: first half up to {half.max().max():.4f}, {ends}")


def logits(runs: pandas.DataFrame, by: list[str]) -> None:
    """The largest attention logit of all blocks at the end, mean over seeds."""
    names = [name for name in runs if name.startswith("diag/attention_logit/")]
    largest = runs.assign(logit=runs[names].max(axis=1)).groupby(by)["logit"].mean()
    print("largest attention logit", largest.round(2).to_string(), sep="\n")


def qk_norm() -> None:
    """Attention logits by rate."""
    logits(study_of("qk_norm").runs, ["attention", "optim.lr"])


def losses(runs: pandas.DataFrame, arm: str) -> dict[tuple[str, int], pandas.DataFrame]:
    """The test loss by arm and width: a row per seed, a column per rate."""
    found = runs.groupby([arm, "model.dim"], sort=False)
    return {(str(key[0]), int(key[1])): by_seed(rows, "optim.lr", "test/loss") for key, rows in found}


def sensitivity(table: pandas.DataFrame) -> np.ndarray:
    """Of each seed."""
    return (table.fillna(GUESS).clip(upper=GUESS).mean(axis=1) - table.min(axis=1)).to_numpy()


def above(table: pandas.DataFrame) -> np.ndarray:
    """The cost of the rates above each seed's best."""
    values, best = table.fillna(GUESS).clip(upper=GUESS).to_numpy(), table.fillna(math.inf).to_numpy().argmin(axis=1)
    return np.array([(row[at:] - row[at]).sum() / len(row) for row, at in zip(values, best, strict=True)])


def vertex(x: np.ndarray, y: np.ndarray) -> tuple[float, float]:
    """The lowest point of a parabola through three points."""
    a, b, c = np.polyfit(x, y, 2)
    return float(-b / 2 / a), float(c - b * b / 4 / a)


def optimum(table: pandas.DataFrame) -> np.ndarray:
    """log2 of each seed's best rate, between the rates that were tried; at an edge the edge."""
    x, found = np.log2(table.columns.to_numpy(float)), []
    for row in table.fillna(GUESS).to_numpy():
        at = int(row.argmin())
        if 0 < at < len(row) - 1:
            found.append(vertex(x[at - 1 : at + 2], row[at - 1 : at + 2])[0])
        else:
            found.append(x[at])
    return np.array(found)


def qk_norm_sizes() -> None:
    """Sensitivity by width, its part above the best rate, and the arms at their own best and at single rates."""
    runs = study_of("qk_norm_sizes").runs
    tables = losses(runs, "attention+objective")
    arms, widths = (list(dict.fromkeys(each)) for each in zip(*tables, strict=True))
    first, last, plain = widths[0], widths[-1], arms[0]
    for name, of in (("sensitivity", sensitivity), ("above", above)):
        for arm in arms:
            each = {width: of(tables[arm, width]) for width in widths}
            means = "  ".join(f"{width} {values.mean():.3f}" for width, values in each.items())
            print(f"{name:12} {arm:34} {means}  change {worded(each[last] - each[first])}")
    growth = [above(tables[arm, last]) - above(tables[arm, first]) for arm in arms[:2]]
    print(f"above, growth of {arms[1]} minus that of {plain}: {worded(growth[1] - growth[0])}")
    for arm, width in itertools.product(arms[1:], widths):
        own, base = tables[arm, width], tables[plain, width]
        parts = [f"sensitivity {worded(sensitivity(own) - sensitivity(base))}"]
        parts += [f"own best {worded(own.min(axis=1) - base.min(axis=1))}"]
        parts += [f"at {rate:g} {worded(own[rate] - base[rate])}" for rate in (1e-3, 1e-1, 3e-1)]
        parts += [f"at 0.1 above its own best {(own[1e-1] - own.min(axis=1)).mean():.3f}"]
        print(f"{arm:34} − {plain} at width {width}: {'; '.join(parts)}")
    for arm, width in itertools.product(arms, widths):
        print(f"best rate of {arm} at width {width}: {tables[arm, width].mean().idxmin():g}")
    high = tables[plain, first][1e-1]
    print(f"{plain} at 0.1, width {first}: {high.min():.3f} to {high.max():.3f}")
    logits(runs[(runs["model.dim"] == last) & (runs["optim.lr"] == 1e-1)], ["attention+objective"])


def mup_transfer() -> None:
    """The best rate by parametrisation and width, and how far it moves."""
    tables = losses(study_of("mup_transfer").runs, "parametrization")
    arms, widths = (list(dict.fromkeys(each)) for each in zip(*tables, strict=True))
    for arm in arms:
        each = {width: optimum(tables[arm, width]) for width in widths}
        for width, values in each.items():
            means = tables[arm, width].mean().round(3)
            print(f"{arm:17} width {width:3}: optimum {2 ** values.mean():.4f}, losses", *means)
        for width in widths[1:]:
            moved = worded(each[width] - each[widths[0]], 2)
            print(f"{arm:17} optimum from width {widths[0]} to {width}, octaves: {moved}")
    equal = (tables[arms[0], widths[0]] == tables[arms[1], widths[0]]).all().all()
    print(f"at width {widths[0]} both parametrisations have the same losses to the last digit: {equal}")


def compute_ladder() -> None:
    """How the differences of two rungs correlate over their common seeds, and the slopes of the reference's curve."""
    study, rungs = study_of("compute_ladder"), reference_rungs(study_of("compute_ladder").manifest)
    scores, bases = evidence.scores(study), {cell.id for cell in rungs}
    apart: dict[str, list[pandas.Series]] = {}
    for contrast in evidence.contrasts(study.manifest):
        ((own, _), (base, _)) = contrast.weights.items()
        if base in bases:
            apart.setdefault(contrast.level, []).append((scores[own] - scores[base]).dropna())
    pairs = [pair for each in apart.values() for pair in itertools.combinations(each, 2)]
    found = [pandas.concat(pair, axis=1, join="inner").corr().iloc[0, 1] for pair in pairs]
    print(f"{len(found)} pairs of rungs: mean correlation {np.mean(found):.3f}, {min(found):.3f} to {max(found):.3f}")
    loss, compute = [scores[cell.id].mean() for cell in rungs], [cell.training_flops for cell in rungs]
    print("nats per e-fold of compute", *np.round(-np.diff(loss) / np.diff(np.log(compute)), 3))


def glu_variants() -> None:
    """Rank correlations within the groups, and of any order within them; the share of Swish in the difference."""
    study = study_of("glu_variants")
    means = by_seed(study.runs, "ffn", "test/loss").mean()
    claim = next(entry.claim for entry in study.manifest.claims.values() if entry.claim.published)
    published = {str(side["ffn"]): value for side, value in zip(claim.sides, claim.published, strict=True)}
    groups = [[name for name in published if (name in ("mlp", "gelu", "silu")) == plain] for plain in (True, False)]

    def rho(names: list[str]) -> float:
        return float(stats.spearmanr(means[names], [published[name] for name in names]).statistic)

    print(
        f"Spearman of the means: all {rho([*published]):.3f}, ungated {rho(groups[0]):.3f}, gated {rho(groups[1]):.3f}"
    )
    print(f"  gated without glu {rho([name for name in groups[1] if name != 'glu']):.3f}")
    # The gated variants that the paper has below all ungated ones, in any order, and the others in any order.
    ranks = pandas.Series(published).rank()
    order = sorted(published, key=published.__getitem__)
    found = []
    for low, high in itertools.product(itertools.permutations(order[:5]), itertools.permutations(order[5:])):
        places = {name: at for at, name in enumerate([*low, *high])}
        found.append(stats.pearsonr(ranks.index.map(places), ranks).statistic)
    print(f"two groups, any order within them: {np.mean(found):.3f}")
    gated = means[["geglu", "swiglu", "reglu"]].mean()
    every, without = means[["mlp", "gelu", "silu"]].mean() - gated, means[["mlp", "gelu"]].mean() - gated
    print(f"ungated − gated {every:.4f}, without Swish {without:.4f}, its share {every - without:.4f}")


def tuning(name: str) -> None:
    """The scores of tuning by cell and value, and how much worse the nearer neighbour of the chosen value is."""
    study = study_of(name)
    tuned = study.manifest.tuning
    assert tuned
    metrics = evidence.validated(study.manifest)
    lower = {cell: evidence.lower_is_better(study.manifest, metric) for cell, metric in metrics.items()}
    order = sorted(range(len(tuned.values)), key=lambda at: tuned.values[at])
    print("tuning, by", tuned.key, *(f"{tuned.values[at]:g}" for at in order))
    for cell in study.manifest.cells:
        own = tuned.cells[cell.id]
        scores = [own.scores[at] for at in order]
        chosen = [tuned.values[at] for at in order].index(own.value)
        near = [scores[at] for at in (chosen - 1, chosen + 1) if 0 <= at < len(scores) and scores[at] is not None]
        apart = min(abs(score - scores[chosen]) for score in near)
        shown = " ".join("diverged" if score is None else f"{score:.4f}" for score in scores)
        best = (min if lower[cell.id] else max)(score for score in scores if score is not None)
        behind = abs(scores[chosen] - best)
        print(f"  {cell.label:40} {shown}  chosen {own.value:g}, {behind:.4f} from the best, next {apart:.4f}")


def catalogue_tuned() -> None:
    """Tuning, and what withheld differences range over."""
    tuning("catalogue_tuned")
    study = study_of("catalogue_tuned")
    scores, manifest = evidence.scores(study), study.manifest
    base = next(cell.id for cell in manifest.cells if cell.reference)
    for cell in manifest.cells:
        apart = (scores[cell.id] - scores[base]).dropna()
        low, high = int((apart < 0).sum()), int((apart > 0).sum())
        p = min(1.0, len(manifest.cells[1:]) * stats.binomtest(high, low + high).pvalue) if low + high else 1.0
        span = f"{apart.min():+.4f} to {apart.max():+.4f}, higher in {high} of {len(apart)}"
        print(f"  {cell.label:40} mean {apart.mean():+.4f}, {span}, sign test × 48 {p:.4f}")


def lowest(scores: list[float]) -> tuple[float, float]:
    """How many octaves from the best rate the lowest point of a parabola through it and its two neighbours, each an
    octave away, lies, and how far below its score."""
    at = int(np.argmin(scores))
    octaves, least = vertex(np.arange(-1, 2), np.array(scores[at - 1 : at + 2]))
    return octaves, scores[at] - least


def wsd_cosine() -> None:
    """Tuning, how far below the best rate's score a parabola through it and its neighbours goes, and the two decays."""
    tuning("wsd_cosine")
    study = study_of("wsd_cosine")
    tuned = study.manifest.tuning
    assert tuned
    for cell in study.manifest.cells:
        scores = [math.nan if score is None else score for score in tuned.cells[cell.id].scores]
        octaves, gain = lowest(scores)
        rate = tuned.values[int(np.argmin(scores))] * 2**octaves
        print(f"  {cell.label:40} lowest at {rate:.2g}, {gain:.4f} below the best rate's")
    for steps, rows in study.runs.groupby("train.steps", sort=True):
        table = by_seed(rows, "schedule", "test/loss")
        apart = table["wsd(decay=0.2, form=sqrt)"] - table["wsd(decay=0.2)"]
        print(f"{steps} steps, sqrt − linear {worded(apart, 4)}")


def mqar_mixers() -> None:
    """Tuning, and how many seeds of each cell solve the task, with the range of accuracies."""
    tuning("mqar_mixers")
    study = study_of("mqar_mixers")
    solved = evidence.scores(study)
    for cell in study.manifest.cells:
        accuracy = study.runs.loc[study.runs["cell"] == cell.id, "test/accuracy"]
        span = f"{accuracy.min():.3f} to {accuracy.max():.3f}, median {accuracy.median():.3f}"
        count = f"{solved[cell.id].sum():.0f} of {len(accuracy)}"
        print(f"  {cell.label:90} solved {count}, mean {accuracy.mean():.3f}, {span}")


def rms_norm_speed() -> None:
    """Mean seconds of a step."""
    runs = study_of("rms_norm_speed").runs
    print((1000 * runs.groupby(["train.compile", "norm"])["train/step_seconds"].mean()).round(2).to_string())


def nope_exact() -> None:
    """The worst run within the lengths of training, and pairs of runs beyond them."""
    runs = study_of("nope_exact").runs
    print(f"worst at length 8: {runs['test/exact@8'].min():.4f}")
    for task, rows in runs.groupby("data", sort=False):
        table = by_seed(rows, "position", "test/exact@10")
        ahead = {other: int((table["none"] > table[other]).sum()) for other in ("alibi", "t5")}
        t5 = by_seed(rows, "position", "test/exact@9")["t5"]
        print(f"{task}, length 10, none ahead of: {ahead} of {len(table)}; T5 at 9: {t5.min():.3f} to {t5.max():.3f}")


FOUND = [xiong_gradients, qk_norm, qk_norm_sizes, mup_transfer, compute_ladder, glu_variants, catalogue_tuned]
FOUND += [rms_norm_speed, nope_exact, wsd_cosine, mqar_mixers]
BY_NAME = {"alibi_extrapolation-confirm-8": alibi_extrapolation_confirm} | {each.__name__: each for each in FOUND}
TUNED = ("catalogue", "catalogue_2", "batch_norm_tuned", "mqar_tuned", "catalogue_size")


def main() -> None:
    """Print the numbers of the named studies, or of all whose tables are there."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", nargs="*", choices=[[], *BY_NAME, *TUNED])
    for name in parser.parse_args().study or [*BY_NAME, *TUNED]:
        if (FOLDER / name).is_dir():
            print(f"== {name}")
            BY_NAME[name]() if name in BY_NAME else tuning(name)


if __name__ == "__main__":
    main()
