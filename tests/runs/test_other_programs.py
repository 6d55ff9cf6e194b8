"""A study whose runs another program trained is shown, followed and analysed, without what is unknown of it."""

import re
from pathlib import Path

import pytest
from fake_studies import a_manifest

from ablate.cli import status
from ablate.runs.files import write_json
from ablate.runs.folder import MetricsWriter, Run
from ablate.runs.manifest import write_manifest
from ablate.runs.records import Cell, Manifest, PlannedRun, Result, TaskFacts
from analysis.writing.live import Live

PROGRAM = "python train.py --bias={bias} --seed={seed}"
STEPS = 60
# What is unknown of such runs must not be shown as a number of ours.
INVENTED = re.compile(r"\bnan\b|\bNone\b|parameters|FLOPs|\b0 steps|/0\b|Params|tokens/s +\d|learning rate|Transformer")


def planned(results: Path) -> Manifest:
    """Write the manifest of the study: two values of --bias, five seeds."""
    cells = []
    runs = []
    for bias in ("no", "yes"):
        name = f"bias-{bias}"
        facts = {"label": f"bias={bias}", "levels": {"bias": bias}, "reference": bias == "no", "batches": ""}
        cells.append(Cell(id=name, name=name, task="train.py", **facts))
        runs += [PlannedRun(cell=name, seed=seed, path=f"{name}/s{seed}") for seed in range(5)]
    manifest = a_manifest(
        study="bias",
        program=PROGRAM,
        command=f"ablate command '{PROGRAM}' bias=no,yes",
        factors={"bias": ["no", "yes"]},
        reference={"bias": "no"},
        seeds=list(range(5)),
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


@pytest.fixture
def unfinished(tmp_path) -> Path:
    """A study of which one run has ended, one is being trained, and the others wait."""
    folder = tmp_path / "results"
    first, second, *_ = [Run(folder, run.path) for run in planned(folder).runs]
    log(first, 2.9)
    write_json(first.result_file, Result(status="done", final={"val_loss": 2.9}, seconds={"total": 8.0}).as_json())
    log(second, 2.9, until=30)
    write_json(second.lease_file, {"host": "node7", "pid": 123, "device": "cuda:0"})
    return folder


def test_a_run_at_work_is_shown_with_the_steps_it_has_logged(unfinished, capsys):
    """The run of 8 s that has ended says how long the others take: 5 s of the running one, and 8 × 8 s."""
    assert status.main(["--results-dir", str(unfinished)]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert lines[1] == "10 runs: 1 done, 1 running, 8 queued, about 1 min 09 s left"
    assert re.split(r"\s{2,}", lines[3]) == ["bias=no s1", "30", "5.0 s", "node7:123 cuda:0"]
    assert not INVENTED.search("\n".join(lines))


def test_it_is_followed_in_the_browser(unfinished):
    state = Live(unfinished, "bias").state()
    assert (state.title, state.over) == ("1/10 · bias · ablate watch", False)
    assert "bias: bias=no,yes; 2 configurations × 5 seeds; train.py" in state.first
    running = re.findall(r"<td[^>]*>(.*?)</td>", state.first)
    assert running == ["bias=no s1", "30", "", "", "", "5.0 s", "node7:123 cuda:0"]
    assert not INVENTED.search(state.first + state.rest)
