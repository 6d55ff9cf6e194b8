"""figures.yaml: written once, applied to every figure, its mistakes refused in one line."""

import html
import json
import re
from pathlib import Path

import pandas
import pytest
from fake_studies import a_cell, a_manifest, fabricate, with_cells
from shown_studies import claim

from ablate.config.errors import Refused
from ablate.runs.records import Manifest
from ablate.runs.study import load_study
from analysis import figures
from analysis.case import Case, case_of
from analysis.case.figures_yaml import FILE, STYLES, cell_label, edits_of, write_defaults
from analysis.cli.main import main
from analysis.figures import style
from analysis.figures.kind import page_of
from analysis.writing.sections import sentences

FACTORS = {"norm": ["ln", "rms"], "ffn": ["mlp", "glu", "swiglu"], "optim.lr": [0.001, 0.01]}


def made(results: Path, text: str | None = None, factors: dict[str, list[object]] = FACTORS) -> Case:
    """The case of a fabricated study, with this figures.yaml."""
    study = load_study(results, fabricate(results, factors))
    if text is not None:
        file = results / "figures" / study.manifest.study / "figures.yaml"
        file.parent.mkdir(parents=True)
        file.write_text(text)
    return case_of(study, results / "figures" / study.manifest.study)


def test_the_defaults_change_nothing_and_are_never_overwritten(tmp_path):
    case = made(tmp_path)
    manifest = case.study.manifest
    file = case.folder / FILE
    write_defaults(file, manifest, ["effects"], style.colours(manifest))
    assert figures.edits(case) == edits_of(Path("nowhere"), manifest, [])
    assert "#   ffn=mlp: ReLU MLP\n" in file.read_text()
    file.write_text("# mine\nwidth: single\n")
    write_defaults(file, manifest, ["effects"], style.colours(manifest))
    assert figures.edits(case).width == STYLES["default"]["single"]


def test_a_heading_without_entries_changes_nothing(tmp_path):
    case = made(tmp_path, "labels:\ncolours:\nsubset:\n")
    assert figures.edits(case) == edits_of(Path("nowhere"), case.study.manifest, [])


def test_every_default_can_be_taken_out_of_its_comment(tmp_path):
    case = made(tmp_path, factors={"norm": ["ln", "null", "yes", "a: b", "#c", "[d, e]"], "ffn.mult": [1e-5, 1, True]})
    file, kinds = case.folder / FILE, list(figures.KINDS)
    write_defaults(file, case.study.manifest, kinds, style.colours(case.study.manifest))
    lines = file.read_text().splitlines()
    file.write_text("\n".join(line.removeprefix("# ") for line in lines[3:]))
    edits = figures.edits(case)
    assert edits.labels == {} and edits.figures == kinds
    assert page_of(case.study.manifest, edits).colours == page_of(case.study.manifest, figures.Edits()).colours


NAMES = {
    "ffn=glu": "GLU",
    "residual=pre": "pre-LN",
    "norm=ln": "ln (ours)",
    "optim.lr": "rate",
    "optim.lr=0.001": "small",
}
NAMES |= {"norm+ffn=rms+glu": "both", "ffn=none": "none", "norm=none": "none"}


@pytest.mark.parametrize(
    ("levels", "label"),
    [
        ({"ffn": "glu", "norm": "reglu-x"}, "GLU + reglu-x"),
        ({"residual": "pre", "optim.lr": 0.001, "norm": "ln"}, "pre-LN + rate small + ln (ours)"),
        ({"norm": "none", "ffn": "none"}, "none + none"),
        ({"norm+ffn": "rms+glu", "optim.lr": 0.0015}, "both + rate 0.0015"),
    ],
)
def test_a_cell_is_called_by_the_labels_of_its_levels(levels, label):
    manifest = a_manifest(factors={name: [level] for name, level in levels.items()}, shown=NAMES)
    assert cell_label(manifest, a_cell(levels=levels)) == label


def test_only_the_figures_that_are_named_are_drawn(tmp_path):
    assert list(figures.tables(made(tmp_path, "subset: {figures: [effects, seeds]}\n"))) == ["effects", "seeds"]


@pytest.fixture(scope="module")
def manifest(tmp_path_factory) -> Manifest:
    """That of a study with these factors."""
    return made(tmp_path_factory.mktemp("results")).study.manifest


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("widht: 3", "no such key: widht; did you mean width?"),
        ("style: neurips\nwidth: 13.5", "width is 13.5; write text or inches from 2.5 to 12"),
        ("order: {ffn: [glu, mlp]}", "no such key: order; "),
        ("style: nips", "style names nips; did you mean neurips?"),
        ("labels: {swigul: SwiGLU}", "labels names swigul; did you mean swiglu?"),
        ("labels: {mlp: GLU, glu: GLU}", "labels give several the same name, GLU; write different ones"),
        ("colours: {ffn: {mlp: '#12'}}", """colours.ffn.mlp is #12; write '#0072B2' or a name such as teal"""),
        ("subset: {figures: [efects]}", "subset.figures names efects; did you mean effects?"),
        ("subset: {levels: {ffn: [mlp]}}", "no such key: levels; "),
    ],
)
def test_mistakes_are_refused_in_one_line(tmp_path, manifest, text, said):
    file = tmp_path / "figures.yaml"
    file.write_text(text + "\n")
    with pytest.raises(Refused) as refused:
        edits_of(file, manifest, list(figures.KINDS))
    assert said in str(refused.value) and "\n" not in str(refused.value) and str(file) in str(refused.value)


