"""What a report says, section by section, as plain data: `report.md` and `report.html` write the same."""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

import pandas

from ablate import evidence, format
from ablate.config.schema import STUDY_KEYS
from ablate.format import listed, ranged
from ablate.format.settings import flat
from ablate.results import naming
from ablate.results.records import Manifest, Tuning
from ablate.results.tables import planned_cells
from analysis.case import Case
from analysis.writing import methods, methods_training, tables
from analysis.writing.sentences import sentences
from analysis.writing.sheet import Sheet

ALONE = "This study has one seed: nothing can be concluded from it."
WIDE = 6  # cells beside each other; more go below each other


class Picture(NamedTuple):
    """A figure that was written: its name, what it shows, its caption, and its files."""

    name: str
    says: str
    caption: list[str]
    files: list[str]


def captioned(says: str, caption: Sequence[str]) -> str:
    """What a figure shows and the lines of its caption, as one sentence."""
    lines = "; ".join(line.rstrip(".") for line in caption if line)
    return ": ".join(filter(None, [says[:1].upper() + says[1:].rstrip("."), lines])) + "."


class Section(NamedTuple):
    """A heading with what stands under it, in this order; whatever is empty is left out."""

    name: str
    title: str
    text: Sequence[str] = ()
    facts: Sequence[tuple[str, str]] = ()
    items: Sequence[str] = ()
    sheets: Sequence[Sheet] = ()
    pictures: Sequence[Picture] = ()


def sections(case: Case, pictures: Iterable[Picture] = ()) -> list[Section]:
    """All sections of a report in order; those that have nothing to say are left out."""
    pictured = Section("figures", "Figures", pictures=list(pictures))
    found = [question(case), claims(case), verdicts(case), plan(case), results(case), pictured, runs(case)]
    found += [differences(case), looks(case), left_out(case), described(case), provenance(case)]
    return [each for each in found if any(each[2:])]


def question(case: Case) -> Section:
    """What was asked, and where the answer holds."""
    manifest = case.study.manifest
    asked = manifest.question or _asked([naming.named(manifest, name) for name in manifest.factors])
    return Section("question", "Question", [line for line in (asked, naming.role(manifest)) if line])


def _asked(factors: list[str]) -> str:
    return f"What do{'es' if len(factors) == 1 else ''} {listed(factors)} change?" if factors else ""


def verdicts(case: Case) -> Section:
    """A sentence per effect that comes first, and what must be known with them."""
    notes = [tables.families(case), evidence.standing(case.study, case.effects, case.claims) or ""]
    notes += [evidence.unadjusted(case.study.manifest) or "", evidence.overfitting(case.study)]
    if len(case.study.manifest.seeds) == 1:
        notes.append(ALONE)
    elif naming.no_evidence(case.study.manifest):
        notes.append("This study serves another one: its differences are no effects of variants, and have no verdicts.")
    elif case.effects.empty:
        notes.append("Nothing is compared in this study.")
    else:
        known = evidence.headline(case.effects).query("low.notna()")
        simultaneous = (
            "simultaneous 95 % intervals" if known["family"].any() or known.empty else "exploratory intervals"
        )
        notes.append(f"Intervals are {simultaneous} over seeds; the scope of each sentence is in parentheses.")
    return Section("verdicts", "Verdicts", [note for note in notes if note], items=sentences(case))


def claims(case: Case) -> Section:
    """The claims with their verdicts, what they said before, and those that were withdrawn."""
    sheet = tables.claims_sheet(case)
    lines = [line.strip() for line in evidence.claim_lines(case.study.manifest, case.claims)]
    return Section("claims", "Claims", items=lines, sheets=[sheet] if sheet else [])


