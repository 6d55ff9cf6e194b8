"""The methods paragraph that an author would paste: about ten sentences from the manifest and the runs alone."""

import re
from collections.abc import Iterable
from typing import Any

import pandas

from ablate import evidence, formatting
from ablate.config.choices import names_of, variant_of
from ablate.config.depth import is_patterned, spelled, variants_of
from ablate.config.designs import RUNG
from ablate.config.schema import BY_STEPS, LAYERS, NAMED, PLACED
from ablate.evidence.claim_text import edited_and_withdrawn
from ablate.formatting import counted, listed, ranged
from ablate.runs import naming
from ablate.runs.records import Cell, Manifest
from analysis.case import Case
from analysis.writing.bibliography import cite, mention, names
from analysis.writing.latex import escape
from analysis.writing.tables import cautions, counts, families, sentence

DESIGNS = {
    "grid": "in all combinations",
    "one_at_a_time": "one at a time",
    "leave_one_out": "by leaving out one at a time",
    "cumulative": "by adding one after the other",
    "ladder": "one at a time on each rung of a ladder of sizes",
}
EFFECTS = {
    "grid": "main effects and two-way interactions",
    "cumulative": "differences of each step from the one before it",
}
STDLIB = "the source files of Python's standard library"
HELD_OUT = "about 5 % each are held out for validation and test, without near-copies in training"
LEARNING_RATE = "optim.lr"


def methods(case: Case) -> list[str]:
    """The sentences of the paragraph in order, with papers as marks from `bibliography.mention`."""
    texts = compared(case)
    cells = configured_cells(case.study.manifest)
    if cells:  # of runs of other programs nothing is known of models and training
        texts += [models(case, cells), training(case, cells), learning_rate(case, cells)]
    texts += [matching(case), tuning(case), seeds(case), metric(case, cells)]
    texts += [*effects(case), claims(case), losses(case), machine(case)]
    return [formatting.visible(text) for text in texts if text]


def markdown(case: Case) -> str:
    """The paragraph as plain text, with author-year citations in brackets."""
    named = names(case.study.manifest)
    text = " ".join(methods(case))
    return cite(case.study.manifest, text, lambda keys: f" ({'; '.join(named[key] for key in keys)})") + "\n"


def latex(case: Case) -> str:
    """The paragraph as LaTeX; \\cite needs references.bib."""
    lines = []
    for text in methods(case):
        marked = cite(case.study.manifest, text, lambda keys: f"\0{','.join(keys)}\0")
        line = ""
        for place, part in enumerate(marked.split("\0")):  # texts and citation keys in turn
            line += escape(part) if place % 2 == 0 else rf"~\cite{{{part}}}"
        lines.append(line)
    return "\\paragraph{Methods.}\n{\\emergencystretch=5em\n" + "\n".join(lines) + "\\par}\n"


def compared(case: Case) -> list[str]:
    """What was compared with what, and what changes besides."""
    manifest = case.study.manifest
    texts = []
    if manifest.source:
        texts.append(f"The runs were read from {manifest.source}; what they share is taken from there.")
    elif manifest.program:
        texts.append(f"The runs were trained by {manifest.program}.")
    if not manifest.factors:
        return [*texts, "One configuration was trained, so that nothing is compared."]
    varied = []
    for factor, levels in manifest.factors.items():
        if factor != RUNG:
            variants = listed(cited(manifest, factor, level) for level in levels)
            among = "between " if len(levels) > 1 else ""
            varied.append(f"{naming.named(manifest, factor)} {among}{variants}")
    design = f", {DESIGNS[manifest.design]}" if len(manifest.factors) > 1 else ""
    reference = listed(naming.assigned(manifest, factor, level) for factor, level in manifest.reference.items())
    count = counted(len(manifest.cells), "configuration")
    texts.append(f"We varied {'; '.join(varied)}{design}: {count}, with {reference} as the reference.")
    texts += [sentence(remark) for remark in manifest.remarks if not remark.startswith("only one variant")]
    for line in evidence.also_lines(manifest):
        change, _, others = line.partition(" also differs in ")
        texts.append(f"With {change}, the two sides also differ in {others}.")
    return texts


