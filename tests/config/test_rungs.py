"""The rungs of design=ladder, from command line and study file to the runs that are planned."""

import re
from pathlib import Path

import pandas
import pytest
from in_process import command

from ablate.cli.preview import preview
from ablate.cli.sweep import verdicts
from ablate.config.claims import Level
from ablate.config.errors import PlanError
from ablate.config.schema import Config
from ablate.planning.plan import plan_study
from ablate.runs.manifest import read_manifest
from ablate.runs.records import Manifest
from ablate.runs.study import load_study

TINY = ["design=ladder", "parametrization=mup", "ffn=mlp,swiglu", "norm=ln,rms", "scale=small", "seeds=2", "track=none"]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory: pytest.TempPathFactory) -> Manifest:
    """The manifest of a ladder of four rungs with two factors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ablate.planning.checks.inspect.try_out", lambda *_: [])
        return plan_study([*TINY, f"results_dir={tmp_path_factory.mktemp('results')}"]).manifest


@pytest.fixture
def configs(manifest: Manifest) -> dict[Level, Config]:
    """The configuration of the reference at each rung."""
    return {cell.levels["rung"]: cell.planned_config for cell in manifest.cells if cell.reference}


def test_a_ladder_has_rungs_and_the_last_but_one_at_two_other_rates(manifest: Manifest) -> None:
    assert manifest.factors["rung"] == [1, 2, 3, 4, "3 at half the rate", "3 at twice the rate"]
    assert manifest.reference == {"ffn": "mlp", "norm": "ln"}
    assert len(manifest.cells) == 6 * 3
    assert manifest.cells[1].label == "swiglu + ln + rung 1"


def test_each_rung_has_a_quarter_of_the_compute_of_the_next(manifest: Manifest) -> None:
    compute = {cell.levels["rung"]: cell.training_flops for cell in manifest.cells if cell.reference}
    for rung in (1, 2, 3):
        assert 3.4 < compute[rung + 1] / compute[rung] < 4.4


def test_each_rung_has_half_the_size_and_half_the_tokens_of_the_next(configs: dict[Level, Config]) -> None:
    for rung in (1, 2, 3):
        low, high = configs[rung], configs[rung + 1]
        size = low.model.layers * low.model.dim**2
        tokens = low.train.steps * low.train.batch_size
        assert high.model.layers * high.model.dim**2 / size == pytest.approx(2, rel=0.1)
        assert high.train.steps * high.train.batch_size / tokens == pytest.approx(2, rel=0.02)


def test_the_top_rung_is_the_composed_model(configs: dict[Level, Config]) -> None:
    top = configs[4]
    assert (top.model.layers, top.model.dim, top.train.steps, top.train.batch_size) == (4, 128, 2000, 12)


def test_all_rungs_have_one_learning_rate_and_one_share_of_warm_up(configs: dict[Level, Config]) -> None:
    for rung in (1, 2, 3):
        assert configs[rung].optim.lr == configs[4].optim.lr
        assert configs[rung].optim.warmup / configs[rung].train.steps == pytest.approx(0.05, rel=0.02)


def test_the_rung_below_the_top_is_also_trained_at_half_and_twice_the_rate(configs: dict[Level, Config]) -> None:
    lr = configs[4].optim.lr
    assert configs["3 at half the rate"] == configs[3].with_value("optim.lr", lr / 2)
    assert configs["3 at twice the rate"] == configs[3].with_value("optim.lr", lr * 2)


def test_rungs_of_a_sixteenth_of_the_compute_have_twice_as_many_seeds(manifest: Manifest) -> None:
    for cell in manifest.cells:
        seeds = {run.seed for run in manifest.runs if run.cell == cell.id}
        assert seeds == (set(range(4)) if cell.levels["rung"] in (1, 2) else {0, 1})


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["parametrization=standard"], "design: ladder carries the learning rate over widths by parametrization=mup"),
        (["model.dim=64,128"], "model.dim: is that of the top rung with design=ladder; write one value"),
        (["ladder=2"], "ladder: must be a whole number ≥ 3 and ≤ 8, not 2"),
        (["model.layers=-2"], "model.layers: must be a whole number ≥ 1"),
        (["match=flops_total"], "design: ladder sets the steps of each rung; leave match=flops_total out"),
        (["seeds=auto"], "design: ladder and seeds=auto do not go together; write seeds=8, say"),
        (
            ["tune.key=optim.lr", "tune.values=[1e-3,2e-3]"],
            "design: ladder carries one learning rate to all rungs; leave tune.key out",
        ),
        (
            ["step_equivalents=true"],
            "design: ladder trains its references for other steps by itself; leave step_equivalents out",
        ),
        (["margin=0.2"], "design: ladder gives worths with intervals, which no margin judges; leave margin out"),
        (["design=grid", "ladder=5"], "ladder: is the number of rungs of design=ladder; write that, too"),
        (["ffn=mlp", "norm=ln"], "design: ladder compares nothing here; sweep a component"),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, list) else "",
)
def test_what_does_not_fit_a_ladder_is_refused(words: list[str], message: str, tmp_path: Path) -> None:
    keys = {word.partition("=")[0] for word in words}
    others = [word for word in TINY if word.partition("=")[0] not in keys]
    with pytest.raises(PlanError) as refused:
        plan_study([*others, *words, f"results_dir={tmp_path}"])
    assert message in str(refused.value)


CLAIM = "{multiplier: [{ffn: swiglu}, {ffn: mlp}], at: 4, above: 1.1}"
STUDY = f"""# @package _global_
study: climb
scale: small
design: ladder
parametrization: mup
seeds: 4
figure: ladder
track: none
factors: {{ffn: [mlp, swiglu]}}
claims:
  worth: {CLAIM}