def plan(case: Case) -> Section:
    """The design as facts: factors, reference, cells, seeds, task, what was matched and tuned."""
    manifest = case.study.manifest
    levels = [
        f"{naming.named(manifest, name)}: {', '.join(naming.named(manifest, level) for level in found)}"
        for name, found in manifest.factors.items()
    ]
    reference = ", ".join(naming.assigned(manifest, *each) for each in manifest.reference.items())
    seeds, cells = manifest.seeds, manifest.cells
    count = f"{format.counted(len(cells), 'cell')} × {format.counted(len(seeds), 'seed')} = "
    tuned, sequence = manifest.tuning, manifest.sequential
    metrics = [f"{metric}{naming.unit(manifest, metric)}" for metric in evidence.measures(manifest)]
    facts = [
        ("factors", "; ".join(levels)),
        ("design", manifest.design.replace("_", " ")),
        ("reference", reference),
        ("runs", count + format.counted(len(case.study.runs), "run")),
        ("seeds", ranged([format.show(seed) for seed in seeds])),
        ("seeds=auto", f"looks at {', '.join(map(str, sequence.looks))}" if sequence else ""),
        ("task", ", ".join(dict.fromkeys(task.title for task in manifest.tasks.values()))),
        ("endpoint", f"{' or '.join(metrics)}, at the last step"),
        ("steps", _configured(manifest, "train", "steps")),
        (
            "learning rate",
            _configured(manifest, "optim", "lr") + " (tuned)" * bool(tuned and tuned.key == "optim.lr"),
        ),
        ("margin", evidence.margin_line(case.study).removeprefix("margin: ")),
        ("held equal", naming.matched(manifest)),
        ("tuning", _tuning(tuned) if tuned else ""),
        ("placebos", str(manifest.placebos or "")),
        ("exchange runs", str(manifest.exchange or "")),
    ]
    return Section("plan", "Plan", manifest.remarks, facts=[(name, text) for name, text in facts if text])


def _configured(manifest: Manifest, section: str, key: str) -> str:
    found = {getattr(getattr(cell.config, section), key) for cell in planned_cells(manifest) if cell.config.known}
    return ranged([format.setting(value) for value in sorted(found)])


def _tuning(tuned: Tuning) -> str:
    values = ", ".join(map(format.setting, tuned.values))
    anew = ", anew for each scored seed" * tuned.per_seed
    return f"{tuned.key} at {values}, {format.counted(tuned.seeds, 'tuning seed')} each{anew}"


def results(case: Case) -> Section:
    """The tables of effects, what they rest on, and cells."""
    return Section(
        "tables", "Tables", sheets=[each for each in tables.sheets(case) if each.name not in ("claims", "losses")]
    )


def runs(case: Case) -> Section:
    """Every run with its status."""
    study, metrics = case.study, evidence.endpoints(case.study.manifest)
    counts = study.runs["status"].value_counts()
    said = ", ".join(f"{counts[name]} {name}" for name in ("done", "diverged", "failed", "missing") if name in counts)
    scores = [_score(run, metrics[run["cell"]]) for run in study.runs.to_dict("records")]
    optional = {
        name: list(study.runs[name]) if name in study.runs else [None] * len(study.runs)
        for name in ("steps", "seconds")
    }
    over = evidence.overfit(study).notna()
    rows = [
        [
            run.label,
            str(run.seed),
            run.status + ", overfits" * bool(over[run.Index]),
            format.number(score, 4),
            *(_whole(value) for value in also),
            _path(run),
        ]
        for run, score, *also in zip(study.runs.itertuples(), scores, *optional.values(), strict=True)
    ]
    head = ["cell", "seed", "status", " or ".join(dict.fromkeys(metrics.values())), "steps", "seconds", "run"]
    return Section(
        "runs",
        "Runs",
        [f"{format.counted(len(study.runs), 'run')}: {said}."],
        sheets=[Sheet("runs", "Runs", head, rows, [])],
    )


def _score(run: dict[str, Any], metric: str) -> float:
    """A run's number in the metric of its own task, NaN where it has none."""
    value = run.get(metric)
    return float(value) if isinstance(value, int | float) and math.isfinite(value) else math.nan


def _path(run: Any) -> str:
    return run.path if isinstance(run.path, str) else "–"


def _whole(value: Any) -> str:
    return f"{value:.0f}" if format.known(value) else "–"


def differences(case: Case) -> Section:
    """The settings in which cells differ, and nothing of what they share."""
    cells = case.study.manifest.cells
    flat = settings(case.study.manifest)
    keys = dict.fromkeys(key for config in flat for key in config)
    differing = [key for key in keys if len({config.get(key, "–") for config in flat}) > 1]
    labels = [cell.label for cell in cells]
    if len(cells) <= WIDE:
        head, rows = ["setting", *labels], [[key, *(config.get(key, "–") for config in flat)] for key in differing]
    else:
        head = ["cell", *differing]
        rows = [
            [label, *(config.get(key, "–") for key in differing)] for label, config in zip(labels, flat, strict=True)
        ]
    sheet = Sheet("differences", "Settings in which cells differ", head, rows, [])
    return Section("differences", "Configuration differences", sheets=[sheet] if differing else [])


