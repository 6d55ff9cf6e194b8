"""Numbers of committed studies by their textbook formulas: tests/recorded/independent.csv, which this script wrote.

It reads experiments/results/<study>/manifest.json and runs.csv, and imports nothing of this project, so that a mistake
in `ablate.evidence` cannot hide here.  `tests/evidence/test_independent_numbers.py` compares.  Written anew by

    .venv/bin/python tests/helpers/independent_numbers.py
"""

import itertools
import json
import math
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pandas
from scipy import stats

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "tests" / "recorded" / "independent.csv"
ALPHA = 0.05


@dataclass
class Study:
    """A study's cells with their levels, and its table of runs."""

    name: str
    cells: list[dict]
    claims: dict[str, dict]
    runs: pandas.DataFrame

    def scores(self, levels: dict[str, object], metric: str = "test/loss") -> np.ndarray:
        """The metric by seed, averaged over the cells that have these levels."""
        ids = []
        for cell in self.cells:
            if all(cell["levels"][factor] == level for factor, level in levels.items()):
                ids.append(cell["id"])
        assert ids, levels
        runs = self.runs[self.runs["cell"].isin(ids)]
        assert (runs["status"] == "done").all()
        assert (runs.groupby("seed").size() == len(ids)).all()
        return runs.groupby("seed")[metric].mean().sort_index().to_numpy(float)


def read(name: str) -> Study:
    """A committed study."""
    folder = ROOT / "experiments" / "results" / name
    manifest = json.loads((folder / "manifest.json").read_text())
    runs = pandas.read_csv(folder / "runs.csv")
    return Study(name, manifest["cells"], manifest["claims"], runs)


@dataclass
class Numbers:
    """The rows of independent.csv."""

    rows: list[dict] = field(default_factory=list)

    def add(self, study: str, table: str, row: str, what: str, **columns: float) -> None:
        """Values of some columns of one row of a table; `what` is the method, in words."""
        for column, value in columns.items():
            found = {"study": study, "table": table, "row": row, "column": column, "value": float(value), "what": what}
            self.rows.append(found)


# Formulas


def t_interval(differences: np.ndarray, alpha: float) -> tuple[float, float]:
    """Student's interval of a mean, 1 − alpha."""
    n = len(differences)
    error = np.std(differences, ddof=1) / math.sqrt(n)
    half = stats.t.ppf(1 - alpha / 2, n - 1) * error
    return float(np.mean(differences) - half), float(np.mean(differences) + half)


def t_test(differences: np.ndarray, against: float = 0.0) -> float:
    """Student's two-sided p of "the mean is `against`"."""
    return float(stats.ttest_1samp(differences, against).pvalue)


def add_paired(numbers: Numbers, study: str, row: str, differences: np.ndarray, m: int) -> None:
    """A row of `effects`: mean, SD, simultaneous interval and p of differences within seeds."""
    low, high = t_interval(differences, ALPHA / m)
    numbers.add(
        study,
        "effects",
        row,
        f"t over {len(differences)} within-seed differences, interval 1 - 0.05/{m}",
        mean=np.mean(differences),
        sd=np.std(differences, ddof=1),
        low=low,
        high=high,
        p=t_test(differences),
    )


def holm(p_values: dict[str, float]) -> dict[str, float]:
    """Holm's step-down p: the running maximum of (m − rank + 1)·p over rising p, at most 1."""
    adjusted: dict[str, float] = {}
    largest = 0.0
    remaining = len(p_values)
    for name in sorted(p_values, key=lambda each: p_values[each]):
        largest = max(largest, min(1.0, remaining * p_values[name]))
        adjusted[name] = largest
        remaining -= 1
    return adjusted


