"""The pictures of README.md and docs/: what the present code makes of docs/example."""

import re

import pytest
from conftest import ROOT
from pictures import DOCS, FIGURES, NAMES, REPORT, example, figure_tables, report_hash
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


def test_make_pictures_makes_every_picture_of_the_pages():
    pages = [ROOT / "README.md", *DOCS.rglob("*.md"), *DOCS.glob("*.ipynb")]
    texts = [page.read_text(encoding="utf-8") for page in pages]
    links = [link for text in texts for link in re.findall(r"!\[[^]]*\]\(([^)]+)\)", text)]
    shown = {link.removeprefix("docs/") for link in links if "experiments/" not in link}
    assert shown == {file.name for name in NAMES for file in DOCS.glob(f"{name}.*")}
