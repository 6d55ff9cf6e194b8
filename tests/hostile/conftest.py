"""A small study that was trained once, copied for each attack, and every command that reads such a folder."""

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from conftest import SHAPE, STEPS
from fake_studies import draw_effects_alone, edit_json
from one_run import train_runs, write_plan

from ablate.runs.manifest import read_manifest
from hostile.arsenal import CANARY, STUDY, RunCommands, forget_package, write_package


@pytest.fixture(scope="session")
def original(text, tmp_path_factory) -> Path:
    """Results of two cells with one seed, trained in this process."""
    from ablate.planning.plan import plan_study

    folder = tmp_path_factory.mktemp("original") / "results"
    small = [*SHAPE, *STEPS, "data=text", f"data.path={text}", f"results_dir={folder}"]
    plan = plan_study(("norm=ln,rms", "seeds=1", f"study={STUDY}", *small))
    write_plan(plan)
    assert set(train_runs(plan)) == {"done"}
    draw_effects_alone(folder, STUDY)
    return folder


@pytest.fixture
def place(tmp_path, monkeypatch) -> Iterator[Path]:
    """The current folder, with a package that fires when it is imported; after the test nothing has."""
    write_package(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    forget_package()
    yield tmp_path
    forget_package()
    assert not (tmp_path / CANARY).exists(), "it was executed"


@pytest.fixture
def results(original, place) -> Path:
    """A copy of the study's results, to be made hostile: no checksum vouches for what lies beside a result."""
    shutil.copytree(original, place / "results")
    for file in (place / "results").glob("runs/*/*/result.json"):
        edit_json(file, lambda result: result.pop("files", None))
    return place / "results"


@pytest.fixture
def folders(results) -> list[Path]:
    """The folders of its runs."""
    return [results / "runs" / run.path for run in read_manifest(results, STUDY).runs]


@pytest.fixture
def run_commands(results, capsys) -> RunCommands:
    """Runs each command that reads results, or those that are named, as the command line calls it: no traceback."""
    from ablate.cli import clean, status, studies, sync
    from analysis import dashboard
    from analysis.cli.main import main as analysis

    commands = {
        "status": lambda: status.main([STUDY]),
        "studies": lambda: studies.main([]),
        "sync": lambda: sync.main([STUDY]),
        "dashboard": lambda: dashboard.main([STUDY]),
        "clean": lambda: clean.main(["--orphans", "--weights"]),
        "analysis export": lambda: analysis(["export", STUDY]),
        "analysis": lambda: analysis([STUDY]),
    }

    def run(*names):
        outcomes = {}
        for name in names or commands:
            try:
                code = commands[name]()
            except SystemExit as end:
                code = int(end.code or 0)
            printed = "".join(capsys.readouterr())
            assert "Traceback" not in printed, (name, printed)
            assert code in (0, 1, 2), name
            outcomes[name] = (code, printed)
        return outcomes

    return run
