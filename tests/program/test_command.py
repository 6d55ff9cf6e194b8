"""`ablate command` on small programs that do what programs do: print, write, crash, hang, ignore their seed."""

import contextlib
import errno
import re
import sys
import time
from pathlib import Path

import numpy as np
import pandas
import pytest
from crashing_norm import start, wait_for
from scipy import stats
from small_program import COMMAND, NOISE, TRAIN, WORDS, errors, results, run

import ablate
from ablate.cli.program import main
from ablate.config.errors import PlanError
from ablate.execution.run_program import run_program
from ablate.execution.signals import DiskFull
from ablate.planning.program import plan_program
from ablate.program.devices import places
from ablate.runs.folder import Run
from ablate.runs.manifest import newest_study, read_manifest


def times() -> dict[Path, int]:
    """When each result was written."""
    return {file: file.stat().st_mtime_ns for file in Path("results").rglob("result.json")}


def test_the_effect_is_that_of_a_paired_t_test(capsys):
    assert run(*WORDS) == 0
    differences = np.array(NOISE[1]) - 0.05 - np.array(NOISE[0])
    low, high = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    study = ablate.command(COMMAND, *WORDS)
    [effect] = study.effects.to_dict("records")
    assert effect["label"] == "bias: 1 − 0"
    assert [effect["mean"], effect["low"], effect["high"]] == pytest.approx([differences.mean(), low, high], rel=1e-4)
    assert effect["verdict"] == "better"
    assert "bias=1 lowers validation loss by" in capsys.readouterr().out


def test_a_second_command_runs_nothing_again():
    run(*WORDS)
    before = times()
    assert run(*WORDS) == 0
    assert times() == before and len(before) == 10


def test_an_edited_program_runs_again(program, capsys):
    run(*WORDS, "seeds=2", "study=a")
    program.write_text(TRAIN.replace("2 - 0.05", "3 - 0.05"))
    assert run(*WORDS, "seeds=2", "study=a") == 0
    assert "a file of the command has changed: 4 runs again" in capsys.readouterr().err
    assert len(results()) == 8


def test_a_study_of_another_command_is_not_replaced():
    run(*WORDS, "seeds=2", "study=a")
    with pytest.raises(PlanError, match="write another name"):
        ablate.command(f"{COMMAND} --out=x", *WORDS, "seeds=2", "study=a")


def test_a_dry_run_shows_three_commands_and_starts_none(capsys):
    assert run(*WORDS, "dry_run=true") == 0
    text = capsys.readouterr().out
    assert text.count("train.py --bias=") == 3
    assert not Path("results").exists()


@pytest.mark.parametrize(
    ("word", "study", "seeds"), [("seeds=3", "a", [0, 1, 2]), ("confirm=2", "a-confirm-2", [2, 3])]
)
def test_seeds_are_added_and_a_confirmation_has_fresh_ones(word, study, seeds):
    run(*WORDS, "seeds=2", "study=a")
    run(*WORDS, word, "study=a")
    assert read_manifest(Path("results"), study).seeds == seeds
    assert len(results()) == 2 * (max(seeds) + 1)


@pytest.mark.parametrize(("first", "is_registered"), [(["margin=0.1"], True), ([], False)])
def test_a_margin_is_registered_unless_it_was_written_after_results(first, is_registered):
    run(*WORDS, "seeds=2", "study=a", *first)
    run(*WORDS, "seeds=2", "study=a", "margin=0.1")
    margin = read_manifest(Path("results"), "a").margin
    assert margin and margin.registered is is_registered


def test_environment_variables(program):
    program.write_text("import os\nprint('score:', float(os.environ['LR']) + int(os.environ['SEED']))\n")
    study = ablate.command(
        f"{sys.executable} train.py", "env.SEED={seed}", "env.LR=0.5,1", "metric=score", "better=max", "seeds=2"
    )
    assert sorted(study.runs["score"]) == [0.5, 1.0, 1.5, 2.0]


def test_the_program_may_import_from_its_folder(program):
    (program.parent / "helper.py").write_text("")
    program.write_text(f"import helper\n{TRAIN}")
    assert run(*WORDS, "seeds=2") == 0


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("import sys\nprint('loading')\nsys.exit('no data')", "ended with exit code 1; its last line: no data"),
        ("import os\nos.kill(os.getpid(), 9)", "was killed by signal 9; was the machine out of memory?"),
        ("print('done')", "it printed no val/loss, and wrote none into its folder; its last line: done"),
    ],
)
def test_an_error_says_how_a_program_ended(text, error, program):
    program.write_text(text)
    assert run(*WORDS, "seeds=1") == 1
    assert errors()[0].endswith(error)


def test_a_metric_that_is_no_number_counts_as_diverged(program):
    program.write_text(TRAIN.replace("{loss + (20 - step) / 10:.6f}", "nan"))
    assert run(*WORDS, "seeds=1") == 0
    assert [result["status"] for result in results()] == ["diverged", "diverged"]