"""


def planned(text: str, folder: Path) -> Manifest:
    """The manifest of a study file with this text."""
    (folder / "experiment").mkdir()
    (folder / "experiment" / "climb.yaml").write_text(text)
    return plan_study(["+experiment=climb", f"results_dir={folder / 'results'}"], str(folder)).manifest


def test_a_claim_about_a_multiplier_is_that_of_one_rung(tmp_path: Path, untried: None) -> None:
    assert planned(STUDY, tmp_path).claims["worth"].claim.at == {"rung": 4}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("at: 4, ", "", "multiplier: is that of one rung; write at: 4, say"),
        ("at: 4", "at: 7", "at: rung has no level 7"),
        ("above: 1.1", "margin: 0.1", "multiplier: needs one bound above 0, above: 1.1 or below: 1.1"),
        ("above: 1.1", "above: 1.1, below: 2", "multiplier: needs one bound"),
        ("[{ffn: swiglu}, {ffn: mlp}]", "[{ffn: mlp}, {ffn: swiglu}]", "side one must be one change, and side two its"),
        ("design: ladder", "design: grid", "multiplier: needs rungs; write design: ladder"),
        (CLAIM, "{less: [{ffn: swiglu}, {ffn: mlp}]}", "would mix all rungs, and three learning rates of one"),
        ("multiplier", "less", "above and below belong to multiplier; write margin"),
    ],
)
def test_claims_about_multipliers_are_checked(old: str, new: str, message: str, tmp_path: Path, untried: None) -> None:
    with pytest.raises(PlanError, match=re.escape(message)):
        planned(STUDY.replace(old, new, 1), tmp_path)


@pytest.mark.slow  # trains a ladder of three sizes: 23 CPU-seconds
def test_a_ladder_is_trained_and_told(tmp_path: Path) -> None:
    words = ["-m", "design=ladder", "ladder=3", "parametrization=mup", "ffn=mlp,gelu", "scale=tiny", "model.layers=2"]
    words += ["model.dim=16", "model.heads=2", "data.context=16", "train.steps=12", "train.batch_size=4", "seeds=3"]
    words += ["eval.tokens=256", "optim.warmup=2", "study=climb", "track=none", f"results_dir={tmp_path}"]
    done = command(*words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = verdicts(load_study(tmp_path, "climb"))["ladder"]
    assert isinstance(told, pandas.DataFrame) and list(told["rung"]) == [1, 2, 3]
    others = read_manifest(tmp_path, "climb-exchange")
    assert [*dict.fromkeys(cell.levels["rung"] for cell in others.cells)] == [1, 2, 3], "none at another learning rate"
    assert {"x0.8", "x1", "x1.25", "x1.6"} <= set(others.factors["train.steps"])
    rung_of = {cell.id: cell.levels["rung"] for cell in others.cells}
    assert {run.seed for run in others.runs if rung_of[run.cell] == 1} == set(range(6)), "those of the rung's reference"
    assert {run.seed for run in others.runs if rung_of[run.cell] == 3} == set(range(3))
    ended = {file: file.stat().st_mtime_ns for file in tmp_path.glob("runs/*/*/result.json")}
    assert len(ended) == len({run.path for run in load_study(tmp_path, "climb").manifest.runs + others.runs})
    assert command(*words, cwd=tmp_path).returncode == 0
    assert ended == {file: file.stat().st_mtime_ns for file in tmp_path.glob("runs/*/*/result.json")}, "none again"


def test_the_plan_says_what_the_rungs_are(tmp_path: Path, untried: None) -> None:
    words = ["design=ladder", "parametrization=mup", "ffn=mlp,swiglu", "scale=tiny", "seeds=8"]
    plan = plan_study([*words, "track=none", f"results_dir={tmp_path}"])
    text = preview(plan)
    assert "steps × batch): 1 × 32, 200 × 6, 1.1e+10 FLOPs; 1 × 48, 300 × 8, compute ×3.8" in text
    assert "then 4 references for 0.8, 1.25 and 1.6 times the steps" in text
    assert "with 80 % power" not in text, "of effects, which are not tested"