def welch_satterthwaite(groups: list[np.ndarray], weights: list[float], alpha: float) -> tuple[float, float, float]:
    """Interval and p of a weighted sum of means of independent groups (Welch 1947)."""
    mean = 0.0
    variance = 0.0
    denominator = 0.0
    for group, weight in zip(groups, weights, strict=True):
        own = weight**2 * np.var(group, ddof=1) / len(group)
        mean += weight * np.mean(group)
        variance += own
        denominator += own**2 / (len(group) - 1)
    df = variance**2 / denominator
    error = math.sqrt(variance)
    half = stats.t.ppf(1 - alpha / 2, df) * error
    return mean - half, mean + half, float(2 * stats.t.sf(abs(mean) / error, df))


def mcnemar(level: np.ndarray, reference: np.ndarray) -> float:
    """McNemar's exact two-sided p from the pairs in which only one side has a 1."""
    only_level = int(((level == 1) & (reference == 0)).sum())
    only_reference = int(((level == 0) & (reference == 1)).sum())
    if only_level + only_reference == 0:
        return 1.0
    return float(stats.binomtest(only_level, only_level + only_reference, 0.5).pvalue)


def clopper_pearson(count: int, n: int, alpha: float) -> tuple[float, float]:
    """The exact 1 − alpha interval of a share."""
    found = stats.binomtest(count, n).proportion_ci(1 - alpha, method="exact")
    return float(found.low), float(found.high)


def share_interval(level: np.ndarray, reference: np.ndarray, alpha: float) -> tuple[float, float]:
    """p10 − p01 of paired zeros and ones, each share within Clopper and Pearson's bounds at half the level."""
    n = len(level)
    p10 = clopper_pearson(int(((level == 1) & (reference == 0)).sum()), n, alpha / 2)
    p01 = clopper_pearson(int(((level == 0) & (reference == 1)).sum()), n, alpha / 2)
    return max(-1.0, p10[0] - p01[1]), min(1.0, p10[1] - p01[0])


def spearman(scores: np.ndarray, published: np.ndarray) -> np.ndarray:
    """Spearman's correlation of each row with the published numbers."""
    return np.array([stats.spearmanr(row, published).statistic for row in scores])


def permutation_p(scores: np.ndarray, published: np.ndarray) -> float:
    """Twice the share of all orders of the published numbers whose mean Spearman is as far or further on one side."""
    found = spearman(scores, published).mean()
    # Without ties Spearman's correlation is 1 − 6·Σd² / (n(n² − 1)).
    n = len(published)
    ranks = np.array([stats.rankdata(row) for row in scores])
    orders = np.array(list(itertools.permutations(stats.rankdata(published))))
    total = np.zeros(len(orders))
    for row in ranks:
        total += 1 - 6 * ((orders - row) ** 2).sum(axis=1) / (n * (n**2 - 1))
    means = total / len(ranks)
    as_far = means >= found - 1e-9 if found >= 0 else means <= found + 1e-9
    return float(min(1.0, 2 * as_far.mean()))


# Studies


def rms_norm(numbers: Numbers) -> None:
    """One factor of two levels, eight seeds, and a claim of equivalence within ±0.01."""
    study = read("rms_norm")
    ln = study.scores({"norm": "ln"})
    rms = study.scores({"norm": "rms"})
    add_paired(numbers, study.name, "norm: rms − ln", rms - ln, m=1)
    numbers.add(study.name, "cells", "rms", "mean and SD over seeds", mean=np.mean(rms), sd=np.std(rms, ddof=1))
    correlation = stats.pearsonr(ln, rms).statistic
    numbers.add(study.name, "cells", "rms", "Pearson's correlation over seeds with ln", correlation=correlation)
    wilson = stats.binomtest(0, 8).proportion_ci(0.95, method="wilson")
    what = "Wilson's 95 % interval of 0 diverged of 8"
    numbers.add(study.name, "cells", "rms", what, diverged_low=wilson.low, diverged_high=wilson.high)
    # The interval of level 1 − p touches the margin: twice the one-sided p of the test against it.
    distance = 0.01 - abs(np.mean(rms - ln))
    error = np.std(rms - ln, ddof=1) / math.sqrt(8)
    p = 2 * stats.t.sf(distance / error, 7)
    numbers.add(study.name, "claims", "as_good", "twice the larger one-sided p against ±0.01", p=p, p_holm=p)

    unpaired = "rms_norm, unpaired"
    found = stats.ttest_ind(rms, ln, equal_var=False)
    interval = found.confidence_interval(0.95)
    what = "Welch's t, two groups of 8"
    numbers.add(unpaired, "effects", "norm: rms − ln", what, low=interval.low, high=interval.high, p=found.pvalue)

    auto = "rms_norm, seeds=auto at 8 of 5, 8, 12, 20"
    low, high = t_interval(rms - ln, ALPHA / 4)
    what = "t at 0.05/4: the level is split evenly over four looks"
    numbers.add(auto, "effects", "norm: rms − ln", what, low=low, high=high, p=min(1.0, 4 * t_test(rms - ln)))


