"""The methods paragraph, written from the manifest and the runs alone.

`templates/methods.txt` holds the sentences, one per line; this module provides their values and conditions.
"""

import re
from collections.abc import Iterable
from typing import Any

import pandas

from ablate import evidence, formatting
from ablate.config.choices import names_of, variant_of
from ablate.config.depth import is_patterned, spelled, variants_of
from ablate.config.designs import RUNG
from ablate.config.schema import BY_STEPS, LAYERS, NAMED, PLACED
from ablate.formatting import flat, listed, ranged
from ablate.runs import naming
from ablate.runs.records import Cell, Manifest
from ablate.runs.tables import is_timed
from analysis.case import Case
from analysis.prose import prose
from analysis.writing import tables
from analysis.writing.bibliography import cite, mention, names
from analysis.writing.latex import escape


def methods(case: Case) -> list[str]:
    """The sentences of the paragraph in order, with papers as marks from `bibliography.mention`."""
    manifest = case.study.manifest
    factors = manifest.factors.items()
    others = {name: levels for name, levels in factors if name != RUNG}
    cited = {name: listed(_cited(manifest, name, level) for level in levels) for name, levels in others.items()}
    varied = [f"{text} as {naming.named(manifest, name)}" for name, text in cited.items()]
    planned = [cell for cell in manifest.cells if cell.config is not None]
    schedules = [config.schedule for config in manifest.configs]
    passes = dict.fromkeys(formatting.epochs(manifest.passes(cell)) for cell in planned)
    found = {"m": manifest, "planned": planned, "passes": ranged(list(passes)), "BY_STEPS": BY_STEPS}
    found |= {"schedule": next((each for each in schedules if schedules.count(each) == len(schedules)), None)}
    found |= {"optimiser": list(filter(None, sorted({_class(config.optim) for config in manifest.configs})))}
    found |= {"configured": configured, "class_of": _class, "distinct": distinct, "mention": mention}
    found |= {"families": tables.families(case), "multipliers": case.further.get("ladder")}
    found |= {"varied": ", and ".join(filter(None, [", ".join(varied[:-1]), *varied[-1:]]))}
    found |= {"within": [naming.named(manifest, name) for name, _ in factors if name not in manifest.reference]}
    found |= _models(manifest) | _seeds(case) | _statistics(case) | _runs(case)
    return prose("methods.txt", study=case.study, table=case.effects, claims=case.claims, runs=case.study.runs, **found)


def markdown(case: Case) -> str:
    """The paragraph as plain text, with author-year citations in brackets."""
    named = names(case.study.manifest)
    text = " ".join(methods(case))
    return cite(case.study.manifest, text, lambda papers: f" ({'; '.join(named[key] for key in papers)})") + "\n"


def latex(case: Case) -> str:
    """The paragraph as LaTeX; \\cite needs references.bib."""
    marked = [cite(case.study.manifest, text, lambda papers: f"\0{','.join(papers)}\0") for text in methods(case)]
    lines = []
    for text in marked:
        parts = text.split("\0")  # texts and citation keys in turn
        lines.append("".join(rf"~\cite{{{part}}}" if i % 2 else escape(part) for i, part in enumerate(parts)))
    return "\\paragraph{Methods.}\n{\\emergencystretch=5em\n" + "\n".join(lines) + "\\par}\n"


def _cited(manifest: Manifest, factor: str, level: Any) -> str:
    shown = formatting.show(level)
    parts = [shown, *map(variant_of, names_of(shown))] if factor in PLACED else [variant_of(shown)]
    return naming.named(manifest, level, factor) + mention(manifest, *(f"{factor}={part}" for part in parts))


def _models(manifest: Manifest) -> dict[str, Any]:
    cells = [cell for cell in manifest.cells if cell.config is not None]
    forms = sorted({_class(config.model) for config in manifest.configs})
    # EncoderDecoder: encoder-decoder; acronyms stay.
    forms = [name if name.isupper() else re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower() for name in forms]
    shared = [part for part in NAMED if cells and _shared(manifest, cells, part)]
    common = {part: _class(getattr(cells[0].config, part)) for part in shared}
    return {
        "cells": cells,
        "form": listed(sorted(forms)),
        "shared": [f"{part} {name}{mention(manifest, part)}" for part, name in common.items() if name],
        "tasks": [f"{task.title} (fingerprint {key[:12]})" for key, task in manifest.tasks.items()],
    }


