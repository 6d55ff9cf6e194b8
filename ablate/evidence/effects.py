"""Effects of a design with simultaneous intervals, their verdicts, and what else differs between their sides."""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from types import SimpleNamespace
from typing import Any, NamedTuple

import numpy as np
import pandas

from ablate.config.depth import is_patterned, named_settings, spelled
from ablate.config.schema import BY_STEPS, LAYERS, NO_NUMBERS, PLACED
from ablate.evidence.contrasts import NAMES, Contrast, contrasts
from ablate.evidence.equivalence import PAIRS, SEEDS, collapse_of, inside, margin_of, seen_words, within_margin
from ablate.evidence.error_rates import ALPHA, DECIDED, described, nominal, overall
from ablate.evidence.estimates import MATCHED, estimate_row, scored
from ablate.evidence.exact import is_solved, sign_flip_p
from ablate.evidence.normality import assumed, rejects_any, rejects_normality
from ablate.evidence.scores import given, unadjusted
from ablate.evidence.statistics import bonferroni, detectable, interval, p_value
from ablate.evidence.step_equivalents import WORTH, Worth, fits_in_steps, slopes, worth
from ablate.formatting import CROSSED, ESTIMATE_ONLY, OPEN, SPEED, counted, flat, p_words, ranks, setting
from ablate.results.naming import key_name, no_evidence
from ablate.results.records import Manifest
from ablate.results.study import Study
from ablate.results.tables import is_timed

STEP = "train/step_seconds"
ESTIMATE = ["n", "mean", "sd", "low", "high", "p", "p_bonferroni", "verdict", "note"]
GROUNDS = ["paired", "family", "unadjusted", "lower", "higher", "tied", "diverged", "diverged_reference"]
GROUNDS += ["failed", "missing", "alpha", "metric", "lower_is_better", "p_normal", "assumes", "correlation"]
GROUNDS += ["smallest", "margin", "margin_steps", "waits"]
COSTS = ["flops_ratio", "seconds_ratio"]
SECTIONS = ("norm", "ffn", "residual", "position", "attention", "init", "model", "data", "train", "optim")
# A variant's rule decides its width, whose cost is shown elsewhere; the other settings do not change results.
ASIDE = {*NO_NUMBERS, "ffn.hidden", "train.device"}
CHOSEN = {"params": {"ffn.mult", "ffn.multiple_of"}, "flops": {"ffn.mult", "ffn.multiple_of"}}
CHOSEN[BY_STEPS] = {"train.steps", "optim.warmup"}
NAMED = 3  # settings that a line lists
MANY = 24  # effects above which each factor's are sorted


class Noise(NamedTuple):
    """The noise of the paired effects of one kind."""

    kind: str
    sd: float  # over seeds, pooled
    n: int  # the smallest number of seeds of an effect
    spread: tuple[float, float]  # the smallest and largest SD
    finds: tuple[float, float]  # the smallest and largest difference that a new study of this size finds (80 % power)
    metric: str


