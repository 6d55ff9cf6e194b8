"""What columns of other programs' runs mean: inferred where nothing is doubtful, else proposed as a command."""

import itertools
import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path

import pandas
import pytest
from other_runs import NOISE, analysed, effects, loss, proposed, refused, table

from ablate import evidence


@pytest.mark.parametrize("name", ["gpu", "date", "shard"])
def test_a_column_that_follows_the_seed_is_no_factor(tmp_path, name):
    file = table(tmp_path, f"norm,{name},seed,test/loss", lambda v, s, y: f"{v},x{s % 2},{s},{y}")
    study = analysed(file)
    assert study.manifest.factors == {"norm": ["ln", "rms"]} and study.notes == [
        f"columns that are no factors: {name} (follows the seed)"
    ]
    assert effects(study)["norm: rms − ln"][0] == 4


@pytest.mark.parametrize("name", ["name", "exp", "commit", "variant"])
def test_a_column_that_names_the_cell_is_no_factor(tmp_path, name):
    def row(v: str, s: int, y: float) -> str:
        return f"{v},{v.replace('-', ',')},{s},{y}"

    study = analysed(table(tmp_path, f"{name},norm,ffn,seed,test/loss", row, "ln-mlp ln-glu rms-mlp rms-glu", 3))
    assert list(study.manifest.factors) == ["norm", "ffn"]
    assert study.manifest.design == "grid"
    assert study.notes == [f"columns that are no factors: {name} (changes with the factors)"]
    assert {n for n, _ in effects(study).values()} == {3}


COLLEAGUE = """LayerNorm,Dropout,Seed,Val Loss,Train loss,{time},{comment}
pre,0,0,2.103,2,0.5,
pre,0,1,2.121,2,0.6,
pre,0,2,2.110,2,0.5,restarted
post,0,0,2.204,2,0.5,
post,0,1,2.219,2,0.7,
post,0,2,2.212,2,0.6,
pre,0.1,0,2.051,2,0.5,
pre,0.1,1,2.066,2,0.7,
pre,0.1,2,2.042,2,0.6,
post,0.1,0,2.150,2,0.5,
post,0.1,1,2.166,2,0.7,slow node
post,0.1,2,2.143,2,0.6,
"""


@pytest.mark.parametrize(("time", "comment"), [("time (min)", "comment"), ("duration_s", "Note"), ("power", "trouble")])
def test_measurements_and_remarks_are_no_factors(tmp_path, time, comment):
    (tmp_path / "runs.csv").write_text(COLLEAGUE.format(time=time, comment=comment))
    study = analysed(tmp_path / "runs.csv")
    assert study.manifest.factors == {"LayerNorm": ["pre", "post"], "Dropout": [0.0, 0.1]}
    why = "not needed to tell configurations apart"
    assert study.notes == [f"columns that are no factors: {time} and {comment} ({why})"]
    assert effects(study)["LayerNorm: post − pre"] == (3, 0.100167)


def test_factors_stay_where_configurations_have_seeds_of_their_own(tmp_path):
    variants = ["ln-mlp", "ln-glu", "rms-mlp", "rms-glu"]

    def row(v: str, s: int, y: float) -> str:
        return f"{v.replace('-', ',')},{4 * variants.index(v) + s},{y}"

    study = analysed(table(tmp_path, "norm,ffn,seed,loss", row, " ".join(variants)))
    assert list(study.manifest.factors) == ["norm", "ffn"] and study.notes == []


@pytest.mark.parametrize("is_first", [True, False])
def test_columns_that_are_different_in_every_run_are_no_factors(tmp_path, is_first):
    names = [f"c{i}" for i in range(12)]

    def row(v: str, s: int, y: float) -> str:
        bits = ["xy"[(i + 1) >> (s + 4 * (v == "rms")) & 1] for i in range(len(names))]
        return ",".join([v, *bits, str(s), str(y)] if is_first else [*bits, v, str(s), str(y)])

    head = ["norm", *names] if is_first else [*names, "norm"]
    study = analysed(table(tmp_path, ",".join([*head, "seed", "loss"]), row))
    assert effects(study) == {"norm: rms − ln": (4, -0.099)}


