"""What every task on disk keeps to: keyed batches, fixed shapes, masks, splits, lengths, fingerprints."""

import hashlib
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
KNOWN = {"stdlib", "text", "tokens", "hf", "mlm", "mqar", "selective_copy", "memorisation", "digits", "dates"}
KNOWN |= {"copy", "reverse", "sort", "addition"}


def equal(a: Any, b: Any) -> bool:
    """Whether two batches, or two sets of examples, are the same."""
    same = a.inputs.keys() == b.inputs.keys() and all(torch.equal(a.inputs[name], b.inputs[name]) for name in a.inputs)
    return same and torch.equal(a.targets, b.targets)


@pytest.mark.parametrize("name", FILES)
def test_a_yaml_says_what_it_is_and_holds_every_setting(name: str) -> None:
    file = FILES[name]
    assert file.read_text().startswith("# "), f"{file}: write a first line such as: # Copy: the source again."
    parameters = inspect.signature(resolve("data", read(name)["_target_"])).parameters
    written, taken = read(name).keys() - {"_target_", "solved_at"}, parameters.keys() - {"kind", "context"}
    assert written == taken, f"{file}: write every setting of its class: {', '.join(sorted(taken))}"
    offers = resolve("data", read(name)["_target_"]).kinds
    assert ("kind" in parameters) or len(offers) == 1


@every
def test_says_what_it_is(name: str, kind: str) -> None:
    it = task(name, kind)
    assert it.kind == kind and it.metrics and it.measured()
    best = {"loss": "min", "accuracy": "max", "exact": "max"}
    assert all(best.get(metric, way) == way in ("min", "max") for metric, way in it.metrics.items())
    if name in KNOWN:
        assert ("exact" in it.metrics) == (kind != "mlm" and name not in ("stdlib", "text", "tokens", "hf", "digits"))
    assert it.context <= 64 and it.span(it.length) <= max(it.context, it.length)
    assert it.name and it.title and it.token and len(it.fingerprint) == 32
    assert it.yardsticks and all(0 < value < 10 for value in it.yardsticks.values())
    assert "\n" not in it.title


@every
def test_batches_are_functions_of_seed_and_step(name: str, kind: str) -> None:
    it, other = task(name, kind), build(name, kind)
    keys = [(seed, step) for seed in (0, 1, 10) for step in (0, 10)]
    ahead = {key: it.batch(*key, 4) for key in keys}
    it.held_out("val", 500)
    state, legacy = torch.get_rng_state(), np.random.get_state()[1].copy()  # type: ignore[index]
    for key in reversed(keys):
        assert equal(other.batch(*key, 4), ahead[key])
    assert torch.equal(state, torch.get_rng_state()) and (legacy == np.random.get_state()[1]).all()  # type: ignore[index]
    rows = {str(batch.inputs) + str(batch.targets) for batch in ahead.values()}
    assert len(rows) == len(keys)


@every
def test_shapes_are_the_same_from_batch_to_batch_and_those_of_the_blank(name: str, kind: str) -> None:
    it = task(name, kind)
    blank = it.blank()
    for step in range(5):
        batch = it.batch(7, step, 3)
        assert {key: (tensor.shape[1:], tensor.dtype) for key, tensor in batch.inputs.items()} == {
            key: (tensor.shape[1:], tensor.dtype) for key, tensor in blank.items()
        }
        assert all(len(tensor) == 3 for tensor in (*batch.inputs.values(), batch.targets))
        assert batch_positions(batch) == 3 * it.positions
    assert all(len(tensor) == 1 for tensor in blank.values())
    with torch.device("meta"):
        assert all(tensor.is_meta for tensor in it.blank().values())
    longest = max(tensor.shape[1] for tensor in blank.values())
    assert longest == it.context
    assert it.positions == sum(tensor.shape[1] for key, tensor in blank.items() if "mask" not in key)
    assert {"source" in blank} == {kind == "seq2seq"}


@every
@pytest.mark.parametrize("split", ["train", "val"])
def test_ids_are_in_range_and_masks_where_something_is_padded(name: str, kind: str, split: str) -> None:
    it = task(name, kind)
    found = it.batch(0, 0, 64) if split == "train" else it.held_out(split, 3000)
    inputs, targets = found.inputs, found.targets
    scored = targets != IGNORE
    assert targets[scored].min() >= 0 and targets[scored].max() < it.outputs
    assert scored.reshape(len(scored), -1).any(1).all(), "an example without a target"
    if it.features:
        assert inputs["tokens"].shape[2] == it.features and targets.shape == (len(targets),)
        return
    assert targets.shape == inputs["tokens"].shape and targets.dtype == torch.int64
    assert it.outputs == it.vocab
    for key in ("tokens", "source"):
        if key in inputs:
            assert inputs[key].min() >= 0 and inputs[key].max() < it.vocab
        mask = inputs.get("mask" if key == "tokens" else "source_mask")
        if mask is not None:
            assert set(mask.unique().tolist()) <= {0.0, 1.0} and (mask.diff(dim=1) <= 0).all() and mask[:, 0].all()
            assert (inputs[key][mask == 0] == 0).all() and (inputs[key][mask == 1] > 0).all()
            assert key == "source" or not scored[mask == 0].any()
    padded = name in ("copy", "reverse", "sort", "addition", "dates") if name in KNOWN else "mask" in inputs
    assert ("mask" in inputs) == padded and ("source_mask" in inputs) == (padded and kind == "seq2seq")
    if padded and split == "train":
        assert any((inputs[key] == 0).any() for key in ("mask", "source_mask") if key in inputs), "nothing is padded"


