"""The figures: what is drawn is what the tables hold, and the same tables give the same bytes."""

import dataclasses
import hashlib
import itertools
import re
import warnings
import zlib
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import matplotlib
import numpy as np
import pandas
import pytest
from analysed_studies import case as shared_case
from conftest import ROOT
from fake_studies import TASK, a_manifest, fabricate
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.text import Text
from PIL import Image
from shown_studies import claim

from ablate import evidence
from ablate.runs.kept_tables import read_tables
from ablate.runs.study import Study, load_study
from analysis import figures
from analysis.case import Case, case_of
from analysis.case.figures_yaml import Edits
from analysis.case.learning_curves import over_seeds
from analysis.figures.draw import style
from analysis.figures.draw.axes import legend
from analysis.figures.draw.style import width_of
from analysis.figures.kind import page_of
from analysis.figures.kinds import effects

GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
KINDS = figures.KINDS
FFN = ["mlp", "gelu", "silu", "glu", "bilinear", "reglu", "geglu", "swiglu"]


def made(results: Path, factors: dict[str, list[Any]] = GRID, **options: Any) -> Study:
    return shared_case(results, factors, **options).study


def texts(drawn: Figure) -> str:
    """All that is written in a figure."""
    return "\n".join(text.get_text() for text in drawn.findobj(matplotlib.text.Text))


def case(study: Study) -> Case:
    return case_of(study, Path("nowhere"))


def figure(name: str, study: Study, **edits: Any) -> Figure:
    """One figure of a study, with edits of its user."""
    given = Edits(figures=[name], caption=True, **edits)
    return KINDS[name].draw(figures.tables(case(study), given)[name], page_of(study.manifest, given))


def line(axis: Axes, x: np.ndarray) -> bool:
    return any(len(drawn.get_xdata()) == len(x) and np.allclose(drawn.get_xdata(), x) for drawn in axis.lines)


def test_the_same_tables_give_the_same_bytes_and_a_caption_is_a_text_of_its_own(tmp_path: Path) -> None:
    study = made(tmp_path, seeds=range(5), status=lambda v, s: "diverged" if s == 2 and v["norm"] == "rms" else "done")
    digests = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        (folder / "figures.yaml").write_text("subset: {figures: [effects]}\n")
        shown = case_of(study, folder)
        files = figures.write(shown, folder)
        digests.append([hashlib.sha256(file.read_bytes()).hexdigest() for file in files])
    assert digests[0] == digests[1] and [file.suffix for file in files] == [".pdf", ".png", ".txt"]
    pdf = (tmp_path / "one" / "effects.pdf").read_bytes()
    assert b"/CreationDate" not in pdf
    assert b"/CIDFontType2" in pdf or b"/TrueType" in pdf
    assert b"/Type3" not in pdf
    title, *lines = (tmp_path / "one" / "effects.txt").read_text().splitlines()
    assert "simultaneous 95 % intervals" in lines[0]
    for wanted in (False, True):
        page = page_of(shown.study.manifest, dataclasses.replace(figures.edits(shown), caption=wanted))
        drawn = texts(KINDS["effects"].draw(shown.drawn["effects"], page)).replace("\n", " ")
        assert title in drawn and "difference in test loss (nats per byte, lower is better)" in drawn
        assert all((line in drawn) == wanted for line in lines)


def test_the_band_is_one_standard_deviation_where_every_seed_was_evaluated(tmp_path: Path) -> None:
    study = made(tmp_path)
    rows = study.curves[study.curves["cell"] == "c1"].assign(status="done")
    rows = rows.assign(value=rows["val/loss"])
    rows = rows[~((rows["seed"] == 2) & (rows["step"] == 400))]
    table = over_seeds(rows, ["cell", "tokens"]).set_index("tokens")
    at = rows[rows["step"] == 800]["value"]
    assert table.loc[800 * 1024, "high"] == pytest.approx(at.mean() + at.std(ddof=1))
    assert 400 * 1024 not in table.index and 360 * 1024 in table.index


