"""The rungs of design=ladder, from command line and study file to the runs that are planned."""

import itertools
import math
from pathlib import Path

import pandas
import pytest
from conftest import run_module

from ablate.cli.preview import preview
from ablate.cli.sweep import verdicts
from ablate.config.errors import PlanError
from ablate.planning.plan import plan_study
from ablate.runs.manifest import read_manifest
from ablate.runs.study import load_study

TINY = ["design=ladder", "parametrization=mup", "ffn=mlp,swiglu", "norm=ln,rms", "scale=small", "seeds=2", "track=none"]


def test_each_rung_has_a_quarter_of_the_compute_of_the_next(tmp_path: Path, untried: None) -> None:
    manifest = plan_study([*TINY, f"results_dir={tmp_path}"]).manifest
    by_level = {cell.levels["rung"]: cell for cell in manifest.cells if cell.reference}
    assert list(by_level) == [1, 2, 3, 4, "3 at half the rate", "3 at twice the rate"] == manifest.factors["rung"]
    assert manifest.reference == {"ffn": "mlp", "norm": "ln"} and len(manifest.cells) == 6 * 3
    configs = {level: cell.config for level, cell in by_level.items()}
    compute = [
        by_level[rung].flops_per_token * float(by_level[rung].tokens_per_step or 0) * configs[rung].train.steps
        for rung in range(1, 5)
    ]
    ratios = [high / low for low, high in itertools.pairwise(compute)]
    assert all(3.4 < ratio < 4.4 for ratio in ratios), ratios
    sizes = [config.model.layers * config.model.dim**2 for config in configs.values()]
    tokens = [config.train.steps * config.train.batch_size for config in configs.values()]
    for number in range(3):
        assert sizes[number + 1] / sizes[number] == pytest.approx(2, rel=0.1)
        assert tokens[number + 1] / tokens[number] == pytest.approx(2, rel=0.02)
    top, below = configs[4], configs[3]
    assert (top.model.layers, top.model.dim, top.train.steps, top.train.batch_size) == (4, 128, 2000, 12)
    assert {config.optim.lr for level, config in configs.items() if isinstance(level, int)} == {top.optim.lr}
    assert configs["3 at half the rate"] == below.with_value("optim.lr", top.optim.lr / 2)
    assert configs["3 at twice the rate"] == below.with_value("optim.lr", top.optim.lr * 2)
    assert all(math.isclose(c.optim.warmup / c.train.steps, 0.05, rel_tol=0.02) for c in configs.values())
    seeds = {level: {run.seed for run in manifest.runs if run.cell == cell.id} for level, cell in by_level.items()}
    assert seeds == {1: {0, 1, 2, 3}, 2: {0, 1, 2, 3}} | {key: {0, 1} for key in [*by_level][2:]}
    assert manifest.cells[1].label == "swiglu + ln + rung 1"


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["parametrization=standard"], "design: ladder carries the learning rate over widths by parametrization=mup"),
        (["model.dim=64,128"], "model.dim: is chosen by design=ladder for each rung; write one value"),
        (["scale=tiny,small"], "scale: is chosen by design=ladder for each rung; write one value"),
        (["ladder=2"], "ladder: must be ≥ 3 and ≤ 8, not 2"),
        (["ladder=1"], "ladder: must be ≥ 3 and ≤ 8, not 1"),
        (["train.steps=0"], "train.steps: must be ≥ 1"),
        (["model.heads=0"], "model.heads: must be ≥ 1"),
        (["model.layers=-2"], "model.layers: must be ≥ 1"),
        (["match=flops_total"], "design: ladder sets the steps of each rung; leave match=flops_total out"),
        (["parametrization=standard,mup"], "parametrization: is that of all rungs with design=ladder; write one value"),
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
    given = [word for word in TINY if word.partition("=")[0] not in keys] + words
    with pytest.raises(PlanError) as refused:
        plan_study([*given, f"results_dir={tmp_path}"])
    assert message in str(refused.value)


