"""Numbers of committed studies by their textbook formulas, from their manifest.json and runs.csv.

Nothing of this project is imported, so that a mistake in `ablate.evidence` cannot hide here.
`tests/evidence/test_independent_numbers.py` compares.
"""

import json
import math
from pathlib import Path

import numpy as np
import pandas
from scipy import stats
from statsmodels.stats.multitest import multipletests

RESULTS = Path(__file__).resolve().parents[2] / "experiments" / "results"
Columns = dict[str, float]
Rows = dict[tuple[str, str, str], Columns]  # by study, table and row


class Study:
    """A committed study."""

    def __init__(self, name: str):
        manifest = json.loads((RESULTS / name / "manifest.json").read_text())
        self.cells = manifest["cells"]
        self.claims = manifest["claims"]
        self.runs = pandas.read_csv(RESULTS / name / "runs.csv")

    def scores(self, levels: dict[str, object] | None = None, metric: str = "test/loss") -> np.ndarray:
        """The metric by seed, averaged over the cells with these levels; without levels that of the reference."""
        cells = []
        for cell in self.cells:
            if cell["reference"] if levels is None else levels.items() <= cell["levels"].items():
                cells.append(cell["id"])
        runs = self.runs[self.runs["cell"].isin(cells)]
        assert (runs["status"] == "done").all()
        return runs.groupby("seed")[metric].mean().sort_index().to_numpy(float)


def t_of(differences: np.ndarray, m: int, against: float = 0.0) -> Columns:
    """Student's t over differences within seeds: an interval of level 1 − 0.05/m, and p of a mean of `against`."""
    low, high = stats.ttest_1samp(differences, 0).confidence_interval(1 - 0.05 / m)
    p = stats.ttest_1samp(differences, against).pvalue
    return {"mean": np.mean(differences), "sd": np.std(differences, ddof=1), "low": low, "high": high, "p": p}


def p_within(differences: np.ndarray, margin: float) -> float:
    """Twice the larger one-sided p against ± the margin."""
    below = stats.ttest_1samp(differences, margin, alternative="less").pvalue
    above = stats.ttest_1samp(differences, -margin, alternative="greater").pvalue
    return 2 * max(below, above)


def holm(p_values: Columns) -> Columns:
    """Holm's step-down p."""
    return dict(zip(p_values, multipletests(list(p_values.values()), method="holm")[1], strict=True))


def welch_satterthwaite(groups: list[np.ndarray], weights: list[float], alpha: float) -> Columns:
    """Interval and p of a weighted sum of means of independent groups (Welch 1947)."""
    mean = sum(weight * np.mean(group) for group, weight in zip(groups, weights, strict=True))
    variances = [weight**2 * np.var(group, ddof=1) / len(group) for group, weight in zip(groups, weights, strict=True)]
    error = math.sqrt(sum(variances))
    df = error**4 / sum(v**2 / (len(group) - 1) for group, v in zip(groups, variances, strict=True))
    half = stats.t.ppf(1 - alpha / 2, df) * error
    return {"low": mean - half, "high": mean + half, "p": 2 * stats.t.sf(abs(mean) / error, df)}


def mcnemar(level: np.ndarray, reference: np.ndarray) -> float:
    """McNemar's exact two-sided p from the pairs in which only one side has a 1."""
    discordant = level - reference
    count = int(np.abs(discordant).sum())
    return float(stats.binomtest(int((discordant == 1).sum()), count).pvalue) if count else 1.0


def fisher(level: np.ndarray, reference: np.ndarray) -> float:
    """Fisher's exact p of two groups of zeros and ones."""
    return float(stats.fisher_exact([[side.sum(), len(side) - side.sum()] for side in (level, reference)]).pvalue)


def share_interval(level: np.ndarray, reference: np.ndarray, alpha: float) -> Columns:
    """Of p10 − p01 of paired zeros and ones, each share within Clopper and Pearson's bounds at half the level."""
    bounds = []
    for sign in (1, -1):
        count = int((level - reference == sign).sum())
        bounds.append(stats.binomtest(count, len(level)).proportion_ci(1 - alpha / 2, method="exact"))
    return {"low": bounds[0].low - bounds[1].high, "high": bounds[0].high - bounds[1].low}


