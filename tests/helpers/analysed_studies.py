"""Fabricated studies that several tests look at and none changes: each is made once in a process."""

import atexit
import contextlib
import functools
import io
import shutil
import tempfile
from pathlib import Path
from typing import Any

import pytest
from fake_studies import fabricate

from ablate.runs.study import load_study
from analysis.case import Case, case_of
from analysis.cli.main import main

GRID: dict[str, list[Any]] = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}


@functools.cache
def analysed() -> Path:
    """The folder of what `ablate analyse` wrote of a study; what it printed is in printed.txt of the results."""
    results = Path(tempfile.mkdtemp())
    atexit.register(shutil.rmtree, results)
    looks = [{"seeds": [0, 1], "when": "2025-01-02T03:04:05+00:00"}]
    status = lambda levels, seed: "failed" if (levels["norm"], seed) == ("rms", 2) else "done"  # noqa: E731
    fabricate(results, GRID, range(4), status=status, looks=looks, question="Do gates help a narrow model?")
    folder = results / "figures" / "fabricated"
    folder.mkdir(parents=True)
    (folder / "figures.yaml").write_text("subset: {figures: [effects, curves]}\n")
    with contextlib.redirect_stdout(io.StringIO()) as printed:
        assert main(["--results-dir", str(results)]) == 0
    (results / "printed.txt").write_text(printed.getvalue())
    return folder


def refused_line(capsys: pytest.CaptureFixture[str], *words: str) -> str:
    """The one line with which `ablate analyse WORD …` is refused."""
    assert main([*words]) == 2
    printed = capsys.readouterr()
    assert printed.out == ""
    assert printed.err.count("\n") == 1
    return printed.err


_shared: dict[str, Case] = {}


def case(results: Path, factors: dict[str, list[Any]] = GRID, **options: Any) -> Case:
    """The case of a fabricated study; made in `results` where its options are functions or other studies are there."""
    key = repr((factors, options))
    has_function = "<" in key
    if has_function or (results.exists() and any(results.iterdir())):
        return _made(results, factors, options)
    if key not in _shared:
        with tempfile.TemporaryDirectory() as folder:
            _shared[key] = _made(Path(folder), factors, options)
    return _shared[key]


def _made(results: Path, factors: dict[str, list[Any]], options: dict[str, Any]) -> Case:
    return case_of(load_study(results, fabricate(results, factors, **options)), results)
