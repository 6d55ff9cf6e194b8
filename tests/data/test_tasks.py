"""What every task on disk keeps to: keyed batches, fixed shapes, masks, splits, lengths, fingerprints."""

import inspect
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tasks import FILES, build, kinds, read, task

from ablate.config.components import resolve
from ablate.data.sequence import Sequence
from ablate.data.task import IGNORE, batch_positions

every = pytest.mark.parametrize(("name", "kind"), kinds())
TEXTS = ("stdlib", "text", "tokens", "hf", "mlm")
PADDED = ("copy", "reverse", "sort", "addition", "dates")
KNOWN = (*TEXTS, *PADDED, "mqar", "selective_copy", "memorisation", "digits")  # other tasks are checked by less


def equal(a: Any, b: Any) -> bool:
    """Whether two batches, or two sets of examples, are the same."""
    same = a.inputs.keys() == b.inputs.keys() and all(torch.equal(a.inputs[name], b.inputs[name]) for name in a.inputs)
    return same and torch.equal(a.targets, b.targets)


@pytest.mark.parametrize("name", FILES)
def test_a_yaml_says_what_it_is_and_holds_every_setting(name):
    file = FILES[name]
    assert file.read_text().startswith("# "), f"{file}: write a first line such as: # Copy: the source again."
    target = resolve("data", read(name)["_target_"])
    parameters = inspect.signature(target).parameters
    assert read(name).keys() - {"_target_", "solved_at"} == parameters.keys() - {"kind", "context"}, file
    assert "kind" in parameters or len(target.kinds) == 1


@every
def test_batches_are_functions_of_seed_and_step(name, kind):
    built = task(name, kind)
    other = build(name, kind)
    keys = [(seed, step) for seed in (0, 1, 10) for step in (0, 10)]
    batches = {key: built.batch(*key, 4) for key in keys}
    built.held_out("val", 500)
    state = torch.get_rng_state()
    legacy = np.random.get_state()[1].copy()
    for key in reversed(keys):
        assert equal(other.batch(*key, 4), batches[key])
    assert torch.equal(state, torch.get_rng_state()) and (legacy == np.random.get_state()[1]).all()
    assert len({str(batch) for batch in batches.values()}) == len(keys)


@every
def test_shapes_are_the_same_from_batch_to_batch_and_those_of_the_blank(name, kind):
    built = task(name, kind)
    blank = built.blank()
    for step in range(5):
        batch = built.batch(7, step, 3)
        assert batch.inputs.keys() == blank.keys() and len(batch.targets) == 3
        for key, tensor in blank.items():
            assert batch.inputs[key].shape == (3, *tensor.shape[1:]) and batch.inputs[key].dtype == tensor.dtype
            assert len(tensor) == 1
        assert batch_positions(batch) == 3 * built.positions
    with torch.device("meta"):
        assert all(tensor.is_meta for tensor in built.blank().values())
    assert max(tensor.shape[1] for tensor in blank.values()) == built.context
    assert ("source" in blank) == (kind == "seq2seq")


@every
@pytest.mark.parametrize("split", ["train", "val"])
def test_ids_are_in_range_and_every_example_has_a_target(name, kind, split):
    built = task(name, kind)
    examples = built.batch(0, 0, 64) if split == "train" else built.held_out(split, 3000)
    scored = examples.targets != IGNORE
    assert examples.targets[scored].min() >= 0 and examples.targets[scored].max() < built.outputs
    assert scored.reshape(len(scored), -1).any(1).all()
    if built.features:
        assert examples.inputs["tokens"].shape[2] == built.features and scored.shape == (len(scored),)
        return
    assert scored.shape == examples.inputs["tokens"].shape and examples.targets.dtype == torch.int64
    assert built.outputs == built.vocab
    for key in {"tokens", "source"} & examples.inputs.keys():
        assert examples.inputs[key].min() >= 0 and examples.inputs[key].max() < built.vocab


@every
def test_masks_are_where_something_is_padded(name, kind):
    batch = task(name, kind).batch(0, 0, 64)
    for key, mask_name in (("tokens", "mask"), ("source", "source_mask")):
        mask = batch.inputs.get(mask_name)
        if name in KNOWN:
            assert (mask is not None) == (name in PADDED and (key == "tokens" or kind == "seq2seq"))
        if mask is not None:
            assert torch.equal(mask, (batch.inputs[key] > 0).float())
            assert (mask.diff(dim=1) <= 0).all() and mask[:, 0].all(), "padding is at the end"
            assert key == "source" or (batch.targets[mask == 0] == IGNORE).all()
            assert name == "dates" or (mask == 0).any(), "nothing is padded"


