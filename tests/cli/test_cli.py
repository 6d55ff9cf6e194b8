"""The command line end to end: what a sweep leaves on disk, and what the same command does again."""

import json
import subprocess
from pathlib import Path

import pytest
from conftest import SHAPE, STEPS, latest, run_module
from crashing_norm import hazard
from one_run import sweep_here

from ablate.cli.main import command
from ablate.results.manifest import newest_study, read_manifest
from ablate.results.run import Run

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
    analysis = run_module("analysis", "--results-dir", str(results), cwd=folder)
    assert analysis.returncode == 0, analysis.stderr
    figures = results / "figures" / manifest.study
    assert {path.suffix for path in figures.iterdir()} >= {".png", ".pdf", ".csv", ".md"}


def test_again_trains_nothing_and_one_more_trains_only_that(swept):
    folder, small, first = swept
    stamps = {path: path.stat().st_mtime_ns for path in folder.glob("results/runs/*/*/result.json")}
    assert len(stamps) == 8
    again = run_module("ablate", *SWEEP, *small, cwd=folder)
    assert again.returncode == 0
    table = first.stdout[first.stdout.index("scope:") : first.stdout.index("intervals cover")]
    assert table in again.stdout, "the summary of the same results differs"
    assert "seeds were added" not in again.stdout
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


def test_a_diverging_and_a_failing_run_leave_the_others_alone(cli, small, tmp_path):
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
    again = cli(*words, "dry_run=true", PYTHONPATH=str(tmp_path))
    assert again.returncode == 0 and "4 runs, 1 to do" in again.stdout, "only the failed run is tried again"


def test_help_lists_every_variant_without_loading_anything_heavy(cli):
    done = cli("--help")
    assert done.returncode == 0
    from ablate.config.groups import first_line, groups

    for group, variants in groups().items():
        assert f"\n{group}\n" in done.stdout
        for variant, file in variants.items():
            assert variant in done.stdout and first_line(file) in done.stdout
            assert first_line(file), f"{file} does not say what it is"