DOUBTS: dict[str, tuple[str, Callable[[str, int, float], str], str, list[str]]] = {
    "factors": (
        "ffn,gated,smooth,seed,test/loss",
        lambda v, s, y: f"{v},{v != 'mlp'},{v == 'swiglu'},{s},{y}",
        "gated and smooth form no grid, and the reference is not named; columns that are no factors: ffn",
        ["--factors", "ffn", "--reference", "ffn=mlp"],
    ),
    "factor of one run": (
        "norm,fused,seed,loss",
        lambda v, s, y: f"{v},{(v, s) == ('mlp', 0)},{s},{y}",
        "any value of norm could be the reference; columns that are no factors: fused (not needed",
        ["--factors", "norm", "--reference", "norm=mlp"],
    ),
    "metric": (
        "ffn,seed,eval_a_loss,eval_b_loss",
        lambda v, s, y: f"{v},{s},{y},{3 - y}",
        "each of eval_a_loss and eval_b_loss could be the metric",
        ["--metric", "eval_a_loss", "--reference", "ffn=mlp"],
    ),
    "seed": (
        "ffn,random_seed,data_seed,loss",
        lambda v, s, y: f"{v},{s},{s % 2},{y}",
        "each of random_seed and data_seed could be the seed; write: ",
        ["--seed-from", "random_seed", "--reference", "ffn=mlp"],
    ),
}


@pytest.mark.parametrize("doubt", DOUBTS)
def test_of_columns_that_could_be_meant_one_is_asked_for(tmp_path, doubt):
    head, row, said, words = DOUBTS[doubt]
    file = table(tmp_path, head, row, "mlp glu swiglu")
    assert said in refused(file)
    [first, second] = effects(analysed(file, *words)).values()
    assert first == (4, -0.099)
    assert second == (4, -0.1995)


def test_the_reference_of_one_at_a_time_is_proposed_and_not_the_first_row(tmp_path):
    file = table(
        tmp_path,
        "act,norm,seed,val/loss",
        lambda v, s, y: f"{v.replace('-', ',')},{s},{y}",
        "swiglu-ln gelu-rms gelu-ln",
    )
    assert "--reference act=gelu,norm=ln" in refused(file)
    study = proposed(file)
    assert study.manifest.design == "one_at_a_time" and study.manifest.reference == {"act": "gelu", "norm": "ln"}
    assert set(effects(study)) == {"act: swiglu − gelu", "norm: rms − ln"}


@pytest.mark.parametrize(
    "variants", ["new newer baseline", "feature/x fix main", "rms none scale", "glu swiglu default"]
)
def test_a_level_called_a_baseline_is_the_reference(tmp_path, variants):
    study = analysed(table(tmp_path, "code,seed,val_loss", lambda v, s, y: f"{v},{s},{y}", variants))
    [level] = study.manifest.reference.values()
    assert level in {"baseline", "main", "none", "default"}


def test_the_reference_of_three_without_a_clue_is_asked_for(tmp_path):
    file = table(tmp_path, "ffn,seed,val_loss", lambda v, s, y: f"{v},{s},{y}", "swiglu geglu gelu")
    assert "any value of ffn could be the reference" in refused(file)
    assert analysed(file, "--reference", "ffn=gelu").manifest.reference == {"ffn": "gelu"}


def test_all_that_is_inferred_is_said_as_a_command(tmp_path):
    file = table(tmp_path, "norm,seed,test/loss", lambda v, s, y: f"{v},{s},{y}")
    study = analysed(file)
    command = f"ablate analyse --runs {file} --factors norm --metric test/loss --reference norm=ln --lower"
    assert study.manifest.command == command and study.manifest.remarks[-1].endswith(command)
    again = analysed(*[file], *shlex.split(command)[4:])
    assert again.manifest.command == command and len(again.manifest.remarks) == 1
    pandas.testing.assert_frame_equal(evidence.effects(study), evidence.effects(again))


