"""What other programs log, as each of them writes it."""

import json
from pathlib import Path

import pytest

from analysis.sources.readers import read_printed, read_settings, read_table, read_trainer, runs_of_chart

NANOGPT = "step 50: train loss 2.0, val loss 2.125"
PRINTED = {
    "nanoGPT": (NANOGPT, {"step": "50", "train/loss": "2.0", "val/loss": "2.125"}),
    "a time stamp": (f"2026-01-02 10:00:00,123 {NANOGPT}", {"step": "50", "train/loss": "2.0", "val/loss": "2.125"}),
    "a logger": (f"[01:02:03] INFO:root:{NANOGPT}", {"step": "50", "train/loss": "2.0", "val/loss": "2.125"}),
    "a rank": (f"[rank0]: {NANOGPT}", {"step": "50", "train/loss": "2.0", "val/loss": "2.125"}),
    "a colour": (f"\x1b[1;32m{NANOGPT}\x1b[0m", {"step": "50", "train/loss": "2.0", "val/loss": "2.125"}),
    "Iter": ("Iter 7: loss 2.5, time 70.25ms, mfu 3.50%", {"step": "7", "loss": "2.5", "time": "70.25", "mfu": "3.50"}),
    "modded-nanogpt": (
        "step:125/1390 val_loss:4.0625 train_time:22000ms step_avg:176.5ms",
        {"step": "125", "val_loss": "4.0625", "train_time": "22000", "step_avg": "176.5"},
    ),
    "nanochat": ("Step 00250 | Validation bpb: 1.0625", {"step": "00250", "validation/bpb": "1.0625"}),
    "thousands": ("step 3 | loss: 2.5 | tok/sec: 12,345", {"step": "3", "loss": "2.5"}),
    "a dictionary": ("{'loss': 2.5, 'lr': 0.1, 'epoch': 0.5}", {"epoch": "0.5", "loss": "2.5"}),
    "a JSON line": ('{"step": 4, "val_loss": 2.5, "lr": 1e-3}', {"step": "4", "val_loss": "2.5", "lr": "1e-3"}),
    "an equals sign": ("epoch 3: val_loss=2.1, acc=0.5", {"epoch": "3", "val_loss": "2.1", "acc": "0.5"}),
    "not a number": ("step 9: train loss nan, val loss inf", {"step": "9", "train/loss": "nan", "val/loss": "inf"}),
}


@pytest.mark.parametrize("kind", PRINTED)
def test_a_printed_line(tmp_path: Path, kind: str) -> None:
    line, row = PRINTED[kind]
    (tmp_path / "run.log").write_text(f"words\n{line}\n")
    assert read_printed(tmp_path / "run.log") == ({}, [row])


@pytest.mark.parametrize("encoding", ["utf-16", "utf-16-le", "utf-8-sig"])
def test_a_printed_log_in_another_encoding(tmp_path: Path, encoding: str) -> None:
    (tmp_path / "run.log").write_bytes(f"{NANOGPT}\r\n".encode(encoding))
    assert read_printed(tmp_path / "run.log")[1] == [PRINTED["nanoGPT"][1]]


