"""ablate dashboard: what W&B is sent, read back panel by panel; that a second time updates; and what is refused."""

import contextlib
import copy
import importlib.util
import io
import json
import os
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pandas
import pytest
from fake_studies import a_cell, draw_effects_alone, edit_manifest, fabricate, study_of, whole
from shown_studies import TWO
from wandb_server import Server, serving

from ablate import evidence
from ablate.cli import sync
from ablate.config.extra import end_wandb
from ablate.config.typed_json import stored
from ablate.execution.tracking.sender import named_settings
from ablate.formatting import verdict
from ablate.runs import naming
from ablate.runs.manifest import read_manifest, study_folder
from ablate.runs.study import load_study
from ablate.runs.tables import named_rows
from analysis.case import case_of
from analysis.dashboard import main as command
from analysis.dashboard.build import build
from analysis.sources import Request
from analysis.sources.logged import study_of as described
from analysis.sources.wandb_api import logged_runs, read_wandb

LACKING = importlib.util.find_spec("wandb_workspaces") is None
pytestmark = [
    pytest.mark.filterwarnings("ignore:Pydantic V1 style"),
    pytest.mark.skipif(LACKING, reason="pip install -e '.[dashboard]'"),
]
ODD = "group(groups=4, kind='é\"')"
GRID: dict[str, list[Any]] = {"ffn": ["mlp", ODD], "optim.lr": [0.001, 0.01]}
STUDY, PROJECT = "gated.ffn_é-1", "trial"
TRACK = {"_target_": command.WANDB, "project": PROJECT, "entity": None}
Row = dict[str, Any]


def make_study(track: Any = TRACK) -> list[str]:
    """A study on disk, one of whose runs diverged; returns the ids of its runs."""
    results = Path("results")
    bad = lambda levels, seed: "diverged" if (*levels.values(), seed) == (ODD, 0.01, 2) else "done"  # noqa: E731
    fabricate(results, GRID, study=STUDY, status=bad)
    edit_manifest(results, STUDY, lambda m: [cell["config"].update(track=track) for cell in m["cells"]])
    draw_effects_alone(results, STUDY)
    return [naming.tracked_id(STUDY, run.path) for run in read_manifest(results, STUDY).runs]


@contextlib.contextmanager
def elsewhere(folder: Path, **given: str) -> Iterator[None]:
    """In a folder, with these of W&B's variables alone."""
    before = dict(os.environ)
    for name in [name for name in os.environ if name.startswith("WANDB_")]:
        del os.environ[name]
    os.environ |= {"HOME": str(folder / "home"), "NETRC": str(folder / "none"), "WANDB_SILENT": "true"} | given
    try:
        with contextlib.chdir(folder):
            yield
    finally:
        os.environ.clear()
        os.environ.update(before)


def with_key(server: Server) -> dict[str, str]:
    return {"WANDB_API_KEY": "0" * 40, "WANDB_BASE_URL": server.url}


def called(*words: str) -> tuple[int, list[str], str]:
    """The exit code of the command, the lines that it prints, and its errors."""
    with contextlib.redirect_stdout(io.StringIO()) as out, contextlib.redirect_stderr(io.StringIO()) as err:
        code = command.main([*words, "--results-dir", "results"])
    return code, out.getvalue().splitlines(), err.getvalue()