def cited(manifest: Manifest, factor: str, level: Any) -> str:
    """The name of a level with the papers of its variants."""
    text = formatting.show(level)
    parts = [text, *map(variant_of, names_of(text))] if factor in PLACED else [variant_of(text)]
    return naming.named(manifest, level, factor) + mention(manifest, *(f"{factor}={part}" for part in parts))


def models(case: Case, cells: list[Cell]) -> str:
    """The form, the size and the shared components of the models."""
    manifest = case.study.manifest
    kinds = {class_of(cell.planned_config.model) for cell in cells} - {""}
    forms = sorted(re.sub(r"\B(?=[A-Z])", "-", name).lower() for name in kinds)  # encoder-decoder
    params = ranged(map(formatting.size, sorted({int(cell.params or 0) for cell in cells})))
    sizes = {"layers": "layers", "heads": "heads", "dim": "width", "dropout": "dropout"}
    values = [f"{name} {settings(cells, 'model', key)}" for key, name in sizes.items()]
    parts = [f"{params} parameters ({', '.join(values)})"]
    for part in NAMED:
        classes = {class_of(getattr(cell.config, part)) for cell in cells}
        if part not in manifest.factors and len(classes) == 1 and "" not in classes:
            parts.append(f"{naming.key_name(manifest, part)} {classes.pop()}{mention(manifest, part)}")
    form = f"{listed(forms)} Transformers".strip()
    return f"The models are {form}{mention(manifest, 'model', 'preset')} with {listed(parts)}."


def training(case: Case, cells: list[Cell]) -> str:
    """The data, the budget and the optimiser."""
    manifest = case.study.manifest
    tasks = listed(dict.fromkeys(str(task.title) for task in manifest.tasks.values()))
    epochs = ranged(dict.fromkeys(formatting.epochs(manifest.passes(cell)) for cell in cells))
    steps = settings(cells, "train", "steps")
    examples = settings(cells, "train", "batch_size")
    tasks += about_data(manifest, cells)
    text = f"Each was trained on {tasks}{mention(manifest, 'data')} for {steps} steps of {examples} examples ({epochs})"
    classes = {class_of(cell.planned_config.optim) for cell in cells}
    optimisers = sorted(naming.paper_names(manifest).get(f"optim={name}", name) for name in classes)
    text += f" by {listed(optimisers)}{mention(manifest, 'optim')}"
    details = {"betas": "betas", "weight_decay": "weight decay", "grad_clip": "gradients clipped at norm"}
    for key, name in details.items():
        value = settings(cells, "optim", key)
        if value:
            text += f", {name} {value}"
    return f"{text}."


def about_data(manifest: Manifest, cells: list[Cell]) -> str:
    """What the text of a language model is and what is held out, in parentheses; "" where that is not known."""
    if len(manifest.tasks) != 1:
        return ""
    [task] = manifest.tasks.values()
    facts = []
    if task.train_tokens is not None and task.token:
        facts.append(f"{formatting.size(task.train_tokens)} {task.token}s for training")
    if class_of(cells[0].planned_config.data) == "Stdlib":
        facts = [STDLIB, *facts, HELD_OUT]
    return f" ({'; '.join(facts)})" if facts else ""


