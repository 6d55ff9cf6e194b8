"""Runs of another program are a study like others, without configuration, parameters and FLOPs: nothing is invented."""

import math
import re
from pathlib import Path

import pandas
import pytest
from other_runs import analysed

from ablate import evidence
from ablate.cli.summary import summary
from ablate.config.typed_json import parse
from ablate.runs.records import Cell
from analysis.cli.main import main

PLAIN = [2.913, 2.921, 2.908, 2.934, 2.917, 2.926]  # val_loss by seed, without weight decay
DECAY = [2.874, 2.889, 2.871, 2.892, 2.881, 2.880]
INVENTED = re.compile(
    r"\bnan\b|\bNone\b|parameters|\blr\b|learning rate|FLOPs|\bsteps\b|\bseconds\b|Params|Transformers|confirm="
)


@pytest.fixture
def file(tmp_path) -> Path:
    """A small CSV as another program's user would write it: weight decay, seed, validation loss."""
    lines = ["wd,seed,val_loss"]
    for decay, losses in (("0", PLAIN), ("0.1", DECAY)):
        lines += [f"{decay},{seed},{loss}" for seed, loss in enumerate(losses)]
    file = tmp_path / "runs.csv"
    file.write_text("\n".join(lines) + "\n")
    return file


def test_pages_have_the_effect_and_say_nothing_of_what_is_unknown(file, undrawn):
    folder = file.parent / "out"
    assert main(["--runs", str(file), "--to", str(folder)]) == 0
    for name in ("report.md", "cells.md", "cells.tex", "methods.md"):
        assert not INVENTED.findall((folder / name).read_text()), name
    report = (folder / "report.md").read_text()
    assert "wd=0.1 lowers val_loss by 0.0387" in report
    provenance = report.partition("## Provenance")[2]
    assert "**source**: runs.csv" in provenance
    assert "data" not in provenance
    assert "planned" not in provenance


def test_the_summary_has_scores_and_effect_alone(file):
    text = summary(analysed(file))
    for shown in ("2.9198", "2.8812", "better"):
        assert shown in text
    assert not INVENTED.findall(text)


def test_cells_have_no_configuration(file):
    study = analysed(file)
    unknown = {"config", "params", "flops_per_token"}
    for cell in study.manifest.cells:
        assert not unknown & {*cell.as_json()}
        assert parse(Cell, cell.as_json()) == cell
        assert math.isnan(cell.training_flops)
    assert study.manifest.configs == []
    assert not unknown & {*evidence.cells(study)}


def test_a_size_that_one_cell_has_is_shown_there_alone(file):
    runs = pandas.read_csv(file)
    runs.assign(params=runs["wd"].map({0.0: 1200})).to_csv(file, index=False)
    sized = analysed(file)
    assert [cell.params for cell in sized.manifest.cells] == [1200, None]
    assert evidence.cells(sized)["params"].tolist() == pytest.approx([1200, math.nan], nan_ok=True)
    assert "1.2 k" in summary(sized)
    assert "nan" not in summary(sized)
