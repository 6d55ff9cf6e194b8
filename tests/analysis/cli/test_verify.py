"""python -m analysis verify: a figure's file says what it was made of, and whether that still holds."""

import json
import shutil
from pathlib import Path

import pytest
from analysed_studies import case
from fake_studies import draw_effects_alone, fabricate
from PIL import Image
from PIL.PngImagePlugin import PngInfo

from ablate.runs.files import write_json
from ablate.runs.study import load_study
from analysis import figures
from analysis.case import case_of
from analysis.cli.main import main
from analysis.figures import stamp
from analysis.figures.kind import page_of

Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def analysed(tmp_path_factory) -> Path:
    """A results folder with a study and its figures: only the effects."""
    results = tmp_path_factory.mktemp("analysed")
    name = fabricate(results, {"ffn": ["mlp", "swiglu"]})
    draw_effects_alone(results)
    folder = results / "figures" / name
    figures.write(case_of(load_study(results, name), folder), folder)
    return results


@pytest.fixture
def drawn(analysed, tmp_path) -> Path:
    """The folder of the study's figures, in a results folder of the test's own."""
    shutil.copytree(analysed, tmp_path, dirs_exist_ok=True)
    return tmp_path / "figures" / "fabricated"


def verify(file: Path, results: Path, capsys: Capture, *words: str) -> tuple[int, str]:
    code = main(["verify", str(file), "--results-dir", str(results), *words])
    said = capsys.readouterr()
    return code, said.out + said.err


def test_both_files_carry_the_study_the_hashes_and_the_command(drawn):
    of_pdf, of_png = [stamp.read_stamp((drawn / f"effects.{kind}").read_bytes()) for kind in ("pdf", "png")]
    assert of_pdf is not None
    assert of_pdf == of_png
    assert (of_pdf["study"], of_pdf["command"]) == ("fabricated", "ablate analyse fabricated")
    assert len(of_pdf["runs"].split(",")) == 6
    with Image.open(drawn / "effects.png") as image:
        assert image.text["Title"] == "effects of fabricated"  # type: ignore[attr-defined]


def test_a_run_that_has_changed_since_is_named(drawn, tmp_path, capsys):
    result = next((tmp_path / "runs").glob("*swiglu*/s1-*/result.json"))
    content = json.loads(result.read_text())
    content["final"]["test/loss"] += 1e-6
    write_json(result, content)
    code, said = verify(drawn / "effects.pdf", tmp_path, capsys)
    assert code == 1 and said.endswith("effects.pdf: 1 run changed, new or gone: swiglu seed 1\n")


def test_another_figures_yaml_is_no_other_result(drawn, tmp_path, capsys):
    (drawn / "figures.yaml").write_text("labels: {swiglu: gated}\n")
    assert verify(drawn / "effects.png", tmp_path, capsys)[0] == 0


def test_what_cannot_be_told(drawn, tmp_path, capsys):
    Image.new("RGB", (2, 2)).save(tmp_path / "foreign.png")
    (tmp_path / "torn.pdf").write_bytes((drawn / "effects.pdf").read_bytes()[:200])
    for name in ("foreign.png", "torn.pdf"):
        code, said = verify(tmp_path / name, tmp_path, capsys)
        assert code == 2
        assert "is no figure of ablate analyse" in said
    assert verify(tmp_path / "none.pdf", tmp_path, capsys)[0] == 2
    (tmp_path / "studies" / "fabricated" / "manifest.json").unlink()
    code, said = verify(drawn / "effects.pdf", tmp_path, capsys)
    assert code == 2
    assert "no study" in said