def rms_norm(rows: Rows) -> None:
    """One factor of two levels, and a claim of equivalence within ±0.01; unpaired, and with looks."""
    study = Study("rms_norm")
    ln = study.scores({"norm": "ln"})
    rms = study.scores({"norm": "rms"})
    label = "norm: rms − ln"
    rows["rms_norm", "effects", label] = t_of(rms - ln, m=1)
    cell = {"mean": np.mean(rms), "sd": np.std(rms, ddof=1), "correlation": stats.pearsonr(ln, rms).statistic}
    wilson = stats.binomtest(0, 8).proportion_ci(0.95, method="wilson")
    rows["rms_norm", "cells", "rms"] = cell | {"diverged_low": wilson.low, "diverged_high": wilson.high}
    p = p_within(rms - ln, 0.01)
    rows["rms_norm", "claims", "as_good"] = {"p": p, "p_holm": p}
    welch = stats.ttest_ind(rms, ln, equal_var=False)
    interval = welch.confidence_interval(0.95)
    rows["rms_norm, unpaired", "effects", label] = {"low": interval.low, "high": interval.high, "p": welch.pvalue}
    at_look = t_of(rms - ln, m=4)  # the level is split evenly over four looks
    rows["rms_norm, seeds=auto at 8 of 5, 8, 12, 20", "effects", label] = at_look | {"p": min(1.0, 4 * at_look["p"])}


def glu_variants(rows: Rows) -> None:
    """Seven differences from the MLP; claims of means of three variants, of equivalence and of ranks."""
    study = Study("glu_variants")
    order = ["mlp", "gelu", "silu", "glu", "bilinear", "geglu", "swiglu", "reglu"]
    scores = {name: study.scores({"ffn": name}) for name in order}
    rows["glu_variants", "effects", "ffn: swiglu − mlp"] = t_of(scores["swiglu"] - scores["mlp"], m=7)

    published = stats.rankdata(study.claims["as_published"]["claim"]["rank_correlates"][1])
    ranks = stats.rankdata(np.column_stack(list(scores.values())), axis=1)
    by_seed = np.array([stats.pearsonr(seed, published).statistic for seed in ranks])
    by_order = stats.permutation_test(
        (published,), lambda order, axis: order @ ranks.mean(0), permutation_type="pairings", n_resamples=np.inf
    )
    gated = (scores["geglu"] + scores["swiglu"] + scores["reglu"]) / 3
    gain = gated - (scores["mlp"] + scores["gelu"] + scores["silu"]) / 3
    claims: dict[str, Columns] = {
        "gated_better": t_of(gain, m=3),
        "order_free": {"p": p_within(scores["geglu"] - scores["swiglu"], 0.02)},
        "as_published": {"mean": by_seed.mean(), "sd": by_seed.std(ddof=1)},
    }
    claims["as_published"]["p"] = max(stats.ttest_1samp(by_seed, 0).pvalue, by_order.pvalue)
    add_claims(rows, "glu_variants", claims)


def add_claims(rows: Rows, study: str, claims: dict[str, Columns]) -> None:
    """The rows of all claims of a study, with Holm's p."""
    adjusted = holm({name: columns["p"] for name, columns in claims.items()})
    for name, columns in claims.items():
        rows[study, "claims", name] = columns | {"p_holm": adjusted[name]}


def xiong_gradients(rows: Rows) -> None:
    """A grid of 2 × 2: a main effect, the interaction, a cell against the reference, and claims beyond margins."""
    study = Study("xiong_gradients")
    name = "xiong_gradients"
    rows[name, "effects", "residual: post − pre"] = t_of(
        study.scores({"residual": "post"}) - study.scores({"residual": "pre"}), m=3
    )
    pre_xavier = study.scores({"residual": "pre", "init": "xavier"})
    pre_small = study.scores({"residual": "pre", "init": "smallinit"})
    post_xavier = study.scores({"residual": "post", "init": "xavier"})
    post_small = study.scores({"residual": "post", "init": "smallinit"})
    groups = [post_small, pre_small, post_xavier, pre_xavier]
    interaction = (post_small - pre_small) - (post_xavier - pre_xavier)
    rows[name, "effects", "residual × init"] = t_of(interaction, m=3)
    rows[f"{name}, unpaired", "effects", "residual × init"] = welch_satterthwaite(groups, [1, -1, -1, 1], 0.05 / 3)
    # A cell against the reference is outside the family: a plain 95 % interval.
    rows[name, "effects", "post + smallinit against pre + xavier"] = t_of(post_small - pre_xavier, m=1)
    fails = t_of(post_xavier - pre_xavier, m=2, against=0.3)
    trains = t_of(post_small - pre_small, m=2, against=0.1)
    add_claims(rows, name, {"post_fails_with_xavier": fails, "post_trains_with_smallinit": trains})