CLAIM = "{multiplier: [{ffn: swiglu}, {ffn: mlp}], at: 4, above: 1.1}"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("", "", ""),
        ("at: 4, ", "", "multiplier: is that of one rung; write at: 4, say"),
        ("at: 4", "at: 7", "at: rung has no level 7"),
        ("above: 1.1", "margin: 0.1", "multiplier: needs one bound above 0, above: 1.1 or below: 1.1"),
        ("above: 1.1", "above: 1.1, below: 2", "multiplier: needs one bound"),
        ("[{ffn: swiglu}, {ffn: mlp}]", "[{ffn: mlp}, {ffn: swiglu}]", "side one must be one change, and side two its"),
        ("design: ladder", "design: grid", "multiplier: needs rungs; write design: ladder"),
        (CLAIM, "{less: [{ffn: swiglu}, {ffn: mlp}]}", "would mix all rungs, and three learning rates of one"),
        ("multiplier", "less", "above: belongs to multiplier; write margin"),
    ],
)
def test_claims_about_multipliers_are_checked(old: str, new: str, message: str, tmp_path: Path, untried: None) -> None:
    text = "# @package _global_\nstudy: climb\nscale: small\ndesign: ladder\nparametrization: mup\nseeds: 4\n"
    text += "figure: ladder\n"
    text += f"factors: {{ffn: [mlp, swiglu]}}\nclaims:\n  worth: {CLAIM}\n"
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "climb.yaml").write_text(text.replace(old, new, 1))
    words = ["+experiment=climb", "track=none", f"results_dir={tmp_path / 'results'}"]
    if message:
        with pytest.raises(PlanError) as refused:
            plan_study(words, str(tmp_path))
        assert message in str(refused.value)
    else:
        assert plan_study(words, str(tmp_path)).manifest.claims["worth"].claim.at == {"rung": 4}


@pytest.mark.slow  # trains a ladder of three sizes: 23 CPU-seconds
def test_a_ladder_is_trained_and_told(tmp_path: Path) -> None:
    words = ["-m", "design=ladder", "ladder=3", "parametrization=mup", "ffn=mlp,gelu", "scale=tiny", "model.layers=2"]
    words += ["model.dim=16", "model.heads=2", "data.context=16", "train.steps=12", "train.batch_size=4", "seeds=3"]
    words += ["eval.tokens=256", "optim.warmup=2", "study=climb", "track=none", f"results_dir={tmp_path}"]
    done = run_module("ablate", *words, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    told = verdicts(load_study(tmp_path, "climb"))["ladder"]
    assert isinstance(told, pandas.DataFrame) and list(told["rung"]) == [1, 2, 3]
    others = read_manifest(tmp_path, "climb-exchange")
    assert [*dict.fromkeys(cell.levels["rung"] for cell in others.cells)] == [1, 2, 3], "none at another learning rate"
    assert {"x0.8", "x1", "x1.25", "x1.6"} <= set(others.factors["train.steps"])
    seeds = {
        rung: {
            run.seed
            for run in others.runs
            for cell in others.cells
            if cell.id == run.cell and cell.levels["rung"] == rung
        }
        for rung in (1, 3)
    }
    assert seeds == {1: set(range(6)), 3: set(range(3))}, "those of the rung's reference"
    ended = {file: file.stat().st_mtime_ns for file in tmp_path.glob("runs/*/*/result.json")}
    assert len(ended) == len({run.path for run in load_study(tmp_path, "climb").manifest.runs + others.runs})
    assert run_module("ablate", *words, cwd=tmp_path).returncode == 0
    assert ended == {file: file.stat().st_mtime_ns for file in tmp_path.glob("runs/*/*/result.json")}, "none again"


def test_the_plan_says_what_the_rungs_are(tmp_path: Path, untried: None) -> None:
    words = ["design=ladder", "parametrization=mup", "ffn=mlp,swiglu", "scale=tiny", "seeds=8"]
    plan = plan_study([*words, "track=none", f"results_dir={tmp_path}"])
    text = preview(plan)
    assert "steps × batch): 1 × 32, 200 × 6, 1.1e+10 FLOPs; 1 × 48, 300 × 8, compute ×3.8" in text
    assert "then 4 references for 0.8, 1.25 and 1.6 times the steps" in text
    assert "with 80 % power" not in text, "of effects, which are not tested"
