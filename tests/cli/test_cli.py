"""The command line end to end: its commands, completion, what a sweep leaves on disk, what the same does again."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
from conftest import ROOT, SHAPE, STEPS, latest, run_module
from crashing_norm import hazard
from one_run import sweep_here

from ablate import __version__
from ablate.cli.completion import choices
from ablate.cli.main import COMMANDS, command, main
from ablate.config.groups import first_line, groups
from ablate.results.manifest import newest_study, read_manifest
from ablate.results.run import Run
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
    assert "ln + swiglu" in done.stdout and "ffn: swiglu − mlp" in done.stdout
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
    assert analyse(["--results-dir", str(results)]) == 0
    figures = results / "figures" / manifest.study
    assert {path.suffix for path in figures.iterdir()} >= {".png", ".pdf", ".csv", ".md"}


def test_again_trains_nothing_and_one_more_trains_only_that(swept, capsys):
    folder, small, first = swept
    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("results/runs/*/*/result.json")}
    assert len(stamps) == 8
    assert command([*SWEEP, *small]) == 0
    again = capsys.readouterr().out
    table = first.stdout[first.stdout.index("scope:") : first.stdout.index("intervals cover")]
    assert table in again, "the summary of the same results differs"
    assert "seeds were added" not in again
    assert sweep_here("norm=ln,rms", "seeds=3", *small) == 0
    assert len(list(folder.glob("results/runs/*/*/result.json"))) == 10, "two cells have a third seed"
    assert all(path.stat().st_mtime_ns == stamp for path, stamp in stamps.items()), "a finished run was trained again"


def test_dry_run_shows_the_plan_and_writes_nothing(small, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert command([*SWEEP, *small, "dry_run=true"]) == 0
    said = capsys.readouterr().out
    lines = said.splitlines()
    assert "ln + mlp (reference)" in lines[1] and "100 %" in lines[1]
    assert "8 runs, 8 to do" in said
    assert list(tmp_path.iterdir()) == []


def test_a_key_written_as_an_option_is_named(capsys):
    for option, hint in (("--results-dir=here", "write results_dir=VALUE"), ("--frob", "see ablate --help")):
        assert command(["norm=ln", option]) == 2
        assert capsys.readouterr().err == f"ablate: {option.partition('=')[0]}: no such option; {hint}\n"


def test_a_diverging_and_a_failing_run_leave_the_others_alone(cli, small, tmp_path, monkeypatch, capsys):
    own = hazard(tmp_path, "self.training and x.data.fill_(float('nan')) if x.shape[-1] == 32 else 1 / 0")
    words = latest(*small, "norm=ln,hazard", "model.dim=16,32", "seeds=1", *own)
    done = cli(*words, "train.parallel=1", PYTHONPATH=str(tmp_path))
    assert done.returncode == 1, done.stderr
    found = [json.loads(file.read_text()) for file in tmp_path.glob("results/runs/*/*/result.json")]
    results = {result["status"]: result for result in found}
    assert results.keys() == {"done", "failed", "diverged"} and results["diverged"]["final"] == {}
    assert len(found) == 4 and "division by zero" in results["failed"]["error"]["traceback"]
    assert (
        "failed: model.dim=16 + hazard, seed 0" in done.stdout
        and "diverged: model.dim=32 + hazard, seed 0" in done.stdout
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    assert command([*words, "dry_run=true"]) == 0
    assert "4 runs, 1 to do" in capsys.readouterr().out, "only the failed run is tried again"


def test_help_lists_every_variant(capsys):
    assert command(["help"]) == 0
    shown = capsys.readouterr().out
    for group, variants in groups().items():
        assert f"\n{group}\n" in shown
        for variant, file in variants.items():
            assert variant in shown and first_line(file) in shown
            assert first_line(file), f"{file} does not say what it is"


SCRIPT = "import sys\nfrom ablate.cli.main import main\nif __name__ == '__main__':\n    sys.exit(main())\n"


@pytest.fixture
def ablate(tmp_path: Path):
    """What the script of an installation says, called from a folder of its own."""
    script, folder = tmp_path / "bin" / "ablate", tmp_path / "work"
    script.parent.mkdir()
    script.write_text(SCRIPT)
    folder.mkdir()

    def said(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
        variables = os.environ | {"PYTHONPATH": str(ROOT)} | environment
        command = [sys.executable, str(script), *words]
        return subprocess.run(command, cwd=folder, env=variables, capture_output=True, text=True, timeout=300)

    said.folder = folder
    return said


def test_every_command_is_in_the_help_and_a_misspelt_one_is_named(ablate, capsys):
    shown = ablate("--help").stdout
    for name in COMMANDS:
        assert f"ablate {name}" in shown
    assert ablate("--version").stdout == f"ablate {__version__}\n"
    assert command(["statsu"]) == 2
    wrong = capsys.readouterr().err
    assert "status" in wrong and wrong.count("\n") == 1


def test_a_command_has_its_own_help(monkeypatch, capsys):
    for place in ("path", "meta_path"):
        monkeypatch.setattr(sys, place, [*getattr(sys, place)])
    monkeypatch.setenv("PYTHONSAFEPATH", "")
    for name in COMMANDS:
        monkeypatch.setattr(sys, "argv", ["ablate", name, "--help"])
        with pytest.raises(SystemExit) as end:
            main()
        assert not end.value.code and capsys.readouterr().out.startswith(f"usage: ablate {name} ")


@pytest.mark.parametrize(("line", "expected"), [("ablate norm=ln,r", "ln,rms"), ("ablate status o", "one")])
def test_a_shell_gets_the_rest_of_a_word(line, expected, ablate, tmp_path):
    (ablate.folder / "results" / "studies" / "one").mkdir(parents=True)
    (ablate.folder / "results" / "studies" / "one" / "manifest.json").write_text("{}")
    asked = {"_ARGCOMPLETE": "1", "_ARGCOMPLETE_SHELL": "bash", "COMP_LINE": line, "COMP_POINT": str(len(line))}
    asked |= {"_ARGCOMPLETE_COMP_WORDBREAKS": " \t\n\"'><=;|&(:", "_ARGCOMPLETE_IFS": "\n"}
    ablate(**asked, _ARGCOMPLETE_STDOUT_FILENAME=str(tmp_path / "told"))
    assert [word.rstrip() for word in (tmp_path / "told").read_text().splitlines()] == [expected]


def test_completion_offers_commands_groups_keys_and_study_files():
    first = choices([], "", COMMANDS)
    assert {"status", "norm=", "train.steps=", "seeds=", "+experiment=", "+preset="} <= {*first}
    assert "status" not in choices(["norm=rms"], "", COMMANDS)
    assert "+experiment=glu_variants" in choices([], "+experiment=", COMMANDS)
    assert "norm=ln,ln" not in choices([], "norm=ln,", COMMANDS)