@pytest.fixture(scope="module")
def sent(tmp_path_factory: pytest.TempPathFactory) -> Any:
    """A dashboard that was sent three times: anew; after its ids were lost; and after it was renamed on W&B."""
    folder = tmp_path_factory.mktemp("sent")
    with serving(PROJECT) as server, elsewhere(folder, **with_key(server), WANDB_ENTITY="team"):
        ids, results = make_study(), Path("results")
        for each in ids[:-1]:
            server.add_run(each, groupName=STUDY, summary={"status": "done", "test/loss": 2.0})
        for kind in ("project-view", "runs"):  # somebody's, which W&B lists before ours
            server.views[kind] = dict.fromkeys(("id", "name", "displayName", "type"), kind) | {"spec": "{}"}
        said, views = [called()], [copy.deepcopy(server.views)]
        (study_folder(results, STUDY) / command.FILE).unlink()
        server.calls.clear()
        said, views = [*said, called()], [*views, copy.deepcopy(server.views)]
        again = list(server.calls)
        for view in [*server.views.values()][2:]:
            view["displayName"] = "mine"
        said, views = [*said, called()], [*views, server.views]
        from wandb_workspaces.reports.v2 import Report
        from wandb_workspaces.workspaces import Workspace

        view, report = (line.partition(": ")[2] for line in said[0][1][:2])
        read = {"view": Workspace.from_url(view), "report": Report.from_url(report)}
        sys.modules["wandb"].teardown()
        manifest, figures = read_manifest(results, STUDY), folder / results / "figures" / STUDY
        read |= {"manifest": manifest, "figures": figures, "written": json.loads((figures / command.FILE).read_text())}
        return SimpleNamespace(server=server, ids=ids, said=said, views=views, again=again, **read)


def parts(sent: Any, kind: str) -> dict[str, tuple[list[str], list[Any]]]:
    """The texts and the panels of a view's sections, or of what stands below a report's headings."""
    from wandb_workspaces.reports import v2 as wr

    found: dict[str, tuple[list[str], list[Any]]] = {}
    if kind == "view":
        for each in sent.view.sections:
            texts = [panel.markdown for panel in each.panels if isinstance(panel, wr.MarkdownPanel)]
            found[each.name] = texts, [panel for panel in each.panels if not isinstance(panel, wr.MarkdownPanel)]
        return found
    for block in sent.report.blocks:
        if isinstance(block, wr.H2):
            found[block.text] = [], []
        elif isinstance(block, wr.MarkdownBlock):
            [*found.values()][-1][0].append(block.text)
        elif isinstance(block, wr.PanelGrid):
            [*found.values()][-1][1].extend(block.panels)
    return found


@pytest.mark.parametrize("kind", ["view", "report"])
def test_what_is_sent_reads_back_panel_by_panel(kind: str, sent: Any) -> None:
    from wandb_workspaces.reports import v2 as wr

    found = parts(sent, kind)
    titles = "Question Verdicts Effects Curves by factor Curves by configuration Metric by configuration"
    titles += " Swept numbers Figures"
    assert " ".join(found) == f"{titles} Failed and diverged runs Command"
    panels = {title: panels for title, (_, panels) in found.items()}
    factors, [cell], [bar] = (
        panels["Curves by factor"],
        panels["Curves by configuration"],
        panels["Metric by configuration"],
    )
    assert [line.groupby for line in factors] == [wr.Config("ffn"), wr.Config("optim.lr")]
    assert cell.groupby == bar.groupby == wr.Config("cell") and bar.metrics == [wr.Metric("test/loss")]
    assert all(line.y == [wr.Metric("val/loss")] and line.x == wr.Metric("Step") for line in (*factors, cell))
    for each in (*factors, cell, bar):
        band = each.groupby_aggfunc, each.groupby_rangefunc, each.max_runs_to_show
        assert band == ("mean", "stddev", 12)
    [point], [figure] = panels["Swept numbers"], panels["Figures"]
    assert (point.x, point.y, point.log_x) == (wr.Config("optim.lr"), wr.SummaryMetric("test/loss"), True)
    assert figure.media_keys == ["figures/effects"]
    assert [len(panels["Failed and diverged runs"])] == [2 if kind == "report" else 0]
    texts = {title: texts for title, (texts, _) in found.items() if texts}
    table = (sent.figures / "effects.md").read_text()
    assert texts["Effects"] == [table] and "no verdict: " in table and "group(groups=4, kind='é\"')" in table
    assert f"{ODD} + 0.01 | diverged | 1 of 3" in texts["Failed and diverged runs"][0]
    assert texts["Command"] == [f"    {sent.manifest.command}"] and ODD in sent.manifest.command