def test_a_state_is_how_a_run_ended(tmp_path):
    ended = {("rms", 2): "crashed", ("ln", 3): "running"}
    file = table(tmp_path, "norm,_State,seed,loss", lambda v, s, y: f"{v},{ended.get((v, s), 'finished')},{s},{y}")
    study = analysed(file)
    assert list(study.manifest.factors) == ["norm"]
    assert study.runs["status"].tolist() == ["done", "done", "done", "missing", "done", "done", "failed", "done"]


def test_results_of_autoresearch(tmp_path):
    def row(commit: str, s: int, y: float) -> str:
        crashed = (commit, s) == ("b2", 3)
        return "\t".join([commit, "0.000000" if crashed else f"{y}", "44.0", "crash" if crashed else "keep", "idea"])

    file = table(tmp_path, "commit\tval_bpb\tmemory_gb\tstatus\tdescription", row, "a1 b2")
    study = analysed(file.rename(tmp_path / "results.tsv"), "--unpaired")
    assert study.manifest.factors == {"commit": ["a1", "b2"]}
    assert study.runs["status"].tolist() == ["done"] * 7 + ["failed"]
    assert not evidence.effects(study)["paired"].any()


def test_logs_of_autoresearch_that_print_their_result_alone(tmp_path):
    for (i, commit), s in itertools.product(enumerate(["main", "idea"]), range(4)):
        (tmp_path / f"{commit}-{s}.log").write_text(f"---\nval_bpb:          {loss(i, s)}\n")
    study = analysed(tmp_path, "--names", "{commit}-*", "--unpaired")
    assert effects(study) == {"commit: idea − main": (4, -0.099)} and not evidence.effects(study)["paired"].any()


def test_a_loss_of_exactly_zero_is_a_failure_and_an_accuracy_is_not(tmp_path):
    def row(v: str, s: int, y: float) -> str:
        return f"{v},{s},{0.0 if (v, s) == ('rms', 1) else y}"

    study = analysed(table(tmp_path, "norm,seed,val_loss", row))
    assert study.runs["status"].tolist() == ["done"] * 5 + ["failed", "done", "done"]
    assert study.notes == ["1 run with a val_loss of exactly 0, as crashed runs log it, counted as failed: rms seed 1"]
    assert set(analysed(table(tmp_path, "norm,seed,val_accuracy", row)).runs["status"]) == {"done"}


def test_an_evaluation_is_judged_before_the_training_loss(tmp_path):
    file = table(tmp_path, "norm,seed,train_loss,val_score", lambda v, s, y: f"{v},{s},{3 - y},{y}")
    assert "val_score: its name does not say whether less of it is better" in refused(file)
    assert effects(analysed(file, "--lower")) == effects(analysed(file, "--lower", "--metric", "val_score"))
    training = analysed(file, "--metric", "train_loss")
    assert training.manifest.endpoint == "train_loss" and "train_loss is of training" in training.manifest.remarks[1]


def test_rows_of_one_name_without_seeds_are_its_repetitions(tmp_path):
    file = table(tmp_path, "run,val loss", lambda v, s, y: f"{v},{y}", "baseline big")
    assert refused(file).endswith(f"write: ablate analyse --runs {file} --unpaired")
    assert effects(proposed(file)) == {"run: big − baseline": (4, -0.099)}
    assert "it fits none of the runs' names" in refused(file, "--names", "{variant}-s{seed}")