def learning_rate(case: Case, cells: list[Cell]) -> str:
    """The schedule of the learning rate, and whether it was tuned."""
    peak = settings(cells, "optim", "lr")
    warmup = settings(cells, "optim", "warmup")
    configs = [cell.planned_config for cell in cells]
    chosen = ""
    tuned = case.study.manifest.tuning
    if len({config.optim.lr for config in configs}) == 1 and not (tuned and tuned.key == LEARNING_RATE):
        chosen = ", which all configurations share and which was not tuned,"
    schedule = listed(sorted({class_of(config.schedule).lower() for config in configs}))
    floor = "" if schedule == "constant" else f", to {settings(cells, 'optim', 'min_lr_ratio')} of the peak"
    course = f"with a {schedule} schedule after {warmup} steps of linear warm-up{floor}"
    return f"The learning rate{chosen} is {peak} at its peak, {course}."


def matching(case: Case) -> str:
    """What was matched."""
    manifest = case.study.manifest
    quantity, _, within = naming.matched(manifest).partition(": ")[2].partition(" within ")
    if not quantity:
        return ""
    adjusted = "numbers of steps" if manifest.match == BY_STEPS else "FFN widths"
    return f"The {adjusted} were chosen so that {quantity} are within {within} of the reference's."


def tuning(case: Case) -> str:
    """What was tuned, and how."""
    manifest = case.study.manifest
    tuned = manifest.tuning
    if not tuned:
        return ""
    values = listed(map(formatting.setting, tuned.values))
    rule = ", taking the smallest within one standard error of the best" if tuned.rule == "one_se" else ""
    text = f"The {naming.key_name(manifest, tuned.key)} was tuned for each configuration over {values}"
    how = f"with {counted(tuned.seeds, 'seed')} each by the validation split{rule}"
    return f"{text} {how} (intervals ignore the noise of tuning)."


def seeds(case: Case) -> str:
    """The seeds, and what the runs of one seed share."""
    manifest = case.study.manifest
    seeds_of_cells = case.study.runs.groupby("cell")["seed"].nunique()
    number = counted(len(manifest.seeds), "seed")
    if seeds_of_cells.max() > len(manifest.seeds):
        number = f"{ranged(map(str, sorted(seeds_of_cells)))} seeds"
    text = f"Every configuration was trained with {number} ({ranged(map(str, manifest.seeds))})"
    if manifest.confirms:
        text += f", which had not been scored in {manifest.confirms}"
    is_paired = case.effects["paired"]
    if case.effects.empty:
        return f"{text}."
    if not is_paired.any():
        return f"{text}; comparisons are unpaired (Welch)."
    which = "" if is_paired.all() else "; some comparisons are unpaired (Welch)"
    if manifest.is_foreign:
        return f"{text}; comparisons are paired by seed{which}."
    batches = "for a given seed, a configuration sees the same batches in the same order as the reference"
    fixed = {config.seed.data for config in manifest.configs}
    if len(fixed) == 1 and fixed != {None}:
        batches = f"all runs see the same batches in the same order, those of seed {fixed.pop()}"
    return f"{text}; {batches}, so that seeds pair{which}."


def metric(case: Case, cells: list[Cell]) -> str:
    """The metric, and when and over how much it is measured, where that is known."""
    manifest = case.study.manifest
    metrics = []
    for name in evidence.measures(manifest):
        metrics.append(naming.with_unit(manifest, name, naming.metric_words(manifest, name)))
    where = ""
    if cells:
        tokens = sorted({cell.planned_config.eval.tokens for cell in cells})
        positions = ranged(f"{count:,}" for count in tokens)
        where = f" at the last step, over up to {positions} positions of held-out data"
    return f"The metric is {listed(metrics)}{where}."