def test_failed_and_diverged_runs_are_apart(sent: Any) -> None:
    from wandb_workspaces.reports import v2 as wr

    grids = [block for block in sent.report.blocks if isinstance(block, wr.PanelGrid)]
    runs = {each.name: each for grid in grids for each in grid.runsets}
    group, states = f"Metric(\"Group\") == '{STUDY}'", "['diverged', 'failed']"
    for name, how in (("ended or running", "not in"), ("failed or diverged", "in")):
        assert runs[name].filters == f'{group} and SummaryMetric("status") {how} {states}'
    assert runs["figures"].filters == f"Metric(\"Name\") == '{STUDY}/figures'"
    both = f"{runs['ended or running'].filters} or {runs['figures'].filters}"
    assert sent.view.runset_settings.filters == both, "what a view has panels for"
    assert [grid.runsets[0].name for grid in grids] == ["ended or running"] * 4 + ["figures", "failed or diverged"]
    assert {(each.entity, each.project) for each in runs.values()} == {("team", PROJECT)}


def test_a_second_time_it_updates(sent: Any) -> None:
    for (code, lines, errors), how in zip(sent.said, ("new", "updated", "updated"), strict=True):
        assert (code, errors) == (0, "") and [line.split(": ")[0] for line in lines[:2]] == [how, how]
        assert lines[2:] == [f"1 of its runs are not there; upload them: ablate sync {STUDY}"]
    parts = ("id", "displayName", "type", "spec")  # W&B's own name of a report is another each time
    first, *others = [[[view[part] for part in parts] for view in views.values()] for views in sent.views]
    assert others == [first, first] and len(first) == 4, "the same panels with the same ids"
    assert "UpsertBucket" not in sent.again, "no figure and no summary that is there already"


def test_figures_are_images_of_a_run_of_their_own(sent: Any) -> None:
    run = sent.server.runs[naming.tracked_id(STUDY, "figures")]
    assert (run["displayName"], run["state"], len(run["history"])) == (f"{STUDY}/figures", "finished", 1)
    assert "groupName" not in run and run["config"]["ablate"] == "figures"
    [(name, content)] = [(name, data) for name, data in sent.server.files.items() if name.endswith(".png")]
    assert name.endswith(run["history"][0]["figures/effects"]["path"])
    assert content == (sent.figures / "effects.png").read_bytes()