def test_a_command_that_does_not_exist():
    run("metric=val/loss", "bias=0,1", "seeds=1", command="no_such_program {bias} {seed}")
    assert "no_such_program" in errors()[0]


def test_a_seed_that_is_ignored_stops_the_study(program, capsys):
    program.write_text("class torch:\n    manual_seed = print\ntorch.manual_seed(42)\nprint('step 1: val loss 2.5')\n")
    run(*WORDS, "seeds=5")
    text = capsys.readouterr().err
    assert text.count("gave the same result with all its seeds, so the program seems to ignore {seed}") == 1
    assert "train.py:3 has torch.manual_seed(42)" in text
    assert "same command" not in text
    assert len(results()) < 10


def test_two_seeds_of_one_configuration_may_coincide(program):
    program.write_text(
        TRAIN.replace("{loss + (20 - step) / 10:.6f}", "{round(loss, 1) if options.bias == '1' else loss}")
    )
    assert run(*WORDS) == 0
    assert len(results()) == 10


def test_runs_that_fail_alike_stop_though_their_last_lines_differ(program, capsys):
    program.write_text("import sys\nprint('accuracy', sys.argv)\n")
    assert run(*WORDS) == 1
    text = capsys.readouterr()
    assert "every run so far failed with the same error" in text.err
    assert "same command" not in text.out + text.err
    missing = 10 - len(results())
    assert 0 < missing < 9
    assert f"{missing} missing" in text.out and f"{missing} runs not trained" in text.err


IGNORES_BIAS = TRAIN.replace("[int(options.bias)]", "[0]").replace('(options.bias == "1")', "0")


def test_values_that_change_nothing_stop_the_study(program, capsys):
    program.write_text(IGNORES_BIAS)
    run("bias=False,True", "metric=val/loss")
    text = capsys.readouterr()
    assert "{bias?--bias} passes a flag; the other runs were not started" in text.err
    assert len(results()) < 10
    assert "of 5 paired seeds" in text.out


def test_two_values_may_coincide_while_a_third_does_not(program):
    program.write_text(IGNORES_BIAS.replace("loss = 2 -", 'loss = 2 + (options.bias == "2") -'))
    assert run("bias=0,1,2", "metric=val/loss") == 0
    assert len(results()) == 15


def test_a_configuration_whose_first_runs_fail_alike_is_given_up_alone(program, capsys):
    program.write_text(f"import sys\nif '--bias=1' in sys.argv:\n    sys.exit('no bias')\n{TRAIN}")
    assert run(*WORDS) == 1
    statuses = [result["status"] for result in results()]
    assert statuses.count("done") == 5 and 3 <= statuses.count("failed") < 5
    assert "bias=1: 3 runs failed alike" in capsys.readouterr().err


@pytest.mark.parametrize(("words", "is_named"), [([], True), (["env.OUT={out}"], False)])
def test_a_folder_that_is_not_used_is_named(words, is_named, capsys):
    run(*WORDS, "seeds=1", "dry_run=true", *words, command=COMMAND.replace(" --out={out}", ""))
    assert ("pass {out}" in capsys.readouterr().out) is is_named


@pytest.mark.parametrize(("words", "is_named"), [([], True), (["shell=true"], False)])
def test_a_variable_that_no_shell_reads_is_named(words, is_named, capsys):
    run(*WORDS, "seeds=1", "dry_run=true", *words, command=f"{COMMAND} --lr=$LR")
    assert ("$LR is passed as it stands" in capsys.readouterr().out) is is_named


def test_a_timeout_ends_the_program_and_what_it_started(program):
    child = "import subprocess, sys, time\nsubprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
    program.write_text(f"{child}print('step 1: val loss 2.5', flush=True)\ntime.sleep(600)\n")
    run("metric=val/loss", "bias=0,1", "seeds=1", "timeout=2s")
    assert errors()[0].startswith("it had not ended after 2.0 s")


def test_at_a_budget_counts_what_was_reached(program, capsys):
    program.write_text(TRAIN + "import time\ntime.sleep(600)\n")
    assert run(*WORDS, "seeds=1", "timeout=2s", "budget=wallclock", "parallel=2") == 0
    assert {result["status"] for result in results()} == {"done"}
    text = capsys.readouterr().err
    assert "steps in the time given: bias=0 20 to 20; bias=1 20 to 20" in text
    assert "runs at a time share this machine" in text


def test_a_program_that_ignores_sigterm_is_killed(program):
    program.write_text("import signal, time\nsignal.signal(15, signal.SIG_IGN)\ntime.sleep(600)\n")
    started = time.monotonic()
    run("metric=val/loss", "bias=0,1", "seeds=1", "timeout=1s", "parallel=2")
    assert time.monotonic() - started < 120
    assert len(errors()) == 2


def test_much_output_is_kept_within_a_limit(program):
    program.write_text(f"for _ in range(300):\n    print('x' * 100_000)\n{TRAIN}")
    assert run(*WORDS, "seeds=1") == 0
    files = [*Path("results").rglob("output.txt")]
    assert all(1_000_000 < file.stat().st_size < 6_000_000 for file in files)
    assert b"bytes left out" in files[0].read_bytes()


