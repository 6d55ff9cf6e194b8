"""The text at the end of a sweep; `tests/recorded/pages` holds it word for word for studies of all kinds."""

from collections.abc import Callable
from typing import Any

import pytest
from fake_studies import TASK, edit_json, fabricate
from scipy import stats

from ablate.cli.summary import summary
from ablate.runs.folder import Run
from ablate.runs.manifest import read_manifest
from ablate.runs.study import load_study

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
NORMS = {"norm": ["ln", "rms"]}
Lines = Callable[..., list[str]]


@pytest.fixture
def lines_of(tmp_path) -> Lines:
    """The lines of the summary of a study."""

    def lines(factors=GRID, **options):
        return summary(load_study(tmp_path, fabricate(tmp_path, factors, **options)), tmp_path).splitlines()

    return lines


def scored(levels: dict[str, Any], seed: int) -> float:
    """Losses with a spread over seeds, an effect of swiglu of 0.05, none of rms."""
    cell = ["ln", "rms"].index(levels["norm"]) + 2 * ["mlp", "swiglu"].index(levels["ffn"])
    noise = [0.003, -0.002, 0.0, 0.004, 0.001][(seed * (cell + 1) + cell) % 5]
    effect = -0.05 if levels["ffn"] == "swiglu" else 0.0
    return 2.061 + 0.01 * (seed % 3 - 1) + effect + noise


def test_the_interval_printed_is_the_interval_computed(lines_of):
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


def test_the_summary_of_a_grid_of_four_fits_in_fourteen_lines(lines_of):
    assert len(lines_of(seeds=range(5), score=scored)) <= 14


def test_question_tier_design_and_claims_are_named(lines_of):
    claim = {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}]}
    claims = {"gated_better": {"claim": claim, "written": "2026-01-01", "earlier": [], "registered": True}}
    lines = lines_of(question="Does swiglu help?", tier="gpu", claims=claims, design="leave_one_out")
    assert lines[0].startswith("fabricated · norm, ffn, leave one out · ")
    assert lines[1:3] == ["question: Does swiglu help?", "tier: gpu"]
    assert any(line.startswith("gated_better ") for line in lines)


def test_a_confirmation_names_its_study_and_is_not_confirmed_again(tmp_path, lines_of):
    lines = lines_of(study="again", confirms="norm-ffn-3fa94c", seeds=range(8))
    assert "confirmation of norm-ffn-3fa94c on fresh seeds" in lines[0]
    assert lines[-1] == f"figures: ablate analyse --results-dir {tmp_path}"


LOOKS = {"looks": [5, 8], "at": 5, "max": 8}
# The command, what else the manifest has, the number of seeds, and what comes next.
NEXT = [
    ("ablate +experiment=mine", {"sequential": LOOKS, "experiment": "mine"}, 5, "+experiment=mine seeds=8 confirm=8"),
    ("ablate -m norm=ln,rms seeds=auto", {"sequential": LOOKS}, 5, "-m norm=ln,rms confirm=8"),
    ("ablate -m norm=ln,rms seeds=2", {}, 2, "-m norm=ln,rms seeds=5"),
]


@pytest.mark.parametrize(("command", "more", "seeds", "following"), NEXT)
def test_the_next_command(command, more, seeds, following, lines_of):
    assert f"next: ablate {following} " in lines_of(seeds=range(seeds), command=command, **more)[-1]


def test_a_metric_that_a_task_shows_stands_beside_the_endpoint(tmp_path):
    task = TASK | {"metrics": {"loss": "min", "f1": "max"}, "shares": ["f1"], "units": {"loss": "bits"}}
    name = fabricate(tmp_path, NORMS, tasks={"f0": task | {"beside": ["f1"]}})
    for planned in read_manifest(tmp_path, name).runs:
        edit_json(Run(tmp_path, planned.path).result_file, lambda result: result["final"].update({"test/f1": 0.25}))
    lines = summary(load_study(tmp_path, name)).splitlines()
    assert lines[1].startswith("test/loss, bits per byte")
    assert lines[2].endswith("parameters  f1")
    assert lines[3].endswith("  0.250 ± 0.000")


CLASSES = TASK | {"title": "recall", "token": "class", "yardsticks": {"chance": 0.0625}, "train_tokens": None}
FFNS: dict[str, list[Any]] = {"ffn": ["mlp", "swiglu"]}


def higher(levels: dict[str, Any], seed: int) -> float:
    return 0.5 + 0.3 * FFNS["ffn"].index(levels["ffn"]) + 0.01 * ((seed * 7 + len(levels["ffn"])) % 5)


def test_a_higher_accuracy_is_better(lines_of):
    tasks = {"f0": CLASSES | {"metrics": {"accuracy": "max", "loss": "min"}}}
    lines = lines_of(FFNS, seeds=range(5), score=higher, tasks=tasks)
    assert lines[1] == "test/accuracy, last step", "yardsticks are losses"
    assert any("raises test accuracy by" in line and line.endswith("better") for line in lines)


@pytest.mark.parametrize("solved", [0.0, 1.0])
def test_what_all_solve_or_none_has_no_spread(solved, lines_of):
    tasks = {"f0": CLASSES | {"metrics": {"accuracy": "max", "loss": "min"}}}
    lines = lines_of(FFNS, seeds=range(5), score=lambda *_: solved, tasks=tasks)
    assert any("equal in every seed" in line and line.endswith("undecided") for line in lines)
    assert not any("nan" in line or "inf" in line for line in lines)


def test_a_loss_is_per_what_the_task_predicts(lines_of):
    lines = lines_of(FFNS, score=higher, tasks={"f0": CLASSES | {"metrics": {"loss": "min", "accuracy": "max"}}})
    assert lines[1].startswith("test/loss, nats per class, last step")


def test_a_study_without_a_number_prints_its_runs_and_how_to_go_on_alone(lines_of):
    heading, how_to_go_on = lines_of(NORMS, status=lambda levels, seed: "failed" if seed else "missing")
    assert "6 runs: 2 missing, 4 failed" in heading
    assert how_to_go_on.startswith("the same command again trains the 6 runs without a number")
