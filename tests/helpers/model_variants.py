"""Every variant on disk: configurations, models, inputs and the forms of models that they fit."""

import copy
from collections.abc import Iterable
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F
from empty_task import Blank
from reference_config import component
from torch import Tensor, nn

from ablate.config.components import resolve
from ablate.config.groups import defaults, groups
from ablate.config.schema import BUILT, COMPONENTS, Config, typed
from ablate.model.build import initialised_model
from ablate.training.vectors import tables_of

VOCAB = 13
CONTEXT = 12
SHAPE = {"layers": 2, "heads": 2, "dim": 16}
# A sixteenth of sixteen features is one, and x / |x₁| knows no bounds.
SETTINGS: dict[str, dict[str, Any]] = {"prms": {"share": 0.5}, "factorised": {"width": 6}}
REFERENCE = defaults()
ALONE = [group for group in COMPONENTS if group != "cross_attention"]  # whose variants attention has, too
LM = ("decoder", "lm")
SEQ2SEQ = ("encoder_decoder", "seq2seq")


def variants(group: str) -> list[str]:
    """The variants of a group on disk."""
    return sorted(groups()[group])


def class_of(group: str, variant: str) -> Any:
    """The class, or function, of a variant."""
    return resolve(group, component(group, variant)["_target_"])


def without_formula(group: str, known: Iterable[str], how: str) -> str:
    """What to write for variants of a group that no formula of the tests holds; nothing where all have one."""
    missing = sorted({*variants(group)} - {*known})
    return "".join(f"\nablate/conf/{group}/{name}.yaml has no formula: {how.format(name=name)}" for name in missing)


def cells_of_one_change() -> list[dict[str, str]]:
    """The reference and each variant in its place."""
    cells: list[dict[str, str]] = [{}]
    for group in ALONE:
        cells += [{group: name} for name in variants(group) if name != REFERENCE[group]]
    return cells


def forms() -> list[tuple[str, str]]:
    """Each model with each kind of task that it is for."""
    pairs = []
    for model in variants("model"):
        pairs += [(model, kind) for kind in class_of("model", model).kinds]
    return pairs


def one_way(group: str) -> set[str]:
    """The variants of a group that read from left to right alone."""
    return {name for name in variants(group) if getattr(class_of(group, name), "causal_only", False)}


CELLS = cells_of_one_change()
# Few cells that hold every variant at least once, for what is slow.
LONGEST = max(len(variants(group)) for group in ALONE)
COVER = [{group: variants(group)[i % len(variants(group))] for group in COMPONENTS} for i in range(LONGEST)]
FORMS = forms()
ONE_WAY = one_way("attention")
ONE_WAY_POSITIONS = one_way("position")
SCORING = [name for name in variants("attention") if ".mixers." not in component("attention", name)["_target_"]]
RUNNING = [{"norm": name} for name in variants("norm") if hasattr(class_of("norm", name), "drift")]


def admits(form: tuple[str, str], group: str, name: str) -> bool:
    """Whether a form can do with a variant: no classifier with InstanceNorm, which sets what it reads to zero; no
    encoder with what reads from left to right, and two stacks only where another attention reads the source."""
    if name in ONE_WAY_POSITIONS:
        return form[0] == "decoder"
    if form[1] == "classification" and (group, name) == ("norm", "instance"):
        return False
    return form[0] == "decoder" or form[1] == "seq2seq" or name not in ONE_WAY


def covering_in(form: tuple[str, str]) -> list[dict[str, str]]:
    """Few cells that hold every variant that a form can do with at least once, positions beside attentions that read
    them; no residual path stands alone, where little of what is changed reaches the end."""
    alone = {"residual": "none"}
    fit = {
        group: [name for name in variants(group) if {group: name} != alone and admits(form, group, name)]
        for group in COMPONENTS
    }
    fit["attention"].sort(key=lambda name: name not in SCORING)
    cells = [{group: names[i % len(names)] for group, names in fit.items()} for i in range(max(map(len, fit.values())))]
    across = [{"cross_attention": "mha"} if cell["attention"] in ONE_WAY else {} for cell in cells]
    return [cell | other for cell, other in zip(cells, across, strict=True)] + [alone]


def cells_in_forms() -> list[tuple[tuple[str, str], dict[str, str]]]:
    """Several variants at once in a decoder and in two stacks, of which one reads both ways; the other forms differ
    around their stacks alone, where norms that read masks may stand."""
    pairs: list[tuple[tuple[str, str], dict[str, str]]] = [(LM, {})]
    for form in (LM, SEQ2SEQ):
        pairs += [(form, cell) for cell in covering_in(form)]
    for form in FORMS:
        for cell in ({}, *RUNNING):
            if form not in (LM, SEQ2SEQ) and admits(form, "norm", cell.get("norm", "ln")):
                pairs.append((form, cell))
    return pairs


IN_FORMS = cells_in_forms()