def effects(study: Study, metric: str | None = None) -> pandas.DataFrame:
    """A row per contrast of the design, in the metric's unit, level minus reference.

    Family rows (main effects, two-way interactions) have simultaneous 95 % intervals: level 1 − 0.05/m, Bonferroni-t,
    with which p_bonferroni, min(1, m·p), agrees; the interval decides the verdict.  Other rows have the verdict
    "estimate only", a plain 95 % interval and no p_bonferroni.  Intervals of differences between shares (accuracies)
    end at −1 and 1.

    In a study with registered claims only these are tested: all rows here say "estimate only".

    With `seeds=auto` intervals and p allow for every look (see evidence.error_rates): p is the repeated p-value, and
    `alpha`, 1 − the nominal level of the row's interval, is smaller accordingly.  `metric` is that of each row's task
    unless one is given for all.  `smallest` is the difference that a new study of the same size detects with 80 % power
    at `alpha`, allowing for the SD being an estimate; NaN if this is not possible.  `flops_ratio`
    and `seconds_ratio` are the costs of training the level's side, divided by the reference's.
    """
    manifest, found, all_scores = study.manifest, contrasts(study.manifest), scored(study, metric)
    if manifest.design == "ladder":  # whose margin is that of trends
        manifest = dataclasses.replace(manifest, margin=None)
    margin, unplanned, others = margin_of(manifest.margin), bool(unadjusted(manifest)), also_of_each(manifest, found)
    flops, rows = {cell.id: cell.training_flops for cell in manifest.cells}, list[Any]()
    done = study.runs[study.runs["status"] == "done"].groupby("cell")
    seconds = done[study.time_column].mean().to_dict() if study.time_column else {}
    for each, also in zip(found, others, strict=True):
        collapse, trend = collapse_of(all_scores, each), each.kind == "trend"
        known = {name: getattr(each, name) for name in NAMES} | estimate_row(all_scores, each) | {"collapse": collapse}
        known |= {name: _ratio(each, costs) for name, costs in zip(COSTS, (flops, seconds), strict=True)}
        known |= {"family": each.kind != "cell", "unadjusted": unplanned, "also": "; ".join(also)}
        # A trend is a slope, to which a margin for differences does not apply.
        known |= {"margin": math.nan if trend else margin.size, "margin_steps": math.nan if trend else margin.steps}
        rows.append(SimpleNamespace(**known, given=given(manifest), fits=None))
    _correct(rows)
    exchange, metrics = study.beside.get("exchange"), {row.metric for row in rows if not row.different}
    slope_of = {metric: slopes(exchange, metric) for metric in metrics} if exchange else {}
    for each, row in zip(found, rows, strict=True):
        curves = slope_of.get(row.metric, {}) if each.kind != "trend" else {}  # which has another unit
        bounded = bool(curves) and math.isfinite(row.low)
        vars(row).update((worth(all_scores, each.weights, curves, row.alpha) if bounded else Worth())._asdict())
        if curves and manifest.margin and math.isfinite(margin.steps):
            row.fits = fits_in_steps(each, all_scores, margin.steps, curves)
    tested = not (no_evidence(manifest) or described(manifest))
    doubt = rejects_any([row.p_normal for row in rows if row.family])
    for row in rows:
        if tested and row.family:
            row.verdict, row.note, row.waits = _verdict(row, margin.registered)
        else:
            row.verdict, row.note, row.waits = *_estimate_only(row, tested), False
            row.p_bonferroni = math.nan
        silent = row.verdict in OPEN or is_solved(row.metric)
        row.assumes = "" if silent else assumed(row.n, doubt)
    columns = [*NAMES, *ESTIMATE, *GROUNDS, "also", "given", *COSTS, *WORTH, *[MATCHED] * (manifest.match != "none")]
    table = pandas.DataFrame({name: [getattr(row, name) for row in rows] for name in columns})
    if rows:
        return table
    numbers = ("mean", "sd", "low", "high", "p", "p_bonferroni", "alpha", "smallest", "margin", "margin_steps")
    kinds = dict.fromkeys(("family", "unadjusted", "paired", "waits"), bool) | dict.fromkeys(numbers, float)
    return table.astype(object).astype(kinds)


def speed(study: Study) -> pandas.DataFrame:
    """The effects on the seconds of a training step, as a separate family; empty for a study that is not timed.  The
    study's margin, its exchange runs and claims about other metrics concern its endpoint, so they are not used."""
    if not is_timed(study.manifest) or study.runs[STEP].isna().all():
        return pandas.DataFrame()
    both = study.manifest.claims, study.manifest.withdrawn
    claims, withdrawn = ({name: one for name, one in each.items() if SPEED.keys() & one.claim.metrics} for each in both)
    manifest = dataclasses.replace(study.manifest, margin=None, claims=claims, withdrawn=withdrawn)
    return effects(dataclasses.replace(study, manifest=manifest, beside={}), STEP)