def test_a_decided_effect_is_never_cut_off(tmp_path: Path) -> None:
    study = made(tmp_path, {"ffn": FFN}, seeds=range(8))
    swiglu = evidence.effects(study).query("level == 'swiglu'").iloc[0]
    axis = figure("effects", study).axes[0]
    assert swiglu["verdict"] == "better" and line(axis, swiglu[["low", "high"]].to_numpy(float))
    assert axis.get_xlim()[0] <= swiglu["low"]


def test_colours_and_dashes_tell_variants_apart_in_every_study(tmp_path: Path) -> None:
    def colour(factor: str, levels: list[str], reference: str) -> dict[tuple[str, str], str]:
        return style.colours(a_manifest(factors={factor: levels}, reference={factor: reference}))

    alone = colour("ffn", ["mlp", "swiglu"], "mlp")
    assert colour("ffn", FFN, "gelu")["ffn", "swiglu"] == alone["ffn", "swiglu"]
    assert len(set(colour("ffn", FFN, "mlp").values())) == len(FFN)
    many = colour("ffn", [f"variant{i}" for i in range(9)], "variant3")
    assert len(set(many.values())) == 9 and many == colour("ffn", [f"variant{i}" for i in range(9)], "variant3")
    assert set(many.values()) <= set(style.PALETTE)
    assert many["ffn", "variant3"] == colour("ffn", ["variant3"], "variant3")["ffn", "variant3"]
    study = made(tmp_path, {"norm": ["ln", "rms", "bn"], "ffn": FFN})
    encodings = {*style.encodings(study.manifest, style.colours(study.manifest)).values()}
    colours, dashes = {each.colour for each in encodings}, {str(each.dash) for each in encodings}
    assert (len(encodings), len(colours), len(dashes)) == (24, 8, 3)


def test_colour_is_the_verdict_in_forests_and_what_lies_beyond_them_has_its_number(tmp_path: Path) -> None:
    study = made(tmp_path, {"ffn": ["mlp", "swiglu"]}, seeds=range(5))
    axis = figure("effects", study).axes[0]
    assert {drawn.get_color() for drawn in axis.lines if 0 in drawn.get_ydata()} >= {style.VERDICTS["better"]}
    words = ["better", "worse", "undecided", "supported", "withheld", "equivalent"]
    blue, orange, open_ = style.VERDICTS["better"], style.VERDICTS["worse"], style.MUTED
    assert [style.verdict_colour(word) for word in words] == [blue, orange, open_, blue, open_, style.INK]
    row = SimpleNamespace(mean=2.0, low=1.0, high=3.0, verdict="worse")
    with matplotlib.rc_context(style.RC):
        axis = Figure().subplots()
        effects._effect(axis, 0, row, 1.0)
    assert [text.get_text() for text in axis.texts] == ["+2.00"] and axis.lines[-1].get_marker() == ">"


def test_rows_are_sorted_by_their_effect_on_request(tmp_path: Path) -> None:
    study = made(tmp_path, {"norm": ["ln", "rms"], "ffn": FFN})
    for sort in (None, "effect"):
        found = figures.tables(case(study), Edits(sort=sort, figures=["effects"]))["effects"].query("kind == 'main'")
        assert (found["factor"] == "norm").tolist() == [True] + [False] * (len(FFN) - 1)
        assert found["mean"][1:].is_monotonic_increasing == bool(sort)


def test_interactions_say_what_they_mean(tmp_path: Path) -> None:
    row = {
        "kind": "interaction",
        "factor": "residual x optim.warmup",
        "level": "post, 0",
        "verdict": "worse",
        "note": "",
    }
    row |= {"drawn": True, "n": 5, "sd": 0.1, "mean": 0.4, "low": 0.3, "high": 0.5, "metric": "test/loss"}
    found = effects._results(
        pandas.DataFrame([row]), lambda factor, level: {"post": "Post-LN"}.get(level, f"warm-up {level}")
    )
    assert found == ["+0.400 [+0.300, +0.500]  Post-LN fares worse with warm-up 0"]