def test_figures_of_a_csv(tmp_path, capsys):
    rows = [f"{ffn},{seed},{2 + seed / 100 - (ffn == 'glu') / 10}" for ffn in ("mlp", "glu") for seed in range(5)]
    table = tmp_path / "my runs.csv"
    table.write_text("\n".join(["ffn,seed,test/loss", *rows]) + "\n")
    draw_effects_alone(tmp_path, "my runs")
    assert main(["--runs", str(table), "--results-dir", str(tmp_path)]) == 0
    file = tmp_path / "figures" / "my runs" / "effects.pdf"
    assert verify(file, tmp_path, capsys, "--runs", str(table))[0] == 0
    code, said = verify(file, tmp_path, capsys)  # what a stamp says is not carried out
    assert code == 2
    assert "shows runs of other programs (my runs.csv)" in said
    table.write_text(table.read_text().replace("2.04", "2.05"))
    code, said = verify(file, tmp_path, capsys, "--runs", str(table))
    assert code == 1
    assert "1 run changed, new or gone: mlp seed 4" in said
    table.unlink()
    assert verify(file, tmp_path, capsys, "--runs", str(table))[0] == 2


def test_the_hash_of_a_table_is_of_all_that_is_drawn(tmp_path):
    shown = case(tmp_path, {"ffn": ["mlp", "swiglu"]})
    table = figures.tables(shown)["seeds"]
    page = page_of(shown.study.manifest, figures.Edits())
    first = stamp.table_hash(table, page)
    assert stamp.table_hash(table.assign(value=table["value"] * (1 + 1e-14)), page) == first  # a sum in another order
    changed = table.assign(value=table["value"] * (1 + 1e-8))
    hashes = {stamp.table_hash(other, page) for other in (changed, table.rename(columns={"name": "x"}), table.head(3))}
    hashes |= {first, stamp.table_hash(table, page._replace(width=3.3))}
    table.attrs["caption"] = ["not drawn"]
    assert stamp.table_hash(table, page) == first
    table.attrs["title"] = "x"
    assert len({*hashes, stamp.table_hash(table, page)}) == 6


def test_a_figure_is_held_against_the_results_that_it_lies_in(drawn, tmp_path, capsys, monkeypatch):
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    assert main(["verify", str(drawn / "effects.pdf")]) == 0
    moved = tmp_path / "a" / "b" / "c" / "effects.pdf"
    moved.parent.mkdir(parents=True)
    moved.write_bytes((drawn / "effects.pdf").read_bytes())
    assert main(["verify", str(moved)]) == 2 and "no results folder at results" in capsys.readouterr().err


def forged(drawn: Path, **said: object) -> Path:
    """A figure with another stamp, in place of the one that it was drawn with."""
    old = stamp.read_stamp((drawn / "effects.png").read_bytes())
    assert old is not None
    kept = {key: text for key, text in (old | said).items() if text is not None}
    info = PngInfo()
    info.add_text("Keywords", stamp.MARK + json.dumps(kept))
    Image.new("RGB", (2, 2)).save(drawn / "forged.png", pnginfo=info)
    return drawn / "forged.png"


FORGED: list[tuple[dict[str, object], str]] = [
    ({"command": None}, "is no figure"),
    ({"source": "x.csv", "command": "ablate analyse --runs /dev/zero --help"}, "runs of other programs (x.csv)"),
    ({"runs": "no colon"}, "7 runs changed, new or gone: "),
    ({"runs": "c7/0:12345678"}, "7 runs changed, new or gone: c7 seed 0"),
    ({"runs": None}, "is no figure"),
    ({"study": "../../etc"}, "no study ../../etc"),
]


@pytest.mark.parametrize(("said", "told"), FORGED)
def test_a_stamp_is_compared_and_never_carried_out(said, told, drawn, tmp_path, capsys, monkeypatch):
    read = list[str]()
    monkeypatch.setattr("analysis.sources.files.read_file", lambda file: read.append(file))
    code, line = verify(forged(drawn, **said), tmp_path, capsys)
    assert code in (1, 2) and told in line and line.count("\n") <= 2 and not read and "\x1b" not in line


def test_a_figure_is_a_file_that_ends(tmp_path, capsys):
    (tmp_path / "zero.png").symlink_to("/dev/zero")
    with open(tmp_path / "large.png", "wb") as file:
        file.truncate(2**40)
    for name, why in (("zero", "it is no file"), ("large", "more than")):
        code, said = verify(tmp_path / f"{name}.png", tmp_path, capsys)
        assert code == 2 and why in said and said.count("\n") == 1
