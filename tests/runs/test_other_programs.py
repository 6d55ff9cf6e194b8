"""A study whose runs another program trained is shown, followed and analysed, without what is unknown of it."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas
import pytest
from scipy import stats

from ablate.cli import status
from ablate.runs.files import write_json
from ablate.runs.folder import MetricsWriter, Run
from ablate.runs.manifest import write_manifest
from ablate.runs.records import Cell, Manifest, PlannedRun, Result, TaskFacts
from analysis.cli import main as analyse
from analysis.writing.live import Live

PROGRAM = "python train.py --bias={bias} --seed={seed}"
COMMAND = f"ablate command '{PROGRAM}' bias=no,yes"
LOSSES = {"no": [2.913, 2.921, 2.908, 2.934, 2.917], "yes": [2.874, 2.889, 2.871, 2.892, 2.881]}  # by seed
STEPS = 60
# What is unknown of such runs must not be shown as a number of ours.
INVENTED = re.compile(r"\bnan\b|\bNone\b|parameters|FLOPs|\b0 steps|/0\b|Params|tokens/s +\d|learning rate|Transformer")


def planned(results: Path) -> Manifest:
    """Write the manifest of the study: two values of --bias, five seeds."""
    cells = []
    runs = []
    for bias in LOSSES:
        name = f"bias-{bias}"
        facts: dict[str, Any] = {"label": f"bias={bias}", "levels": {"bias": bias}, "reference": bias == "no"}
        cells.append(Cell(id=name, name=name, batches="", task="train.py", **facts))
        runs += [PlannedRun(cell=name, seed=seed, path=f"{name}/s{seed}") for seed in range(5)]
    manifest = Manifest(
        study="bias",
        program=PROGRAM,
        command=COMMAND,
        factors={"bias": ["no", "yes"]},
        components=[],
        reference={"bias": "no"},
        seeds=list(range(5)),
        looks=[],
        tasks={"train.py": TaskFacts(name="train.py", metrics={"val_loss": "min"})},
        cells=cells,
        runs=runs,
        endpoint="val_loss",
    )
    write_manifest(results, manifest)
    return manifest


def log(run: Run, last: float, until: int = STEPS) -> None:
    """Log what the script prints: a loss every ten steps, ten steps a second."""
    writer = MetricsWriter(run)
    for step in range(10, until + 1, 10):
        writer.write({"step": step, "seconds": step / 10, "val_loss": last + (STEPS - step) / 100})
    writer.close()


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The results of the whole study."""
    folder = tmp_path_factory.mktemp("foreign") / "results"
    for planned_run in planned(folder).runs:
        run = Run(folder, planned_run.path)
        loss = LOSSES[planned_run.cell.removeprefix("bias-")][planned_run.seed]
        log(run, loss)
        result = Result(status="done", final={"val_loss": loss}, steps=STEPS, seconds={"total": 6.5})
        write_json(run.result_file, result.as_json())
    return folder


@pytest.fixture
def unfinished(tmp_path: Path) -> Path:
    """A study of which one run has ended, one is being trained, and the others wait."""
    folder = tmp_path / "results"
    first, second, *_ = [Run(folder, run.path) for run in planned(folder).runs]
    log(first, 2.9)
    write_json(first.result_file, Result(status="done", final={"val_loss": 2.9}, seconds={"total": 8.0}).as_json())
    log(second, 2.9, until=30)
    write_json(second.lease_file, {"host": "node7", "pid": 123, "device": "cuda:0"})
    return folder


def test_a_run_at_work_is_shown_with_the_steps_it_has_logged(unfinished: Path, capsys: Any) -> None:
    """The run of 8 s that has ended says how long the others take: 5 s of the running one, and 8 × 8 s."""
    assert status.main(["--results-dir", str(unfinished)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "10 runs: 1 done, 1 running, 8 queued, about 1 min 09 s left"
    assert re.split(r"\s{2,}", lines[3]) == ["bias=no s1", "30", "5.0 s", "node7:123 cuda:0"]
    assert not INVENTED.search("\n".join(lines))


def test_it_is_analysed_and_the_report_says_what_trained_it(results: Path, capsys: Any) -> None:
    assert analyse.main(["bias", "--results-dir", str(results)]) == 0
    text = capsys.readouterr().out
    assert text.startswith("bias: yes − no  −0.0372 [−0.0418, −0.0326]  n = 5  better (lower val_loss)\n")
    folder = results / "figures" / "bias"
    effect = pandas.read_csv(folder / "effects.csv").iloc[0]
    differences = np.subtract(LOSSES["yes"], LOSSES["no"])
    low, high = stats.ttest_1samp(differences, 0).confidence_interval(0.95)
    assert [effect["mean"], effect["low"], effect["high"]] == pytest.approx([differences.mean(), low, high], rel=1e-9)
    report = (folder / "report.md").read_text()
    assert f"- **program**: {PROGRAM}" in report and f"The runs were trained by {PROGRAM}." in report
    assert "| bias=yes | 4 | done | 2.8810 | 60 |" in report
    for file in folder.glob("*.md"):
        assert not INVENTED.search(file.read_text()), file.name
        assert not re.search("fingerprint|same batches|counts as diverged", file.read_text()), file.name


def test_it_is_followed_in_the_browser(unfinished: Path) -> None:
    state = Live(unfinished, "bias").state()
    assert (state.title, state.over) == ("1/10 · bias · ablate watch", False)
    assert "bias: bias=no,yes; 2 configurations × 5 seeds; train.py" in state.first
    running = re.findall(r"<td[^>]*>(.*?)</td>", state.first)
    assert running == ["bias=no s1", "30", "", "", "", "5.0 s", "node7:123 cuda:0"]
    assert not INVENTED.search(state.first + state.rest)
