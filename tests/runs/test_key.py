"""A run's key: every setting changes it, or stands below with the reason why it need not."""

import copy
import dataclasses
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
import yaml
from composed import check_study
from conftest import SHAPE, STEPS

from ablate.config.components import RESERVED
from ablate.config.groups import groups
from ablate.config.schema import COMPONENTS, SECTIONS, VARIED, Config, typed
from ablate.runs import key as identity
from ablate.runs.code_digest import Code
from ablate.runs.key import batches, cell_id, is_foreign, numbers, run_key

# Settings that change no number of a run.
NO_PART = {
    key: why
    for why, keys in {
        "where runs train, side by side, and how often they are kept": "train.parallel train.devices "
        "train.checkpoint_seconds",
        "as CUDA graphs, passes have the numbers of the loop": "train.capture",
        "trained weights are tested at other lengths without training again": "eval.lengths",
        "data count by content: the fingerprint": "data.path data.name data.column data.held_out "
        "data.validation data.test",
        "how runs are judged": "data.solved_at margin",
        "tracking reads what training wrote": "track",
        "which runs and cells there are, and what is compared": "seeds seeds_max confirm design "
        "ladder zip step_equivalents",
        "what it chose stands in the settings that it chose": "match tier tune.key tune.values tune.seeds "
        "tune.extend tune.rule",  # tuning runs have seeds of their own
        "where it is written, and what stays of it": "results_dir keep",
        "nothing is trained": "dry_run",
        "runs are shared by studies, but under reuse=none": "study reuse",
        "whether a cell may train, not how": "allow_duplicates",
        "where targets may come from; what they come from counts as code": "user",
    }.items()
    for key in keys.split()
}
# Settings that batches depend on: cells that differ in any of them are not paired.
OF_BATCHES = {"data.context", "data.order", "train.batch_size", "seed.data"}


@pytest.fixture(scope="module")
def config(text) -> Config:
    overrides = (*SHAPE, *STEPS, "data=text", f"data.path={text}", "results_dir=results")
    return check_study(overrides, None).rows[0].config


def settings() -> Iterator[tuple[str, str]]:
    """Every setting of the frame: section (or nothing) and name."""
    for field in dataclasses.fields(Config):
        if field.name in SECTIONS:
            yield from ((field.name, inner.name) for inner in dataclasses.fields(SECTIONS[field.name]))
        elif field.name not in (*COMPONENTS, "data", "unread"):
            yield "", field.name


def other(value: Any) -> Any:
    """Another value than this one, of its kind."""
    if isinstance(value, bool):
        return not value
    if isinstance(value, int | float):
        return value / 2 + 1 if value != 2 else 3
    if isinstance(value, str):
        return "another"
    if isinstance(value, list):
        return [*value, "another"]
    return 7 if value is None else {}


def altered(config: Config, section: str, name: str, value: Any) -> Config:
    """A configuration with one setting changed, or one more."""
    found = copy.deepcopy(config.as_json())
    (found[section] if section else found)[name] = value
    return typed(found)


def test_every_setting_of_the_frame_changes_the_key_or_says_why_not(config):
    for section, name in settings():
        value = getattr(getattr(config, section) if section else config, name)
        another = "ablate.training.optim.optimizer_step" if name == "_target_" else other(value)
        changed = altered(config, section, name, another)
        key = f"{section}.{name}".lstrip(".")
        assert (run_key(config, 0, "f") == run_key(changed, 0, "f")) == (key in NO_PART), key
        assert (batches(config, "f") == batches(changed, "f")) == (key not in OF_BATCHES), key


@pytest.mark.parametrize("group", (*VARIED, "data", "model", "optim"))
def test_every_setting_of_every_variant_changes_the_key(group, config):
    plain = config.as_json()
    for variant, file in groups()[group].items():
        node = yaml.safe_load(file.read_text(encoding="utf-8"))
        chosen = typed(plain | {group: (plain[group] if group in ("model", "optim") else {}) | node})
        key = run_key(chosen, 0, "f")
        for name in node.keys() - {*RESERVED, "defaults"}:
            same = run_key(altered(chosen, group, name, other(node[name])), 0, "f") == key
            assert same == (f"{group}.{name}" in NO_PART), f"{group}={variant}: {name}"


