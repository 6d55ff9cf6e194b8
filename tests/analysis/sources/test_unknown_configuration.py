"""Runs of another program are a study like others, without configuration, parameters and FLOPs: nothing is invented."""

import math
import re
from pathlib import Path

import numpy as np
import pandas
import pytest
from conftest import run_module
from other_runs import analysed
from scipy import stats

import analysis
from ablate import evidence
from ablate.cli.summary import summary
from ablate.config.errors import Refused
from ablate.config.typed_json import parse
from ablate.runs.records import Cell
from ablate.runs.study import Study

PLAIN = [2.913, 2.921, 2.908, 2.934, 2.917, 2.926]  # val_loss by seed, without weight decay
DECAY = [2.874, 2.889, 2.871, 2.892, 2.881, 2.880]
UNKNOWN = ["params", "params_vs_reference", "flops_per_token", "shared_draws"]


def table_of_runs(folder: Path) -> Path:
    """A small CSV as another program's user would write it: weight decay, seed, validation loss."""
    lines = ["wd,seed,val_loss"]
    for decay, losses in (("0", PLAIN), ("0.1", DECAY)):
        lines += [f"{decay},{seed},{loss}" for seed, loss in enumerate(losses)]
    file = folder / "runs.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What `ablate analyse --runs` writes of the table."""
    there = tmp_path_factory.mktemp("foreign")
    table_of_runs(there)
    done = run_module("ablate", "analyse", "--runs", "runs.csv", "--to", "out", cwd=there)
    assert done.returncode == 0, done.stderr
    return there / "out"


@pytest.fixture
def study(tmp_path: Path) -> Study:
    return analysed(table_of_runs(tmp_path))


def test_the_effect_is_the_t_test_of_the_seeds_differences(folder: Path) -> None:
    effect = pandas.read_csv(folder / "effects.csv").iloc[0]
    differences = np.subtract(DECAY, PLAIN)
    expected = stats.ttest_1samp(differences, 0)
    low, high = expected.confidence_interval(0.95)
    found = [effect["mean"], effect["low"], effect["high"], effect["p"]]
    assert found == pytest.approx([differences.mean(), low, high, expected.pvalue], rel=1e-9)
    assert effect["verdict"] == "better"


def test_cells_have_scores_and_no_column_of_what_is_unknown(folder: Path) -> None:
    cells = pandas.read_csv(folder / "cells.csv")
    assert cells["mean"].tolist() == pytest.approx([np.mean(PLAIN), np.mean(DECAY)])
    assert not {*UNKNOWN} & {*cells}


@pytest.mark.parametrize("file", ["report.md", "cells.md", "cells.tex", "methods.md", "macros.tex"])
def test_pages_say_nothing_of_what_is_unknown(folder: Path, file: str) -> None:
    text = (folder / file).read_text()
    found = re.findall(
        r"\bnan\b|\bNone\b|parameters|learning rate|FLOPs|\bsteps\b|\bseconds\b|Params|Transformers", text
    )
    assert not found


def test_the_report_has_the_effect_and_every_run(folder: Path) -> None:
    report = (folder / "report.md").read_text()
    assert "wd=0.1 lowers val_loss by 0.0387" in report
    assert "| wd=0.1 | 5 | done | 2.8800 |" in report


def test_provenance_names_the_file_and_no_data_of_ours(folder: Path) -> None:
    provenance = (folder / "report.md").read_text().partition("## Provenance")[2]
    assert "**source**: runs.csv" in provenance and "**written**: 20" in provenance
    assert "data" not in provenance and "planned" not in provenance


def test_the_summary_has_scores_and_effect_alone(study: Study) -> None:
    text = summary(study)
    assert "2.9198" in text and "2.8812" in text and "better" in text
    assert not re.findall(r"\bnan\b|\bNone\b|parameters|\blr\b|learning rate|\bsteps\b|confirm=", text)


def test_cells_have_no_configuration(study: Study) -> None:
    for cell in study.manifest.cells:
        assert cell.config is None and cell.params is None and cell.flops_per_token is None
        assert not {"config", "params", "flops_per_token"} & {*cell.as_json()}
        assert parse(Cell, cell.as_json()) == cell
        assert math.isnan(cell.training_flops)
    assert study.manifest.configs == []


def test_the_figure_of_costs_says_what_it_needs(study: Study) -> None:
    with pytest.raises(Refused, match=r"pareto, which needs costs .*parameters, FLOPs"):
        analysis.plot(study, "pareto")


def test_a_size_that_one_cell_has_is_shown_there_alone(tmp_path: Path) -> None:
    file = table_of_runs(tmp_path)
    runs = pandas.read_csv(file)
    runs.assign(params=runs["wd"].map({0.0: 1200})).to_csv(file, index=False)
    sized = analysed(file)
    assert [cell.params for cell in sized.manifest.cells] == [1200, None]
    assert evidence.cells(sized)["params"].tolist() == pytest.approx([1200, math.nan], nan_ok=True)
    assert "1.2 k" in summary(sized) and "nan" not in summary(sized)
