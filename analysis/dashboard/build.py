"""The view and the report of a study, and what its runs carry for them."""

from collections.abc import Iterator
from typing import Any, NamedTuple

from ablate import evidence, formatting
from ablate.runs import naming
from ablate.runs.tables import named_rows
from analysis.case import Case
from analysis.case.learning_curves import metrics_of
from analysis.figures import KINDS
from analysis.writing import sections, tables
from analysis.writing.sheet import markdown

KEPT, LOST, FIGURES = "ended or running", "failed or diverged", "figures"  # sets of runs
Row = dict[str, Any]


class Dashboard(NamedTuple):
    """Objects of `wandb-workspaces`; the captions of figures; by run id, what summaries hold of effects."""

    view: Any
    report: Any
    figures: dict[str, str]
    summaries: dict[str, Row]


def build(case: Case, entity: str, project: str) -> Dashboard:
    """The dashboard of a study whose figures are drawn."""
    import wandb_workspaces.reports.v2 as wr
    import wandb_workspaces.workspaces as ws

    study, summaries, at = case.study.manifest.study, _summaries(case), {"entity": entity, "project": project}
    group = f"Metric('Group') == {study!r} and SummaryMetric('status') {{}} ['diverged', 'failed']"
    filters = {KEPT: group.format("not in"), LOST: group.format("in")}
    filters[FIGURES] = f"Metric('Name') == {f'{study}/figures'!r}"
    noted = sorted({f"summary:{name}" for found in summaries.values() for name in found})
    columns = ["config:cell.value", "config:seed.value", "summary:status", *noted]
    blocks, shown = [wr.TableOfContents()], []
    for title, text, panels, whose in (part for part in _parts(case, wr) if part[1] or part[2]):
        texts = [wr.MarkdownPanel(text)] * bool(text)
        for panel in (*texts, *panels):  # the same in every dashboard of the study
            panel._id = naming.tracked_id(study, f"{title}/{getattr(panel, 'title', '')}")
        blocks += [wr.H2(title), *[wr.MarkdownBlock(text)] * bool(text)]
        if panels:
            runs = wr.Runset(**at, name=whose, filters=filters[whose], pinned_columns=columns)
            runs._id = naming.tracked_id(study, f"{title}/runs")
            blocks.append(wr.PanelGrid(runsets=[runs], panels=panels))
        layout = ws.SectionLayoutSettings(columns=1 if texts else 2, rows=2)
        panels = texts if whose == LOST else [*texts, *panels]  # a view has one set of runs
        shown.append(ws.Section(name=title, panels=panels, is_open=True, layout_settings=layout))
    about = f"Written by ablate dashboard {study}, which replaces what is changed here."
    title = f"{study}: {naming.title(case.study.manifest)}"[:128]
    report = wr.Report(**at, title=title, description=about, blocks=blocks, width="fluid")
    most = ws.WorkspaceSettings(max_runs=len(case.study.runs))
    whose = ws.RunsetSettings(filters=f"({filters[KEPT]}) or {filters[FIGURES]}", pinned_columns=columns)
    view = ws.Workspace(**at, name=f"ablate {study}", sections=shown, runset_settings=whose, settings=most)
    view._internal_runset_id = naming.tracked_id(study, "runs")
    captions = {name: sections.captioned(KINDS[name].says, t.attrs["caption"]) for name, t in case.drawn.items()}
    return Dashboard(view, report, captions, summaries)


def _parts(case: Case, wr: Any) -> Iterator[tuple[str, str, list[Any], str]]:
    """The title, the Markdown and the panels of each section, and whose runs the panels show."""
    manifest, endpoints = case.study.manifest, evidence.measures(case.study.manifest)
    curves, many = list(dict.fromkeys(metrics_of(case.study).values())), {"max_runs_to_show": len(case.study.runs)}
    band = many | {"groupby_aggfunc": "mean", "groupby_rangefunc": "stddev"}
    keys, cell = {name: wr.Config(naming.tracked_key(name)) for name in manifest.factors}, wr.Config("cell")
    swept = {name: levels for name, levels in manifest.factors.items() if all(map(formatting.is_number, levels))}

    def line(y: str, name: str, key: Any) -> Any:
        title = f"{y} by {naming.named(manifest, name)}, mean ± SD over runs"
        return wr.LinePlot(title=title, y=[y], groupby=key, **band)

    def points(y: str, name: str, levels: list[Any]) -> Any:
        title, wide = f"{y} against {naming.named(manifest, name)}", 0 < 10 * min(levels) <= max(levels)
        return wr.ScatterPlot(title=title, x=keys[name], y=wr.SummaryMetric(y), log_x=wide)

    for section in (sections.question(case), sections.claims(case), sections.verdicts(case)):
        yield section.title, "\n\n".join(sections.in_markdown(section)), [], KEPT
    yield "Effects", markdown(tables.effects_sheet(case)), [], KEPT
    tasks = {name: {(str(cell.levels[name]), cell.task) for cell in manifest.cells} for name in keys}
    of_one = [name for name in keys if len(dict(tasks[name])) == len(tasks[name])]  # no means over several tasks
    yield "Curves by factor", "", [line(y, name, keys[name]) for name in of_one for y in curves], KEPT
    yield "Curves by configuration", "", [line(y, "cell", cell) for y in curves], KEPT
    bars = [wr.BarPlot(title=f"{y}, mean ± SD over seeds", metrics=[y], groupby=cell, **band) for y in endpoints]
    yield "Metric by configuration", "", bars, KEPT
    yield "Swept numbers", "", [points(y, *each) for each in swept.items() for y in endpoints], KEPT
    pictures = [wr.MediaBrowser(title=name, media_keys=[f"figures/{name}"]) for name in case.drawn]
    yield "Figures", "", pictures, FIGURES
    lost = [wr.LinePlot(title=f"{y}, each run", y=[y], **many) for y in dict.fromkeys(["train/loss", *curves])]
    yield "Failed and diverged runs", "\n\n".join(sections.in_markdown(sections.left_out(case))), lost, LOST
    yield "Command", f"    {manifest.command}", [], KEPT


def _summaries(case: Case) -> dict[str, Row]:
    """By run id, the effects and verdicts of its levels and of its cell against the reference, once all runs ended."""
    manifest, found = case.study.manifest, dict[str, Row]()
    if case.study.runs["status"].eq("missing").any():
        return {}
    for contrast, row in zip(evidence.contrasts(manifest), named_rows(case.effects), strict=True):
        name = contrast.factor or "cell"
        mean = row.mean if row.mean == row.mean else None
        noted = {f"effect/{name}": mean, f"verdict/{name}": formatting.verdict(row)}
        for cell in contrast.side(1) if contrast.kind in ("main", "step", "cell") else ():  # about one level or cell
            found[cell] = found.get(cell, {}) | noted
    return {naming.tracked_id(manifest.study, run.path): found[run.cell] for run in manifest.runs if run.cell in found}