def test_commits_are_called_by_their_messages(tmp_path):
    study = load_study(tmp_path, fabricate(tmp_path, {"code": ["a1", "b2"]}, design="cumulative"))
    said = {"a1": "Start", "b2": "A message that is much longer than what a table has room for"}
    study = with_cells(study, lambda i, cell: {"notes": [f"{cell.levels['code']}: {said[cell.levels['code']]}"]})
    effects = case_of(study, tmp_path).effects
    assert effects["label"].item() == "+ b2 A message that is much longer than … (after a1 Start)"


def test_claims_have_labels_that_differ(tmp_path):
    claims = {name: claim(less=[{"ffn": "glu"}, {"ffn": "mlp"}]) for name in ("gated", "narrow")}
    manifest = load_study(tmp_path, fabricate(tmp_path, FACTORS, claims=claims)).manifest
    (tmp_path / FILE).write_text("labels: {gated: Gates help}")
    assert edits_of(tmp_path / FILE, manifest).labels == {"claims.gated": "Gates help"}
    (tmp_path / FILE).write_text("labels: {gated: X, narrow: X}")
    with pytest.raises(Refused, match="labels give several the same name, X; write different ones"):
        edits_of(tmp_path / FILE, manifest)


GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "glu"], "optim.lr": [0.001, 0.01]}
CLAIM = claim(less=[{"ffn": "glu"}, {"ffn": "mlp"}], metric="test/loss", at={"norm": "rms"})
LOST = {"norm": "rms", "ffn": "glu", "optim.lr": 0.01}
LABELS = {"ln": "L_n <b>norm</b>", "rms": "50 % of $x$", "glu": "G&L#U", "ffn": "{FFN}^2", "optim.lr": "rate"}


@pytest.fixture(scope="module")
def labelled(tmp_path_factory) -> Path:
    """The folder of a whole analysis with these labels."""
    results = tmp_path_factory.mktemp("labelled")
    lost = lambda levels, seed: "diverged" if levels == LOST and seed == 1 else "done"  # noqa: E731
    papers = {"ffn=glu": {"dauphin2016language": {"author": "Dauphin, Yann and others", "year": "2016"}}}
    fabricate(results, GRID, seeds=range(5), status=lost, claims={"gated": CLAIM}, papers=papers)
    folder = results / "figures" / "fabricated"
    folder.mkdir(parents=True)
    (folder / "figures.yaml").write_text(json.dumps({"subset": {"figures": ["seeds"]}, "labels": LABELS}))
    assert main(["fabricated", "--results-dir", str(results)]) == 0
    return folder


def test_machines_read_the_names_as_they_are(labelled):
    effects = pandas.read_csv(labelled / "effects.csv")
    assert "norm: rms − ln at optim.lr=0.001" in set(effects["label"]) and set(effects["factor"]) >= {"norm", "ffn"}
    for name in ("effects.tex", "methods.tex"):
        assert r"\{FFN\}\textasciicircum{}2" in (labelled / name).read_text()


def test_the_page_shows_labels_as_text(labelled):
    page = (labelled / "report.html").read_text()
    assert "<b>norm" not in page
    text = html.unescape(re.sub(r"(?s)<script.*?</script>|<style.*?</style>|<[^>]*>", "\n", page))
    for said in (
        "What do norm, {FFN}^2 and rate change?",
        "{FFN}^2: G&L#U − ReLU MLP at rate 1e-3",
        "50 % of $x$ × G&L#U at rate 1e-3: ",
        "L_n <b>norm</b> + ReLU MLP + rate 1e-3 (reference)",
        "at 50 % of $x$",
    ):
        assert said in text, said
    curves = page.partition('<script type="application/json"')[2].partition("</script>")[0].partition(">")[2]
    names = [html.unescape(line["name"]) for line in json.loads(curves)["data"]]
    assert "L_n <b>norm</b> + G&L#U + rate 0.01" in names


def test_no_table_and_no_sentence_has_a_name_that_has_a_label(labelled):
    """But for the keys of what was compared, configurations, paths of runs and the command, which are quoted."""
    for file in (file for kind in ("*.md", "*.tex") for file in labelled.glob(kind)):
        text = file.read_text()
        text = re.sub(r"(?s)## Provenance\n.*", "", text)
        text = re.sub(r"\\cite\{.*?\}|\| [\w.]+=\S+ \|", "", text)
        found = re.findall(r"(?<![\w-])(?:ln|rms|glu|ffn|optim\\?\.lr)(?![\w-])", text)
        assert not found, f"{file.name}: {found}"


def test_labels_that_are_each_others_names_are_not_mixed_up(tmp_path):
    case = made(tmp_path, "labels: {mlp: glu, glu: mlp}\n")
    assert "FFN: mlp − glu at learning rate 1e-3" in list(case.effects["label"])
    assert any(line.startswith("mlp is not told apart from glu at learning rate 1e-3: ") for line in sentences(case))
    losses = {cell.label: cell.levels["ffn"] for cell in case.study.manifest.cells}
    assert losses["RMSNorm + mlp + learning rate 0.01"] == "glu"
    assert losses["RMSNorm + glu + learning rate 0.01"] == "mlp"
