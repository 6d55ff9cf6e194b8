"""The text at the end of a sweep; `tests/recorded/pages` holds it word for word for studies of all kinds."""

from pathlib import Path
from typing import Any

import pytest
from fake_studies import TASK, edit_json, fabricate, with_cells

from ablate.cli.summary import summary
from ablate.evidence import is_share, lower_is_better
from ablate.results.atomic import write_json
from ablate.results.manifest import read_manifest
from ablate.results.run import Run
from ablate.results.study import load_study

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


def text(results: Path, factors: dict[str, list[Any]] = GRID, **options: Any) -> str:
    return summary(load_study(results, fabricate(results, factors, **options)), results)


def scored(levels: dict[str, Any], seed: int) -> float:
    """Losses with a spread of 0.01 over seeds, an effect of swiglu of 0.05, none of rms."""
    place = ["ln", "rms"].index(levels["norm"]) + 2 * (levels["ffn"] == "swiglu")
    own = [0.003, -0.002, 0.0, 0.004, 0.001][(seed * (place + 1) + place) % 5]
    return 2.061 + 0.01 * (seed % 3 - 1) - 0.05 * (levels["ffn"] == "swiglu") + own


def test_whole_text(tmp_path: Path) -> None:
    study = load_study(tmp_path, fabricate(tmp_path, GRID, score=scored))
    lines = summary(study, wall_seconds=108.2).splitlines()
    assert lines[0] == "norm × ffn · byte LM on stdlib-3.11 · 12 runs, 0 diverged, 0 failed · 1 min 48 s"
    assert lines[1] == "scope: 0.12 M parameters, 800 steps (8 % of one pass), one untuned lr 1e-3"
    assert lines[2] == "test/loss, nats per byte, last step (uniform 5.55, unigram 3.24, bigram 2.46)"
    assert lines[3] == "  ln + mlp (reference)  2.061 ± 0.009 SD  0.12 M"
    assert lines[4].startswith("  ln + swiglu           2.01") and lines[4].endswith("+0.1 %")
    assert lines[7] == "effects, paired over 3 seeds, simultaneous 95 % intervals"
    assert lines[8].startswith("  ffn: swiglu − mlp  −0.0")
    assert lines[8].endswith("better (lower loss) at this scale")
    assert lines[9].startswith("  norm: rms − ln     ") and lines[9].endswith("undecided (not shown equal)")
    assert lines[10].startswith("  norm × ffn         ") and lines[10].endswith("  undecided")
    assert (
        lines[12].startswith("few seeds: a fresh study of 3 seeds would find effects of 0.0")
        and " four times in five (SD of an effect 0.0" in lines[12]
    )
    assert lines[11] == "verdicts from fewer than 12 seeds assume that differences over seeds are roughly normal"
    assert lines[13] == (
        "better and worse are of the seeds seen: up to 64 % of seeds may collapse (95 %), "
        "which would move a difference by up to 2.2"
    )
    assert lines[14] == "intervals cover seeds only; speed not compared (runs shared the machine)"
    assert lines[15] == "next: ablate -m norm=ln,rms ffn=mlp,swiglu confirm=8      figures: ablate analyse"
    assert len(lines) == 16


def test_the_interval_printed_is_the_interval_computed(tmp_path: Path) -> None:
    from scipy import stats

    line = next(line for line in text(tmp_path, score=scored).splitlines() if "swiglu − mlp" in line)
    gains = [
        sum(scored({"norm": n, "ffn": "swiglu"}, s) - scored({"norm": n, "ffn": "mlp"}, s) for n in ("ln", "rms")) / 2
        for s in range(3)
    ]
    limits = stats.ttest_1samp(gains, 0).confidence_interval(1 - 0.05 / 3)
    printed = line.split("[")[1].split("]")[0].replace("−", "-").split(", ")
    assert [float(number) for number in printed] == pytest.approx([limits.low, limits.high], abs=6e-4)


def test_lost_runs_are_named_with_reason_and_file(tmp_path: Path) -> None:
    ends = {("rms", "swiglu", 1): "diverged", ("rms", "swiglu", 2): "diverged", ("ln", "swiglu", 2): "failed"}
    ends |= {("rms", "mlp", 0): "running", ("rms", "mlp", 1): "missing", ("rms", "mlp", 2): "missing"}
    said = text(tmp_path, score=scored, status=lambda v, s: ends.get((v["norm"], v["ffn"], s), "done"))
    assert "12 runs, 2 diverged, 1 failed, 3 missing" in said
    row = next(line for line in said.splitlines() if line.startswith("  rms + swiglu"))
    assert "(n = 1), 2 of 3 diverged" in row and "±" not in row
    assert "  rms + mlp             3 of 3 missing " in said
    folder = tmp_path / "runs" / "rms-swiglu-pre-rope-mha-gpt2-3" / "s1-fabricated"
    assert f"diverged: rms + swiglu, seed 1: val/loss 7.1 is above 1.1 x its first value · {folder}/result.json" in said
    assert "failed: ln + swiglu, seed 2: shapes do not fit · " in said and "second line" not in said
    assert "the same command again trains the 4 runs without a number" in said
    for line in said.splitlines():
        assert not ("withheld" in line and "[" in line)