@pytest.mark.parametrize("form", ["table", "folder"])
def test_runs_without_seeds_are_compared_unpaired(tmp_path, form):
    place = tmp_path
    if form == "table":
        place = table(tmp_path, "variant,val_loss", lambda v, s, y: f"{v},{y}", "base new")
        assert "--unpaired" in refused(place)
    else:
        for i, variant in enumerate(["base", "new"]):
            (place / f"{variant}.csv").write_text("\n".join(["val_loss", *(str(loss(i, s)) for s in range(4))]))
    study = analysed(place, "--unpaired")
    assert list(effects(study).values()) == [(4, -0.099)]
    assert not evidence.effects(study)["paired"].any()
    assert study.runs["seed"].tolist() == [0, 1, 2, 3] * 2


def test_a_folder_of_tables(tmp_path):
    for i, variant in enumerate(["wide", "base"]):
        rows = "\n".join(f"{s};{loss(i, s)}".replace(".", ",") for s in range(4))
        (tmp_path / f"{variant}.csv").write_text(f"\ufeffseed;val_bpb\n{rows}\n")
    study = analysed(tmp_path)
    assert study.manifest.reference == {"file": "base"}
    assert effects(study)["file: wide − base"][0] == 4


def steps_table(folder: Path, ends: dict[tuple[str, int], int], value: Callable[[str, int, int], float]) -> Path:
    """A CSV with rows at steps 0, 50, and each run's end."""
    rows = []
    for (variant, seed), end in ends.items():
        rows += [f"{variant},{seed},{step},{value(variant, seed, step)}" for step in sorted({0, 50, end})]
    (folder / "runs.csv").write_text("\n".join(["norm,seed,step,val_bpb", *rows]))
    return folder / "runs.csv"


CLOCK = {(v, s): 90 + (3 * s + 2 * (v == "rms")) % 5 for v in ("ln", "rms") for s in range(4)}


def by_step(variant: str, seed: int, step: int) -> float:
    return round(1.2 - step / 500 - 0.1 * (variant == "rms") * step / 50 + NOISE[seed], 4)


def test_runs_that_end_by_the_clock_are_compared_at_the_last_common_step(tmp_path):
    file = steps_table(tmp_path, CLOCK, by_step)
    study = analysed(file)
    assert effects(study) == {"norm: rms − ln": (4, -0.1)}
    [note] = [note for note in study.notes if "different steps" in note]
    assert "90 to 94: compared at step 50, the last that all have; ends=own compares each at its own end" in note
    ended = analysed(file, "ends=own")
    expected = sum(by_step("rms", s, CLOCK["rms", s]) - by_step("ln", s, CLOCK["ln", s]) for s in range(4)) / 4
    assert effects(ended) == {"norm: rms − ln": (4, round(expected, 6))} and "ends=own" in ended.manifest.command


def test_ends_without_a_common_step_are_asked_for(tmp_path):
    file = steps_table(tmp_path, CLOCK, by_step)
    file.write_text("\n".join(line for line in file.read_text().splitlines() if ",50," not in line))
    assert "without a step near their ends that all have; compare them at their own ends" in refused(file)
    assert effects(proposed(file)) == effects(analysed(file, "ends=own"))


def turning(variant: str, seed: int, step: int) -> float:
    curve = {"ln": {0: 4.2, 50: 1.48, 100: 1.70}, "rms": {0: 4.2, 50: 1.46, 100: 1.74}}
    return round(curve[variant][step] + NOISE[seed], 4)


def test_the_point_of_a_curve_that_turned_is_asked_for(tmp_path):
    file = steps_table(tmp_path, dict.fromkeys(CLOCK, 100), turning)
    assert "val_bpb ends worse than its best in ln seed 0, ln seed 1," in refused(file)
    best = analysed(file, "at=best")
    assert effects(best) == {"norm: rms − ln": (4, -0.02)}
    assert any("compared at its best val_bpb, which flatters" in note for note in best.notes)
    assert effects(analysed(file, "at=last")) == effects(proposed(file)) == {"norm: rms − ln": (4, 0.04)}


def test_a_negative_loss_that_falls_has_not_turned(tmp_path):
    file = steps_table(tmp_path, dict.fromkeys(CLOCK, 100), lambda *run: by_step(*run) - 5)
    assert effects(analysed(file)) == {"norm: rms − ln": (4, -0.2)}