def _shared(manifest: Manifest, cells: list[Cell], part: str) -> bool:
    """Whether all cells have the same component, except for its settings that factors or matching change."""
    chosen = [key for factor in manifest.factors for key in factor.split("+")] + ["ffn.hidden"]
    own = {key.partition(".")[2] for key in chosen if key.startswith(f"{part}.")}
    nodes = [getattr(cell.config, part) for cell in cells]
    bare = [{k: v for k, v in node.items() if k not in own} if isinstance(node, dict) else node for node in nodes]
    return all(node == bare[0] for node in bare)


def _seeds(case: Case) -> dict[str, Any]:
    manifest, pairs = case.study.manifest, case.effects["paired"]
    others = [cell.shared_draws for cell in manifest.cells if not cell.reference]
    shared = list(filter(formatting.known, others))
    shares = [f"{share:.0%}".replace("%", " %") for share in (min(shared), max(shared))] if shared else []
    found, by_cell = evidence.measures(manifest), evidence.endpoints(manifest)
    metrics = []
    for metric in found:
        named = dict.fromkeys(manifest.tasks[cell.task].name for cell in manifest.cells if by_cell[cell.id] == metric)
        of = f" of {listed(named)}" * (len(found) > 1)
        metrics.append(naming.with_unit(manifest, metric, naming.metric_words(manifest, metric)) + of)
    paired = "all" if len(pairs) and pairs.all() else "some" if pairs.any() else ""
    return {"paired": paired, "shared_draws": " to ".join(dict.fromkeys(shares)), "metrics": metrics}


def _statistics(case: Case) -> dict[str, Any]:
    """What was compared, how, and what the verdicts assume."""
    manifest, table = case.study.manifest, case.effects
    known = {name for factor in table["factor"] for name in str(factor).split(" x ")}
    settings = dict.fromkeys(setting for *_, setting in evidence.crossings(manifest)) if len(table) else {}
    trends = table[table["kind"] == "trend"]
    units = dict.fromkeys(zip(trends["factor"].str.split(" x ").str[-1], trends["level"], strict=True))
    return {
        "crossed": [naming.named(manifest, name) for name in settings if name in known],
        "axes": dict.fromkeys(f"{level.split(', ')[-1]} of {naming.named(manifest, name)}" for name, level in units),
    }


def _runs(case: Case) -> dict[str, Any]:
    study, manifest, runs = case.study, case.study.manifest, case.study.runs
    counts = runs["status"].value_counts()
    lost = [f"{counts[name]} {name}" for name in ("diverged", "failed", "missing") if counts.get(name)]
    bare = int(counts.get("done", 0) - case.cells["n"].sum())
    others = study.beside.get("exchange")
    settings = [each for config in manifest.configs for each in flat(config.as_json()).items()]
    packages = {str(value).partition(".")[0] for key, value in settings if key.rpartition(".")[2] == "_target_"}
    cells = {cell.id: cell for cell in manifest.cells}
    trained = runs[runs["status"] == "done"]["cell"].map(cells)
    flops = [cell.training_flops / 3 for cell in trained if cell.training_flops > 0]  # of the forward passes
    return {
        "lost": lost + [f"{bare} done without the metric"] * (bare > 0),
        "unsolved": counts.get("diverged") and any(map(evidence.is_solved, evidence.measures(manifest))),
        "other_steps": others.manifest.cells if others else [],
        "others": sorted(packages - {"ablate", "torch"}),
        "flops": formatting.setting(float(f"{sum(flops):.1e}")) if flops else "",
        "took": "seconds" in runs and runs["seconds"].notna().any(),
        "timed": is_timed(manifest),
    }


def configured(cells: Iterable[Cell], section: str, key: str) -> str:
    """A setting's value, or its different values, over all cells; "" if no cell has it."""
    found = {str(value): value for cell in cells if (value := getattr(getattr(cell.config, section), key)) is not None}
    values: list[Any] = list(found.values())
    if all(isinstance(value, int | float) for value in values):
        values.sort()
    return ranged([listed(map(formatting.setting, value if isinstance(value, list) else [value])) for value in values])


def _class(node: Any) -> str:
    """The class of a component (RMSNorm), or those of a pattern (Window and MHA (5window+mha)); "" if unknown."""
    if is_patterned(node):
        return f"{listed(map(_class, variants_of(node)))} ({spelled(node[LAYERS])})"
    target = node.get("_target_", "") if isinstance(node, dict) else getattr(node, "_target_", "")
    return str(target).rpartition(".")[2]


def distinct(runs: pandas.DataFrame, column: str) -> list[str]:
    """The different values of a column; empty if there is no such column."""
    return [str(value) for value in runs[column].dropna().unique()] if column in runs else []