def effects(case: Case) -> list[str]:
    """What effects are, how they are tested, and in which unit they are also given."""
    manifest = case.study.manifest
    table = case.effects
    if len(manifest.seeds) == 1:
        return ["One seed gives no interval and no verdict."]
    if naming.no_evidence(manifest):
        return [sentence(f"{naming.role(manifest)}; no verdict is given")]
    if table.empty:
        return []
    family = int(table["family"].sum())
    factors = [name for name in manifest.factors if name in manifest.reference]
    what = EFFECTS.get(manifest.design, "differences of each changed configuration from the reference")
    if len(factors) == 1 and manifest.design == "grid":
        what = "differences of each value from the reference"
    text = f"Effects are {what}{', computed within each seed' if table['paired'].all() else ''}"
    if family:
        kind = evidence.interval_kind(table["metric"])
        judged = "" if evidence.described(manifest) else ", which decide the verdicts"
        text += f", with simultaneous 95 % intervals over seeds ({kind}, {counted(family, 'effect')}){judged}"
    if family < len(table):
        text += "; other comparisons are estimates only, with 95 % intervals that are not corrected"
    texts = [f"{text}."]
    margin = evidence.margin_words(manifest.margin)
    if margin and not evidence.described(manifest):
        late = "" if evidence.margin_of(manifest.margin).registered else ", which was written after results,"
        texts.append(f"Differences within a margin of {margin}{late} count as negligible or equivalent.")
    if "exchange" in case.study.beside:
        texts.append("Effects are also given in training steps of the reference, with Fieller's intervals.")
    if manifest.sequential:
        looks = listed(map(str, manifest.sequential.looks))
        texts.append(f"Interim analyses were planned at {looks} seeds; the 5 % are split evenly over them.")
    return [*texts, families(case), *cautions(case.study)]


def claims(case: Case) -> str:
    """The claims, and how they are decided."""
    changed = edited_and_withdrawn(case.study.manifest)
    if case.claims.empty:
        return changed
    registered = int(case.claims["registered"].sum())
    count = counted(len(case.claims), "claim")
    text = f"The study file makes {count}, {registered or 'none'} of them registered before any seed had results"
    judged = "; Holm's step-down decides these at 5 %" if registered else ""
    return f"{text} on both sides{judged}. {changed}".rstrip()


def losses(case: Case) -> str:
    """The runs without a result."""
    total = counted(len(case.study.runs), "run")
    scored = int(case.cells["n"].sum())
    if scored == len(case.study.runs):
        return f"All {total} ended with a result."
    return f"{scored} of {total} have a result ({counts(case.study).partition(': ')[2]})."


def machine(case: Case) -> str:
    """The machine and the cost."""
    runs = case.study.runs
    devices = distinct(runs, "device")
    if not devices:
        return ""
    torch = distinct(runs, "torch")
    text = f"The runs were trained on {listed(devices)}{f' with PyTorch {ranged(torch)}' if torch else ''}"
    if "seconds" in runs and runs["seconds"].notna().any():
        text += f"; they took {formatting.duration(runs['seconds'].sum())} in sum"
    return f"{text}."


def configured_cells(manifest: Manifest) -> list[Cell]:
    """The configurations whose settings are known."""
    return [cell for cell in manifest.cells if cell.config is not None]


def settings(cells: Iterable[Cell], section: str, key: str) -> str:
    """A setting's value, or its different values, over configurations; "" if none has it."""
    values = {}
    for cell in cells:
        value = getattr(getattr(cell.planned_config, section), key)
        if value is not None:
            values[str(value)] = value
    ordered: list[Any] = list(values.values())
    if all(isinstance(value, int | float) for value in ordered):
        ordered.sort()
    return ranged(listed(map(formatting.setting, value if isinstance(value, list) else [value])) for value in ordered)


def class_of(node: Any) -> str:
    """The class of a component (RMSNorm), or those of a pattern (Window and MHA (5window+mha)); "" if unknown."""
    if is_patterned(node):
        return f"{listed(map(class_of, variants_of(node)))} ({spelled(node[LAYERS])})"
    target = node.get("_target_", "") if isinstance(node, dict) else getattr(node, "_target_", "")
    return str(target).rpartition(".")[2]


def distinct(runs: pandas.DataFrame, column: str) -> list[str]:
    """The different values of a column; empty if there is no such column."""
    return [str(value) for value in runs[column].dropna().unique()] if column in runs else []