@every
def test_held_out_examples_are_fixed_and_about_as_many_as_asked_for(name: str, kind: str) -> None:
    it = task(name, kind)
    for tokens in (1, 3000):
        found = it.held_out("test", tokens)
        assert equal(found, it.held_out("test", tokens))
        count = max(1, tokens // it.positions)
        assert len(found.targets) == count or (
            name in ("digits", "text", "tokens", "hf", "mlm") and len(found.targets) < count
        )
        assert found.documents.shape == tuple(found.targets.shape)
        assert found.documents.min() >= 0 and found.documents.max() < len(found.names)
    assert not equal(it.held_out("val", 3000), found)


def rows(found: Any) -> set[bytes]:
    """Each example, all of it."""
    parts = [*(tensor.flatten(1) for tensor in found.inputs.values()), found.targets.reshape(len(found.targets), -1)]
    return {row.numpy().tobytes() for row in torch.cat([part.float() for part in parts], 1)}


@every
def test_nothing_held_out_is_trained_on_and_chance_is_not_to_know_which_answer(name: str, kind: str) -> None:
    """But for sequences so short that there are next to none of them; see test_sequence."""
    it = task(name, kind)
    batches = [it.batch(0, step, 256) for step in range(6)]
    held_out = [it.held_out(split, 10_000) for split in ("val", "test")]
    train, (val, test) = set().union(*map(rows, batches)), map(rows, held_out)
    short = 0.2 if name in ("copy", "reverse", "sort", "addition") else 0.0
    for one, other in ((val, train), (test, train), (val, test)):
        assert len(one & other) <= short * len(one)
    assert len(val) > 8
    if "chance" in it.yardsticks:
        answers = torch.cat([found.targets.flatten() for found in (*batches, *held_out)]).unique()
        assert it.yardsticks == {"chance": pytest.approx(math.log((answers != IGNORE).sum()))}


LENGTHS = {"selective_copy": [16, 60], "mqar": [16, 200], "memorisation": [2, 100], "addition": [1, 12]}
LENGTHS |= {name: [1, 45] for name in ("copy", "reverse", "sort")}
LENGTHS |= {name: [32, 80] for name in ("stdlib", "text", "tokens", "hf", "mlm")}
NO_LENGTHS = ("digits", "dates")


@every
def test_other_lengths(name: str, kind: str) -> None:
    it = task(name, kind)
    if name in NO_LENGTHS:
        with pytest.raises(ValueError, match=r"length 999|not 999") as caught:
            it.held_out("test", 100, 999)
        assert "\n" not in str(caught.value)
        return
    for length in (*LENGTHS.get(name, [1, 45] if isinstance(it, Sequence) else []), it.length):
        found = it.held_out("test", 1000, length)
        assert equal(found, it.held_out("test", 1000, length))
        longest = max(tensor.shape[1] for tensor in found.inputs.values())
        assert longest == it.span(length), "positions that a model is checked for"
        assert found.documents.shape == tuple(found.targets.shape) and (found.targets != IGNORE).any(1).all()
        assert not equal(found, it.held_out("val", 1000, length))
    assert it.span(it.length) == it.context
    with pytest.raises(ValueError) as caught:
        it.held_out("test", 100, -3)
    assert "\n" not in str(caught.value) and "-3" in str(caught.value)


OTHER: dict[str, Any] = {"length": 18, "symbols": 20, "pairs": 2, "power_a": 0.5, "tokens": 3, "patch": 4}
OTHER |= {"source": "de_DE", "target": "fr_FR", "formats": ["full"], "years": [1990, 1993]}
OTHER |= {"tokenizer": "char", "mask_rate": 0.3}
NOT_CONTENT = ("path", "name", "config", "split", "column", "vocab_size", "solved_at", "_target_", "order")
NOT_CONTENT += ("held_out", "dtype", "end", "validation", "test")


@pytest.mark.parametrize("name", [name for name in FILES if name != "stdlib"])
def test_fingerprints_tell_parameters_apart(name: str) -> None:
    offers = resolve("data", read(name)["_target_"]).kinds
    found = [task(name, kind).fingerprint for kind in offers]
    for key in read(name).keys() - set(NOT_CONTENT):
        assert key in OTHER, (
            f'data.{key} of {name}: write another value of it in OTHER of {Path(__file__).name}: "{key}": …'
        )
        found.append(build(name, offers[0], **{key: OTHER[key]}).fingerprint)
    assert len(set(found)) == len(found)
    assert build(name, offers[0], context=63 if name in ("copy", "digits") else 64).fingerprint == found[0]


def digests() -> dict[str, str]:
    """A hash of batches and held-out examples of every task whose data are ours, for test_every_process.py."""
    found = {}
    for name, kind in kinds():
        if name not in ("stdlib", "text", "tokens", "hf", "mlm", "digits"):
            it, digest = task(name, kind), hashlib.sha256()
            for part in (it.batch(3, 7, 8), it.held_out("test", 500)):
                for tensor in (*part.inputs.values(), part.targets):
                    digest.update(tensor.numpy().tobytes())
            found[f"{name} {kind}"] = it.fingerprint + digest.hexdigest()
    return found