def name_of(cell: dict[str, str]) -> str:
    """A cell in a test's name."""
    return "-".join(cell.values()) or "reference"


def in_a_test(value: Any) -> str:
    """A form, a cell or a number in a test's name."""
    return "-".join(value) if isinstance(value, tuple) else name_of(value) if isinstance(value, dict) else str(value)


def settings(group: str, choice: str) -> dict[str, Any]:
    """Of a variant; of the layers of a stack where there is one for each, as `gqa+window`."""
    own = {name: component(group, name) | SETTINGS.get(name, {}) for name in choice.split("+")}
    return {"_layers_": choice.split("+")} | own if "+" in choice else own[choice]


def configuration(cell: dict[str, str] | None = None, **model: Any) -> Config:
    """The part of a resolved configuration that a model is built from: a cell, in a shape fit for tests."""
    chosen = REFERENCE | (cell or {})
    parts = {group: settings(group, chosen[group]) for group in BUILT}
    if parts["embedding"]["frozen"]:
        model = {"tie_embeddings": False} | model
    return typed(parts | {"model": component("model", chosen["model"]) | SHAPE | model, "data": {"context": CONTEXT}})


def built(
    cell: dict[str, str] | None = None, seed: int = 0, form: tuple[str, str] | None = None, **model: Any
) -> nn.Module:
    """The initialised model of a cell, in a form for a kind of task."""
    cell = dict(cell or {})
    name, kind = form or (cell.get("model", REFERENCE["model"]), "lm")
    outputs = 5 if kind == "classification" else VOCAB
    config = configuration(cell | {"model": name}, **model)
    made = initialised_model(config, Blank(VOCAB, CONTEXT, kind, outputs), seed)
    for table in tables_of(made).values():
        table.begin_with(some_vectors(table, seed))
    return made


def some_vectors(table: nn.Module, seed: int) -> np.ndarray:
    """Rows in the place of trained ones, one of which is lacking."""
    rows = np.random.default_rng(seed).standard_normal(tuple(table.weight.shape), dtype=np.float32)  # type: ignore[arg-type]
    rows[3] = np.nan
    return rows


def some_tokens(batch: int = 3, length: int = CONTEXT, seed: int = 0) -> Tensor:
    """Token ids (batch, length)."""
    return torch.randint(VOCAB, (batch, length), generator=torch.Generator().manual_seed(seed))


def some_inputs(form: tuple[str, str], batch: int = 3, length: int = CONTEXT, seed: int = 0) -> dict[str, Tensor]:
    """What a form takes, by name; the source of a sequence is of another length than its target."""
    inputs = {"tokens": some_tokens(batch, length, seed)}
    return inputs | ({"source": some_tokens(batch, length - 2, seed + 1)} if form[1] == "seq2seq" else {})


def loss_of(model: nn.Module, inputs: dict[str, Tensor], seed: int = 1) -> Tensor:
    """Cross-entropy against random targets."""
    logits = model(**inputs)
    targets = torch.randint(logits.shape[-1], logits.shape[:-1], generator=torch.Generator().manual_seed(seed))
    return F.cross_entropy(logits.float().flatten(0, -2), targets.flatten())


def jitter(model: nn.Module, size: float) -> nn.Module:
    """Add noise to every parameter, so that nothing is hidden by a gate that starts at zero or a bias that is."""
    with torch.no_grad():
        for parameter in model.parameters():
            noise = torch.randn(parameter.shape, generator=torch.Generator().manual_seed(1), dtype=parameter.dtype)
            parameter.add_(size * noise)
    return model


def padded(inputs: dict[str, Tensor]) -> dict[str, Tensor]:
    """A mask for each of a model's sequences: nothing, or 3 or 7 positions on the right, on the left or as a hole."""
    masks = {}
    for name, tokens in inputs.items():
        mask = torch.ones(tokens.shape)
        for row, count in enumerate((3, 3, 3, 7, 7, 7), start=1):
            mask[row, (slice(tokens.shape[1] - count, None), slice(count), slice(1, 1 + count))[row % 3]] = 0
        masks["source_mask" if name == "source" else "mask"] = mask
    return masks


def check_padding(model: nn.Module, inputs: dict[str, Tensor], masks: dict[str, Tensor]) -> None:
    """Other tokens at padded positions, the same output at all others."""
    other = {
        name: torch.where(masks["source_mask" if name == "source" else "mask"].bool(), tokens, (tokens + 5) % VOCAB)
        for name, tokens in inputs.items()
    }
    with torch.no_grad():  # from the same running statistics, where there are any
        before, after = (
            (copy.deepcopy(model) if model.training else model)(**some, **masks) for some in (inputs, other)
        )
    assert before.isfinite().all(), "a value that is no number at a padded position can reach others through 0 · nan"
    real = masks["mask"].bool() if before.ndim == 3 else slice(None)
    torch.testing.assert_close(before[real], after[real], rtol=0, atol=1e-12)