def catalogue_tuned(rows: Rows) -> None:
    """48 differences over 16 seeds; the sign test stands in where their adjusted skewness is beyond ±1.5."""
    study = Study("catalogue_tuned")
    for row, levels in (("norm: dyt − ln", {"norm": "dyt"}), ("norm: prms − ln", {"norm": "prms"})):
        differences = study.scores(levels) - study.scores()
        is_skewed = abs(stats.skew(differences, bias=False)) > 1.5
        assert is_skewed == ("prms" in row)
        columns = t_of(differences, m=48)
        if is_skewed:
            interval = stats.quantile_test(differences, q=0, p=0.5).confidence_interval(1 - 0.05 / 48)
            p = stats.binomtest(int((differences > 0).sum()), len(differences)).pvalue
            columns |= {"low": interval.low, "high": interval.high, "p": p}
        rows["catalogue_tuned", "effects", row] = columns


def wsd_cosine(rows: Rows) -> None:
    """A main effect at four numbers of steps, its trend per doubling, and claims on differences of differences."""
    study = Study("wsd_cosine")
    wsd = "wsd(decay=0.2, form=sqrt)"
    steps = [300, 600, 1200, 2400]
    by_steps = []
    for number in steps:
        cosine = study.scores({"schedule": "cosine", "train.steps": number})
        by_steps.append(study.scores({"schedule": wsd, "train.steps": number}) - cosine)
    # 2 variants × 4 numbers of steps, 2 × 3 interactions and 2 trends
    rows["wsd_cosine", "effects", f"schedule: {wsd} − cosine at train.steps=600"] = t_of(by_steps[1], m=16)
    slopes = np.polyfit(np.log2(steps), np.array(by_steps), 1)[0]
    rows["wsd_cosine", "effects", f"schedule × train.steps: {wsd}, per doubling"] = t_of(slopes, m=16)
    linear = study.scores({"schedule": "wsd(decay=0.2)", "train.steps": 2400})
    claims = {f"at_{number}": t_of(by_steps[i], m=6, against=0.01) for i, number in enumerate(steps)}
    claims["keeps_up"] = t_of(by_steps[3] - by_steps[0], m=6, against=0.01)
    claims["below_linear"] = t_of(study.scores({"schedule": wsd, "train.steps": 2400}) - linear, m=6)
    add_claims(rows, "wsd_cosine", claims)


def mqar_mixers(rows: Rows) -> None:
    """Shares of runs that solve a task (accuracy of 0.99 or more): exact tests and bounds."""
    study = Study("mqar_mixers")
    length = "data.length+data.pairs+train.batch_size"

    def solved(attention: str, dim: int, setting: str) -> np.ndarray:
        levels = {"attention": attention, "model.dim": dim, length: setting}
        return (study.scores(levels, "test/accuracy") >= 0.99).astype(int)

    for level, dim, setting in (("gla", 32, "64+4+64"), ("gated_deltanet", 64, "128+8+32")):
        one = solved(level, dim, setting)
        other = solved("mha", dim, setting)
        row = f"attention: {level} − mha at model.dim={dim}, {length}={setting}"
        shares = {"mean": np.mean(one - other), "p": mcnemar(one, other)}
        rows["mqar_mixers", "effects", row] = shares | share_interval(one, other, 0.05 / 18)
        rows["mqar_mixers, unpaired", "effects", row] = {"p": fisher(one, other)}


STUDIES = (rms_norm, glu_variants, xiong_gradients, catalogue_tuned, wsd_cosine, mqar_mixers)