@pytest.mark.parametrize("count", [12, 13])
def test_seeds_are_dots_up_to_twelve_then_a_band_that_ends_where_shares_do(tmp_path: Path, count: int) -> None:
    tasks = {"f0": TASK | {"metrics": {"accuracy": "max"}}}
    study = made(tmp_path, {"norm": ["ln", "rms"]}, seeds=range(count), tasks=tasks)
    study.runs["test/accuracy"] = [0.5, *[1.0] * (count - 1)] * 2
    axis = figure("seeds", study).axes[0]
    bands = [drawn.get_xdata() for drawn in axis.lines if drawn.get_linewidth() == 7]
    assert len(axis.collections) == (count == 12) and len(bands) == 2 * (count == 13)
    assert all(band[0] < 0.9 and band[1] == 1 for band in bands)


def test_seeds_are_counted_by_cell() -> None:
    """On lower rungs there are twice as many."""
    study = read_tables(ROOT / "experiments" / "results" / "compute_ladder")
    [line] = [line for line in figures.tables(case(study))["seeds"].attrs["caption"] if "per configuration" in line]
    assert "6 to 12 seeds per configuration" in line


def test_cells_beside_the_reference_are_the_best_of_each_metric(tmp_path: Path) -> None:
    """If there is no room for all: by loss the lowest, by accuracy the highest."""
    tasks = {"f0": TASK, "f1": TASK | {"name": "copy", "metrics": {"accuracy": "max"}, "shares": ["accuracy"]}}
    names = [f"v{i}" for i in range(40)]
    score = lambda levels, seed: 0.2 + 0.01 * int(levels["ffn"][1:]) + 0.001 * seed  # noqa: E731
    task = lambda levels: "f0" if levels["data"] == "stdlib" else "f1"  # noqa: E731
    study = made(tmp_path, {"ffn": names, "data": ["stdlib", "copy"]}, score=score, task=task, tasks=tasks)
    table = figures.tables(case(study), Edits(figures=["seeds"]))["seeds"]
    assert "the reference and those with the best score" in "".join(table.attrs["caption"])
    shown = {name: set() for name in tasks}
    for cell in (cell for cell in study.manifest.cells if cell.id in set(table["cell"])):
        shown[cell.task].add(int(cell.levels["ffn"][1:]))
    half = len(shown["f0"])
    assert half > 5 and shown["f0"] == {*range(half)} and shown["f1"] == {0, *range(41 - len(shown["f1"]), 40)}


def test_zero_finished_runs_say_so(tmp_path: Path) -> None:
    study = made(tmp_path, status=lambda levels, seed: "missing")
    assert "curves" not in figures.tables(case(study))
    assert "no finished run" in texts(figure("seeds", study))
    assert "undecided: no seed has every run it needs" in texts(figure("effects", study))


TEXTS = [
    "val/loss: mean over 3 seeds, band ± 1 SD over seeds; enlarged: the end",
    "−0.0539 [−0.0595, −0.0482]  n = 5  better",
    "iiiiiiiiii llllllllll",
    "WWWWWWWWWW MMMMMMMMMM",
    "a-rather-long-name-of-a-variant-0 + another_one.with.dots",
]
FFN_WRAP = ["mlp", "gelu", "swiglu"]
CLAIMS = {
    "gated_is_better": claim(less=[{"ffn": "swiglu"}, {"ffn": ["mlp", "gelu"]}]),
    "same": claim(equivalent=[{"ffn": "gelu"}, {"ffn": "mlp"}], margin=0.02),
}


def made_wrap(tmp_path: Path, **options: Any) -> Case:
    options = {"factors": {"ffn": FFN_WRAP}, "every": 200} | options
    return case_of(load_study(tmp_path, fabricate(tmp_path, **options)), tmp_path)


UNENDED = {"factors": GRID, "status": lambda levels, seed: ["diverged", "failed", "running"][seed]}
LONG = {"factors": {"ffn": [f"a-rather-long-name-of-a-variant-{i}" for i in range(5)]}}
LOST = {"claims": CLAIMS, "status": lambda v, s: "diverged" if v["ffn"] == "gelu" and s == 0 else "done"}


