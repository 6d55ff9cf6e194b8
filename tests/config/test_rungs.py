"""The rungs of design=ladder, from command line and study file to the runs that are planned."""

import re
from pathlib import Path

import pytest
from conftest import latest

from ablate.cli.preview import preview
from ablate.config.claims import Level
from ablate.config.errors import PlanError
from ablate.config.schema import Config
from ablate.planning.plan import plan_study
from ablate.runs.records import Manifest

TINY = ["design=ladder", "parametrization=mup", "ffn=mlp,swiglu", "norm=ln,rms", "scale=small", "seeds=2", "track=none"]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory) -> Manifest:
    """The manifest of a ladder of four rungs with two factors."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("ablate.planning.checks.inspect.try_out", lambda *_: [])
        return plan_study([*TINY, f"results_dir={tmp_path_factory.mktemp('results')}"]).manifest


@pytest.fixture
def configs(manifest) -> dict[Level, Config]:
    """The configuration of the reference at each rung."""
    return {cell.levels["rung"]: cell.planned_config for cell in manifest.cells if cell.reference}


def test_a_ladder_has_rungs_and_the_last_but_one_at_two_other_rates(manifest):
    assert manifest.factors["rung"] == [1, 2, 3, 4, "3 at half the rate", "3 at twice the rate"]
    assert manifest.reference == {"ffn": "mlp", "norm": "ln"}
    assert len(manifest.cells) == 6 * 3
    assert manifest.cells[1].label == "swiglu + ln + rung 1"


def test_each_rung_has_half_the_size_half_the_tokens_and_a_quarter_of_the_compute_of_the_next(manifest, configs):
    compute = {cell.levels["rung"]: cell.training_flops for cell in manifest.cells if cell.reference}
    for rung in (1, 2, 3):
        low = configs[rung]
        high = configs[rung + 1]
        size = low.model.layers * low.model.dim**2
        tokens = low.train.steps * low.train.batch_size
        assert high.model.layers * high.model.dim**2 / size == pytest.approx(2, rel=0.1)
        assert high.train.steps * high.train.batch_size / tokens == pytest.approx(2, rel=0.02)
        assert 3.4 < compute[rung + 1] / compute[rung] < 4.4


def test_rungs_share_the_learning_rate_and_the_share_of_warm_up_of_the_top_one_which_is_the_composed_model(configs):
    top = configs[4]
    assert (top.model.layers, top.model.dim, top.train.steps, top.train.batch_size) == (4, 128, 2000, 12)
    for rung in (1, 2, 3):
        assert configs[rung].optim.lr == top.optim.lr
        assert configs[rung].optim.warmup / configs[rung].train.steps == pytest.approx(0.05, rel=0.02)
    assert configs["3 at half the rate"] == configs[3].with_value("optim.lr", top.optim.lr / 2)
    assert configs["3 at twice the rate"] == configs[3].with_value("optim.lr", top.optim.lr * 2)


def test_rungs_of_a_sixteenth_of_the_compute_have_twice_as_many_seeds(manifest):
    for cell in manifest.cells:
        seeds = {run.seed for run in manifest.runs if run.cell == cell.id}
        assert seeds == (set(range(4)) if cell.levels["rung"] in (1, 2) else {0, 1})


MISFITS = {
    "parametrization=standard": "design: ladder carries the learning rate over widths by parametrization=mup",
    "model.dim=64,128": "model.dim: is that of the top rung with design=ladder; write one value",
    "ladder=2": "ladder: must be a whole number ≥ 3 and ≤ 8, not 2",
    "match=flops_total": "design: ladder and match=flops_total do not go together; leave one out",
    "seeds=auto": "design: ladder and seeds=auto do not go together; leave one out",
    "tune.key=optim.lr tune.values=[1e-3,2e-3]": "design: ladder and tune.key do not go together; leave one out",
    "step_equivalents=true": "design: ladder and step_equivalents do not go together; leave one out",
    "margin=0.2": "design: ladder and margin do not go together; leave one out",
    "design=grid ladder=5": "ladder: is the number of rungs; write design=ladder, too",
    "ffn=mlp norm=ln": "design: ladder compares nothing here; sweep a component",
}


@pytest.mark.parametrize("words", MISFITS)
def test_what_does_not_fit_a_ladder_is_refused(words, tmp_path):
    with pytest.raises(PlanError, match=re.escape(MISFITS[words])):
        plan_study([*latest(*TINY, *words.split()), f"results_dir={tmp_path}"])


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


def test_a_claim_about_a_multiplier_is_that_of_one_rung(tmp_path, untried):
    assert planned(STUDY, tmp_path).claims["worth"].claim.at == {"rung": 4}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("at: 4, ", "", "would mix all rungs, and three learning rates of one; write at: {rung: 4}, say"),
        ("at: 4", "at: 7", "at: rung has no level 7"),
        ("above: 1.1", "margin: 0.1", "multiplier: needs one bound above 0, above: 1.1 or below: 1.1"),
        ("above: 1.1", "above: 1.1, below: 2", "multiplier: needs one bound"),
        ("[{ffn: swiglu}, {ffn: mlp}]", "[{ffn: mlp}, {ffn: swiglu}]", "side one must be one change, and side two its"),
        ("design: ladder", "design: grid", "multiplier: needs rungs; write design: ladder"),
        (CLAIM, "{less: [{ffn: swiglu}, {ffn: mlp}]}", "would mix all rungs, and three learning rates of one"),
        ("multiplier", "less", "above and below belong to multiplier; write margin"),
    ],
)
def test_claims_about_multipliers_are_checked(old, new, message, tmp_path, untried):
    with pytest.raises(PlanError, match=re.escape(message)):
        planned(STUDY.replace(old, new, 1), tmp_path)


def test_the_plan_says_what_the_rungs_are(tmp_path, untried):
    words = ["design=ladder", "parametrization=mup", "ffn=mlp,swiglu", "scale=tiny", "seeds=8"]
    plan = plan_study([*words, "track=none", f"results_dir={tmp_path}"])
    text = preview(plan)
    assert "steps × batch): 1 × 32, 200 × 6, 1.1e+10 FLOPs; 1 × 48, 300 × 8, compute ×3.8" in text
    assert "then 4 references for 0.8, 1.25 and 1.6 times the steps" in text
    assert "with 80 % power" not in text, "of effects, which are not tested"
