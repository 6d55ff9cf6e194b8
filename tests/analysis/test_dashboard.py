"""ablate dashboard: what W&B is sent, read back panel by panel; that a second time updates; and what is refused."""

import contextlib
import importlib.util
import io
import json
import os
import shutil
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from fake_studies import draw_effects_alone, edit_manifest, fabricate
from wandb_server import Server, serving

from ablate.cli import sync
from ablate.config.extra import end_wandb
from ablate.runs import naming
from ablate.runs.manifest import read_manifest
from analysis import dashboard as command
from analysis.case import Case

LACKING = importlib.util.find_spec("wandb_workspaces") is None
pytestmark = [
    pytest.mark.filterwarnings("ignore:Pydantic V1 style"),
    pytest.mark.skipif(LACKING, reason="pip install -e '.[dashboard]'"),
]
ODD = "group(groups=4, kind='é\"')"
GRID: dict[str, list[Any]] = {"ffn": ["mlp", ODD], "optim.lr": [0.001, 0.01]}
STUDY, PROJECT = "gated.ffn_é-1", "trial"
TRACK = {"_target_": command.WANDB, "project": PROJECT, "entity": None}


def make_study(track: Any = TRACK) -> list[str]:
    """A study on disk, one of whose runs diverged; returns the ids of its runs."""
    results = Path("results")
    bad = lambda levels, seed: "diverged" if (*levels.values(), seed) == (ODD, 0.01, 2) else "done"  # noqa: E731
    fabricate(results, GRID, study=STUDY, status=bad)
    edit_manifest(results, STUDY, lambda m: [cell["config"].update(track=track) for cell in m["cells"]])
    draw_effects_alone(results, STUDY)
    return [naming.tracked_id(STUDY, run.path) for run in read_manifest(results, STUDY).runs]


@contextlib.contextmanager
def elsewhere(folder: Path, **variables: str) -> Iterator[pytest.MonkeyPatch]:
    """In a folder, with these of W&B's variables alone."""
    with pytest.MonkeyPatch.context() as patch:
        for name in [name for name in os.environ if name.startswith("WANDB_")]:
            patch.delenv(name)
        own = {"HOME": str(folder / "home"), "NETRC": str(folder / "none"), "WANDB_SILENT": "true"}
        for name, value in (own | variables).items():
            patch.setenv(name, value)
        patch.chdir(folder)
        yield patch


def with_key(server: Server) -> dict[str, str]:
    return {"WANDB_API_KEY": "0" * 40, "WANDB_BASE_URL": server.url}


