"""All figures: which a study has, the user's changes, sizes, equal bytes."""

import re
import warnings
from typing import Any

import matplotlib
import numpy as np
import pytest
from analysed_studies import case
from fake_studies import a_manifest, fabricate
from ladders import climbed
from matplotlib.text import Text
from PIL import Image
from shown_studies import FFN, claim

from ablate.config.errors import Refused
from ablate.config.groups import FIGURES
from ablate.runs.study import load_study
from analysis import figures
from analysis.case import case_of
from analysis.case.figures_yaml import Edits
from analysis.figures import style
from analysis.figures.kind import page_of

GLU = {"ffn": ["mlp", "swiglu"]}
CLAIMS = {
    "gated_is_better": claim(less=[{"ffn": "swiglu"}, {"ffn": ["mlp", "gelu"]}]),
    "same": claim(equivalent=[{"ffn": "gelu"}, {"ffn": "mlp"}], margin=0.02),
}
SERIES = [{"of": {"ffn": "swiglu"}, "value": 22.5}, {"of": {"ffn": "mlp"}, "value": 23.6}]
MIRROR = {"source": "P 2019, table 1", "series": SERIES}


@pytest.mark.parametrize(
    ("factors", "options", "kinds"),
    [
        ({"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}, {}, "effects seeds curves interactions"),
        ({}, {}, "seeds curves"),
        (GLU | {"norm": ["ln", "rms"]}, {"design": "cumulative"}, "effects seeds curves waterfall"),
        (GLU | {"norm": ["ln", "rms"]}, {"design": "leave_one_out"}, "effects seeds curves"),
        ({"ffn": ["mlp", "gelu", "swiglu"]}, {"claims": CLAIMS}, "effects seeds curves claims"),
        (GLU, {"mirror": MIRROR | {"metric": "perplexity"}}, "effects seeds curves mirror"),
        (GLU, {"mirror": MIRROR | {"metric": "BLEU"}}, "effects seeds curves"),
        ({"optim.lr": [1e-3, 1e-2]}, {}, "effects seeds curves sensitivity"),
        ({"model.dim": [32, 64]}, {}, "effects seeds curves width"),
        (GLU, {"status": lambda levels, seed: "missing"}, "effects"),
    ],
)
def test_a_study_has_the_figures_of_what_it_contains(tmp_path, factors, options, kinds):
    assert figures.tables(case(tmp_path, factors, **options)).keys() == {*kinds.split()}


def test_a_study_file_may_name_every_figure():
    assert tuple(figures.KINDS) == FIGURES


def test_one_figure_is_plotted_or_what_there_is_instead_is_said(tmp_path):
    shown = case(tmp_path, GLU)
    before = dict(matplotlib.rcParams)
    assert figures.plot(shown, "effects").axes
    assert dict(matplotlib.rcParams) == before, "no global setting is changed"
    with pytest.raises(Refused, match="efects: no such figure; did you mean effects"):
        figures.plot(shown, "efects")
    with pytest.raises(Refused, match="no data for the figure pareto; there are "):
        figures.plot(shown, "pareto")


def test_the_same_tables_give_the_same_bytes(tmp_path):
    contents = []
    for name in ("first", "second"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "figures.yaml").write_text("subset: {figures: [effects]}\n")
        files = figures.write(case_of(load_study(folder, fabricate(folder, GLU, range(5))), folder), folder)
        contents.append({file.name: file.read_bytes() for file in files})
    assert contents[0] == contents[1]
    assert list(contents[0]) == ["effects.pdf", "effects.png"]


UNENDED = {"status": lambda levels, seed: ["diverged", "failed", "running"][seed]}
LONG = {"ffn": [f"a-rather-long-name-of-a-variant-{i}" for i in range(5)]}
LOST = {"claims": CLAIMS, "status": lambda levels, seed: "diverged" if levels["ffn"] == "gelu" and not seed else "done"}


@pytest.mark.parametrize(
    ("factors", "options", "edits"),
    [
        ({"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}, UNENDED, {"width": 3.3}),
        (LONG, {}, {"width": 5.5}),
        ({"ffn": FFN}, LOST, {"width": 3.03}),
        ({"norm": ["ln", "rms"], "model.dim": [32, 64], "optim.lr": [1e-3, 1e-2]}, {}, {"width": 3.25}),
        (GLU | {"norm": ["ln", "rms"]}, {"design": "cumulative"}, {"width": 3.25}),
    ],
)
def test_no_figure_warns_and_no_text_leaves_it(tmp_path, factors, options, edits):
    shown = case(tmp_path, factors, every=200, **options)
    page = page_of(shown.study.manifest, Edits(**edits))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name, table in figures.tables(shown).items():
            figure = figures.KINDS[name].draw(table, page)
            figure.draw_without_rendering()
            used = figure.get_tightbbox()
            assert min(used.x0, used.y0) >= -0.03, name
            assert used.x1 <= page.width + 0.03, name
            assert used.y1 <= figure.get_figheight() + 0.03, name
            sizes = [text.get_fontsize() for text in figure.findobj(Text) if text.get_text().strip()]
            assert min(sizes) >= 6, name


@pytest.mark.parametrize(("name", "width"), [("neurips", 5.5), ("icml", 3.25), ("acl", 3.03)])
def test_a_style_gives_the_width_of_its_template_with_embedded_fonts(tmp_path, name, width):
    (tmp_path / "figures.yaml").write_text(f"style: {name}\nsubset: {{figures: [effects]}}\n")
    figures.write(case_of(load_study(tmp_path, fabricate(tmp_path, GLU)), tmp_path), tmp_path)
    page = (tmp_path / "effects.pdf").read_bytes()
    box = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", page)
    assert box
    assert float(box[1]) == pytest.approx(72 * width, abs=0.1)
    assert b"/FontFile2" in page
    assert b"/Type3" not in page
    with Image.open(tmp_path / "effects.png") as image:
        assert image.width == pytest.approx(style.DPI * width, abs=2)


def test_a_variant_keeps_its_colour_in_every_study():
    def colours(levels: list[str], reference: str) -> dict[tuple[str, str], str]:
        return style.colours(a_manifest(factors={"ffn": levels}, reference={"ffn": reference}))

    alone = colours(["mlp", "swiglu"], "mlp")
    assert colours(FFN, "gelu")["ffn", "swiglu"] == alone["ffn", "swiglu"]
    many = colours([f"variant{i}" for i in range(9)], "variant3")
    assert set(many.values()) == set(style.PALETTE)


def test_cells_of_a_grid_differ_in_colour_or_marker(tmp_path):
    manifest = case(tmp_path, {"ffn": FFN, "model.dim": [32, 64], "optim.lr": [1e-3, 1e-2]}).study.manifest
    encodings = style.encodings(manifest, style.colours(manifest)).values()
    assert len({encoding.colour for encoding in encodings}) == len(FFN)
    assert len({(encoding.colour, encoding.marker) for encoding in encodings}) == 16


def test_rungs_of_a_ladder_share_their_encodings():
    manifest = climbed(lambda c: 0.3, count=3).manifest
    encodings = style.encodings(manifest, style.colours(manifest))
    for ffn in ("mlp", "swiglu"):
        assert len({str(encodings[cell.id]) for cell in manifest.cells if cell.levels["ffn"] == ffn}) == 1


def test_of_too_many_effects_those_that_are_decided_are_shown(tmp_path):
    factors = {f"optim.f{i}": list(range(9)) for i in range(10)}

    def score(levels: dict[str, Any], seed: int) -> float:
        noise = np.random.default_rng([seed, *str(levels).encode()]).normal(0, 0.001)
        return float(2 + 0.1 * (levels["optim.f9"] == 8) + noise)

    shown = case(tmp_path, factors, score=score, seeds=range(5), design="one_at_a_time", every=800)
    table = figures.tables(shown, Edits(figures=["effects"]))["effects"]
    assert table.set_index(["factor", "level"]).loc[("optim.f9", "8"), "verdict"] == "worse"
    assert "64 of 80 rows shown" in " ".join(table.attrs["caption"])


def test_letters_that_no_font_has_are_said_once_and_warn_never(tmp_path, capsys):
    (tmp_path / "figures.yaml").write_text("labels: {mlp: \U000ffffd 学习}\nsubset: {figures: [effects, seeds]}\n")
    shown = case_of(load_study(tmp_path, fabricate(tmp_path, GLU)), tmp_path)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        figures.write(shown, tmp_path)
    assert capsys.readouterr().out.count("no installed font has some letters") == 1