def glu_variants(numbers: Numbers) -> None:
    """Seven differences from the MLP, and three claims, one of them on ranks."""
    study = read("glu_variants")
    order = ["mlp", "gelu", "silu", "glu", "bilinear", "geglu", "swiglu", "reglu"]
    scores = {name: study.scores({"ffn": name}) for name in order}
    add_paired(numbers, study.name, "ffn: swiglu − mlp", scores["swiglu"] - scores["mlp"], m=7)
    add_paired(numbers, study.name, "ffn: gelu − mlp", scores["gelu"] - scores["mlp"], m=7)

    published = np.array(study.claims["as_published"]["claim"]["rank_correlates"][1])
    by_level = np.column_stack([scores[name] for name in order])
    by_seed = spearman(by_level, published)
    p_seeds = t_test(by_seed)
    p_orders = permutation_p(by_level, published)

    gated = (scores["geglu"] + scores["swiglu"] + scores["reglu"]) / 3
    plain = (scores["mlp"] + scores["gelu"] + scores["silu"]) / 3
    between = scores["geglu"] - scores["swiglu"]
    distance = 0.02 - abs(np.mean(between))
    error = np.std(between, ddof=1) / math.sqrt(len(between))
    p_values = {
        "gated_better": t_test(gated - plain),
        "order_free": float(2 * stats.t.sf(distance / error, len(between) - 1)),
        "as_published": max(p_seeds, p_orders),
    }
    adjusted = holm(p_values)
    low, high = t_interval(gated - plain, ALPHA / 3)
    what = "t over differences of three-variant means, interval 1 - 0.05/3"
    numbers.add(study.name, "claims", "gated_better", what, mean=np.mean(gated - plain), low=low, high=high)
    what = "Spearman's correlation, mean over seeds and its SD"
    numbers.add(study.name, "claims", "as_published", what, mean=by_seed.mean(), sd=by_seed.std(ddof=1))
    what = "larger of t over seeds and exact permutation of 8 levels"
    numbers.add(study.name, "claims", "as_published", what, p=p_values["as_published"])
    for name in p_values:
        numbers.add(study.name, "claims", name, "Holm over 3 claims", p_holm=adjusted[name])