def logs(folder: Path, lines: dict[str, str]) -> Path:
    folder.mkdir()
    for name, text in lines.items():
        (folder / name).write_text(text)
    return folder


def nanogpt(i: int, s: int, more: str = "") -> str:
    return f"step 0: train loss 4.2, val loss 4.2\n{more}step 50: train loss 2.0, val loss {loss(i, s)}\n"


def test_a_log_without_a_line_is_a_failed_run_and_other_files_are_named(tmp_path):
    lines = {f"{v}-s{s}.log": nanogpt(i, s) for i, v in enumerate(["main", "rms"]) for s in range(3)}
    lines |= {f"dyt-s{s}.log": "RuntimeError: out of memory\n" for s in range(3)}
    place = logs(tmp_path / "logs", lines | {"notes.md": "x", "README.txt": "words\n", "model.pt": "x"})
    study = analysed(place, "--names", "{variant}-s{seed}")
    assert study.manifest.reference == {"variant": "main"}
    assert study.runs.groupby("label")["status"].agg(set).to_dict()["dyt"] == {"failed"}
    assert study.notes[0] == "2 files not read: model.pt and notes.md"
    silent = "without a line that was read (with a step, or a metric), failed: README, dyt-s0, dyt-s1 and dyt-s2"
    assert silent in "\n".join(study.notes)
    assert "1 run without a seed left out: README" in study.notes


def test_a_run_that_was_resumed_is_the_same_variant(tmp_path):
    again = "Overriding: init_from = resume\n"
    lines = {
        f"{v}-s{s}.log": f"Overriding: norm = {v}\n" + nanogpt(i, s, again * (s == 0 or (v, s) == ("ln", 1)))
        for i, v in enumerate(["ln", "rms"])
        for s in range(3)
    }
    study = analysed(logs(tmp_path / "logs", lines), "--names", "*-s{seed}")
    assert list(study.manifest.factors) == ["norm"] and effects(study)["norm: rms − ln"][0] == 3


def test_a_branch_with_a_slash_is_a_variant(tmp_path):
    (tmp_path / "feature").mkdir()
    for s in range(3):
        (tmp_path / f"main-s{s}.log").write_text(nanogpt(0, s))
        (tmp_path / "feature" / f"x-s{s}.log").write_text(nanogpt(1, s))
    study = analysed(tmp_path, "--names", "{code}-s{seed}")
    assert study.manifest.factors["code"] == ["feature/x", "main"] and study.manifest.reference == {"code": "main"}


def test_a_chart_of_wandb(tmp_path):
    names = [f"{v}-s{s}" for v in ("ln", "rms") for s in range(3)]
    head = ",".join(['"Step"', *(f'"{name} - val/loss","{name} - val/loss__MIN"' for name in names)])
    last = ",".join(f"{loss(i // 3, i % 3)},1" for i in range(6))
    (tmp_path / "chart.csv").write_text(f"{head}\n0,{','.join(['4.2,1'] * 6)}\n10,{last}\n")
    study = analysed(tmp_path / "chart.csv", "--names", "{norm}-s{seed}")
    assert effects(study)["norm: rms − ln"][0] == 3 and len(study.curves) == 12


def test_logs_that_still_grow_are_said(tmp_path):
    lines = {f"{v}-s{s}.log": nanogpt(i, s) for i, v in enumerate(["a", "b"]) for s in (0, 1)}
    place = logs(tmp_path / "logs", lines | {"b-s1.log": nanogpt(1, 1) + "step 60: val lo"})
    unfinished, growing = analysed(place, "--names", "{x}-s{seed}").notes
    assert unfinished == "1 file with a last line that has no end, which is not read: b-s1.log"
    assert growing.startswith("the newest log is less than 120 s old")
    for file in place.iterdir():
        os.utime(file, (time.time() - 300, time.time() - 300))
    assert analysed(place, "--names", "{x}-s{seed}").notes == [unfinished]
