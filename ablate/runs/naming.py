"""Names of studies, factors, levels and units as they are shown to people."""

import hashlib
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

from ablate.config.claims import plain_metric
from ablate.config.depth import AGAIN, items_of, settings_of, unzipped, variant_of
from ablate.config.designs import RUNG
from ablate.config.groups import names_in
from ablate.config.schema import BY_STEPS, VARIED
from ablate.formatting import ranged, setting, show, size, visible
from ablate.runs.records import Cell, Manifest

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


def assigned(manifest: Manifest, factor: str, level: Any) -> str:
    """A factor's level that can stand alone: optim.lr=0.001 where keys are shown, else learning rate 1e-3, RMSNorm."""
    if not manifest.shown:
        return f"{factor}={show(level)}"
    return standing(key_name(manifest, factor), factor, show(level), named(manifest, level, factor))


def level_name(manifest: Manifest, factor: str, level: str) -> str:
    """A factor's value for use in a sentence: SwiGLU, learning rate 3e-3; norm=none where keys are shown."""
    shown = named(manifest, level, factor)
    alone = factor in manifest.components and (level not in NEEDS_FACTOR or shown != level)
    return shown if alone else assigned(manifest, factor, level)


def key_name(manifest: Manifest, key: str) -> str:
    """A key in words, "learning rate", also if it is no factor; the key itself where keys are shown."""
    return manifest.shown.get(key, (names_in() | manifest.names).get(key, key) if manifest.shown else key)


def standing(title: str, factor: str, level: str, name: str) -> str:
    """The name of a variant, or of keys that change together; the level of a setting, with the setting's title."""
    alone = name != level and ("." not in factor or "+" in factor)
    return name if alone else f"{title} {name}"


def paper_labels(manifest: Manifest) -> dict[str, str]:
    """What papers call a study's factors, its levels (by factor=level) and its metrics; else their keys, as in runs of
    other programs.  Levels that would have one name keep their keys."""
    known = {} if manifest.is_foreign else names_in() | {key: visible(name) for key, name in manifest.names.items()}
    found = {}
    for factor, levels in manifest.factors.items():
        found[factor] = " + ".join(known.get(key, key) for key in factor.split("+"))
        names = {show(level): _level_name(factor, level, known) if known else show(level) for level in levels}
        counts = Counter(names.values())
        found |= {f"{factor}={level}": name if counts[name] == 1 else level for level, name in names.items()}
    scored = dict.fromkeys(name for task in manifest.tasks.values() for name in task.metrics)
    metrics = ["train/loss", *(f"{split}/{name}" for split in ("val", "test") for name in scored)]
    return found | {name: with_unit(manifest, name, _metric_words(name, known)) if known else name for name in metrics}


def _level_name(factor: str, level: Any, known: Mapping[str, str]) -> str:
    if "+" in factor:  # keys that change together
        pairs = unzipped(factor, level).items()
        each = [standing(known.get(key, key), key, value, _level_name(key, value, known)) for key, value in pairs]
        return ", ".join(each) or show(level)
    if "." in factor or factor == RUNG:
        return SWITCHES.get(show(level), setting(level))
    choice, texts = show(level), []  # 2 × Sliding window (window 4) + MHA for 2window(window=4)+mha
    for name, times in items_of(choice, {key.partition("=")[2] for key in known if key.startswith(f"{factor}=")}):
        shown = known.get(f"{factor}={variant_of(name)}")
        given = ", ".join(f"{known.get(f'{factor}.{key}', key)} {value}".strip() for key, value in settings_of(name))
        shown = name if shown is None else shown + f" ({given})" * bool(given)
        texts.append(f"{times} × {shown}" if (times or 1) > 1 else shown + " …" * (times is None))
    return " + ".join(texts + ["…"] * choice.endswith(AGAIN))


def metric_name(manifest: Manifest, *metrics: str) -> str:
    """Metrics as a heading, "test loss (nats per byte)"; where keys are shown, "test/loss, nats per byte"."""
    if manifest.is_foreign or not manifest.shown:
        return " or ".join(manifest.shown.get(metric) or metric + unit(manifest, metric) for metric in metrics)
    words = {metric: with_unit(manifest, metric, metric_words(manifest, metric)) for metric in metrics}
    return " or ".join(manifest.shown.get(metric, text) for metric, text in words.items())


def metric_words(manifest: Manifest, metric: str) -> str:
    """A metric in a sentence: "test loss", "test accuracy at length 128"."""
    if ", " in metric:  # of a claim about two
        return " − ".join(metric_words(manifest, each) for each in metric.split(", "))
    plain, _, length = metric.partition("@")
    label = manifest.shown.get(plain, "").removesuffix(with_unit(manifest, metric, ""))
    return (label or _metric_words(plain, names_in() | manifest.names)) + f" at length {length}" * bool(length)


