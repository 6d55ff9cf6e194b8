"""Names of studies, factors, levels and units as they are shown to people."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ablate.config.choices import AGAIN, items_of, settings_in_parentheses, unzipped, variant_of
from ablate.config.claims import plain_metric
from ablate.config.designs import RUNG
from ablate.config.groups import names_in
from ablate.config.schema import BY_STEPS
from ablate.formatting import ranged, setting, show, size, visible
from ablate.runs.records import Cell, Manifest, TaskFacts, Way

FEW = 6  # a title lists at most this many factors by name
SWITCHES = {"true": "on", "false": "off", "null": "none"}  # levels of a setting
NEEDS_FACTOR = ("none", "null", "true", "false")  # values that are meaningless without their factor
SPLITS = {"test": "test", "val": "validation", "train": "training"}


def named(manifest: Manifest, name: Any, factor: str = "") -> str:
    """A factor, or a level of `factor`, as it is shown: by its label or the name that papers use, else its own text.
    The command line shows the keys that people type: `shown` is empty there."""
    text = show(name)
    return manifest.shown.get(f"{factor}={text}", manifest.shown.get(text, text))


def measured_as(metric: str) -> str:
    """A metric's name in its task, without split, length and statistics; bits per byte count as loss."""
    return plain_metric(metric).split("/")[-1].replace("bpb", "loss")


def directions(tasks: Iterable[TaskFacts]) -> dict[str, Way]:
    """Whether the largest (`max`) or the smallest value is best, by metric of these tasks."""
    ways: dict[str, Way] = {}
    for task in tasks:
        ways |= task.metrics
    return ways


def assigned(manifest: Manifest, factor: str, level: Any) -> str:
    """A factor's level that can stand alone: optim.lr=0.001 where keys are shown, else learning rate 1e-3, RMSNorm."""
    if not manifest.shown:
        return f"{factor}={show(level)}"
    return standing(key_name(manifest, factor), factor, show(level), named(manifest, level, factor))


def level_name(manifest: Manifest, factor: str, level: str) -> str:
    """A factor's value for use in a sentence: SwiGLU, learning rate 3e-3; norm=none where keys are shown."""
    name = named(manifest, level, factor)
    stands_alone = factor in manifest.components and (level not in NEEDS_FACTOR or name != level)
    return name if stands_alone else assigned(manifest, factor, level)


def key_name(manifest: Manifest, key: str) -> str:
    """A key in words, "learning rate", also if it is no factor; the key itself where keys are shown."""
    if not manifest.shown:
        return key
    return manifest.shown.get(key) or paper_names(manifest).get(key, key)


def standing(title: str, factor: str, level: str, name: str) -> str:
    """The name of a variant, or of keys that change together; the level of a setting, with the setting's title."""
    is_setting = "." in factor and "+" not in factor
    return f"{title} {name}" if is_setting or name == level else name


def paper_names(manifest: Manifest) -> dict[str, str]:
    """What papers and the user's folder call variants, keys and metrics; nothing for another program's runs."""
    if manifest.is_foreign:
        return {}
    return names_in() | {key: visible(name) for key, name in manifest.names.items()}


def paper_labels(manifest: Manifest) -> dict[str, str]:
    """What papers call a study's factors, its levels (by factor=level) and its metrics; else their keys.  Levels that
    would have one name keep their keys."""
    names = paper_names(manifest)
    labels = {}
    for factor, levels in manifest.factors.items():
        labels[factor] = " + ".join(names.get(key, key) for key in factor.split("+"))
        of_levels = {show(level): _level_name(factor, level, names) if names else show(level) for level in levels}
        counts = Counter(of_levels.values())
        for level, name in of_levels.items():
            labels[f"{factor}={level}"] = name if counts[name] == 1 else level
    metrics = ["train/loss"]
    for split in ("val", "test"):
        for task in manifest.tasks.values():
            metrics += [f"{split}/{name}" for name in task.metrics]
    for metric in metrics:
        labels[metric] = with_unit(manifest, metric, _metric_words(metric, names)) if names else metric
    return labels


def _level_name(factor: str, level: Any, names: Mapping[str, str]) -> str:
    """What papers call a level of a factor."""
    if "+" in factor:  # keys that change together
        parts = []
        for key, value in unzipped(factor, level).items():
            parts.append(standing(names.get(key, key), key, value, _level_name(key, value, names)))
        return ", ".join(parts) or show(level)
    if "." in factor or factor == RUNG:
        return SWITCHES.get(show(level), setting(level))
    return _variant_name(factor, show(level), names)


def _variant_name(group: str, choice: str, names: Mapping[str, str]) -> str:
    """What papers call a variant: 2 × Sliding window (window 4) + MHA for 2window(window=4)+mha."""
    parts = []
    for variant, times in items_of(choice):
        name = names.get(f"{group}={variant_of(variant)}")
        settings = [
            f"{names.get(f'{group}.{key}', key)} {value}".strip() for key, value in settings_in_parentheses(variant)
        ]
        if name is None:
            name = variant
        elif settings:
            name = f"{name} ({', '.join(settings)})"
        if times is None:
            name = f"{name} …"
        elif times > 1:
            name = f"{times} × {name}"
        parts.append(name)
    if choice.endswith(AGAIN):
        parts.append("…")
    return " + ".join(parts)