def test_seeds_data_versions_and_code_change_the_key(config, monkeypatch):
    plain = run_key(config, 0, "f")
    assert plain.startswith("s0-") and run_key(config, 12, "f").startswith("s12-")
    assert len({plain[3:], run_key(config, 1, "f")[3:], run_key(config, 0, "g")[3:]}) == 3
    for module in (torch, numpy):
        with monkeypatch.context() as patch:
            patch.setattr(module, "__version__", "0")
            assert run_key(config, 0, "f") != plain
    monkeypatch.setattr(identity, "code_of", lambda *given: Code("edited", {}))
    assert run_key(config, 0, "f") != plain


def test_a_class_that_moved_is_the_same_part(config):
    moved = altered(config, "norm", "_target_", config.norm["_target_"].replace("ablate.model.norm", "ablate.moved"))
    assert cell_id("x", moved, "f") == cell_id("x", config, "f") != cell_id("y", config, "f")


@pytest.mark.parametrize("half", ["init", "data"])
def test_a_half_that_is_fixed_at_the_runs_own_seed_is_the_same_run(half, config):
    fixed = altered(config, "seed", half, 3)
    assert run_key(fixed, 3, "f") == run_key(config, 3, "f") and run_key(fixed, 4, "f") != run_key(config, 4, "f")
    assert run_key(fixed, 4, "f") != run_key(altered(config, "seed", half, 5), 4, "f")


def counts(config: Config, section: str, name: str) -> bool:
    """Whether another value of a setting is another key."""
    return run_key(altered(config, section, name, 9), 0, "f") != run_key(config, 0, "f")


def test_what_another_setting_leaves_without_effect_does_not_count(config):
    node = yaml.safe_load(groups()["schedule"]["constant"].read_text(encoding="utf-8"))
    constant = config.with_value("schedule", node)
    assert counts(constant, "optim", "lr") and not counts(constant, "optim", "min_lr_ratio")
    own_schedule = constant.with_value("schedule._target_", "of_mine.Constant")
    assert counts(own_schedule, "optim", "min_lr_ratio"), "a user's own may read it"
    node = {"_target_": "ablate.model.ffn.GLU", "hidden": 8, "mult": 4, "multiple_of": 1, "bias": True}
    given = config.with_value("ffn", node)
    own_ffn = given.with_value("ffn._target_", "of_mine.FFN")
    assert counts(given, "ffn", "bias")
    for name in ("mult", "multiple_of"):
        assert not counts(given, "ffn", name)
        assert counts(given.with_value("ffn.hidden", None), "ffn", name)
        assert counts(own_ffn, "ffn", name), "a user's own means what it likes"


HASHED = {
    "norm=ln": ("c6ce645dba3", "2e6472cd9c3df2b7"),
    "norm=rms": ("ccc193784fc", "291a22273bc23a61"),
    "norm=rms seed.init=3": ("cc6ed830386", "920502d491271f89"),
}


@pytest.mark.parametrize("words", HASHED)
def test_the_settings_of_a_cell_hash_as_in_all_runs_so_far(words, text):
    overrides = [*words.split(), *SHAPE, *STEPS, "data=text", f"data.path={text}", "results_dir=results"]
    [row] = check_study(overrides, None).rows
    name = cell_id(row.name, row.config, "f")
    digest = identity.provenance(row.config, 0, "f").numbers
    assert (name, digest[:16]) == HASHED[words]


def test_runs_of_a_study_that_shares_none_have_its_name_in_their_key(config):
    one, two = (dataclasses.replace(config, reuse="none", study=study) for study in ("one", "two"))
    assert len({run_key(given, 0, "f") for given in (config, one, two)}) == 3


def test_a_tracking_service_of_the_user_makes_no_run_user_code(small):
    """Runs of user code have private processes, and no CUDA graphs."""
    config = check_study(tuple(small), None).rows[0].config
    tracked = config.with_value("track", [{"_target_": "my_tracking.MLflow"}])
    assert is_foreign(tracked) and not is_foreign(numbers(tracked))


def test_settings_that_are_gone_count_as_all_runs_had_them(config):
    node = yaml.safe_load(groups()["ffn"]["moe"].read_text(encoding="utf-8"))
    found = numbers(config.with_value("ffn", node))
    assert found["model"]["head_bias"] is False
    assert found["ffn"]["shared_gate"] is None
    assert "shared_gate" not in numbers(config)["ffn"]
