"""The text at the end of a sweep; `tests/recorded/pages` holds it word for word for studies of all kinds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_studies import TASK, edit_json, fabricate, with_cells

from ablate import evidence
from ablate.cli.summary import summary
from ablate.evidence import is_share, lower_is_better
from ablate.runs.files import write_json
from ablate.runs.folder import Run
from ablate.runs.manifest import read_manifest
from ablate.runs.study import Study, load_study
from analysis.case import case_of
from analysis.writing import tables

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


def text(results: Path, factors: dict[str, list[Any]] = GRID, **options: Any) -> str:
    return summary(load_study(results, fabricate(results, factors, **options)), results)


def scope_of(lines: list[str]) -> str:
    """The line of a summary that says what its results are about."""
    return next(line for line in lines if " parameters, " in line)


def scored(levels: dict[str, Any], seed: int) -> float:
    """Losses with a spread of 0.01 over seeds, an effect of swiglu of 0.05, none of rms."""
    place = ["ln", "rms"].index(levels["norm"]) + 2 * (levels["ffn"] == "swiglu")
    own = [0.003, -0.002, 0.0, 0.004, 0.001][(seed * (place + 1) + place) % 5]
    return 2.061 + 0.01 * (seed % 3 - 1) - 0.05 * (levels["ffn"] == "swiglu") + own


def test_the_interval_printed_is_the_interval_computed(tmp_path: Path) -> None:
    from scipy import stats

    said = summary(load_study(tmp_path, fabricate(tmp_path, GRID, score=scored)), wall_seconds=108.2)
    assert said.splitlines()[0].endswith(" · byte LM on stdlib-3.11 · 12 runs, 0 diverged, 0 failed · 1 min 48 s")
    line = next(line for line in said.splitlines() if line.startswith("  swiglu lowers test loss by "))
    gains = [
        sum(scored({"norm": n, "ffn": "swiglu"}, s) - scored({"norm": n, "ffn": "mlp"}, s) for n in ("ln", "rms")) / 2
        for s in range(3)
    ]
    limits = stats.ttest_1samp(gains, 0).confidence_interval(1 - 0.05 / 3)
    printed = line.split("[")[1].split("]")[0].split(", ")
    assert [float(number) for number in printed] == pytest.approx([-limits.high, -limits.low], abs=6e-4)
    assert line.endswith("  better")


def test_the_summary_of_a_grid_of_four_fits_in_fourteen_lines(tmp_path: Path) -> None:
    said = summary(load_study(tmp_path, fabricate(tmp_path, GRID, range(5), score=scored)), wall_seconds=108.2)
    assert len(said.splitlines()) <= 14


def test_question_tier_claims_and_what_is_confirmed_are_named(tmp_path: Path) -> None:
    claim = {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}]}
    claims = {"gated_better": {"claim": claim, "written": "2026-01-01", "earlier": [], "registered": True}}
    said = text(tmp_path, question="Does swiglu help?", tier="gpu", claims=claims, design="leave_one_out")
    assert said.startswith("fabricated: norm, ffn, leave one out · ")
    assert said.splitlines()[1:3] == ["question: Does swiglu help?", "tier: gpu"]
    assert "gated_better" in said
    said = text(tmp_path, study="again", confirms="norm-ffn-3fa94c", seeds=range(8))
    assert "confirmation of norm-ffn-3fa94c on fresh seeds" in said.splitlines()[0]
    assert "confirm=" not in said and said.splitlines()[-1] == f"figures: ablate analyse --results-dir {tmp_path}"


def test_the_command_for_figures_names_the_results_folder_only_where_it_must(tmp_path: Path, monkeypatch) -> None:
    assert text(tmp_path).endswith(f"figures: ablate analyse --results-dir {tmp_path}")
    monkeypatch.setenv("ABLATE_RESULTS", str(tmp_path))
    assert text(tmp_path, study="again").endswith("figures: ablate analyse")


def test_several_passes_and_large_models_in_scope(tmp_path: Path) -> None:
    name = fabricate(tmp_path, GRID, tasks={"f0": TASK | {"train_tokens": 100_000, "yardsticks": {}}})
    study = with_cells(load_study(tmp_path, name), lambda i, cell: {} if i else {"params": 124_000_000})
    said = summary(study).splitlines()
    assert "124 M parameters, 800 steps (8.2 epochs), one learning rate, stdlib-3.11" in scope_of(said)
    assert said[1] == "test/loss, nats per byte, last step"


def test_ranges_in_scope_are_from_the_least_to_the_largest(tmp_path: Path) -> None:
    """However many values there are, and in whatever order they are swept."""
    factors = {"norm": ["ln", "rms"], "optim.lr": [0.006, 0.012, 0.0015, 0.003]}
    study = load_study(tmp_path, fabricate(tmp_path, factors))
    assert "learning rates 1.5e-3 to 0.012" in scope_of(summary(study).splitlines())


def test_a_study_file_with_seeds_auto_is_confirmed_with_a_number_of_seeds(tmp_path: Path) -> None:
    looks = {"looks": [5, 8], "at": 5, "max": 8}
    said = text(tmp_path, seeds=range(5), sequential=looks, experiment="mine", command="ablate +experiment=mine")
    assert "next: ablate +experiment=mine seeds=8 confirm=8 " in said
    said = text(tmp_path, study="typed", seeds=range(5), sequential=looks, command="ablate -m norm=ln,rms seeds=auto")
    assert "next: ablate -m norm=ln,rms confirm=8 " in said


def test_two_seeds_are_followed_by_more_of_them_and_not_by_a_confirmation(tmp_path: Path) -> None:
    assert "next: ablate -m norm=ln,rms seeds=5 " in text(
        tmp_path, seeds=[0, 1], command="ablate -m norm=ln,rms seeds=2"
    )


def test_the_scope_tells_of_tuned_rates_only_where_rates_were_tuned(tmp_path: Path) -> None:
    cells = {f"c{i}": {"value": 0.1, "scores": [2.0, 2.1], "edge": False} for i in range(2)}
    tuning = {"values": [0.1, 0.2], "seeds": 2, "study": "x-tune", "rule": "one_se", "cells": cells}
    for key, scope in (
        ("optim.weight_decay", "one learning rate, optim.weight_decay tuned"),
        ("optim.lr", "optim.lr tuned"),
    ):
        name = fabricate(tmp_path / key, {"norm": ["ln", "rms"]}, tuning=tuning | {"key": key})
        assert f", {scope} per configuration" in scope_of(summary(load_study(tmp_path / key, name)).splitlines())


def test_a_metric_that_a_task_shows_stands_beside_the_endpoint(tmp_path: Path) -> None:
    """Nothing but its task names it; it is read with the direction, the unit and the bounds that it has there."""
    task = TASK | {"metrics": {"loss": "min", "f1": "max"}, "shares": ["f1"], "units": {"loss": "bits"}}
    name = fabricate(tmp_path, {"norm": ["ln", "rms"]}, tasks={"f0": task | {"beside": ["f1"]}})
    for planned in read_manifest(tmp_path, name).runs:
        edit_json(Run(tmp_path, planned.path).result_file, lambda result: result["final"].update({"test/f1": 0.25}))
    study = load_study(tmp_path, name)
    lines = summary(study).splitlines()
    assert lines[2].endswith("parameters  f1") and lines[3].endswith("  0.250 ± 0.000")
    assert any(line.startswith("test/loss, bits per byte") for line in lines)
    known = study.manifest.tasks["f0"]
    assert not lower_is_better(study.manifest, "test/f1") and is_share(known, "test/f1@8")
    assert not is_share(known, "test/accuracy"), "what a task says of its metrics counts alone"


def test_lengths_stand_beside_the_endpoint(tmp_path: Path) -> None:
    factors = {"norm": ["ln", "bn"]}
    name = fabricate(tmp_path, factors, score=lambda levels, seed: 2.0 + 0.02 * seed)
    plain = summary(load_study(tmp_path, name), tmp_path)
    assert "@" not in plain
    for run in read_manifest(tmp_path, name).runs:
        on_disk, more = Run(tmp_path, run.path), 0.02 * run.seed
        if run.path.startswith("ln") or run.seed:  # one run of bn was not tested
            lengths = {
                f"test/loss@{length}": 2.0 + length / 64 + more for length in (128, 64, 512)
            }  # 512: of another study
            write_json(on_disk.evaluation_file, {"metrics": lengths | {"test/bpb@64": 9.0}})
    lines = summary(load_study(tmp_path, name), tmp_path).splitlines()
    assert lines[2].split() == ["mean", "±", "SD", "parameters", "@64", "@128"]
    assert lines[3].endswith("  3.020 ± 0.020          4.020 ± 0.020")
    assert lines[4].endswith("  3.030 ± 0.014 (n = 2)  4.030 ± 0.014 (n = 2)")


RECALL = TASK | {
    "title": "recall of 16 pairs",
    "kind": "lm",
    "token": "class",
    "metrics": {"accuracy": "max", "loss": "min"},
    "yardsticks": {"chance": 0.0625},
    "train_tokens": None,
}
FFNS: dict[str, list[Any]] = {"ffn": ["mlp", "swiglu"]}


def made(results: Path, score: Callable[[dict[str, Any], int], float], **options: Any) -> Study:
    options = {"seeds": range(5), "tasks": {"f0": RECALL}} | options
    return load_study(results, fabricate(results, FFNS, score=score, **options))


def better(levels: dict[str, Any], seed: int) -> float:
    return 0.5 + 0.3 * (levels["ffn"] == "swiglu") + 0.01 * ((seed * 7 + len(levels["ffn"])) % 5)


# Scores, whether they are paired, the verdict, and how its note begins.
CASES: dict[str, tuple[Callable[[dict[str, Any], int], float], bool, str, str]] = {
    "higher": (better, True, "better", ""),
    "all solve it": (lambda *_: 1.0, True, "undecided", "equal in every seed"),
    "none solves it": (lambda *_: 0.0, False, "undecided", "equal in every seed"),
    "one solves it": (lambda levels, seed: float(levels["ffn"] == "mlp"), True, "undecided", "no spread"),
    "one solves it, the other sometimes": (
        lambda levels, seed: 1.0 if levels["ffn"] == "swiglu" else better(levels, seed),
        *(True, "better", ""),
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_accuracies_have_verdicts_where_seeds_differ(tmp_path: Path, case: str) -> None:
    score, paired, verdict, note = CASES[case]
    study = made(tmp_path, score, batches=lambda levels: "b" if paired else levels["ffn"])
    assert evidence.endpoint(study.manifest) == "test/accuracy"
    [row] = evidence.effects(study).itertuples()
    assert row.verdict == verdict and row.note.startswith(note) and (row.low > 0 or verdict != "better")
    files = tables.write(case_of(study, tmp_path), tmp_path)
    shown = summary(study, tmp_path) + "".join(file.read_text() for file in files if file.suffix == ".md")
    assert "nan" not in shown and "test/accuracy, last step\n" in shown  # yardsticks are losses
    assert "800 steps (fresh data)" in shown and ("raises test accuracy by" in shown) == (verdict == "better")
    if note == "equal in every seed":
        assert "inf" not in summary(study, tmp_path)


def test_a_loss_is_per_what_the_task_predicts(tmp_path: Path) -> None:
    classes = RECALL | {"metrics": {"loss": "min", "accuracy": "max"}}
    assert "test/loss, nats per class, last step" in summary(made(tmp_path, better, tasks={"f0": classes}), tmp_path)