def xiong_gradients(numbers: Numbers) -> None:
    """A grid of 2 × 2: two main effects, their interaction, and cells against the reference."""
    study = read("xiong_gradients")
    post = study.scores({"residual": "post"})
    pre = study.scores({"residual": "pre"})
    add_paired(numbers, study.name, "residual: post − pre", post - pre, m=3)
    pre_xavier = study.scores({"residual": "pre", "init": "xavier"})
    pre_small = study.scores({"residual": "pre", "init": "smallinit"})
    post_xavier = study.scores({"residual": "post", "init": "xavier"})
    post_small = study.scores({"residual": "post", "init": "smallinit"})
    interaction = (post_small - pre_small) - (post_xavier - pre_xavier)
    add_paired(numbers, study.name, "residual × init", interaction, m=3)
    # A cell against the reference is outside the family: a plain 95 % interval.
    add_paired(numbers, study.name, "post + smallinit against pre + xavier", post_small - pre_xavier, m=1)

    groups = [post_small, pre_small, post_xavier, pre_xavier]
    low, high, p = welch_satterthwaite(groups, [1, -1, -1, 1], ALPHA / 3)
    what = "Welch–Satterthwaite t of four groups of 5, interval 1 - 0.05/3"
    numbers.add("xiong_gradients, unpaired", "effects", "residual × init", what, low=low, high=high, p=p)

    low, high = t_interval(post_xavier - pre_xavier, ALPHA / 2)
    p_values = {
        "post_fails_with_xavier": t_test(post_xavier - pre_xavier, 0.3),
        "post_trains_with_smallinit": t_test(post_small - pre_small, 0.1),
    }
    adjusted = holm(p_values)
    what = "t against the margin 0.3, interval 1 - 0.05/2"
    row = "post_fails_with_xavier"
    numbers.add(study.name, "claims", row, what, low=low, high=high, p=p_values[row])
    for name in p_values:
        numbers.add(study.name, "claims", name, "Holm over 2 claims", p_holm=adjusted[name])


def ffn_bias(numbers: Numbers) -> None:
    """A main effect at two values of a setting, and how it depends on that."""
    study = read("ffn_bias")
    without = study.scores({"ffn": "swiglu", "ffn.bias": False}) - study.scores({"ffn": "mlp", "ffn.bias": False})
    with_bias = study.scores({"ffn": "swiglu", "ffn.bias": True}) - study.scores({"ffn": "mlp", "ffn.bias": True})
    # The first value, false, is the base of the interaction.
    row = "ffn × ffn.bias"
    add_paired(numbers, study.name, row, with_bias - without, m=3)


def catalogue_2(numbers: Numbers) -> None:
    """Differences from the reference, one at a time, with verdicts: m·p."""
    study = read("catalogue_2")
    mha = reference_scores(study)
    for attention in ("differential", "mla"):
        differences = study.scores({"attention": attention}) - mha
        row = f"attention: {attention} − mha"
        add_paired(numbers, study.name, row, differences, m=14)
        p = min(1.0, 14 * t_test(differences))
        numbers.add(study.name, "effects", row, "14·p, at most 1", p_bonferroni=p)


def reference_scores(study: Study) -> np.ndarray:
    """The scores of the cell that the manifest marks as the reference."""
    reference = next(cell for cell in study.cells if cell["reference"])
    runs = study.runs[study.runs["cell"] == reference["id"]]
    return runs.sort_values("seed")["test/loss"].to_numpy(float)


def catalogue_tuned(numbers: Numbers) -> None:
    """48 differences over 16 seeds; the sign test stands in where their adjusted skewness is beyond ±1.5."""
    study = read("catalogue_tuned")
    reference = reference_scores(study)
    for row, levels in {
        "init: gpt2 − smallinit": {"init": "gpt2"},
        "norm: dyt − ln": {"norm": "dyt"},
        "norm: bn − ln": {"norm": "bn"},
    }.items():
        differences = study.scores(levels) - reference
        assert abs(stats.skew(differences, bias=False)) <= 1.5
        add_paired(numbers, study.name, row, differences, m=48)
    for row, levels in {
        "norm: prms − ln": {"norm": "prms"},
        "residual: deepnorm − pre": {"residual": "deepnorm"},
    }.items():
        differences = study.scores(levels) - reference
        assert abs(stats.skew(differences, bias=False)) > 1.5
        p = stats.binomtest(int((differences > 0).sum()), len(differences), 0.5).pvalue
        interval = stats.quantile_test(differences, q=0, p=0.5).confidence_interval(1 - ALPHA / 48)
        what = "exact sign test, order-statistic interval of the median, 1 - 0.05/48"
        numbers.add(study.name, "effects", row, what, low=interval.low, high=interval.high, p=p)


