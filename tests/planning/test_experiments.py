"""The study files on disk: each says what it asks and of whom, can be planned in every tier, and trains two steps."""

import functools
import math
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import ROOT
from omegaconf import OmegaConf

from ablate import api
from ablate.config.choices import level_names, parse_choice
from ablate.config.designs import RUNG
from ablate.config.groups import FIGURES, experiments, groups
from ablate.config.schema import Config
from ablate.config.typed_json import plain
from ablate.planning import kernels
from ablate.planning.checks import inspect, validate
from ablate.planning.kernels import Kernels
from ablate.planning.plan import Plan
from ablate.runs.folder import Run
from ablate.runs.manifest import manifest_in
from ablate.training.trainer import Trainer

FILES = experiments()
GROUPS = groups()
CONTENT: dict[str, Any] = {name: OmegaConf.to_container(OmegaConf.load(file)) for name, file in FILES.items()}
TIERS = [pytest.param(name, None, id=name) for name in CONTENT]
for _name, _content in CONTENT.items():
    TIERS += [
        pytest.param(_name, _tier, id=f"{_name}-{_tier}", marks=pytest.mark.slow) for _tier in _content.get("tiers", {})
    ]
RESULTS = ROOT / "experiments" / "results"
each_file = pytest.mark.parametrize("name", FILES)


def factors_of(name: str, tier: str | None) -> dict[str, Any]:
    """The levels of a file's factors in one of its tiers."""
    content = CONTENT[name]
    of_tier = content.get("tiers", {}).get(tier, {})
    return dict(content["factors"] | of_tier.get("factors", {}))


def cut_factors(name: str, tier: str | None) -> dict[str, Any]:
    """Two levels of each factor of a file without claims, and those with settings, since all variants have tests."""
    if "claims" in CONTENT[name]:
        return {}
    cut = {}
    for key, levels in factors_of(name, tier).items():
        with_settings = [level for level in levels[2:] if "(" in str(level)]
        cut[key] = [*levels[:2], *with_settings]
    return cut


@pytest.fixture(scope="module")
def planned(tmp_path_factory: pytest.TempPathFactory, uncounted: object) -> Iterator[Callable[[str, str | None], Plan]]:
    """Plans a study file in a tier, once, but for what is measured on this machine.

    All are planned at one layer where depth is no factor, without their FLOPs, since they match parameters alone; only
    files without results are tried out on small models, with all of their seeds.
    """
    folder = tmp_path_factory.mktemp("experiments")
    tasks: dict[str, Any] = {}
    build = validate.build_task

    def build_once(config: Config) -> Any:
        key = str([config.data, config.model._target_])
        if key not in tasks:
            tasks[key] = build(config)
        return tasks[key]

    @functools.cache
    def plan(name: str, tier: str | None) -> Plan:
        is_new = tier is None and not (RESULTS / name).exists()
        words = [f"+experiment={name}", f"results_dir={folder}", "dry_run=true"]
        if tier:
            words.append(f"tier={tier}")
        if not is_new:
            words.append("seeds=1")
        if "model.layers" not in factors_of(name, tier):
            words.append("model.layers=1")
        for key, levels in cut_factors(name, tier).items():
            words.append(f"{key}={','.join(map(str, levels))}")
        if is_new:
            return api.plan(words)
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(inspect, "try_out", lambda *_: [])
            return api.plan(words)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(validate, "build_task", build_once)
        patch.setattr(kernels, "fitting_kernels", lambda study: Kernels())
        yield plan
    assert not list(folder.iterdir()), "something was written"


@each_file
def test_a_file_says_what_it_asks_and_of_whom(name: str) -> None:
    header = " ".join(line for line in FILES[name].read_text().splitlines() if line.startswith("#"))
    assert re.search(r"\b(19|20)\d\d\b.*\b(arXiv|doi)\b", header), f"{FILES[name]}: its comment names no paper"
    content = CONTENT[name]
    assert content["study"] == name and content["question"].endswith("?")
    assert content.get("figure", "effects") in FIGURES


@pytest.mark.parametrize(("name", "tier"), TIERS)
def test_a_file_can_be_planned_and_all_of_its_claims_apply(name: str, tier: str | None, planned) -> None:
    plan = planned(name, tier)
    content = CONTENT[name]
    assert plan.manifest.experiment == name and plan.manifest.tier == tier and plan.todo
    assert plan.manifest.question == content["question"] and plan.manifest.published == content.get("published")
    assert plain(plan.requested.claims) == content.get("claims", {})
    assert plain(plan.manifest.mirror) == content.get("mirror")
    if tier is None and (RESULTS / name).exists():
        assert manifest_in(RESULTS / name / "manifest.json").mirror == plan.manifest.mirror
    criterion = plan.manifest.replicated
    assert (criterion and criterion.value and criterion.value.of) == content.get("replicated")
    assert criterion is None or criterion.registered
    factors = {factor: levels for factor, levels in plan.requested.cells.factors.items() if factor != RUNG}
    expected = factors_of(name, tier) | cut_factors(name, tier)
    for key, levels in expected.items():
        if key in GROUPS:
            choices = [parse_choice(key, level, GROUPS) for level in levels]
            expected[key] = [*level_names(choices).values()]
    assert factors == expected or content.get("zip")


@each_file
def test_the_reference_trains(name: str, planned, tmp_path: Path) -> None:
    rows = planned(name, None).requested.cells.rows
    config = next(row.config for row in rows if row.reference)
    for key, value in {"train.steps": 2, "train.log_every": 1, "eval.tokens": 1024, "train.device": "cpu"}.items():
        config = config.with_value(key, value)
    run = Run(tmp_path, f"{name}/s0")
    run.folder.mkdir(parents=True)
    final = Trainer(run, config, 0).train(lambda: False)
    assert [row["step"] for row in run.metrics()[0]] == [0, 1, 2]
    assert all(math.isfinite(value) for key, value in final.items() if key.endswith("/loss"))
