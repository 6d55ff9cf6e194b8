"""What training programs print, as each of them prints it."""

import pytest

from ablate.runs.logs import CRASH, lower_is_better, read_log, text_of

NANOGPT = "step 50: train loss 2.0, val loss 2.125"
NANOGPT_ROW = {"step": 50, "train/loss": 2.0, "val/loss": 2.125}
LINES = {
    "nanoGPT": (NANOGPT, NANOGPT_ROW),
    "a time stamp": (f"2026-01-02 10:00:00,123 {NANOGPT}", NANOGPT_ROW),
    "a logger": (f"[01:02:03] INFO:root:{NANOGPT}", NANOGPT_ROW),
    "a rank": (f"[rank0]: {NANOGPT}", NANOGPT_ROW),
    "a colour": (f"\x1b[1;32m{NANOGPT}\x1b[0m", NANOGPT_ROW),
    "Iter": ("Iter 7: loss 2.5, time 70.25ms, mfu 3.50%", {"step": 7, "loss": 2.5, "time": 70.25, "mfu": 3.5}),
    "modded-nanogpt": (
        "step:125/1390 val_loss:4.0625 train_time:22000ms step_avg:176.5ms",
        {"step": 125, "val_loss": 4.0625, "train_time": 22000, "step_avg": 176.5},
    ),
    "nanochat": ("Step 00250 | Validation bpb: 1.0625", {"step": 250, "validation/bpb": 1.0625}),
    "thousands": ("step 3 | loss: 2.5 | tok/sec: 12,345", {"step": 3, "loss": 2.5}),
    "a dictionary": ("{'loss': 2.5, 'lr': 0.1, 'epoch': 0.5}", {"epoch": 0.5, "loss": 2.5}),
    "JSON": ('{"step": 4, "val_loss": 2.5, "lr": 1e-3}', {"step": 4, "val_loss": 2.5, "lr": 0.001}),
    "an equals sign": ("epoch 3: val_loss=2.1, acc=0.5", {"epoch": 3, "val_loss": 2.1, "acc": 0.5}),
    "infinity": ("step 9: train loss 3e2, val loss inf", {"step": 9, "train/loss": 300, "val/loss": float("inf")}),
    "the best before": ("step 9 | val bpb: 1.5 | best val bpb: 1.25", {"step": 9, "val/bpb": 1.5}),
}


@pytest.mark.parametrize("kind", LINES)
def test_a_line(kind):
    line, row = LINES[kind]
    assert read_log(f"words\n{line}\n").rows == [row]


@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16", "utf-16-le"])
def test_encodings(encoding):
    assert read_log(text_of(f"{NANOGPT}\r\n".encode(encoding))).rows == [NANOGPT_ROW]


def test_of_several_ranks_the_first_counts():
    log = read_log("[rank0]: step 5: val loss 2.0\n[rank1]: step 5: val loss 9.0\n1: step 5: val loss 8\n")
    assert log.rows == [{"step": 5, "val/loss": 2.0}]


def test_settings_of_a_run_that_was_resumed():
    log = read_log(f"Overriding: norm = ln\n{NANOGPT}\nOverriding: init_from = resume\nstep 60: val loss 2.0\n")
    assert log.settings == {"norm": "ln", "init_from": "resume"} and [row["step"] for row in log.rows] == [50, 60]


def test_results_at_the_end_belong_to_the_last_step_or_stand_alone():
    progress = "\rstep 00952 (99.9%) | loss: 2.90\rstep 00953 (100.0%) | loss: 2.89\n"
    results = "---\nval_bpb:          0.997900\nnum_steps:        953\n"
    assert read_log(progress + results).rows[-1] == {"step": 953, "loss": 2.89, "val_bpb": 0.9979}
    assert read_log(results).rows == [{"val_bpb": 0.9979}]


def test_source_code_above_the_lines_is_not_read():
    code = "val_loss_every = 125\ntarget_loss = 3.28\nprint(f'step:{step} val_loss:{loss}')\n"
    assert read_log(f"{code}step:10/10 val_loss:3.30\n").rows == [{"step": 10, "val_loss": 3.3}]


@pytest.mark.parametrize(("text", "crashed"), [(f"{CRASH}:\n{NANOGPT}\n", False), (f"{NANOGPT}\n{CRASH}:\n", True)])
def test_a_run_that_logs_no_step_after_an_exception_crashed(text, crashed):
    assert read_log(text).crashed == crashed


def test_a_last_line_without_an_end_is_unfinished():
    log = read_log(f"{NANOGPT}\nstep 60: val loss 1")
    assert log.rows == [NANOGPT_ROW] and log.unfinished and not read_log(f"{NANOGPT}\n").unfinished


@pytest.mark.parametrize(
    ("metric", "lower"), [("val/loss@128", True), ("val_bpb", True), ("eval_accuracy", False), ("score", None)]
)
def test_the_direction_of_a_metric_by_its_name(metric, lower):
    assert lower_is_better(metric) is lower