def settings(manifest: Manifest) -> list[dict[str, str]]:
    """The settings of each cell, without those that belong to its study."""
    configs = [cell.config.as_json().items() for cell in manifest.cells]
    return [flattened({key: value for key, value in config if key not in STUDY_KEYS}) for config in configs]


def common(manifest: Manifest) -> Sheet:
    """The settings that are equal in all resolved configurations, with their values."""
    first, *others = settings(manifest)
    shared = [[key, text] for key, text in first.items() if all(each.get(key) == text for each in others)]
    return Sheet("shared", f"Settings that all cells share ({len(shared)})", ["setting", "value"], shared, [])


def flattened(config: dict[str, Any]) -> dict[str, str]:
    """A configuration as texts by dotted names; a component's target goes by the component's name."""
    found = {key: value for key, value in flat(config).items() if not key.endswith("_partial_")}
    return {
        key.removesuffix("._target_"): json.dumps(value) if isinstance(value, list) else format.setting(value)
        for key, value in found.items()
    }


def looks(case: Case) -> Section:
    """When results were seen, at how many seeds, and whether that was planned."""
    lines = []
    for look in case.study.manifest.looks:
        count = format.counted(len(look.seeds), "seed")
        how = "planned by seeds=auto" if look.planned else f"in {look.study}" if look.study else ""
        lines.append(", ".join(filter(None, (f"{look.when or 'at an unknown time'}: {count}", how))))
    note = evidence.unadjusted(case.study.manifest)
    return Section("looks", "Looks at results", [note] if note else [], items=lines)


def left_out(case: Case) -> Section:
    """Runs and files that gave no number, and why."""
    sheet, notes = tables.losses_sheet(case), case.study.notes
    items = [f"damaged: {note}" for note in notes]
    text = [] if sheet or items else ["Nothing: every planned run ended with a number."]
    return Section("left-out", "What was left out, and why", text, items=items, sheets=[sheet] if sheet else [])


def described(case: Case) -> Section:
    """The methods paragraph."""
    return Section("methods", "Methods", [methods.markdown(case).strip()])


def noise(case: Case) -> Section:
    """What noise alone makes, where the study has placebos."""
    placebos = case.study.beside.get("placebos")
    return Section(
        "noise", "What noise alone does", items=evidence.placebo_lines(case.effects, placebos) if placebos else []
    )


def provenance(case: Case) -> Section:
    """Where the numbers come from: command, versions, code, hardware, data."""
    manifest, trained = case.study.manifest, case.study.runs
    versions = {name: str(text) for name, text in manifest.versions.items()}
    commits = {str(text): bool(dirty) for text, dirty in _pairs(trained, "commit", "dirty")}
    code = ", ".join(commit[:12] + " with changes not committed" * dirty for commit, dirty in commits.items())
    facts = [
        ("study", manifest.study),
        ("source", str(manifest.source or "")),
        ("command", manifest.command or ""),
        ("planned", f"{manifest.created}, last on {manifest.updated}" if manifest.updated else ""),
        ("versions", ", ".join(f"{name} {text}" for name, text in versions.items())),
        ("torch of the runs", ", ".join(methods_training.distinct(trained, "torch"))),
        ("git commit", code),
        ("device", ", ".join(methods_training.distinct(trained, "device"))),
        ("data", ", ".join(f"{task.name} ({key})" for key, task in manifest.tasks.items())),
        ("hash of the claims", str(manifest.claims_hash or "")),
    ]
    return Section("provenance", "Provenance", facts=[(name, text) for name, text in facts if text])


def _pairs(runs: pandas.DataFrame, *columns: str) -> list[tuple[Any, ...]]:
    known = runs.dropna(subset=list(columns)) if set(columns) <= set(runs) else runs.head(0)
    return list(dict.fromkeys(zip(*(known[name] for name in columns if name in known), strict=True)))
