"""python -m analysis: what it writes, how it refuses, what it never loads."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pandas
import pytest
from analysed_studies import analysed
from fake_studies import draw_effects_alone, fabricate

from ablate.results.manifest import study_folder
from analysis.cli.main import main
from analysis.sources import read

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
FIGURES = [f"{name}.{kind}" for name in ("curves", "effects", "seeds") for kind in ("pdf", "png")]
TABLES = ["runs.csv", "cells.csv", "effects.csv", "cells.md", "effects.md"]


def test_everything_is_written_and_listed() -> None:
    folder = analysed()
    said = (folder.parents[1] / "printed.txt").read_text().splitlines()
    written = {path.name for path in folder.iterdir()} - {"figures.yaml", ".written.json"}
    assert said[-1] == f"{len(written)} files in {folder}"
    assert written >= set(FIGURES + TABLES)
    assert all((folder / name).stat().st_size > 100 for name in FIGURES + TABLES)
    end = "better (lower loss)"
    assert any(line.startswith("ffn: swiglu − mlp  −0.05") and line.endswith(end) for line in said)


def test_results_are_found_by_the_environment(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("ABLATE_RESULTS", str(tmp_path / "none"))
    assert main([]) == 2 and f"no results folder at {tmp_path}/none" in capsys.readouterr().err


def test_of_sides_that_diverged_unequally_no_mean_of_the_survivors_is_told(tmp_path, capsys):
    lost = lambda levels, seed: "diverged" if (levels["ffn"], seed) == ("swiglu", 0) else "done"  # noqa: E731
    name = fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]}, range(5), status=lost)
    draw_effects_alone(tmp_path)
    assert main(["--results-dir", str(tmp_path)]) == 0
    line = capsys.readouterr().out.splitlines()[0]
    reason = "withheld: 1 run diverged against 0; diverged ranked worst: lower 4, higher 1"
    assert line == f"ffn: swiglu − mlp  –  n = 4  {reason}"
    written = pandas.read_csv(tmp_path / "figures" / name / "effects.csv")
    assert written[["mean", "sd", "low", "high", "d_z", "p"]].isna().all(axis=None)


def test_a_study_called_as_a_command_is_refused_and_one_that_is_there_is_reached(tmp_path, capsys):
    from ablate.config.study_keys import TAKEN
    from analysis.cli.main import COMMANDS

    assert set(TAKEN) == set(COMMANDS)
    fabricate(tmp_path, {"norm": ["ln"]}, study="export", seeds=[0])
    draw_effects_alone(tmp_path, "export")
    assert main(["--results-dir", str(tmp_path), "--", "export"]) == 0
    assert "files in" in capsys.readouterr().out and (tmp_path / "figures" / "export" / "report.md").exists()


def test_the_newest_study_is_meant_unless_one_is_named(tmp_path: Path) -> None:
    for age, name in enumerate(["third", "first", "second"]):
        fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]}, study=name)
        os.utime(study_folder(tmp_path, name) / "manifest.json", (1e9 - age, 1e9 - age))
    assert read(tmp_path, None).manifest.study == "third"
    assert read(tmp_path, "second").manifest.study == "second"


def fresh_python(*arguments: str) -> subprocess.CompletedProcess[str]:
    """A new interpreter, which has loaded nothing, in the checkout."""
    root = Path(__file__).parents[3]
    return subprocess.run([sys.executable, *arguments], cwd=root, capture_output=True, text=True)


def test_torch_is_never_loaded_and_no_figure_is_left_open(tmp_path: Path) -> None:
    fabricate(tmp_path, GRID)
    draw_effects_alone(tmp_path)
    code = (
        "import sys, analysis.cli.main as command\n"
        f"assert command.main(['--results-dir', {str(tmp_path)!r}]) == 0\n"
        "assert 'torch' not in sys.modules and not sys.modules['matplotlib.pyplot'].get_fignums()"
    )
    ended = fresh_python("-W", "error", "-c", code)
    assert ended.returncode == 0, ended.stderr
    assert ended.stderr == ""


def test_help_and_a_refusal_load_no_library_of_numbers(tmp_path: Path) -> None:
    fabricate(tmp_path, GRID)
    code = (
        "import sys, analysis.cli.main as command\n"
        f"assert command.main(['nobody', '--results-dir', {str(tmp_path)!r}]) == 2\n"
        "try: command.main(['--help'])\n"
        "except SystemExit: pass\n"
        "print({'numpy', 'pandas', 'scipy', 'matplotlib', 'plotly', 'jinja2'} & set(sys.modules))"
    )
    ended = fresh_python("-c", code)
    assert ended.stdout.endswith("set()\n") and "--runs FILE" in ended.stdout, ended.stdout + ended.stderr


def test_what_an_earlier_analysis_wrote_does_not_stay(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def analysed(**options: Any) -> str:
        fabricate(tmp_path / str(len(list(tmp_path.iterdir()))), {"ffn": ["mlp", "swiglu"]}, **options)
        newest = max(tmp_path.glob("[0-9]*"), key=lambda path: int(path.name))
        assert main(["--results-dir", str(newest), "--to", str(folder)]) == 0
        return capsys.readouterr().out

    folder = tmp_path / "to"
    folder.mkdir()
    (folder / "figures.yaml").write_text("subset: {figures: [effects]}\n")
    lost = lambda levels, seed: "failed" if seed == 2 else "done"  # noqa: E731
    assert "removed" not in analysed(status=lost)
    mine = folder / "divergence.png"
    mine.write_text("of the user")
    (folder / "losses.tex").write_text("edited by hand")
    assert (folder / "losses.md").exists()
    said = analysed()
    assert "removed, of an earlier analysis: losses.md\n" in said
    assert not (folder / "losses.md").exists() and (folder / "effects.png").exists()
    assert mine.read_text() == "of the user" and (folder / "losses.tex").read_text() == "edited by hand"
    assert "removed" not in analysed()


def test_a_full_disk_leaves_the_earlier_files_whole_and_says_so(tmp_path, capsys, monkeypatch):
    fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]})
    draw_effects_alone(tmp_path)
    folder = tmp_path / "figures" / "fabricated"
    assert main(["--results-dir", str(tmp_path)]) == 0
    capsys.readouterr()
    before = {file.name: file.read_bytes() for file in folder.iterdir()}
    fitting = iter(["effects.png", "effects.pdf", "runs.csv"])

    def full(descriptor: int) -> None:
        if next(fitting, None) is None:
            raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    (folder / "figures.yaml").write_text("subset: {figures: [effects]}\nlabels: {swiglu: SwiGLU}\n")
    said = refused(capsys, "--results-dir", str(tmp_path))
    assert "cannot write" in said and "No space left on device" in said
    after = {file.name: file.read_bytes() for file in folder.iterdir()}
    assert set(after) == set(before), "something half written stayed"
    assert {name for name in before if after[name] != before[name]} == {"figures.yaml", "effects.png", "effects.pdf"}
    assert after["effects.pdf"].endswith(b"%%EOF\n") and after["effects.png"].endswith(b"IEND\xaeB`\x82")


def refused(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    """The one line with which a command line is refused."""
    assert main(list(arguments)) == 2
    said = capsys.readouterr()
    assert said.out == "" and said.err.count("\n") == 1
    return said.err


def test_no_results_folder_and_no_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert f"no study in {tmp_path}" in refused(capsys, "--results-dir", str(tmp_path))
    assert f"no results folder at {tmp_path}/none" in refused(capsys, "--results-dir", f"{tmp_path}/none")
    assert not (tmp_path / "none").exists()


def test_unknown_study(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("norm-ffn-3fa94c", "position-11aa22"):
        fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]}, study=name)
    said = refused(capsys, "norm-fnn", "--results-dir", str(tmp_path))
    assert said.endswith("did you mean norm-ffn-3fa94c?\n")
    assert "there are norm-ffn-3fa94c, position-11aa22" in refused(capsys, "zzz", "--results-dir", str(tmp_path))
    assert "no study ../runs" in refused(capsys, "../runs", "--results-dir", str(tmp_path))


@pytest.mark.parametrize(
    "content", ["{", "[]", "{}", '{"study": "x", "cells": [], "runs": [], "seeds": [], "factors": {}}']
)
def test_corrupt_manifest(tmp_path: Path, capsys: pytest.CaptureFixture[str], content: str) -> None:
    fabricate(tmp_path, GRID)
    manifest = study_folder(tmp_path, "fabricated") / "manifest.json"
    manifest.write_text(content)
    assert str(manifest) in refused(capsys, "--results-dir", str(tmp_path))


def test_unknown_option(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main(["--result-dir", "results", "--nonsense"])
    assert ended.value.code == 2 and capsys.readouterr().err.count("\n") == 1


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_folder_that_cannot_be_written(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fabricate(tmp_path, GRID)
    tmp_path.chmod(0o555)
    try:
        assert "cannot write" in refused(capsys, "--results-dir", str(tmp_path))
    finally:
        tmp_path.chmod(0o755)


def test_a_file_where_the_folder_should_be(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fabricate(tmp_path, GRID)
    (tmp_path / "figures").write_text("")
    assert "cannot write" in refused(capsys, "--results-dir", str(tmp_path))


def test_torn_and_corrupt_results_are_named_and_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    fabricate(tmp_path, GRID)
    draw_effects_alone(tmp_path)
    folders = sorted((tmp_path / "runs").glob("*/*"))
    (folders[0] / "result.json").write_text('{"status": ')
    with open(folders[1] / "metrics.jsonl", "a") as file:
        file.write('{"step": 8')
    assert main(["--results-dir", str(tmp_path)]) == 0
    said = capsys.readouterr().out
    torn = [folder.relative_to(tmp_path) for folder in folders[:2]]  # not where: a report is passed on
    assert f"damaged: {torn[0]}/result.json" in said
    assert f"damaged: {torn[1]}/metrics.jsonl: 1 torn line passed over" in said
    assert "1 run missing: ln + mlp seed 0" in said
    assert "2 of 3" in (tmp_path / "figures" / "fabricated" / "cells.md").read_text().splitlines()[2]