def _ratio(contrast: Contrast, costs: dict[str, float]) -> float:
    """What the level's side costs, divided by what the reference's does; NaN for a difference of differences."""
    if contrast.kind in CROSSED:
        return math.nan
    one, other = (sum(w * costs.get(cell, math.nan) for cell, w in contrast.side(sign).items()) for sign in (1, -1))
    return one / other if other else math.nan


def _correct(rows: list[Any]) -> None:
    """Fill in p, its correction, the level and the interval of each row, which depend on the size of the family."""
    m = sum(row.family for row in rows)
    for row in rows:
        row.p = overall(row.looks, p_value(row.estimate)) if _tested(row) else math.nan
        row.p_bonferroni = float(bonferroni(row.p, m)) if row.family else math.nan
        row.alpha = nominal(row.looks, ALPHA / m if row.family else ALPHA)
        low, high = interval(row.estimate, row.alpha)
        # Differences of shares cannot exceed their reach, so clipping the interval does not reduce its coverage.
        row.low, row.high = float(np.maximum(low, -row.reach)), float(np.minimum(high, row.reach))
        row.smallest = detectable(row.estimate, row.alpha) if _tested(row) else math.nan
        if withheld(row):  # a difference between survivors is not an effect: only ranks are shown
            row.low = row.high = row.mean = row.sd = math.nan


def withheld(row: Any) -> bool:
    """Whether a row shows ranks only: its tasks differ, scores clump, divergence is unequal, or noise is not normal."""
    return bool(row.different or row.clumps or row.uneven or rejects_normality(row.p_normal))


def _tested(row: Any) -> bool:
    return not withheld(row) and row.n >= (PAIRS if row.paired else SEEDS)


def _estimate_only(row: Any, tested: bool) -> tuple[str, str]:
    """The word and the note of a row that is not tested; beside tested rows it says why it has no estimate."""
    reason = no_verdict(row) if tested else None
    if reason and reason[0] == "withheld":
        return reason
    return ESTIMATE_ONLY, reason[1] if reason else ""


def no_verdict(row: Any) -> tuple[str, str] | None:
    """withheld or undecided, with the reason, if a row has no valid interval; else None."""
    if row.different:
        return "withheld", "its configurations are scored on different tasks"
    if row.clumps:
        return "withheld", f"its task is solved or not, so that no t interval of {row.metric} is right; see test/solved"
    if row.uneven:
        crossed = getattr(row, "kind", "") in CROSSED
        where = ", unequally often at the values that it crosses" * crossed
        return "withheld", f"{counted(row.diverged, 'run')} diverged against {row.diverged_reference}{where}"
    if few := too_few(row.n, row.paired):
        return "undecided", few
    if not row.paired and row.n < SEEDS:
        return "undecided", f"unpaired, n < {SEEDS}"
    if row.estimate.exact:
        return None
    if row.sd == 0 and row.mean == 0:
        return "undecided", "equal in every seed"
    if row.sd == 0:
        return "undecided", "no spread between seeds, which no seeds of their own have"
    if rejects_normality(row.p_normal):
        what = "differences over seeds" if row.paired else "scores over seeds"
        # With counts that need no normality: in how many seeds the level is lower.
        signs = (
            p_words(sign_flip_p([1] * row.higher + [-1] * row.lower), "sign test, uncorrected:") if row.paired else ""
        )
        counts = ranks(row) + f" ({signs})" * bool(signs)
        return "withheld", f"{what} are not normal ({p_words(row.p_normal, 'Shapiro–Wilk')}); {counts}"
    return None


def too_few(n: int, paired: bool) -> str:
    """Why n seeds are too few for any conclusion; "" if they are enough."""
    if n < 2:
        return "one seed can conclude nothing" if n else "no seed has every run it needs"
    return f"fewer than {PAIRS} seeds have both sides" if paired and n < PAIRS else ""


