"""--runs FOLDER: logs in the formats that nanoGPT, Hugging Face's Trainer and Lightning were seen to write."""

import itertools
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from ablate import evidence
from ablate.runs.study import Study
from analysis.cli.main import main
from analysis.sources import Request
from analysis.sources.files import read_runs

STEPS = (0, 20, 40)


def value(variant: str, seed: int, step: int) -> float:
    return round(4 - step / 20 + 0.1 * (variant == "relu") + 0.01 * seed + 0.003 * (seed * 7 % 3), 4)


def nanogpt(folder: Path, variant: str, seed: int, steps: tuple[int, ...] = STEPS, logged: Any = value) -> None:
    """The output of a run, its last line unfinished."""
    lines = [
        f"Overriding: {key} = {text}" for key, text in {"act": variant, "out_dir": f"out/{variant}-s{seed}"}.items()
    ]
    for step in steps:
        lines += [f"step {step}: train loss 4.2, val loss {logged(variant, seed, step)}", "saving checkpoint to out"]
        lines += [f"iter {step}: loss 4.1742, time 705.56ms, mfu -100.00%"]
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{variant}-s{seed}.log").write_text("\n".join([*lines, "step 60: train loss 1.2, val loss 1"]))


def trainer(folder: Path, variant: str, seed: int, steps: tuple[int, ...] = STEPS, logged: Any = value) -> None:
    """The state after training and an earlier checkpoint's, with the configuration of the model."""
    rows: list[dict[str, Any]] = []
    for count in range(1, len(steps) + 1):
        step, above = steps[count - 1], folder / f"{variant}-s{seed}"
        rows += [{"epoch": step / 100, "grad_norm": 1.2, "learning_rate": 1e-4 * count, "loss": 4.4, "step": step}]
        rows += [{"epoch": step / 100, "eval_loss": logged(variant, seed, step), "eval_runtime": 0.5, "step": step}]
        place = above if count == len(steps) else above / f"checkpoint-{step}"
        place.mkdir(parents=True, exist_ok=True)
        state = {"global_step": step, "max_steps": STEPS[-1], "log_history": rows}
        (place / "trainer_state.json").write_text(json.dumps(state))
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


NAMED = Request(names="*-s{seed}")
SEED = ["--names", "*-s{seed}"]
PROGRAMS = {"nanoGPT": nanogpt, "Trainer": trainer, "Lightning": lightning}
each_program = pytest.mark.parametrize("write", PROGRAMS.values(), ids=PROGRAMS)


def study(folder: Path, write: Callable[..., None], asked: Request | None = None, **odd: Any) -> Study:
    """The study of two variants and five seeds; `odd` is of relu with seed 4."""
    for variant, seed in itertools.product(("gelu", "relu"), range(5)):
        write(folder / "logs", variant, seed, **odd if (variant, seed) == ("relu", 4) else {})
    return read_runs(folder / "logs", (NAMED if write is not lightning else Request()) if asked is None else asked)


@each_program
def test_a_folder_of_logs(tmp_path: Path, write: Callable[..., None]) -> None:
    found = study(tmp_path, write)
    effects = evidence.effects(found)
    assert found.manifest.factors == {"act": ["gelu", "relu"]} and found.manifest.seeds == [0, 1, 2, 3, 4]
    assert effects["n"].tolist() == [5] and effects["paired"].all()
    assert effects["mean"].item() == pytest.approx(0.1, abs=1e-12) and "val" in found.manifest.endpoint
    assert found.curves["step"].tolist() == [*STEPS] * 10
    assert [note for note in found.notes if "out_dir" not in note] == []


@each_program
def test_runs_that_stopped_early_or_diverged_are_said(tmp_path: Path, write: Callable[..., None]) -> None:
    early = study(tmp_path / "early", write, steps=STEPS[:2])
    assert any("stopped before" in note and "counted as missing: relu" in note for note in early.notes)
    assert evidence.effects(early)["n"].tolist() == [4]
    diverged = study(tmp_path / "nan", write, logged=lambda *_: float("nan"))
    assert diverged.runs["status"].tolist() == ["done"] * 9 + ["diverged"]


def test_names_hold_seed_and_factors(tmp_path: Path) -> None:
    found = study(tmp_path, nanogpt, Request(names="{kind}-s{seed}", factors=("kind",)))
    assert found.manifest.factors == {"kind": ["gelu", "relu"]} and evidence.effects(found)["n"].tolist() == [5]
    (tmp_path / "logs" / "baseline.log").write_text("iter 40: loss 4.2\n")
    assert "1 run without a seed left out: baseline" in read_runs(tmp_path / "logs", NAMED).notes
    asked = Request(seed_from="number", names="*-s{number}")
    assert read_runs(tmp_path / "logs", asked).manifest.seeds == [0, 1, 2, 3, 4]


