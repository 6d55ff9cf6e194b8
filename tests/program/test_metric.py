"""The metric of a program's run: where it is looked for, and sources that disagree."""

import json
import math
from pathlib import Path

import pytest

from ablate.program.metric import NoMetric, agree, read_metric, sources_of

LINES = "step 10: train loss 2.5, val loss 2.6\nstep 20: train loss 2.1, val loss 2.25\n"


def value_of(output: str, folder: Path, metric: str = "val/loss", read: str = "", at: str = "last") -> float:
    return read_metric(sources_of(output, folder, metric, read), metric, at, True)[0]


@pytest.mark.parametrize(
    ("output", "metric", "value"),
    [
        (LINES, "val/loss", 2.25),
        ("done\nval_bpb: 0.9979\n", "val_bpb", 0.9979),
        ("val_bpb=0.9979", "val_bpb", 0.9979),
        ("top1 acc 0.1", "top1 acc", 0.1),
        ("step 100 loss: 2.3 lr: 0.1", "loss", 2.3),
        ("[2026-11-29 08:00:00] loss=2.3", "loss", 2.3),
        ("epoch 1/5 (20 %) loss: 2.3", "loss", 2.3),
    ],
)
def test_the_last_value_that_was_printed(output, metric, value, tmp_path):
    assert value_of(output, tmp_path, metric) == value


@pytest.mark.parametrize("metric", ["val/loss", "val_loss", "val loss"])
@pytest.mark.parametrize("output", ["step 30: val loss 0.099", "val_loss=0.099", "val/loss: 0.099", "val_loss 0.099"])
def test_space_underscore_and_slash_are_one_in_a_name(metric, output, tmp_path):
    assert value_of(output, tmp_path, metric) == 0.099


@pytest.mark.parametrize(
    ("output", "metric"), [("top1 acc 0.1", "acc"), ("train loss: 1.5\nval loss: 2.0", "loss"), ("val_loss=2", "loss")]
)
def test_a_name_behind_another_word_is_another_metric(output, metric, tmp_path):
    with pytest.raises(NoMetric):
        sources_of(output, tmp_path, metric)


@pytest.mark.parametrize(
    ("output", "metric", "end"),
    [
        (LINES, "loss", "; it has train/loss and val/loss; did you mean metric=val/loss?"),
        (LINES, "val/acc", "; it has train/loss and val/loss"),
        ("train loss: 1.5\nval loss: 2.0", "loss", "; it has train/loss and val/loss; did you mean metric=val/loss?"),
        ("val loss: 2.09", "loss", "; it has val/loss; did you mean metric=val/loss?"),
        ("val_bbp: 0.9", "val_bpb", "; it has val_bbp; did you mean metric=val_bbp?"),
        ("done", "loss", "it printed no loss, and wrote none into its folder"),
    ],
)
def test_without_the_metric_those_that_are_there_are_named(output, metric, end, tmp_path):
    with pytest.raises(NoMetric) as refused:
        value_of(output, tmp_path, metric)
    assert str(refused.value).endswith(end)


def test_files_name_their_numbers_too(tmp_path):
    (tmp_path / "result.json").write_text('{"eval_accuracy": 0.5}')
    with pytest.raises(NoMetric, match="it has eval_accuracy; did you mean metric=eval_accuracy"):
        value_of("done", tmp_path, "eval_acc")


def test_read_says_what_stands_before_the_number(tmp_path):
    output = "Score (dev)  = 3.5 points\nScore (dev)  = 3.25 points"
    assert value_of(output, tmp_path, "s", "Score (dev)  ={value}") == 3.25


@pytest.mark.parametrize(("at", "value"), [("best", 2.25), ("last", 2.4)])
def test_the_best_step_or_the_last(at, value, tmp_path):
    assert value_of(LINES + "step 30: train loss 1.9, val loss 2.4\n", tmp_path, at=at) == value


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("log.csv", "step,val/loss\n10,2.6\n20,2.25\n"),
        ("log.tsv", "step\tval/loss\n20\t2.25\n"),
        ("metrics.jsonl", '{"step": 10, "val/loss": 2.6}\n{"step": 20, "val/loss": 2.25}\n'),
        ("result.json", '{"val/loss": 2.25, "name": "x", "ok": true}'),
        ("metrics.json", '{"val_loss": 2.25}'),
        ("trainer_state.json", json.dumps({"log_history": [{"step": 20, "val/loss": 2.25}]})),
    ],
)
def test_files_of_a_run(tmp_path, name, content):
    (tmp_path / "checkpoints").mkdir()
    (tmp_path / "checkpoints" / name).write_text(content)
    assert value_of("nothing here", tmp_path) == 2.25


def test_event_files_of_tensorboard(tmp_path):
    from torch.utils.tensorboard import SummaryWriter

    with SummaryWriter(tmp_path / "logs") as writer:
        for step, loss in ((10, 2.6), (20, 2.25)):
            writer.add_scalar("val/loss", loss, step)
            writer.add_scalar("lr", 0.1, step)
    [source] = sources_of("", tmp_path, "val/loss")
    assert [row["step"] for row in source.rows] == [10, 20]
    assert value_of("", tmp_path) == 2.25


def test_an_offline_run_of_wandb(tmp_path, monkeypatch):
    import wandb

    monkeypatch.setenv("WANDB_SILENT", "true")
    with wandb.init(project="x", mode="offline", dir=tmp_path) as run:
        for step, loss in ((10, 2.6), (20, 2.25)):
            run.log({"val/loss": loss}, step=step)
        run.summary["score"] = 0.5
    wandb.teardown()
    [source] = sources_of("", tmp_path, "val/loss")
    assert [row["step"] for row in source.rows if "step" in row] == [10, 20]
    assert value_of("", tmp_path) == 2.25
    assert value_of("", tmp_path, "score") == 0.5


@pytest.mark.parametrize("name", ["events.out.tfevents.1.host", "run-1.wandb", "result.json"])
def test_a_damaged_file_is_no_source(tmp_path, name):
    (tmp_path / name).write_bytes(b'{"val/loss": 2.2' * 100)
    assert value_of(LINES, tmp_path) == 2.25


def test_sources_that_disagree_are_refused_and_shown(tmp_path):
    (tmp_path / "result.json").write_text('{"val/loss": 2.5}')
    with pytest.raises(NoMetric, match=r"2\.25 in its output; 2\.5 in result\.json; say which by read="):
        value_of(LINES, tmp_path)


@pytest.mark.parametrize(
    ("left", "right", "expected"),
    [(2.25, 2.2512, True), (2.25, 2.26, False), (math.nan, math.nan, True), (math.nan, 1.0, False), (3.0, 3.4, True)],
)
def test_two_numbers_printed_with_different_digits_agree(left, right, expected):
    assert agree(left, right) is expected