def wsd_cosine(numbers: Numbers) -> None:
    """A main effect at four numbers of steps, its trend per doubling, and a claim on a difference of differences."""
    study = read("wsd_cosine")
    wsd = "wsd(decay=0.2, form=sqrt)"
    steps = [300, 600, 1200, 2400]
    differences = {}
    for number in steps:
        level = study.scores({"schedule": wsd, "train.steps": number})
        differences[number] = level - study.scores({"schedule": "cosine", "train.steps": number})
    row = f"schedule: {wsd} − cosine at train.steps=600"
    # 2 variants × 4 numbers of steps, 2 × 3 interactions and 2 trends.
    add_paired(numbers, study.name, row, differences[600], m=16)
    slopes = []
    for i in range(12):
        losses = [differences[number][i] for number in steps]
        slopes.append(stats.linregress(np.log2(steps), losses).slope)
    add_paired(numbers, study.name, f"schedule × train.steps: {wsd}, per doubling", np.array(slopes), m=16)
    keeps_up = differences[2400] - differences[300]
    low, high = t_interval(keeps_up, ALPHA / 6)
    what = "t over differences of differences against the margin 0.01, interval 1 - 0.05/6"
    numbers.add(
        study.name, "claims", "keeps_up", what, mean=np.mean(keeps_up), low=low, high=high, p=t_test(keeps_up, 0.01)
    )
    linear = study.scores({"schedule": "wsd(decay=0.2)", "train.steps": 2400})
    p_values = {f"at_{number}": t_test(differences[number], 0.01) for number in steps}
    p_values["keeps_up"] = t_test(keeps_up, 0.01)
    p_values["below_linear"] = t_test(study.scores({"schedule": wsd, "train.steps": 2400}) - linear)
    adjusted = holm(p_values)
    for name in ("keeps_up", "below_linear", "at_2400"):
        numbers.add(study.name, "claims", name, "Holm over 6 claims", p_holm=adjusted[name])


def rms_norm_speed(numbers: Numbers) -> None:
    """The seconds of a step, within seeds."""
    study = read("rms_norm_speed")
    metric = "train/step_seconds"
    differences = study.scores({"norm": "rms", "train.compile": True}, metric)
    differences = differences - study.scores({"norm": "ln", "train.compile": True}, metric)
    low, high = t_interval(differences, ALPHA / 3)
    numbers.add(
        study.name,
        "speed",
        "norm: rms − ln at train.compile=true",
        "t over seconds of a step, interval 1 - 0.05/3",
        mean=np.mean(differences),
        low=low,
        high=high,
        p=t_test(differences),
    )


def batch_norm(numbers: Numbers) -> None:
    """Claims on two metrics of the same runs."""
    study = read("batch_norm")
    ln = study.scores({"norm": "ln"})
    bn = study.scores({"norm": "bn"})
    powernorm = study.scores({"norm": "powernorm"})
    batch = bn - study.scores({"norm": "bn"}, "test/loss_batch")
    recalibrated = bn - study.scores({"norm": "bn"}, "test/loss_recalibrated")
    p_values = {
        "bn_worse": t_test(bn - ln),
        "powernorm_better": t_test(powernorm - ln),
        "powernorm_better_than_bn": t_test(powernorm - bn),
        "mismatch_costs_bn": t_test(batch),
        "stale_statistics": t_test(recalibrated),
    }
    adjusted = holm(p_values)
    low, high = t_interval(batch, ALPHA / 5)
    what = "t over differences of two metrics of a run, interval 1 - 0.05/5"
    numbers.add(study.name, "claims", "mismatch_costs_bn", what, mean=np.mean(batch), low=low, high=high)
    for name in p_values:
        numbers.add(study.name, "claims", name, "Holm over 5 claims", p_holm=adjusted[name])