@pytest.mark.parametrize(
    ("write", "options", "said"),
    [
        (nanogpt, [], "write --names '{variant}-s{seed}', or name its key: --seed-from KEY"),
        *(
            (nanogpt, ["--names", names], f"--names {names}: {said}")
            for names, said in {
                "{v}{v}-s{seed}": "{v} is there twice; write another word, as in --names '{variant}-s{seed}'",
                "{seed}-s{seed}": "{seed} is there twice",
                **{f"{{{name}}}-s{{seed}}": f"{{{name}}} is no word" for name in ("", "*", "a b", "val/loss", "1")},
                **{
                    f"{{{name}}}*": f"{{{name}}} has a meaning"
                    for name in ("cell", "status", "step", "path", "created")
                },
                "{loss}-s{seed}": "{loss} is a metric of these runs",
                "{act}-s{sed}": "{sed} gives no seed; did you mean {seed}?",
                "{act": "it has no {field}",
            }.items()
        ),
        (nanogpt, [*SEED, "--metric", "val_los"], "loss, time and mfu; did you mean val/loss?"),
        (nanogpt, ["--names", "{a}/s{seed}"], "fits none of the runs' names, such as gelu-s0, gelu-s1; write"),
        (nanogpt, [*SEED, "--factors", "out_dir"], "out_dir has a level per run, so that no variant"),
        (nanogpt, [*SEED, "--metric", "test/loss"], "test/loss: there is no such column; there"),
        (nanogpt, [*SEED, "--step-from", "steps"], "--step-from steps: there is no such column"),
        (trainer, ["--names", "{act}-s{seed}", "--factors", "lr"], "--factors lr: there is no such column"),
        (lightning, ["--seed-from", "lr"], "no run has a seed"),
        (
            lightning,
            ["--names", "version_{other}", "--factors", "lr"],
            "version_0 and version_5 are both lr=0.01, seed 0",
        ),
    ],
)
def test_wrong_options_are_one_line(tmp_path, capsys, write, options, said):
    study(tmp_path, write, Request(names="*{seed}"))
    refused(tmp_path, capsys, options, said)


@pytest.mark.parametrize(
    "options", [[], ["--names", "version_{seed}"], ["--names", "{a}_{seed}"], ["--seed-from", "seed"]]
)
def test_runs_without_settings_are_one_line(tmp_path, capsys, options):
    study(tmp_path, lightning)
    for file in (tmp_path / "logs").glob("*/hparams.yaml"):
        file.write_text("{}\n") if "9" in str(file.parent) else file.unlink()  # Lightning writes it without any
    said = "no run has settings; write seed and factors to hparams.yaml in each run's folder (Lightning: "
    refused(tmp_path, capsys, options, said)


@pytest.mark.parametrize(
    ("write", "name", "content", "said"),
    [
        (
            trainer,
            "trainer_state.json",
            '{"log_history": [{',
            "relu-s4/trainer_state.json: this is not all of a JSON file",
        ),
        (trainer, "trainer_state.json", '{"log_history": 3}', "it has no log_history"),
        (trainer, "config.json", "[", "config.json is not readable"),
        (lightning, "metrics.csv", "", "version_9/metrics.csv: this is no tidy CSV"),
        (lightning, "metrics.csv", "epoch,step,val_loss\n", "version_9/metrics.csv: there are no rows"),
        (lightning, "hparams.yaml", "act: [", "version_9/hparams.yaml is not readable as YAML"),
        (lightning, "hparams.yaml", "act: relu\nlr: 0.01\nseed: 3\n", "version_8 and version_9 are both relu, seed 3"),
    ],
)
def test_damaged_logs_are_one_line(tmp_path, capsys, write, name, content, said):
    study(tmp_path, write)
    place = {trainer: "relu-s4", lightning: "version_9"}[write]
    (tmp_path / "logs" / place / name).write_text(content)
    refused(tmp_path, capsys, SEED if write is trainer else [], said)


def refused(folder: Path, capsys: pytest.CaptureFixture[str], options: list[str], said: str) -> None:
    assert main(["--runs", str(folder / "logs"), *options, "--results-dir", str(folder / "results")]) == 2
    shown = capsys.readouterr()
    assert said in shown.err and shown.err.count("\n") == 1 and not shown.out, shown.err
    assert not (folder / "results").exists()