def test_a_process_left_behind_does_not_hold_a_run_up(program):
    program.write_text(f"import os\nif os.fork() == 0:\n    import time\n    time.sleep(600)\n{TRAIN}")
    assert run(*WORDS, "seeds=1") == 0


def test_a_file_that_may_not_grow_fails_its_run_alone(program):
    program.write_text(f"""{TRAIN}import resource
resource.setrlimit(resource.RLIMIT_FSIZE, (1000, 1000))
if options.bias == "1":
    pathlib.Path(options.out, "weights").write_bytes(bytes(10_000))
""")
    assert run(*WORDS, "seeds=2") == 1
    assert sorted(str(result["status"]) for result in results()) == ["done", "done", "failed", "failed"]
    assert "File too large" in errors()[0]


def test_a_full_disk_ends_the_command(monkeypatch):
    def full(folder: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device", str(folder))

    monkeypatch.setattr("ablate.execution.run_program.remove_large", full)
    order = plan_program(COMMAND, [*WORDS, "seeds=1"]).orders()[0]
    with pytest.raises(DiskFull):
        run_program(order, lambda: False)


@pytest.mark.parametrize("in_shell", ["true", "false"])
def test_values_reach_the_program_as_they_are(program, in_shell):
    program.write_text("import sys\nprint(len(sys.argv), repr(sys.argv[1]), 'score:', sys.argv[2])\n")
    odd = "a b'; echo $HOME #"
    words = [f"x={odd},c", "metric=score", "better=max", "seeds=[5]", f"shell={in_shell}"]
    study = ablate.command(f"{sys.executable} train.py {{x}} {{seed}}", *words)
    assert study.runs["score"].tolist() == [5.0, 5.0]
    output = (study.run(f"x={odd}", 5).run.folder / "output.txt").read_text()
    assert output.startswith(f"3 {odd!r}")


@pytest.mark.parametrize(
    ("words", "devices"), [([], {"3", "5"}), (["parallel=1"], {"3"}), (["env.CUDA_VISIBLE_DEVICES=7"], {"7"})]
)
def test_each_run_at_a_time_has_a_gpu(program, monkeypatch, words, devices):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3,5")
    program.write_text(f"import os, time\nprint(os.environ['CUDA_VISIBLE_DEVICES'])\ntime.sleep(0.3)\n{TRAIN}")
    assert run(*WORDS, "seeds=2", *words) == 0
    printed = [file.read_text().splitlines()[0] for file in Path("results").rglob("output.txt")]
    assert {*printed} == devices


def test_a_gpu_in_the_command_is_named(capsys):
    command = f"{COMMAND} --device={{device}}"
    run(*WORDS, "device=cuda:1", "dry_run=true", command=command)
    assert "cuda:1: where there are several GPUs each run is given one" in capsys.readouterr().out


def test_without_gpus_as_many_run_at_a_time_as_are_asked_for(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "")
    assert places(None) == [{}]
    assert places(3) == [{}, {}, {}]


def test_a_killed_study_goes_on_with_what_is_missing(program, tmp_path):
    program.write_text(TRAIN + "import time\ntime.sleep(0.2)\n")
    process = start("command", COMMAND, *WORDS, cwd=tmp_path)
    wait_for(lambda: len(results()) >= 3)
    process.kill()  # its workers end by themselves, a moment later
    process.wait()
    before = times()
    assert run(*WORDS) == 0
    assert len(results()) == 10
    assert times().items() >= before.items()


def test_a_run_that_another_process_has_is_waited_for(monkeypatch):
    plan = plan_program(COMMAND, [*WORDS, "seeds=1"])
    taken = Run(plan.results, plan.manifest.runs[0].path)
    waits: list[str] = []
    with contextlib.ExitStack() as lock:
        assert lock.enter_context(taken.lock(lambda: False))

        def release(text: str) -> None:
            waits.append(text)
            lock.close()

        monkeypatch.setattr("ablate.execution.launcher.say", release)
        assert run(*WORDS, "seeds=1") == 0
    assert len(waits) == 1 and waits[0].startswith("waiting for bias=0, seed 0, which process ")
    assert len(results()) == 2


def test_it_is_analysed_as_other_studies_and_its_report_says_only_what_is_known():
    from analysis.cli.main import main as analyse

    run(*WORDS)
    assert analyse([]) == 0
    folder = Path("results/figures") / str(newest_study(Path("results")))
    assert pandas.read_csv(folder / "effects.csv")["verdict"].tolist() == ["better"]
    unknown = "one corpus|timing=isolated|equal batches|learning rate|initial weights|at the last step"
    assert not re.search(unknown, (folder / "report.md").read_text())


@pytest.mark.parametrize("words", [["python", "train.py", "--wd={wd}"], ["python train.py {seed}", "--out={out}"]])
def test_a_command_without_quotes_is_told_to_have_them(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        main(words)
    assert "put the whole command in quotes" in capsys.readouterr().err
