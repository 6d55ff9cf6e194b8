"""The study files on disk: each says what it asks and of whom, and can be planned in every tier."""

import functools
import re

import pytest
from conftest import ROOT
from omegaconf import OmegaConf

from ablate import api
from ablate.config.groups import FIGURES, experiments
from ablate.config.typed_json import plain
from ablate.planning import kernels
from ablate.planning.checks import inspect, validate
from ablate.runs.manifest import manifest_in

FILES = experiments()
CONTENT = {name: OmegaConf.to_container(OmegaConf.load(file)) for name, file in FILES.items()}
TIERS = [pytest.param(name, None, id=name) for name in CONTENT]
for name, content in CONTENT.items():
    for tier in content.get("tiers", {}):
        TIERS.append(pytest.param(name, tier, id=f"{name}-{tier}", marks=pytest.mark.slow))
RESULTS = ROOT / "experiments" / "results"
each_file = pytest.mark.parametrize("name", FILES)


def factors_of(name, tier):
    """The levels of a file's factors in one of its tiers."""
    of_tier = CONTENT[name].get("tiers", {}).get(tier, {})
    return CONTENT[name]["factors"] | of_tier.get("factors", {})


def shortened(name, tier):
    """Words that keep two levels of each factor of a file without claims, and those with settings: all variants have
    tests of their own."""
    words = []
    for key, levels in factors_of(name, tier).items():
        with_settings = [level for level in levels[2:] if "(" in str(level)]
        words.append(f"{key}={','.join(map(str, [*levels[:2], *with_settings]))}")
    return [] if "claims" in CONTENT[name] else words


@pytest.fixture(scope="module")
def planned(tmp_path_factory, uncounted):
    """Plans a study file in a tier, once, with one seed and at one layer where depth is no factor; only files without
    results are tried out on small models."""
    folder = tmp_path_factory.mktemp("experiments")
    tasks = {}
    build = validate.build_task

    def build_once(config):
        key = str([config.data, config.model._target_])
        if key not in tasks:
            tasks[key] = build(config)
        return tasks[key]

    @functools.cache
    def plan(name, tier):
        words = [f"+experiment={name}", f"results_dir={folder}", "dry_run=true", "seeds=1", *shortened(name, tier)]
        if tier:
            words.append(f"tier={tier}")
        if "model.layers" not in factors_of(name, tier):
            words.append("model.layers=1")
        with pytest.MonkeyPatch.context() as patch:
            if tier or (RESULTS / name).exists():
                patch.setattr(inspect, "try_out", lambda *_: [])
            return api.plan(words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validate, "build_task", build_once)
        patch.setattr(kernels, "fitting_kernels", lambda study: ("torch", False))
        yield plan
    assert not list(folder.iterdir()), "something was written"


@each_file
def test_a_file_says_what_it_asks_and_of_whom(name):
    header = " ".join(line for line in FILES[name].read_text().splitlines() if line.startswith("#"))
    assert re.search(r"\b(19|20)\d\d\b.*\b(arXiv|doi)\b", header), f"{FILES[name]}: its comment names no paper"
    assert CONTENT[name]["study"] == name and CONTENT[name]["question"].endswith("?")
    assert CONTENT[name].get("figure", "effects") in FIGURES


@pytest.mark.parametrize(("name", "tier"), TIERS)
def test_a_file_can_be_planned_and_all_of_its_claims_apply(name, tier, planned):
    plan = planned(name, tier)
    manifest = plan.manifest
    content = CONTENT[name]
    assert plan.todo and (manifest.experiment, manifest.tier) == (name, tier)
    assert (manifest.question, manifest.published) == (content["question"], content.get("published"))
    assert plain(plan.requested.claims) == content.get("claims", {})
    assert plain(manifest.mirror) == content.get("mirror")
    if tier is None and (RESULTS / name).exists():
        assert manifest_in(RESULTS / name / "manifest.json").mirror == manifest.mirror
    if "replicated" in content:
        assert manifest.replicated.registered and manifest.replicated.value.of == content["replicated"]
