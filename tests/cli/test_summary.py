"""The text at the end of a sweep; `tests/recorded/pages` holds it word for word for studies of all kinds."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from fake_studies import TASK, edit_json, fabricate, with_cells
from scipy import stats

from ablate.cli.summary import summary
from ablate.runs.files import write_json
from ablate.runs.folder import Run
from ablate.runs.manifest import read_manifest
from ablate.runs.study import load_study

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
NORMS = {"norm": ["ln", "rms"]}
Lines = Callable[..., list[str]]


@pytest.fixture
def lines_of(tmp_path: Path) -> Lines:
    """The lines of the summary of a study."""

    def lines(factors: dict[str, list[Any]] = GRID, **options: Any) -> list[str]:
        return summary(load_study(tmp_path, fabricate(tmp_path, factors, **options)), tmp_path).splitlines()

    return lines


def scope_of(lines: list[str]) -> str:
    """The line that says what the results are about."""
    return next(line for line in lines if " parameters, " in line)


def scored(levels: dict[str, Any], seed: int) -> float:
    """Losses with a spread over seeds, an effect of swiglu of 0.05, none of rms."""
    cell = ["ln", "rms"].index(levels["norm"]) + 2 * ["mlp", "swiglu"].index(levels["ffn"])
    noise = [0.003, -0.002, 0.0, 0.004, 0.001][(seed * (cell + 1) + cell) % 5]
    effect = -0.05 if levels["ffn"] == "swiglu" else 0.0
    return 2.061 + 0.01 * (seed % 3 - 1) + effect + noise


def test_the_interval_printed_is_the_interval_computed(lines_of: Lines) -> None:
    [line] = [line for line in lines_of(score=scored) if line.startswith("  swiglu lowers test loss by ")]
    gains = []
    for seed in range(3):
        at_ln = scored({"norm": "ln", "ffn": "mlp"}, seed) - scored({"norm": "ln", "ffn": "swiglu"}, seed)
        at_rms = scored({"norm": "rms", "ffn": "mlp"}, seed) - scored({"norm": "rms", "ffn": "swiglu"}, seed)
        gains.append((at_ln + at_rms) / 2)
    limits = stats.ttest_1samp(gains, 0).confidence_interval(1 - 0.05 / 3)
    printed = line.split("[")[1].split("]")[0].split(", ")
    assert [float(number) for number in printed] == pytest.approx([limits.low, limits.high], abs=6e-4)
    assert line.endswith("  better")


def test_the_summary_of_a_grid_of_four_fits_in_fourteen_lines(lines_of: Lines) -> None:
    assert len(lines_of(seeds=range(5), score=scored)) <= 14


def test_the_first_line_counts_runs_and_time(tmp_path: Path) -> None:
    study = load_study(tmp_path, fabricate(tmp_path, GRID))
    first = summary(study, wall_seconds=108.2).splitlines()[0]
    assert first.endswith(" · byte LM on stdlib-3.11 · 12 runs, 0 diverged, 0 failed · 1 min 48 s")


def test_question_tier_design_and_claims_are_named(lines_of: Lines) -> None:
    claim = {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}]}
    claims = {"gated_better": {"claim": claim, "written": "2026-01-01", "earlier": [], "registered": True}}
    lines = lines_of(question="Does swiglu help?", tier="gpu", claims=claims, design="leave_one_out")
    assert lines[0].startswith("fabricated: norm, ffn, leave one out · ")
    assert lines[1:3] == ["question: Does swiglu help?", "tier: gpu"]
    assert any(line.startswith("gated_better ") for line in lines)


def test_a_confirmation_names_its_study_and_is_not_confirmed_again(tmp_path: Path, lines_of: Lines) -> None:
    lines = lines_of(study="again", confirms="norm-ffn-3fa94c", seeds=range(8))
    assert "confirmation of norm-ffn-3fa94c on fresh seeds" in lines[0]
    assert lines[-1] == f"figures: ablate analyse --results-dir {tmp_path}"


def test_the_usual_results_folder_is_not_named(tmp_path: Path, lines_of: Lines, monkeypatch) -> None:
    monkeypatch.setenv("ABLATE_RESULTS", str(tmp_path))
    assert lines_of()[-1].endswith("figures: ablate analyse")


LOOKS = {"looks": [5, 8], "at": 5, "max": 8}
# The command, what else the manifest has, the number of seeds, and what comes next.
NEXT = [
    ("ablate +experiment=mine", {"sequential": LOOKS, "experiment": "mine"}, 5, "+experiment=mine seeds=8 confirm=8"),
    ("ablate -m norm=ln,rms seeds=auto", {"sequential": LOOKS}, 5, "-m norm=ln,rms confirm=8"),
    ("ablate -m norm=ln,rms seeds=2", {}, 2, "-m norm=ln,rms seeds=5"),
]


@pytest.mark.parametrize(("command", "more", "seeds", "following"), NEXT)
def test_the_next_command(command: str, more: dict[str, Any], seeds: int, following: str, lines_of: Lines) -> None:
    assert f"next: ablate {following} " in lines_of(seeds=range(seeds), command=command, **more)[-1]


def test_large_models_and_several_passes_in_scope(tmp_path: Path) -> None:
    study = load_study(tmp_path, fabricate(tmp_path, GRID, tasks={"f0": TASK | {"train_tokens": 100_000}}))
    large = with_cells(study, lambda i, cell: {"params": 124_000_000})
    assert "124 M parameters, 800 steps (8.2 epochs)" in scope_of(summary(large).splitlines())


def test_many_rates_are_shown_as_a_range(lines_of: Lines) -> None:
    lines = lines_of({"norm": ["ln", "rms"], "optim.lr": [0.006, 0.012, 0.0015, 0.003]})
    assert "learning rates 1.5e-3 to 0.012" in scope_of(lines)


def test_another_tuned_key_is_named_beside_the_rate(lines_of: Lines) -> None:
    cells = {f"c{i}": {"value": 0.1, "scores": [2.0, 2.1], "edge": False} for i in range(2)}
    tuning = {"key": "optim.weight_decay", "values": [0.1, 0.2], "seeds": 2, "study": "x-tune", "rule": "one_se"}
    lines = lines_of(NORMS, tuning=tuning | {"cells": cells})
    assert ", one learning rate, optim.weight_decay tuned per configuration" in scope_of(lines)


def test_a_metric_that_a_task_shows_stands_beside_the_endpoint(tmp_path: Path) -> None:
    task = TASK | {"metrics": {"loss": "min", "f1": "max"}, "shares": ["f1"], "units": {"loss": "bits"}}
    name = fabricate(tmp_path, NORMS, tasks={"f0": task | {"beside": ["f1"]}})
    for planned in read_manifest(tmp_path, name).runs:
        edit_json(Run(tmp_path, planned.path).result_file, lambda result: result["final"].update({"test/f1": 0.25}))
    lines = summary(load_study(tmp_path, name)).splitlines()
    assert lines[1].startswith("test/loss, bits per byte")
    assert lines[2].endswith("parameters  f1")
    assert lines[3].endswith("  0.250 ± 0.000")


def test_lengths_stand_beside_the_endpoint_in_their_order(tmp_path: Path) -> None:
    name = fabricate(tmp_path, NORMS)
    runs = read_manifest(tmp_path, name).runs
    for run in runs[1:]:  # one was not tested
        metrics = {"test/loss@128": 4.0 + 0.02 * run.seed, "test/loss@64": 3.0 + 0.02 * run.seed}
        write_json(Run(tmp_path, run.path).evaluation_file, {"metrics": metrics})
    lines = summary(load_study(tmp_path, name)).splitlines()
    assert lines[2].split() == ["mean", "±", "SD", "parameters", "@64", "@128"]
    assert lines[3].endswith("  3.030 ± 0.014 (n = 2)  4.030 ± 0.014 (n = 2)")
    assert lines[4].endswith("  3.020 ± 0.020          4.020 ± 0.020")


CLASSES = TASK | {"title": "recall", "token": "class", "yardsticks": {"chance": 0.0625}, "train_tokens": None}
FFNS: dict[str, list[Any]] = {"ffn": ["mlp", "swiglu"]}


def higher(levels: dict[str, Any], seed: int) -> float:
    return 0.5 + 0.3 * FFNS["ffn"].index(levels["ffn"]) + 0.01 * ((seed * 7 + len(levels["ffn"])) % 5)


def test_a_higher_accuracy_is_better(lines_of: Lines) -> None:
    tasks = {"f0": CLASSES | {"metrics": {"accuracy": "max", "loss": "min"}}}
    lines = lines_of(FFNS, seeds=range(5), score=higher, tasks=tasks)
    assert lines[1] == "test/accuracy, last step", "yardsticks are losses"
    assert any("raises test accuracy by" in line and line.endswith("better") for line in lines)


@pytest.mark.parametrize("solved", [0.0, 1.0])
def test_what_all_solve_or_none_has_no_spread(solved: float, lines_of: Lines) -> None:
    tasks = {"f0": CLASSES | {"metrics": {"accuracy": "max", "loss": "min"}}}
    lines = lines_of(FFNS, seeds=range(5), score=lambda *_: solved, tasks=tasks)
    assert any("equal in every seed" in line and line.endswith("undecided") for line in lines)
    assert not any("nan" in line or "inf" in line for line in lines)


def test_a_loss_is_per_what_the_task_predicts(lines_of: Lines) -> None:
    lines = lines_of(FFNS, score=higher, tasks={"f0": CLASSES | {"metrics": {"loss": "min", "accuracy": "max"}}})
    assert lines[1].startswith("test/loss, nats per class, last step")