@pytest.mark.parametrize(
    ("study", "edits", "room"),
    [
        (UNENDED, {"width": 3.3}, 0),
        (LONG, {}, 0),
        (LOST, {"width": 3.25}, 0.45),
        (LOST, {"width": 3.03, "style": "acl"}, 0.4),
        (LONG, {"width": 13.333, "style": "slides"}, 0),
    ],
    ids=["no end", "names", "lost", "acl", "slides"],
)
def test_no_figure_warns_no_text_leaves_it_and_its_data_have_room(tmp_path, study, edits, room):
    case = made_wrap(tmp_path, **study)
    page = page_of(case.study.manifest, Edits(caption=True, **edits))
    least = 14 if page.style == "slides" else 6
    with warnings.catch_warnings(), matplotlib.rc_context(style.RC):
        warnings.simplefilter("error")
        for name, table in figures.tables(case).items():
            figure = KINDS[name].draw(table, page)
            figure.draw_without_rendering()
            used = figure.get_tightbbox()
            assert used.x0 >= -0.01 and used.x1 <= page.width + 0.01, name
            assert used.y0 >= -0.01 and used.y1 <= figure.get_figheight() + 0.01, name
            letters = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
            assert min(text.get_fontsize() * figure.scale for text in letters) >= least, name
            assert figure.axes[0].get_position().width >= room, name


@pytest.mark.parametrize(("name", "width"), [("neurips", 5.5), ("icml", 3.25), ("acl", 3.03), ("slides", 13.333)])
def test_a_style_gives_the_width_of_its_template_with_embedded_fonts(tmp_path: Path, name: str, width: float) -> None:
    (tmp_path / "figures.yaml").write_text(f"style: {name}\nsubset: {{figures: [effects]}}\n")
    case = made_wrap(tmp_path, factors={"norm": ["ln", "rms"]})
    figures.write(case, tmp_path)
    page = (tmp_path / "effects.pdf").read_bytes()
    found = re.search(rb"/MediaBox \[ 0 0 ([\d.]+) ([\d.]+) \]", page)
    assert found and float(found[1]) == pytest.approx(72 * width, abs=0.1)
    assert b"/FontFile2" in page and b"/Type3" not in page, "TrueType, embedded"
    with Image.open(tmp_path / "effects.png") as image:
        assert image.width == pytest.approx(style.DPI * width, abs=2)
        assert image.height / image.width == pytest.approx(float(found[2]) / float(found[1]), rel=0.01)
    assert name != "slides" or float(found[2]) == pytest.approx(7.5 * 72, abs=0.1)
    contents = [zlib.decompress(part) for part in re.findall(rb"stream\r?\n(x.*?)\r?\nendstream", page, re.DOTALL)]
    assert any(b" cm\n" in part[:120] for part in contents), "what is drawn is as large as its page"


def test_entries_of_a_legend_fit_the_page_in_even_columns(tmp_path: Path) -> None:
    manifest = made_wrap(tmp_path).study.manifest
    encoding = next(iter(page_of(manifest, Edits()).encodings.values()))
    for width in (3.25, 6.9):
        page = page_of(manifest, Edits(width=width))
        for names in (TEXTS, [f"cell {i}" for i in range(13)]):
            made_of = legend(dict.fromkeys(names, encoding), page)
            widest = max(map(width_of, made_of.handles)) + 0.5
            assert made_of.columns * widest <= width
            figure = Figure(figsize=(width, 2 + made_of.height), layout="constrained")
            figure.subplots()
            with matplotlib.rc_context(style.RC):
                made_of.draw(figure)
                figure.draw_without_rendering()
            box = figure.legends[0].get_window_extent()
            assert box.x1 <= figure.bbox.width + 1 and box.height / figure.dpi <= made_of.height + 0.2


def test_names_below_the_maps_of_interactions_stand_apart(tmp_path: Path) -> None:
    factors = {"norm": ["no norm at all", "RMSNorm", "LayerNorm"], "ffn": ["a gated unit", "none"]}
    study = load_study(tmp_path, fabricate(tmp_path, factors))
    with matplotlib.rc_context(style.RC):
        drawn = figure("interactions", study, width=3.3)
        drawn.draw_without_rendering()
        for axis in drawn.axes:
            names = [text for text in axis.get_xticklabels() if text.get_text()]
            if all(text.get_rotation() == 0 for text in names):
                boxes = [text.get_window_extent() for text in names]
                assert all(a.x1 < b.x0 for a, b in itertools.pairwise(boxes)), names
        assert sum(bool(axis.get_xticklabels()) for axis in drawn.axes) == 1