def metric_name(manifest: Manifest, *metrics: str) -> str:
    """Metrics as a heading, "test loss (nats per byte)"; where keys are shown, "test/loss, nats per byte"."""
    names = []
    for metric in metrics:
        name = manifest.shown.get(metric)
        if name is None and (manifest.is_foreign or not manifest.shown):
            name = metric + unit(manifest, metric)
        names.append(name or with_unit(manifest, metric, metric_words(manifest, metric)))
    return " or ".join(names)


def metric_words(manifest: Manifest, metric: str) -> str:
    """A metric in a sentence: "test loss", "test accuracy at length 128"."""
    if ", " in metric:  # of a claim about two
        return " − ".join(metric_words(manifest, part) for part in metric.split(", "))
    plain, _, length = metric.partition("@")
    words = manifest.shown.get(plain, "").removesuffix(with_unit(manifest, metric, ""))
    words = words or _metric_words(plain, names_in() | manifest.names)
    return f"{words} at length {length}" if length else words


def _metric_words(metric: str, names: Mapping[str, str]) -> str:
    split, _, name = metric.partition("/")
    return names.get(metric) or f"{SPLITS.get(split, split)} {names.get(name, name)}".strip()


def with_unit(manifest: Manifest, metric: str, words: str) -> str:
    """A metric in words with its unit in parentheses, if it has one."""
    name = unit(manifest, metric).removeprefix(", ")
    return f"{words} ({name})" if name else words


def unit(manifest: Manifest, metric: str) -> str:
    """The unit to append to a metric's name: ", nats per byte" for a loss, empty for most others."""
    name = metric.partition(",")[0].partition("@")[0].partition("/")[2]  # of a pair of compared metrics the first
    if name == "step_seconds":
        return ", s"
    tasks = [task for task in manifest.tasks.values() if name in task.metrics]
    ranked_by_it = [task for task in tasks if next(iter(task.metrics)) == name]
    tasks = ranked_by_it or tasks
    tokens = dict.fromkeys(task.token for task in tasks)
    units = {task.units[name] for task in tasks if name in task.units}
    return f", {units.pop()} per {', '.join(tokens)}" if len(units) == 1 and any(tokens) else ""


def title(manifest: Manifest) -> str:
    """The factors of a study, and its design unless it is a grid: "norm × ffn", "norm, ffn, init one at a time"."""
    factors = [named(manifest, name) for name in manifest.factors if name != RUNG]
    if not factors:
        return manifest.study
    if manifest.design == "grid":
        return " × ".join(factors)
    varied = ", ".join(factors) if len(factors) <= FEW else f"{len(factors)} factors"
    return f"{varied}, {manifest.design.replace('_', ' ')}"


def question_lines(manifest: Manifest) -> list[str]:
    """The question, the published result and the tier of a study file, one line each."""
    texts = {"question": manifest.question, "published": manifest.published, "tier": manifest.tier}
    return [f"{key}: {value}" for key, value in texts.items() if value]


def role(manifest: Manifest) -> str:
    """How a study serves another one; empty for an independent study."""
    if manifest.confirms:
        return f"confirmation of {manifest.confirms} on fresh seeds"
    if manifest.tunes:
        return f"tuning of {manifest.tunes}, by the validation split; it chooses settings and is no evidence"
    if manifest.exchange_of:
        return f"references of {manifest.exchange_of} for other numbers of steps; no effects of variants"
    return ""


def no_evidence(manifest: Manifest) -> bool:
    """Whether a study's differences are no effects of variants: tuning, references for other numbers of steps."""
    return bool(manifest.tunes or manifest.exchange_of)


def tracked_id(study: str, name: str) -> str:
    """The id at a tracking service of a study's run, by the path of its folder, or of a part of its dashboard."""
    return hashlib.sha256(f"{study}/{name}".encode()).hexdigest()[:16]


def matched(manifest: Manifest) -> str:
    """A sentence on the matched quantity and the largest deviation from it; empty without matching."""
    budgets = [cell.matched for cell in manifest.cells if cell.matched]
    if manifest.match == "none" or not budgets:
        return ""
    deviation = max(abs(budget.difference) for budget in budgets)
    chosen = "steps" if manifest.match == BY_STEPS else "widths"
    return f"{chosen} matched: {budgets[0].quantity} within {deviation * 100:.2g} %"


def notes(cells: Iterable[Cell]) -> list[str]:
    """The notes of these cells without repetitions."""
    return list(dict.fromkeys(note for cell in cells for note in cell.notes))


def scope(manifest: Manifest, among: Iterable[str], base: Iterable[str]) -> str:
    """The setting of a finding on cells: "0.8 M parameters, stdlib-3.11, 2000 steps"; parameters of `base`."""
    cells = {cell.id: cell for cell in manifest.cells}
    compared = [cells[name] for name in among]
    params = {int(cells[name].params or 0) for name in base}
    steps = {cell.config.train.steps for cell in compared if cell.config}
    parts = [f"{ranged(map(size, sorted(params - {0})))} parameters"] if params - {0} else []
    parts.append(ranged(manifest.tasks[cell.task].name for cell in compared))
    if steps:
        parts.append(f"{ranged(map(str, sorted(steps)))} steps")
    return ", ".join(parts)