def mqar_mixers(numbers: Numbers) -> None:
    """Shares of runs that solve a task (accuracy of 0.99 or more): exact tests and bounds."""
    study = read("mqar_mixers")
    length = "data.length+data.pairs+train.batch_size"

    def solved(attention: str, dim: int, setting: str) -> np.ndarray:
        levels = {"attention": attention, "model.dim": dim, length: setting}
        return (study.scores(levels, "test/accuracy") >= 0.99).astype(int)

    for level, dim, setting in (("gla", 32, "64+4+64"), ("mamba2", 32, "64+4+64"), ("gated_deltanet", 64, "128+8+32")):
        one = solved(level, dim, setting)
        other = solved("mha", dim, setting)
        row = f"attention: {level} − mha at model.dim={dim}, {length}={setting}"
        low, high = share_interval(one, other, ALPHA / 18)
        what = "difference of shares; Clopper–Pearson bounds of both discordant shares, 1 - 0.05/18 together"
        numbers.add(study.name, "effects", row, what, mean=np.mean(one - other), low=low, high=high)
        numbers.add(study.name, "effects", row, "McNemar's exact p", p=mcnemar(one, other))
        # Unpaired, the level of the interval is split between the two shares.
        p = stats.fisher_exact([[one.sum(), 10 - one.sum()], [other.sum(), 10 - other.sum()]]).pvalue
        numbers.add("mqar_mixers, unpaired", "effects", row, "Fisher's exact p, two groups of 10", p=p)
    p_values = {
        "attention_at_32": mcnemar(solved("mha", 32, "64+4+64"), solved("gla", 32, "64+4+64")),
        "attention_at_128_tokens": mcnemar(solved("mha", 64, "128+8+32"), solved("gla", 64, "128+8+32")),
        "delta_rule": mcnemar(solved("gated_deltanet", 64, "128+8+32"), solved("gla", 64, "128+8+32")),
    }
    adjusted = holm(p_values)
    for name, p in p_values.items():
        numbers.add(study.name, "claims", name, "McNemar's exact p, and Holm over 3 claims", p=p, p_holm=adjusted[name])


def xiong_warmup(numbers: Numbers) -> None:
    """Divergence, with the runs that end above a loss of 2.5 counted as diverged."""
    study = read("xiong_warmup")
    name = "xiong_warmup, losses above 2.5 diverged"
    where = {"optim.warmup": 0, "optim.lr": 0.004}
    post = (study.scores({"residual": "post", **where}) > 2.5).astype(int)
    pre = (study.scores({"residual": "pre", **where}) > 2.5).astype(int)
    what = "exact p of 4 against 0 of 5 pairs (McNemar)"
    numbers.add(name, "claims", "post_diverges", what, mean=np.mean(post - pre), p=mcnemar(post, pre))
    wilson = stats.binomtest(int(post.sum()), 5).proportion_ci(0.95, method="wilson")
    what = "Wilson's 95 % interval of 4 diverged of 5"
    row = "post + optim.warmup=0 + optim.lr=0.004"
    numbers.add(name, "cells", row, what, diverged_low=wilson.low, diverged_high=wilson.high)
    p = stats.fisher_exact([[post.sum(), 5 - post.sum()], [pre.sum(), 5 - pre.sum()]]).pvalue
    what = "Fisher's exact p of 4 of 5 against 0 of 5"
    numbers.add(f"{name}, unpaired", "claims", "post_diverges", what, p=p)


def all_numbers() -> pandas.DataFrame:
    """The rows of every study."""
    numbers = Numbers()
    rms_norm(numbers)
    glu_variants(numbers)
    xiong_gradients(numbers)
    ffn_bias(numbers)
    catalogue_2(numbers)
    catalogue_tuned(numbers)
    wsd_cosine(numbers)
    rms_norm_speed(numbers)
    batch_norm(numbers)
    mqar_mixers(numbers)
    xiong_warmup(numbers)
    return pandas.DataFrame(numbers.rows)


if __name__ == "__main__":
    all_numbers().to_csv(FILE, index=False, float_format="%.15g", lineterminator="\n")