def _verdict(row: Any, registered: bool) -> tuple[str, str, bool]:
    """The verdict, from the interval's position relative to zero and the margin, a note where more is needed, and
    whether more seeds may change it: one withheld for non-normality may, one withheld for divergence never does."""
    reason = no_verdict(row)
    if reason:
        return *reason, reason[0] == "undecided" or rejects_normality(row.p_normal)
    note = []
    if row.diverged + row.diverged_reference:
        other = "on each side" if row.diverged == row.diverged_reference else f"against {row.diverged_reference}"
        note.append(f"{counted(row.diverged, 'run')} diverged {other}")
    elif row.collapse.seen:
        note.append(seen_words(row.collapse))
    if small := within_margin(row):
        note += ["by a margin written after results"] * (not registered)
        return small, "; ".join(note), False
    note += [f"inside the margin, but n < {SEEDS}"] * (row.n < SEEDS and inside(row))
    zero = row.low <= 0 <= row.high
    word = "undecided" if zero else "better" if (row.high < 0) == row.lower_is_better else "worse"
    return word, "; ".join(note), zero


def headline(table: pandas.DataFrame) -> pandas.DataFrame:
    """The rows to show first: effects of the design, and single cells only if no effect has an interval.  A cell that
    diverges is part of every main effect, so single cells may have the study's only intervals."""
    design = table["kind"] != "cell"
    cells = table["n"].gt(1) & table.loc[design, "low"].isna().all()
    return table[design | cells]


def best_first(table: pandas.DataFrame) -> pandas.DataFrame:
    """If there are many rows, differences from a reference from the best to the worst of each factor, those without a
    mean last; steps and interactions stay in their order."""
    if len(table) <= MANY:
        return table
    factor = table.groupby(["family", "kind", "stratum", "factor"], sort=False).ngroup()
    gain = table["mean"].where(table["lower_is_better"].astype(bool), -table["mean"])
    return table.iloc[np.lexsort((gain.where(table["kind"].isin(["main", "cell"]), 0.0), factor))]


def foremost(table: pandas.DataFrame, most: int) -> pandas.DataFrame:
    """The rows to show if there is room for `most`: what is better, what is worse, what is decided otherwise, then the
    others, each by p; interactions after effects.  All rows in their order if they fit, and steps in theirs."""
    if len(table) <= most or table["kind"].eq("step").any():
        return table.head(most)
    rank = table["verdict"].map({"better": 0, "worse": 1} | dict.fromkeys(DECIDED[2:], 2)).fillna(3)
    return table.iloc[np.lexsort((table["p"].astype(float), rank, table["kind"].isin(CROSSED)))[:most]]


def noise(table: pandas.DataFrame) -> list[Noise]:
    """By kind of effect and metric: pooled SD, √(Σ (nᵢ−1)·sdᵢ² / Σ (nᵢ−1)), and the ranges of SD and `smallest`.  Only
    paired rows with an interval count.  Power is at each row's level: 0.05/m in a family, less with seeds=auto."""
    usable = table[(table["kind"] != "cell") & table["paired"].astype(bool) & np.isfinite(table["low"].astype(float))]
    found = []
    for (kind, metric), rows in usable.groupby(["kind", "metric"], sort=False):
        weights = rows["n"].to_numpy(float) - 1
        sd = math.sqrt(float(np.sum(weights * rows["sd"].to_numpy(float) ** 2) / weights.sum()))
        spread, finds = ((float(rows[name].min()), float(rows[name].max())) for name in ("sd", "smallest"))
        found.append(Noise(str(kind), sd, int(rows["n"].min()), spread, finds, str(metric)))
    return found


def also_of_each(manifest: Manifest, found: Iterable[Contrast]) -> list[list[str]]:
    """The settings, other than its factors, in which the sides of each contrast differ: "bias true → false".

    Only settings that both sides have count.  Those of the factor's group are listed without the group's name, and not
    at all if its variants are one class with other arguments.  Interactions have none: their sides have all levels.
    """
    settings = {}
    for cell in manifest.cells:
        whole = cell.config.as_json() if cell.config else {}
        config = {name: node for name, node in whole.items() if name in SECTIONS}
        for name, node in config.items():
            config[name] = node | {LAYERS: spelled(node[LAYERS])} if is_patterned(node) else node
        filled_in = {**cell.defaults, **flat(config)}
        settings[cell.id] = {key: setting(value) for key, value in filled_in.items()}
    return [list(_also(manifest, contrast, settings)) for contrast in found]


