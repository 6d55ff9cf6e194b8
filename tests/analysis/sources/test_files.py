"""--runs FOLDER: logs in the formats that nanoGPT, Hugging Face's Trainer and Lightning were seen to write."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from other_runs import analysed, effects, refused

from ablate import evidence
from ablate.runs.study import Study

STEPS = (0, 20, 40)


def value(variant: str, seed: int, step: int) -> float:
    return round(4 - step / 20 + 0.1 * (variant == "relu") + 0.01 * seed + 0.003 * (seed * 7 % 3), 4)


def nanogpt(folder: Path, variant: str, seed: int, steps: tuple[int, ...] = STEPS, logged: Any = value) -> None:
    """The output of a run, its last line unfinished."""
    lines = [f"Overriding: act = {variant}", f"Overriding: out_dir = out/{variant}-s{seed}"]
    for step in steps:
        lines += [f"step {step}: train loss 4.2, val loss {logged(variant, seed, step)}", "saving checkpoint to out"]
        lines += [f"iter {step}: loss 4.1742, time 705.56ms, mfu -100.00%"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{variant}-s{seed}.log").write_text("\n".join([*lines, "step 60: train loss 1.2, val loss 1"]))


def trainer(folder: Path, variant: str, seed: int, steps: tuple[int, ...] = STEPS, logged: Any = value) -> None:
    """The state after training and an earlier checkpoint's, with the configuration of the model."""
    rows: list[dict[str, Any]] = []
    for count, step in enumerate(steps, 1):
        rows += [{"epoch": step / 100, "grad_norm": 1.2, "learning_rate": 1e-4 * count, "loss": 4.4, "step": step}]
        rows += [{"epoch": step / 100, "eval_loss": logged(variant, seed, step), "eval_runtime": 0.5, "step": step}]
        place = folder / f"{variant}-s{seed}"
        if count < len(steps):
            place = place / f"checkpoint-{step}"
        place.mkdir(parents=True, exist_ok=True)
        (place / "trainer_state.json").write_text(json.dumps({"global_step": step, "log_history": rows}))
        (place / "config.json").write_text(json.dumps({"act": variant, "n_layer": 2, "_name_or_path": f"{seed}"}))


def lightning(folder: Path, variant: str, seed: int, steps: tuple[int, ...] = STEPS, logged: Any = value) -> None:
    """metrics.csv with training and validation on lines of their own, and hparams.yaml."""
    lines = ["epoch,step,train_loss,val_loss"]
    for step in steps:
        lines += [f"{step // 20},{step},4.4,", f"{step // 20},{step},,{logged(variant, seed, step)}"]
    place = folder / f"version_{seed + 5 * (variant == 'relu')}"
    place.mkdir(parents=True)
    (place / "metrics.csv").write_text("\n".join(lines) + "\n")
    (place / "hparams.yaml").write_text(f"act: {variant}\nlr: 0.01\nseed: {seed}\n")


NAMES = ["--names", "*-s{seed}"]
PROGRAMS = {"nanoGPT": (nanogpt, NAMES), "Trainer": (trainer, NAMES), "Lightning": (lightning, [])}
each_program = pytest.mark.parametrize(("write", "words"), PROGRAMS.values(), ids=PROGRAMS)


def logs(folder: Path, write: Callable[..., None], **odd: Any) -> Path:
    """The logs of two variants and five seeds; `odd` is of relu with seed 4."""
    for variant, seed in itertools.product(("gelu", "relu"), range(5)):
        write(folder / "logs", variant, seed, **odd if (variant, seed) == ("relu", 4) else {})
    return folder / "logs"


@each_program
def test_a_folder_of_logs(tmp_path, write, words):
    study = analysed(logs(tmp_path, write), *words)
    assert study.manifest.factors == {"act": ["gelu", "relu"]} and study.manifest.seeds == [0, 1, 2, 3, 4]
    assert effects(study) == {"act: relu − gelu": (5, 0.1)} and evidence.effects(study)["paired"].all()
    assert "val" in study.manifest.endpoint and study.curves["step"].tolist() == [*STEPS] * 10
    assert not [note for note in study.notes if "run " in note or "runs end" in note]


@each_program
def test_runs_that_stopped_early_or_diverged_are_said(tmp_path, write, words):
    early: Study = analysed(logs(tmp_path / "early", write, steps=STEPS[:2]), *words)
    assert any("stopped before" in note and "counted as missing: relu" in note for note in early.notes)
    assert evidence.effects(early)["n"].tolist() == [4]
    diverged = analysed(logs(tmp_path / "nan", write, logged=lambda *_: float("nan")), *words)
    assert diverged.runs["status"].tolist() == ["done"] * 9 + ["diverged"]


def test_names_hold_seed_and_factors(tmp_path):
    place = logs(tmp_path, nanogpt)
    (place / "baseline.log").write_text("iter 40: loss 4.2\n")
    study = analysed(place, "--names", "{kind}-s{number}", "--factors", "kind", "--seed-from", "number")
    assert study.manifest.factors == {"kind": ["gelu", "relu"]}
    assert study.manifest.seeds == [0, 1, 2, 3, 4]
    assert effects(study) == {"kind: relu − gelu": (5, 0.1)}
    assert "1 run without a seed left out: baseline" in study.notes


@pytest.mark.parametrize(
    ("write", "words", "said"),
    [
        (nanogpt, [], "or read it from the runs' names, which are gelu-s0, gelu-s1,"),
        (nanogpt, ["--names", "{v}{v}-s{seed}"], "redefinition of group name 'v'"),
        (nanogpt, ["--names", "{a}/s{seed}"], "it fits none of the runs' names, which are gelu-s0, gelu-s1,"),
        (nanogpt, [*NAMES, "--factors", "out_dir"], "no two runs have the same out_dir; name what is compared"),
    ],
)
def test_wrong_options_are_one_line(tmp_path, write, words, said):
    assert said in refused(logs(tmp_path, write), *words)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("metrics.csv", "", "version_9/metrics.csv: it cannot be read (there are no rows"),
        ("hparams.yaml", "act: [", "version_9/hparams.yaml is not readable as YAML"),
        ("hparams.yaml", "act: relu\nlr: 0.01\nseed: 3\n", "version_8 and version_9 are both relu, seed 3"),
    ],
)
def test_damaged_logs_are_one_line(tmp_path, name, content, said):
    place = logs(tmp_path, lightning)
    (place / "version_9" / name).write_text(content)
    assert said in refused(place)