def test_of_several_ranks_the_first_counts(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text(
        "[rank0]: step 5: val loss 2.0\n[rank1]: step 5: val loss 9.0\n1: step 5: val loss 8\n"
    )
    assert read_printed(tmp_path / "run.log")[1] == [{"step": "5", "val/loss": "2.0"}]


def test_the_summary_of_autoresearch(tmp_path: Path) -> None:
    progress = "\rstep 00952 (99.9%) | loss: 2.90 | lrm: 0.01\rstep 00953 (100.0%) | loss: 2.89 | lrm: 0.00\n"
    (tmp_path / "run.log").write_text(f"{progress}---\nval_bpb:          0.997900\nnum_steps:        953\n")
    assert read_printed(tmp_path / "run.log")[1][-1] == {
        "step": "00953", "loss": "2.89", "lrm": "0.00", "val_bpb": "0.997900"
    }  # fmt: skip
    (tmp_path / "short.log").write_text("val_bpb:          0.997900\n")
    assert read_printed(tmp_path / "short.log")[1] == [{"val_bpb": "0.997900"}]


def test_source_code_above_the_lines_is_not_read(tmp_path: Path) -> None:
    code = "val_loss_every = 125\ntarget_loss = 3.28\nprint(f'step:{step} val_loss:{loss}')\n"
    (tmp_path / "run.log").write_text(f"{code}step:10/10 val_loss:3.30\n")
    assert read_printed(tmp_path / "run.log")[1] == [{"step": "10", "val_loss": "3.30"}]


def test_the_best_of_earlier_values_is_no_value_of_the_step(tmp_path: Path) -> None:
    (tmp_path / "run.log").write_text("step 9 | val bpb: 1.5 | best val bpb: 1.25\nMinimum validation bpb: 1.25\n")
    assert read_printed(tmp_path / "run.log")[1] == [{"step": "9", "val/bpb": "1.5"}]


def test_a_run_that_crashed_after_its_last_line_failed(tmp_path: Path) -> None:
    crash = "Traceback (most recent call last):\n"
    (tmp_path / "run.log").write_text(f"{crash}{NANOGPT}\n")
    assert "status" not in read_printed(tmp_path / "run.log")[1][-1]
    (tmp_path / "run.log").write_text(f"{NANOGPT}\n{crash}")
    assert read_printed(tmp_path / "run.log")[1][-1]["status"] == "failed"


def test_settings_of_lightning_with_tuples_and_classes(tmp_path: Path) -> None:
    text = "betas: !!python/tuple\n- 0.9\n- 0.95\nact: !!python/name:torch.nn.modules.activation.GELU ''\nnorm: rms\n"
    (tmp_path / "hparams.yaml").write_text(text)
    settings = {"betas": [0.9, 0.95], "act": "torch.nn.modules.activation.GELU", "norm": "rms"}
    assert read_settings(tmp_path) == settings


def test_a_trainer_that_stopped_before_its_last_step(tmp_path: Path) -> None:
    state = {"global_step": 20, "max_steps": 30, "log_history": [{"step": 20, "eval_loss": 2.0}]}
    (tmp_path / "trainer_state.json").write_text(json.dumps(state))
    assert read_trainer(tmp_path / "trainer_state.json") == ({"stopped_at": 20}, [{"step": 20, "eval_loss": 2.0}])


TABLES = {
    "runs.csv": "\ufeffnorm,loss\nln,2.5\n",
    "runs.tsv": "norm\tloss\nln\t2,5\n",
    "semicolons.csv": "norm;loss\nln;2,5\n",
    "runs.jsonl": '{"norm": "ln", "loss": 2.5}\n',
    "lines.json": '{"norm": "ln", "loss": 2.5}\n\n{"norm": "ln", "loss": 2.5}\n',
    "list.json": '[{"norm": "ln", "loss": 2.5}]',
    "runs.table.json": '{"columns": ["norm", "loss"], "data": [["ln", 2.5]]}',
}


@pytest.mark.parametrize("name", TABLES)
def test_a_table(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_text(TABLES[name])
    assert read_table(tmp_path / name).to_dict("records")[0] == {"norm": "ln", "loss": "2.5"}


def test_a_table_in_utf_16(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_bytes("norm\tloss\nln\t2.5\n".encode("utf-16"))
    assert read_table(tmp_path / "runs.csv").to_dict("records") == [{"norm": "ln", "loss": "2.5"}]


def test_a_comma_between_commas_is_no_decimal_one(tmp_path: Path) -> None:
    (tmp_path / "runs.csv").write_text('norm,tokens\nln,"1,024"\n')
    assert read_table(tmp_path / "runs.csv")["tokens"].tolist() == ["1,024"]


def test_a_chart_of_wandb_has_a_column_per_run(tmp_path: Path) -> None:
    head = '"Step","ln-s0 - val/loss","ln-s0 - val/loss__MIN","ln-s0 - val/loss__MAX","rms-s0 - val/loss"\n'
    (tmp_path / "chart.csv").write_text(head + "0,4.0,4.0,4.0,4.5\n10,2.0,2.0,2.0,\n")
    assert runs_of_chart(read_table(tmp_path / "chart.csv")) == {
        "ln-s0": [{"Step": "0", "val/loss": "4.0"}, {"Step": "10", "val/loss": "2.0"}],
        "rms-s0": [{"Step": "0", "val/loss": "4.5"}],
    }