def _also(manifest: Manifest, contrast: Contrast, settings: dict[str, dict[str, str]]) -> Iterator[str]:
    cells = {cell.id: cell for cell in manifest.cells}
    sides = [[cells[name] for name in contrast.side(sign)] for sign in (-1, 1)]
    levels = [{name: {repr(cell.levels.get(name)) for cell in side} for name in manifest.factors} for side in sides]
    changed = [name for name in manifest.factors if levels[0][name] != levels[1][name]]
    own = {key for name in changed for key in name.split("+")}
    given = {(name, str(cell.levels.get(name))) for name in changed for side in sides for cell in side}
    own = own.union(*(named_settings(*each) for each in given))  # they are part of the level's name
    values: list[dict[str, set[str]]] = [{}, {}]
    for there, side in zip(values, sides, strict=True):
        for key, value in (pair for cell in side for pair in settings[cell.id].items()):
            there.setdefault(key, set()).add(value)
    aside = ASIDE | CHOSEN.get(manifest.match, set()) | own | ({manifest.tuning.key} if manifest.tuning else set())
    found = []
    for key in values[0].keys() & values[1].keys() if contrast.kind != "interaction" else ():
        group, _, name = key.partition(".")
        if f"{group}.{name.rpartition('.')[2] if group in PLACED else name}" in aside:  # without a pattern's variant
            continue
        follows = name == LAYERS and "model.layers" in own  # a pattern grows with the number of layers
        same_class = values[0].get(f"{group}._target_") == values[1].get(f"{group}._target_")
        of_variant = group in own and (name == "_target_" or same_class)
        if values[0][key] != values[1][key] and name != "_partial_" and not of_variant and not follows:
            found.append((group in own, key))
    order = {name: place for place, name in enumerate(SECTIONS)}
    for mine, key in sorted(found, key=lambda each: (not each[0], order[each[1].partition(".")[0]], each[1])):
        group, _, name = key.removesuffix(f".{LAYERS}").partition(".")
        texts = [sorted(side[key]) for side in values]
        if name == "_target_":
            texts = [[target.rpartition(".")[2] for target in side] for side in texts]
        called = key_name(manifest, group if name in ("_target_", "") else key)
        called = name if mine and not manifest.shown and called == key else called
        yield f"{called} {' → '.join(map(', '.join, texts))}"


def also_words(also: str) -> str:
    """The first settings of the column `also` of effects: "also differs in bias true → false"; "" if it is empty."""
    found = also.split("; ") if also else []
    more = f" and {counted(len(found) - NAMED, 'more setting')}" * (len(found) > NAMED)
    return f"also differs in {', '.join(found[:NAMED])}{more}" * bool(found)


def also_lines(manifest: Manifest) -> list[str]:
    """A line for each contrast that changes more than its factor: "ffn: swiglu − mlp also differs in …"."""
    named = [contrast for contrast in contrasts(manifest) if contrast.kind in ("main", "step")]
    labels = [contrast.label.removesuffix(f" at {contrast.stratum}") for contrast in named]
    both = zip(labels, also_of_each(manifest, named), strict=True)
    found = {label: also_words("; ".join(others)) for label, others in both if others}
    return [f"{label} {others}" for label, others in found.items()]


def same_setting_line(manifest: Manifest) -> list[str]:
    """A line on what to write for all variants to have the reference's value of a setting that one changes; [] if no
    variant changes a setting that all have."""
    named = [contrast for contrast in contrasts(manifest) if contrast.kind in ("main", "step")]
    for contrast, others in zip(named, also_of_each(manifest, named), strict=True):
        nodes = [vars(config).get(contrast.factor) for config in manifest.configs]
        for also in others:
            name, _, values = also.partition(" ")
            value = values.partition(" → ")[0]
            if all(isinstance(node, dict) and name in node for node in nodes):
                return [f"to give all the same {name} write {contrast.factor}.{name}={value}"]
    return []