def _metric_words(metric: str, known: Mapping[str, str]) -> str:
    split, _, name = metric.partition("/")
    return known.get(metric) or f"{SPLITS.get(split, split)} {known.get(name, name)}".strip()


def with_unit(manifest: Manifest, metric: str, words: str) -> str:
    """A metric in words with its unit in parentheses, if it has one."""
    found = unit(manifest, metric).removeprefix(", ")
    return words + f" ({found})" * bool(found)


def title(manifest: Manifest) -> str:
    """The factors of a study, and its design unless it is a grid: "norm × ffn", "norm, ffn, init one at a time"."""
    factors, design = [named(manifest, name) for name in manifest.factors if name != RUNG], manifest.design
    if not factors:
        return str(manifest.study)
    if design == "grid":
        return " × ".join(factors)
    varied = ", ".join(factors) if len(factors) <= FEW else f"{len(factors)} factors"
    return f"{varied}, {design.replace('_', ' ')}"


def question_lines(manifest: Manifest) -> list[str]:
    """The question, the published result and the tier of a study file, one line each."""
    texts = {"question": manifest.question, "published": manifest.published, "tier": manifest.tier}
    return [f"{key}: {value}" for key, value in texts.items() if value]


def role(manifest: Manifest) -> str:
    """How a study serves another one; empty for an independent study."""
    roles = {
        "confirms": "confirmation of {} on fresh seeds",
        "tunes": "tuning of {}, by the validation split; it chooses settings and is no evidence",
        "exchange_of": "references of {} for other numbers of steps; no effects of variants",
    }
    return next((text.format(name) for key, text in roles.items() if (name := getattr(manifest, key))), "")


def no_evidence(manifest: Manifest) -> bool:
    """Whether a study's differences are no effects of variants: tuning, references for other numbers of steps."""
    return any((manifest.tunes, manifest.exchange_of))


def tracked_id(study: str, name: str) -> str:
    """The id at a tracking service of a study's run, by the path of its folder, or of a part of its dashboard."""
    return hashlib.sha256(f"{study}/{name}".encode()).hexdigest()[:16]


def tracked_key(factor: str) -> str:
    """Where a tracked run's configuration holds the level of a factor, for W&B: `value` ends a name that has dots."""
    group, _, name = factor.partition(".")
    if "+" in factor:
        return f"{factor}.value"
    if not name:
        return f"{group}.variant" if group in ("model", "data", "optim") else group
    return f"components.{factor}" if group in VARIED else f"seed_{name}" if group == "seed" else factor


def matched(manifest: Manifest) -> str:
    """A sentence on the matched quantity and the largest deviation from it; empty without matching."""
    found = [cell.matched for cell in manifest.cells if cell.matched]
    if manifest.match == "none" or not found:
        return ""
    left = max(abs(each.difference) for each in found)
    chosen = "steps" if manifest.match == BY_STEPS else "widths"
    return f"{chosen} matched: {found[0].quantity} within {left * 100:.2g} %"


def notes(cells: Iterable[Cell]) -> list[str]:
    """The notes of these cells without repetitions."""
    return list(dict.fromkeys(note for cell in cells for note in cell.notes))


def unit(manifest: Manifest, metric: str) -> str:
    """The unit to append to a metric's name: ", nats per byte" for a loss, empty for most others."""
    name = metric.partition(",")[0].partition("@")[0].partition("/")[2]  # of a pair of compared metrics the first
    if name == "step_seconds":
        return ", s"
    tasks = [task for task in manifest.tasks.values() if name in task.metrics]
    tasks = [task for task in tasks if next(iter(task.metrics)) == name] or tasks  # prefer tasks that rank by it
    tokens = ", ".join(dict.fromkeys(task.token for task in tasks))
    units = {task.units.get(name) for task in tasks} - {None}
    return f", {units.pop()} per {tokens}" if tokens and len(units) == 1 else ""


def scope(manifest: Manifest, among: Iterable[str], base: Iterable[str]) -> str:
    """The setting of a finding on cells: "0.8 M parameters, stdlib-3.11, 2000 steps"; parameters of `base`."""
    cells = {cell.id: cell for cell in manifest.cells}
    found = [cells[name] for name in among]
    counts = [cells[name].params for name in base]
    params = sorted({int(count) for count in counts if count is not None})
    parts = [f"{ranged(map(size, params))} parameters"] if params else []
    steps = sorted({cell.config.train.steps for cell in found if cell.config is not None})
    parts.append(ranged(manifest.tasks[cell.task].name for cell in found))
    return ", ".join([*parts, *([f"{ranged(map(str, steps))} steps"] if steps else [])])