def called(*words: str) -> tuple[int, list[str], str]:
    """The exit code of the command, the lines that it prints, and its errors."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = command.main([*words, "--results-dir", "results"])
    return code, out.getvalue().splitlines(), err.getvalue()


@pytest.fixture(scope="module")
def sent(tmp_path_factory) -> Any:
    """A dashboard that was sent twice."""
    folder = tmp_path_factory.mktemp("sent")
    with serving(PROJECT) as server, elsewhere(folder, **with_key(server), WANDB_ENTITY="team"):
        make_study()
        outcomes = [called()]
        ids = set(server.views)
        outcomes.append(called())
        from wandb_workspaces.reports.v2 import Report
        from wandb_workspaces.workspaces import Workspace

        view, report = (line.partition(": ")[2] for line in outcomes[0][1][:2])
        read = {"view": Workspace.from_url(view), "report": Report.from_url(report)}
        sys.modules["wandb"].teardown()
        figures = folder / "results" / "figures" / STUDY
        return SimpleNamespace(server=server, outcomes=outcomes, ids=ids, figures=figures, **read)


def test_what_is_sent_reads_back_panel_by_panel(sent):
    from wandb_workspaces.reports import v2 as wr

    panels = {section.name: section.panels for section in sent.view.sections}
    titles = ["Results", "Effects", "Learning curves", "Figures", "Failed and diverged runs", "Command"]
    assert list(panels) == titles
    assert [block.text for block in sent.report.blocks if isinstance(block, wr.H2)] == titles
    [line] = panels["Learning curves"]
    band = line.groupby_aggfunc, line.groupby_rangefunc, line.max_runs_to_show
    assert (line.y, line.groupby, band) == ([wr.Metric("val/loss")], wr.Config("cell"), ("mean", "stddev", 12))
    [pictures] = panels["Figures"]
    assert pictures.media_keys == ["figures/effects"]
    [effects] = panels["Effects"]
    assert effects.markdown == (sent.figures / "effects.md").read_text()
    assert "diverged" in panels["Failed and diverged runs"][0].markdown


def test_curves_are_of_the_studys_runs_that_neither_failed_nor_diverged(sent):
    from wandb_workspaces.reports import v2 as wr

    [curves, pictures] = [block.runsets[0] for block in sent.report.blocks if isinstance(block, wr.PanelGrid)]
    ended = f"Metric(\"Group\") == '{STUDY}' and SummaryMetric(\"status\") not in ['diverged', 'failed']"
    assert curves.filters.replace("(", "(").startswith(ended) or curves.filters.startswith(f"({ended})")
    assert curves.filters.endswith(f"or Metric(\"Name\") == '{STUDY}/figures'")
    assert {(runs.entity, runs.project) for runs in (curves, pictures)} == {("team", PROJECT)}


def test_a_second_time_it_updates(sent):
    for (code, lines, errors), word in zip(sent.outcomes, ("new", "updated"), strict=True):
        assert (code, errors) == (0, "") and [line.split(": ")[0] for line in lines] == [word, word]
    assert set(sent.server.views) == sent.ids and len(sent.ids) == 2


def test_figures_are_images_of_a_run_of_their_own(sent):
    run = sent.server.runs[naming.tracked_id(STUDY, "figures")]
    assert (run["displayName"], run["state"]) == (f"{STUDY}/figures", "finished")
    assert "groupName" not in run and run["config"]["ablate"] == "figures"
    pictures = [content for name, content in sent.server.files.items() if name.endswith(".png")]
    assert (sent.figures / "effects.png").read_bytes() in pictures


def write_nothing(case: Case, folder: Path) -> None:
    """In place of the whole analysis."""
    folder.mkdir(parents=True, exist_ok=True)


def test_without_a_key_it_is_written_and_one_line_says_how_to_send_it(tmp_path):
    said = f"view and report are in results/figures/{STUDY}/dashboard.json; to send them: ablate dashboard {STUDY}"
    with elsewhere(tmp_path) as patch:
        patch.setattr("analysis.writing.output.write", write_nothing)
        make_study()
        assert called() == (0, [f"no key of W&B is found (set WANDB_API_KEY); {said}"], "")
        shutil.rmtree("results")
        make_study(TRACK | {"entity": "team"})
        assert called() == (0, [f"no key of W&B is found (set WANDB_API_KEY); {said}"], "")
        patch.setenv("WANDB_API_KEY", "0" * 40)
        patch.setenv("WANDB_MODE", "offline")
        assert called(STUDY) == (0, [f"WANDB_MODE=offline; {said}"], "")
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert sync.main(["--dashboard", "--results-dir", "results", "--json"]) == 0
        assert json.loads(out.getvalue())["result"]["lines"][-1] == f"WANDB_MODE=offline; {said}"


def test_what_is_refused_is_one_line(tmp_path):
    def refused(*words: str) -> str:
        code, lines, errors = called(*words)
        assert (code, lines, errors.count("\n")) == (2, [], 1), errors
        return errors

    with serving(PROJECT) as server, elsewhere(tmp_path, **with_key(server)) as patch:
        patch.setattr("analysis.writing.output.write", write_nothing)
        for track in (None, "x", {"_target_": "mine.Sink"}):
            make_study(track)
            assert f"{STUDY} is in no projects of W&B; repeat its command with track=wandb" in refused()
            shutil.rmtree("results")
        make_study()
        assert "no study other in results" in refused("other")
        server.refused = {"UpsertView2"}
        said = refused()
        assert "W&B cannot be reached, or has refused (" in said and "permission denied" in said
        assert f"to send them: ablate dashboard {STUDY}" in said
        server.status = 401
        assert "has refused (AuthenticationError" in refused()
        patch.setenv("WANDB_BASE_URL", "http://127.0.0.1:9")
        patch.setattr("wandb.Api._HTTP_TIMEOUT", 1)
        assert "W&B cannot be reached" in refused()
        patch.setitem(sys.modules, "wandb_workspaces.workspaces", None)
        lacks = "ablate dashboard needs wandb-workspaces, which is not installed; in the checkout: pip install -e "
        assert refused() == f"ablate dashboard: {lacks}'.[dashboard]'\n"


def test_a_service_of_wandb_that_waits_for_the_network_does_not_hold_up_the_end(monkeypatch):
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(teardown=threading.Event().wait))
    end_wandb(0.01)