def test_the_analysis_of_runs_on_wandb_takes_none_of_it_for_results(sent: Any) -> None:
    figures = sent.server.runs[naming.tracked_id(STUDY, "figures")]["config"]
    configs = [figures, *({"seed": i % 2, "ablate": {"levels": {"ffn": "ab"[i // 2]}}} for i in range(4))]
    same = {"group": "", "state": "finished", "created": "2025", "history": [{"_step": 1, "test/loss": 2.0}]}
    same |= {"summary": {"effect/ffn": 0.1, "verdict/ffn": "better"}}
    runs: list[Row] = [{"config": config, "id": f"r{i}", "name": f"r{i}"} | same for i, config in enumerate(configs)]
    found = described(logged_runs(runs, ""), Request(), "s", "W&B", "2025", ("--wandb", "a/b"))
    assert found.notes == [] and len(found.runs) == 4 and not [name for name in found.runs if "/ffn" in name]


def test_summaries_hold_effects_and_verdicts(sent: Any) -> None:
    summaries = sent.written["summaries"]
    assert list(summaries) == sent.ids[6:], "those of the reference's level are what others are compared with"
    for each in sent.ids[:-1]:
        assert sent.server.runs[each]["summary"] == {"status": "done", "test/loss": 2.0} | summaries.get(each, {})
    low, high = summaries[sent.ids[6]], summaries[sent.ids[9]]
    assert low.keys() == high.keys() == {"effect/ffn", "verdict/ffn"} and low["effect/ffn"] is not None
    assert high["effect/ffn"] is None and high["verdict/ffn"].startswith("no verdict: 1 run diverged")


@pytest.mark.parametrize("design", ["grid", "one_at_a_time"])
def test_effects_of_a_summary_are_those_of_the_tables(design: str, tmp_path: Path) -> None:
    factors = {"norm": ["ln", "rms", "bn"], "ffn": ["mlp", "swiglu"], "optim.lr": [0.001, 0.003]}
    study = study_of(factors, seeds=range(5), design=design)
    table, of_run = evidence.effects(study), build(case_of(study, tmp_path), "", PROJECT).summaries
    own = {cell.id: cell.levels for cell in study.manifest.cells}
    for run in study.manifest.runs:
        noted, levels, wanted = of_run.get(naming.tracked_id("fabricated", run.path), {}), own[run.cell], Row()
        for row in named_rows(table[table["kind"] == "main"]):
            if row.level == str(levels[row.factor]) and row.stratum in ("", f"optim.lr={levels['optim.lr']}"):
                wanted |= {f"effect/{row.factor}": row.mean, f"verdict/{row.factor}": verdict(row)}
        assert {name: value for name, value in noted.items() if not name.endswith("/cell")} == wanted
        assert ("effect/cell" in noted) == (design == "grid" and (levels["norm"], levels["ffn"]) != ("ln", "mlp"))


def test_summaries_wait_for_all_runs(tmp_path: Path) -> None:
    missing = study_of({"norm": ["ln", "rms"]}, status=lambda levels, seed: "missing" if seed else "done")
    assert build(case_of(missing, tmp_path), "", PROJECT).summaries == {}


def test_no_curve_is_a_mean_over_two_tasks_and_no_section_is_empty(tmp_path: Path) -> None:
    factors = {"norm": ["ln", "rms"], "data": ["lm", "mqar"]}
    two = study_of(factors, tasks=TWO, task=lambda levels: levels["data"])
    for study, titles in ((two, ["val/loss by task"]), (study_of({}, seeds=[0]), [])):
        shown = {each.name: each.panels for each in build(case_of(study, tmp_path), "", PROJECT).view.sections}
        curves = [panel.title.partition(",")[0] for panel in shown.get("Curves by factor", [])]
        assert [title for title in curves if "accuracy" not in title] == titles and all(shown.values())
    assert shown["Effects"][0].markdown.startswith("one seed: no interval"), "and no table without columns"


LEVELS: Row = {"norm": "group(groups=4)", "model": "decoder", "optim.lr": 0.003, "seed.data": 7, "ffn.hidden": 96}
LEVELS |= {"model.layers+model.dim": "2+64", "step": "sam", "scale": "tiny", "data": "text", "optim": "lion"}


@pytest.mark.parametrize("factor", LEVELS)
def test_a_run_carries_each_level_where_the_panels_look_for_it(factor: str) -> None:
    own = whole({"ffn": {"hidden": 96}, "optim": {"lr": 0.003}, "seed": {"data": 7}})
    found = named_settings(a_cell(name="ln-mlp-pre-rope-mha-gpt2", label="a, b", levels=LEVELS, config=stored(own)))
    assert found["cell"] == "a, b"
    key = naming.tracked_key(factor)
    for name in [key.removesuffix(".value")] if key.endswith(".value") else key.split("."):
        found = found[name]
    assert found == LEVELS[factor]


def test_without_a_key_it_is_written_and_one_line_says_how_to_send_it(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("analysis.cli.output.write", lambda case, folder: folder.mkdir(parents=True, exist_ok=True))
    said = f"view and report are in results/figures/{STUDY}/dashboard.json; to send them: ablate dashboard {STUDY}"
    with elsewhere(tmp_path):
        make_study()
        assert called() == (0, [f"no key of W&B is found (set WANDB_API_KEY); {said}"], "")
        os.environ |= {"WANDB_API_KEY": "0" * 40, "WANDB_MODE": "offline"}
        code, [line], errors = called(STUDY)
        assert (code, line, errors) == (0, f"WANDB_MODE=offline; {said}", "")
        os.environ |= {"WANDB_MODE": "online", "WANDB_BASE_URL": "http://127.0.0.1:9"}
        monkeypatch.setattr("wandb.Api._HTTP_TIMEOUT", 1)
        code, [line], errors = called()
        assert code == 0 and line.startswith("W&B cannot be reached (") and line.endswith(said) and errors == ""
        os.environ["WANDB_MODE"] = "offline"
        with contextlib.redirect_stdout(io.StringIO()) as out:
            assert sync.main(["--dashboard", "--results-dir", "results", "--json"]) == 0
        assert json.loads(out.getvalue())["result"]["lines"][-1] == f"WANDB_MODE=offline; {said}"


def test_a_service_of_wandb_that_waits_for_the_network_does_not_hold_up_the_end(monkeypatch: Any) -> None:
    monkeypatch.setitem(sys.modules, "wandb", SimpleNamespace(teardown=threading.Event().wait))
    end_wandb(0.01)


def test_what_is_refused_is_one_line(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr("analysis.cli.output.write", lambda case, folder: folder.mkdir(parents=True, exist_ok=True))

    def refused(*words: str) -> str:
        code, lines, errors = called(*words)
        assert (code, lines, errors.count("\n")) == (2, [], 1), errors
        return errors

    with serving(PROJECT) as server, elsewhere(tmp_path, **with_key(server)):
        make_study(track=None)
        assert f"{STUDY} is in no projects of W&B; repeat its command with track=wandb" in refused()
        assert "no study other in results" in refused("other")
        for track in ("x", {"_target_": "mine.Sink"}):
            edit_manifest(Path("results"), STUDY, lambda m, t=track: [c["config"].update(track=t) for c in m["cells"]])
            assert "is in no projects" in refused()
        edit_manifest(Path("results"), STUDY, lambda m: [c["config"].update(track=TRACK) for c in m["cells"]])
        server.refused = {"UpsertView2"}
        assert "W&B refused (" in (said := refused()) and "permission denied" in said and "key must be one" in said
        server.status = 401
        assert "permission denied" not in (said := refused()) and "W&B refused (AuthenticationError" in said
        server.status, server.project = 200, "another"
        assert f"W&B shows this key no project someone/{PROJECT}; upload runs first" in refused()
        monkeypatch.setitem(sys.modules, "wandb_workspaces.workspaces", None)
        lacks = "ablate dashboard needs wandb-workspaces, which is not installed; in the checkout: pip install -e "
        assert refused() == f"ablate dashboard: {lacks}'.[dashboard]'\n"


@pytest.mark.slow  # twelve runs, twice
def test_sync_uploads_runs_and_their_dashboard(tmp_path: Path, capfd: Any) -> None:
    """By the sender itself, from nothing; the analysis reads the same levels back."""
    with serving(PROJECT) as server, elsewhere(tmp_path, **with_key(server)):
        ids = make_study()
        for replayed, how in ((12, "new"), (0, "updated")):
            assert sync.main(["--dashboard", "--results-dir", "results"]) == 0
            out, errors = capfd.readouterr()
            assert f"{replayed} uploaded now" in out and out.count(f"\n{how}: http") == 2 and errors == ""
            assert len(server.runs) == 13 and len(server.views) == 2 and "are not there" not in out
        found, native = (
            read_wandb(f"someone/{PROJECT}", Request(within=("optim.lr",)), tmp_path),
            load_study(Path("results"), STUDY),
        )
    assert found.notes == [] and len(found.curves) == len(native.curves)
    tables = [evidence.effects(study)[["label", "mean", "low", "verdict"]] for study in (native, found)]
    pandas.testing.assert_frame_equal(*(table.sort_values("label", ignore_index=True) for table in tables))
    summaries = json.loads((tmp_path / "results" / "figures" / STUDY / command.FILE).read_text())["summaries"]
    for place, each in enumerate(ids):
        config, summary = server.runs[each]["config"], server.runs[each]["summary"]
        levels = {"ffn": GRID["ffn"][place // 6], "optim.lr": GRID["optim.lr"][place // 3 % 2]}
        assert config["ablate"]["levels"] == levels and config["seed"] == place % 3
        assert config["cell"] == " + ".join(map(str, levels.values())) and config["ffn"] == levels["ffn"]
        assert (config["embedding"], config["schedule"], config["step"]) == ("learned", "cosine", "default")
        assert config["optim"]["lr"] == levels["optim.lr"]
        assert summaries.get(each, {}).items() <= summary.items() and summary["status"] in ("done", "diverged")
    assert server.runs[ids[11]]["state"] == "failed" and "diverged" in server.runs[ids[11]]["tags"]
