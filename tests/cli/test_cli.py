"""The command line end to end: its commands, what a sweep leaves on disk, what the same does again."""

import dataclasses
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import SHAPE, STEPS, run_module
from fake_studies import draw_effects_alone
from one_run import sweep_here

from ablate import __version__
from ablate.cli.main import COMMANDS, command, help_text, main
from ablate.config.groups import description, groups
from ablate.config.schema import KEYS, SECTIONS
from ablate.runs.folder import Run
from ablate.runs.manifest import newest_study, read_manifest
from analysis.cli.main import main as analyse

SWEEP = ["-m", "norm=ln,rms", "ffn=mlp,swiglu", "seeds=2"]


@pytest.fixture(scope="module")
def swept(text, tmp_path_factory) -> tuple[Path, list[str], subprocess.CompletedProcess[str]]:
    """A folder in which a sweep was carried out by processes, the overrides beside it, and how it ended."""
    folder = tmp_path_factory.mktemp("swept")
    small = [*SHAPE, *STEPS, "data=text", f"data.path={text}", f"results_dir={folder / 'results'}"]
    return folder, small, run_module("ablate", *SWEEP, *small, cwd=folder)


def test_a_sweep_from_command_to_figures(swept):
    folder, _, done = swept
    assert done.returncode == 0, done.stderr
    assert "ln + swiglu" in done.stdout and "swiglu" in done.stdout.partition("effects, ")[2]
    results = folder / "results"
    assert sorted(path.name for path in folder.iterdir()) == ["results"], "something else was written"
    manifest = read_manifest(results, newest_study(results))
    assert manifest.factors == {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
    assert len(manifest.runs) == 8
    for planned in manifest.runs:
        run = Run(results, planned.path)
        result, (rows, torn) = run.result(), run.metrics()
        assert result.status == "done" and torn == 0
        assert [row["step"] for row in rows] == [0, 2, 3, 4, 6]
        assert result.final["test/loss"] == rows[-1]["test/loss"]
        assert rows[-1]["tokens"] == 6 * 4 * 16
        documents = result.documents["test"]
        total = sum(n * loss for n, loss in zip(documents.tokens, documents.loss, strict=True))
        assert total / sum(documents.tokens) == pytest.approx(result.final["test/loss"])
        assert run.weights_file.exists() and not run.checkpoint_file.exists()
    draw_effects_alone(results, manifest.study)
    assert analyse(["--results-dir", str(results)]) == 0
    figures = results / "figures" / manifest.study
    assert {path.suffix for path in figures.iterdir()} >= {".png", ".pdf", ".csv", ".md"}


def test_again_trains_nothing_and_one_more_trains_only_that(swept, capsys, untried):
    folder, small, first = swept
    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("results/runs/*/*/result.json")}
    assert len(stamps) == 8
    assert command([*SWEEP, *small]) == 0
    again = capsys.readouterr().out
    table = first.stdout[first.stdout.index("test/loss, nats") : first.stdout.index("next: ")]
    assert table in again, "the summary of the same results differs"
    assert "seeds were added" not in again
    assert sweep_here("norm=ln,rms", "seeds=3", *small) == 0
    assert len(list(folder.glob("results/runs/*/*/result.json"))) == 10, "two cells have a third seed"
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items()), "a finished run was trained again"


def test_dry_run_shows_the_plan_and_writes_nothing(small, tmp_path, monkeypatch, capsys, untried):
    monkeypatch.chdir(tmp_path)
    assert command([*SWEEP, *small, "dry_run=true"]) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert lines[0] == "4 configurations × 2 seeds = 8 runs, 8 to do"
    assert "ln + mlp (reference)" in lines[5] and "100 %" in lines[5]
    assert list(tmp_path.iterdir()) == []