@pytest.mark.parametrize(
    ("ending", "hint"),
    [
        ({"diverged"}, ["next: no run ended with a number; try a lower optim.lr, 3e-4 say"]),
        ({"diverged", "done"}, ["confirm=8"]),
        ({"failed"}, []),
        ({"missing"}, []),
    ],
)
def test_without_a_number_there_is_nothing_to_confirm(tmp_path: Path, ending: set[str], hint: list[str]) -> None:
    ends = sorted(ending)
    said = text(tmp_path, status=lambda levels, seed: ends[seed % len(ends)])
    assert all(each in said for each in hint)
    assert said.count("next: ") == len(hint) and said.splitlines()[-1].endswith(f"--results-dir {tmp_path}")
    assert said.count("confirm=8") == hint.count("confirm=8")


def test_damage_is_named(tmp_path: Path) -> None:
    name = fabricate(tmp_path, GRID, score=scored)
    study = load_study(tmp_path, name)
    broken = tmp_path / "runs" / study.runs["path"][0] / "result.json"
    broken.write_text("{")
    said = summary(load_study(tmp_path, name), tmp_path)
    assert f"damaged: {broken}" in said and "1 missing" in said


def test_question_tier_and_claims_are_named(tmp_path: Path) -> None:
    claim = {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}]}
    claims = {"gated_better": {"claim": claim, "written": "2026-01-01", "earlier": [], "registered": True}}
    said = text(tmp_path, question="Does swiglu help?", tier="gpu", claims=claims, design="leave_one_out")
    assert said.startswith("norm, ffn, leave one out · ") and "ffn: mlp − swiglu" in said
    assert said.splitlines()[1:3] == ["question: Does swiglu help?", "tier: gpu"]
    assert "gated_better" in said


def test_a_confirmation_says_of_what_and_asks_for_no_other(tmp_path: Path) -> None:
    said = text(tmp_path, confirms="norm-ffn-3fa94c", seeds=range(8))
    assert "confirmation of norm-ffn-3fa94c on fresh seeds" in said.splitlines()[0]
    assert "confirm=" not in said and said.splitlines()[-1] == f"figures: ablate analyse --results-dir {tmp_path}"


def test_several_passes_and_large_models_in_scope(tmp_path: Path) -> None:
    name = fabricate(tmp_path, GRID, tasks={"f0": TASK | {"train_tokens": 100_000, "yardsticks": {}}})
    study = with_cells(load_study(tmp_path, name), lambda i, cell: {} if i else {"params": 124_000_000})
    said = summary(study).splitlines()
    assert said[1] == "scope: 124 M parameters, 800 steps (8.2 passes), one untuned lr 1e-3"
    assert said[2] == "test/loss, nats per byte, last step"


def test_a_metric_that_a_task_shows_stands_beside_the_endpoint(tmp_path: Path) -> None:
    """Nothing but its task names it; it is read with the direction, the unit and the bounds that it has there."""
    task = TASK | {"metrics": {"loss": "min", "f1": "max"}, "shares": ["f1"], "units": {"loss": "bits"}}
    name = fabricate(tmp_path, {"norm": ["ln", "rms"]}, tasks={"f0": task | {"beside": ["f1"]}})
    for planned in read_manifest(tmp_path, name).runs:
        edit_json(Run(tmp_path, planned.path).result_file, lambda result: result["final"].update({"test/f1": 0.25}))
    study = load_study(tmp_path, name)
    lines = summary(study).splitlines()
    at = lines.index("also measured")
    shown = lines[at + 1].split()
    assert shown[-4] == "f1" and (float(shown[-3]), float(shown[-1])) == (0.25, 0.0)
    assert any(line.startswith("test/loss, bits per byte") for line in lines)
    known = study.manifest.tasks["f0"]
    assert not lower_is_better(study.manifest, "test/f1") and is_share(known, "test/f1@8")
    assert not is_share(known, "test/accuracy"), "what a task says of its metrics counts alone"


def test_lengths_and_statistics_stand_beside_the_endpoint(tmp_path: Path) -> None:
    factors = {"norm": ["ln", "bn"]}
    name = fabricate(tmp_path, factors, score=lambda levels, seed: 2.0 + 0.02 * seed)
    plain = summary(load_study(tmp_path, name), tmp_path)
    assert "tested at" not in plain and "statistics other" not in plain
    for run in read_manifest(tmp_path, name).runs:
        on_disk, more = Run(tmp_path, run.path), 0.02 * run.seed
        if run.path.startswith("ln") or run.seed:  # one run of bn was not tested
            lengths = {
                f"test/loss@{length}": 2.0 + length / 64 + more for length in (128, 64, 512)
            }  # 512: of another study
            write_json(on_disk.evaluation_file, {"metrics": lengths | {"test/bpb@64": 9.0}})
        if run.path.startswith("bn"):
            tested = {"test/loss_recalibrated": 1.9 + more, "test/loss_batch": 1.5 + more}
            edit_json(on_disk.result_file, lambda result, tested=tested: result["final"].update(tested))
    lines = summary(load_study(tmp_path, name), tmp_path).splitlines()
    at = lines.index("tested at other lengths")
    assert lines[at + 1 : at + 5] == [
        "  ln (reference)  @64  3.020 ± 0.020          @128  4.020 ± 0.020",
        "  bn              @64  3.030 ± 0.014 (n = 2)  @128  4.030 ± 0.014 (n = 2)",
        "with statistics other than the running ones",
        "  bn  recalibrated  1.920 ± 0.020  batch  1.520 ± 0.020",
    ]
