"""Lengths beyond training's: kept weights are tested, nothing is trained again, nothing is lost."""

from types import SimpleNamespace

import pytest
import torch
from conftest import latest
from one_run import carry_out, train_runs, write_plan
from reference_config import CONFIG, component

from ablate.cli.preview import preview
from ablate.cli.summary import summary
from ablate.config.schema import typed
from ablate.execution import train_run
from ablate.planning.checks.validate import length_problems
from ablate.planning.plan import plan_study
from ablate.runs.folder import Run, lacking
from ablate.runs.records import Evaluation
from ablate.runs.study import load_study
from ablate.training import trainer


def carried_out(*overrides: str) -> tuple[list[str], Run, object]:
    """Plan a study of one run and do what there is to do, in this process."""
    torch.set_num_threads(1)
    plan = plan_study((*overrides, "seeds=1", "study=one"))
    write_plan(plan)
    statuses = train_runs(plan)
    return statuses, Run(plan.results, plan.manifest.runs[0].path), plan


def stamps(run: Run) -> dict[str, object]:
    """What would change if a run were trained again."""
    files = (run.result_file, run.metrics_file, run.weights_file, run.config_file)
    return {file.name: (file.stat().st_mtime_ns, file.read_bytes()) for file in files}


NORMS = ["norm=bn", "model.dropout=0.1"]
pytestmark = pytest.mark.usefixtures("untried")


def test_a_new_length_tests_the_weights_and_trains_nothing(small, tmp_path, monkeypatch):
    used = list[tuple[object, ...]]()  # the library for products, and the device
    for module in (train_run, trainer):
        monkeypatch.setattr(module, "use", lambda backend, _, *device: used.append((backend, *device)))
    _, run, plan = carried_out(*NORMS, *small, "eval.lengths=[8]")
    before = stamps(run)
    first = run.evaluation()
    assert first.keys() == {"test/loss@8", "test/bpb@8", "test/accuracy@8"}
    assert not any("@" in key for key in run.result().final)
    assert carried_out(*NORMS, *small, "eval.lengths=[8]")[2].todo == []
    statuses, again, plan = carried_out(*NORMS, *small, "eval.lengths=[24,8]")
    assert (statuses, again.path, plan.todo) == (["done"], run.path, [run.path]) and stamps(run) == before
    assert "1 of these runs are done; their weights are tested at new eval.lengths" in plan.notes
    assert "0 to do, 1 to test at new lengths" in preview(plan)
    both = run.evaluation()
    assert both.items() > first.items() and both.keys() == first.keys() | {name.replace("@8", "@24") for name in first}
    whole = [*small, "eval.lengths=[8,24]", f"results_dir={tmp_path / 'whole'}"]
    _, undisturbed, _ = carried_out(*latest(*NORMS, *whole))
    assert undisturbed.path == run.path and undisturbed.evaluation() == both, "weights, or the model just trained"
    assert undisturbed.result().final == run.result().final
    assert {*used} == {("torch", "cpu")}, "products of the trained model and of its weights are the same"
    assert load_study(plan.results, "one").runs["test/loss@8"].item() == both["test/loss@8"]


def test_numbers_of_another_version_are_not_mixed_with_new_ones(small):
    _, run, _ = carried_out(*small, "eval.lengths=[8]")
    run.write(run.evaluation_file, Evaluation(metrics={"test/loss@8": 1.0}, torch="1.0", data_fingerprint="x"))
    carried_out(*small, "eval.lengths=[8,24]")
    assert run.evaluation().keys() == {"test/loss@24", "test/bpb@24", "test/accuracy@24"}


def test_without_weights_the_result_stands_and_the_command_says_what_to_do(small, capsys):
    statuses, run, plan = carried_out(*small, "keep=none", "eval.lengths=[8]")
    assert statuses == ["done"] and lacking(run, [8]) == [], "what is known when training starts needs no weights"
    before = run.result_file.read_bytes()
    _, _, plan = carried_out(*small, "keep=none", "eval.lengths=[8,24]")
    assert plan.todo == [] and carry_out(plan) == 1
    [note] = [note for note in plan.notes if "eval.lengths" in note]
    assert "keep=none" in note and str(run.folder) in note and "\n" not in note
    assert "not tested at eval.lengths=[24]; its result stands" in capsys.readouterr().err
    assert run.result_file.read_bytes() == before and carry_out(carried_out(*small)[2]) == 0


@pytest.mark.parametrize("trained", [False, True])
def test_a_failing_test_loses_nothing(small, monkeypatch, capfd, trained):
    if trained:
        carried_out(*small)

    def fail(*_):
        raise MemoryError("out of memory at this length\nand more")

    with monkeypatch.context() as failing:
        failing.setattr("ablate.training.evaluation.at_lengths", fail)
        _, run, plan = carried_out(*small, "eval.lengths=[8]")
        assert run.result().status == "done" and not run.evaluation_file.exists() and run.weights_file.exists()
        assert "cannot be tested at eval.lengths=[8] (out of memory at this length)\n" in capfd.readouterr().err
        assert carry_out(plan) == 1
    assert carried_out(*small, "eval.lengths=[8]")[0] == ["done"] and lacking(run, [8]) == []


@pytest.mark.parametrize(
    ("position", "lengths", "messages"),
    [
        ("learned", [4, 8], []),
        ("learned", [8, 9], ["position=learned has 16 positions, and length 9 needs 18; choose another position"]),
        ("rope", [11, 4], ["short has no test examples of length 11 (there are 10 of them)"]),
        ("learned", [30, 10], ["no test examples of length 30", "length 10 needs 20"]),
    ],
)
def test_what_cannot_be_done_is_refused(position, lengths, messages):
    """For a task that has examples of up to ten symbols, two positions each."""

    def held_out(split: str, tokens: int, length: int) -> None:
        if length > 10:
            raise ValueError("there are 10 of them\nand no more")

    task = SimpleNamespace(name="short", context=16, held_out=held_out, span=lambda length: 2 * length)
    config = typed(CONFIG | {"position": component("position", position), "eval": {"lengths": lengths}})
    problems = list(length_problems(config, task))
    assert len(problems) == len(messages)
    for problem, words in zip(problems, messages, strict=True):
        assert problem.key == "eval.lengths" and words in problem.message and "\n" not in problem.message


def test_lengths_that_training_has_seen_are_named_in_plan_and_summary(small):
    given = [*(text for text in small if not text.startswith("data")), "data=copy", "data.context=64"]
    *_, plan = carried_out(*latest(*given, "train.steps=60", "eval.lengths=[1,2,5,30]"))
    line = "eval.lengths=1,2: test examples were seen in training"
    assert line in preview(plan) and preview(plan).count("seen in training") == 1
    study = load_study(plan.results, "one")
    assert line in summary(study, plan.results)