def test_help_lists_every_variant(capsys):
    assert command(["help"]) == 0
    short = capsys.readouterr().out
    assert short.count("\n") < 100
    for group, variants in groups().items():
        assert command(["--help", group]) == 0
        shown = capsys.readouterr().out
        assert shown.startswith(f"{group}\n") and f"\n  {group} " in short
        for variant, file in variants.items():
            assert variant in short and variant in shown and description(file) in shown
            assert description(file), f"{file} does not say what it is"
    for word, told in (("activations", "did you mean ffn"), ("status", "status --help"), ("frob", "there are norm")):
        assert command(["help", word]) == 2 and told in capsys.readouterr().err


def test_help_has_every_key() -> None:
    sections = {f"{name}.{field.name}" for name in SECTIONS for field in dataclasses.fields(SECTIONS[name])}
    keys = {key for key in {*KEYS} - SECTIONS.keys() - groups().keys() | sections if "_target_" not in key}
    text = help_text(None)
    assert [key for key in sorted(keys) if not re.search(rf"(?<![\w.]){re.escape(key)}(?!\w)", text)] == []


def test_the_configuration_as_json_has_every_section(capfd) -> None:
    assert command(["--cfg", "job", "norm=rms", "--json"]) == 0
    configuration = json.loads(capfd.readouterr().out)["result"]
    assert configuration["norm"]["_target_"] == "ablate.model.norm.RMSNorm" and configuration["train"]["steps"] > 0


@pytest.mark.parametrize("words", [[], ["-m"], ["--json"]])
def test_without_words_there_is_help_and_nothing_is_trained(words, tmp_path, monkeypatch, capfd):
    monkeypatch.chdir(tmp_path)
    assert command(words) == 0
    assert "usage: ablate [-m] [group=variant" in capfd.readouterr().out
    assert list(tmp_path.iterdir()) == []


def test_help_as_json_is_its_text(capfd):
    assert command(["help", "norm", "--json"]) == 0
    assert json.loads(capfd.readouterr().out)["result"].startswith("norm\n")


def test_every_command_is_in_the_help_and_a_misspelt_one_is_named(capsys):
    assert command(["--help"]) == 0
    shown = capsys.readouterr().out
    assert all(f"ablate {name}" in shown for name in COMMANDS)
    assert command(["--version"]) == 0 and capsys.readouterr().out == f"ablate {__version__}\n"


# A word that is no command, and what its message says to write.
NO_COMMANDS = {
    "statsu": "did you mean status?",
    "verify": "write ablate analyse verify",
    "report": "write ablate analyse",
    "train": "to train write ablate -m norm=ln,rms",
    "run": "to train write ablate -m norm=ln,rms",
    "plan": "to see a plan write ablate -m norm=ln,rms dry_run=true",
    "dry_run": "write dry_run=true",
    "norm": "write norm=VALUE",
    "frobnicate": "see ablate --help",
    "--seeds 3": "write seeds=3",
    "--lr 3": "write optim.lr=VALUE",
    "--config-name=mine": "leave it out; settings of your own are a study file",
}


@pytest.mark.parametrize(("words", "message"), NO_COMMANDS.items())
def test_a_word_that_is_no_command_gets_a_hint_that_helps_or_none(words: str, message: str, capsys) -> None:
    assert command(words.split()) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(f"ablate: {words.split()[0].split('=')[0]}: no such ") and message in line


def test_analyze_is_analyse(monkeypatch, capsys) -> None:
    monkeypatch.setattr(sys, "argv", ["ablate", "analyze", "--help"])
    with pytest.raises(SystemExit):
        main()
    assert capsys.readouterr().out.startswith("usage: ablate analyse ")


def test_a_command_has_its_own_help(monkeypatch, capsys):
    for place in ("path", "meta_path"):
        monkeypatch.setattr(sys, place, [*getattr(sys, place)])
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    for name in COMMANDS:
        monkeypatch.setattr(sys, "argv", ["ablate", name, "--help"])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code and capsys.readouterr().out.startswith(f"usage: ablate {name} ")