@every
@pytest.mark.parametrize("tokens", [1, 3000])
def test_held_out_examples_are_fixed_and_about_as_many_as_asked_for(name, kind, tokens):
    built = task(name, kind)
    examples = built.held_out("test", tokens)
    assert equal(examples, built.held_out("test", tokens)) and not equal(examples, built.held_out("val", tokens))
    count = max(1, tokens // built.positions)
    assert len(examples.targets) == count or (name in (*TEXTS, "digits") and len(examples.targets) < count)
    assert examples.documents.shape == tuple(examples.targets.shape)
    assert examples.documents.min() >= 0 and examples.documents.max() < len(examples.names)


def rows(examples: Any) -> set[bytes]:
    """Each example, all of it."""
    targets = examples.targets.reshape(len(examples.targets), -1)
    parts = torch.cat([*(tensor.flatten(1).float() for tensor in examples.inputs.values()), targets.float()], 1)
    return {row.numpy().tobytes() for row in parts}


@every
def test_nothing_held_out_is_trained_on(name, kind):
    """But for sequences so short that there are next to none of them; see test_sequence."""
    built = task(name, kind)
    train = set().union(*(rows(built.batch(0, step, 256)) for step in range(6)))
    val = rows(built.held_out("val", 10_000))
    test = rows(built.held_out("test", 10_000))
    short = 0.2 if name in ("copy", "reverse", "sort", "addition") else 0.0
    for held_out, other in ((val, train), (test, train), (val, test)):
        assert len(held_out) > 8 and len(held_out & other) <= short * len(held_out)


@every
def test_chance_is_not_to_know_which_answer(name, kind):
    built = task(name, kind)
    if "chance" in built.yardsticks:
        targets = [built.batch(0, step, 256).targets.flatten() for step in range(6)]
        targets += [built.held_out(split, 10_000).targets.flatten() for split in ("val", "test")]
        answers = torch.cat(targets).unique()
        assert built.yardsticks == {"chance": pytest.approx(math.log((answers != IGNORE).sum()))}


LENGTHS = {"selective_copy": [16, 60], "mqar": [16, 200], "memorisation": [2, 100], "addition": [1, 12]}
LENGTHS |= {name: [32, 80] for name in TEXTS}
NO_LENGTHS = ("digits", "dates")


@every
def test_other_lengths(name, kind):
    built = task(name, kind)
    lengths = LENGTHS.get(name, [1, 45] if isinstance(built, Sequence) else [])
    for length in [] if name in NO_LENGTHS else [*lengths, built.length]:
        examples = built.held_out("test", 1000, length)
        assert equal(examples, built.held_out("test", 1000, length))
        assert not equal(examples, built.held_out("val", 1000, length))
        longest = max(tensor.shape[1] for tensor in examples.inputs.values())
        assert longest == built.span(length), "positions that a model is checked for"
        assert examples.documents.shape == tuple(examples.targets.shape) and (examples.targets != IGNORE).any(1).all()
    with pytest.raises(ValueError, match=r"^[^\n]*-3[^\n]*$"):
        built.held_out("test", 100, -3)
    if name in NO_LENGTHS:
        with pytest.raises(ValueError, match="999"):
            built.held_out("test", 100, 999)


# Settings that make no task, and what the refusal says.
REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("copy", {"length": 0}, r"length=0 is too short; copy needs at least 1"),
    ("selective_copy", {"tokens": 0}, r"tokens must be ≥ 1, not 0"),
    ("mqar", {"symbols": 99}, r"symbols=99 is odd"),
    ("mqar", {"length": 80}, r"length=80 needs data\.context of at least 80, not 64"),
    ("mqar", {"power_a": 0.0}, r"power_a must be > 0, not 0.0"),
    ("memorisation", {"length": 7}, r"length=7 is odd"),
    ("mlm", {"mask_rate": 0.0}, r"mask_rate must be .*, not 0.0"),
    ("digits", {"patch": 3}, r"patch=3 must divide"),
    ("digits", {"context": 15}, r"patch=2 needs data\.context of at least 16, not 15"),
    ("dates", {"source": "en_GBB"}, "write one such as en_GB"),
    ("dates", {"formats": ["wide"]}, r"write some of \[full"),
    ("dates", {"context": 31}, r"needs data\.context of at least 32, not 31"),
    ("dates", {"formats": ["long", "medium"], "years": [1998, 1999]}, "two answers"),
]


@pytest.mark.parametrize(("name", "settings", "words"), REFUSED)
def test_settings_that_make_no_sense_are_refused_in_a_line(name, settings, words):
    kind = resolve("data", read(name)["_target_"]).kinds[0]
    with pytest.raises(ValueError, match=rf"^data\.[^\n]*{words}[^\n]*$"):
        build(name, kind, **settings)


OTHER: dict[str, Any] = {"length": 18, "symbols": 20, "pairs": 2, "power_a": 0.5, "tokens": 3, "patch": 4}
OTHER |= {"source": "de_DE", "target": "fr_FR", "formats": ["full"], "years": [1990, 1993]}
OTHER |= {"tokenizer": "char", "mask_rate": 0.3}
NOT_CONTENT = ("path", "name", "config", "split", "column", "vocab_size", "solved_at", "_target_", "order")
NOT_CONTENT += ("held_out", "dtype", "validation", "test")


@pytest.mark.parametrize("name", [name for name in FILES if name != "stdlib"])
def test_fingerprints_tell_parameters_apart(name):
    offers = resolve("data", read(name)["_target_"]).kinds
    prints = [task(name, kind).fingerprint for kind in offers]
    for key in read(name).keys() - set(NOT_CONTENT):
        assert key in OTHER, f"write another value of data.{key} in OTHER of {Path(__file__).name}"
        prints.append(build(name, offers[0], **{key: OTHER[key]}).fingerprint)
    assert len(set(prints)) == len(prints)
    assert build(name, offers[0], context=63 if name in ("copy", "digits") else 64).fingerprint == prints[0]
