"""The pictures of README.md and docs/: what the present code makes of docs/example."""

import pytest
from pictures import DOCS, FIGURES, REPORT, example, figure_tables, report_hash
from PIL import Image

from analysis.figures.stamp import read_stamp, table_hash


@pytest.mark.parametrize("name", FIGURES)
def test_a_figure_of_the_docs_shows_what_would_be_drawn_now(name):
    tables, page = figure_tables(example())
    stamp = read_stamp((DOCS / f"{name}.png").read_bytes())
    assert stamp is not None
    assert stamp["table"] == table_hash(tables[name], page), f"docs/{name}.png is out of date; run make pictures"


def test_the_picture_of_the_report_shows_what_it_says_now():
    with Image.open(DOCS / "report.png") as image:
        said = image.info.get(REPORT)
    assert said == report_hash(example()), "docs/report.png is out of date; run make pictures where there is a browser"
