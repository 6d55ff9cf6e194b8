"""`make figures`: what committed tables say, drawn and written; on small studies whose numbers are known."""

import io
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
from conftest import ROOT
from fake_studies import fabricate, plain_score, study_of
from gallery import pages
from gallery.__main__ import main
from gallery.studies import lacking, study_files
from gallery.what_helps import verdict
from gallery.write import BEGIN, END, code
from PIL import Image
from shown_studies import claim

from ablate.config.groups import groups
from ablate.config.schema import NAMED
from ablate.runs.kept_tables import write_tables
from ablate.runs.study import load_study
from analysis import figures
from analysis.case import case_of
from analysis.cli import verify
from analysis.figures.stamp import metadata, read_stamp

Capture = pytest.CaptureFixture[str]
FFN = {"ffn": ["mlp", "gelu", "swiglu"]}
CLAIM = claim(less=[{"ffn": "swiglu"}, {"ffn": "mlp"}], metric="test/loss")


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """A checkout without studies: two pages with marks around old words, two study files, and the recorded seeds."""
    found = tmp_path / "checkout"
    shutil.copytree(ROOT / "tests" / "recorded", found / "tests" / "recorded")
    for name, title in (("README.md", "ours"), ("experiments/FINDINGS.md", "Findings")):
        (found / name).parent.mkdir(parents=True, exist_ok=True)
        (found / name).write_text(f"# {title}\n\n{BEGIN}\n\nold words\n\n{END}\n\nby hand\n")
    told = "question: Do gates help?\npublished: yes, 1.94 after 2.00\n"
    (found / "experiments" / "glu_variants.yaml").write_text(told)
    (found / "experiments" / "alone.yaml").write_text("question: And this?\ntiers: {gpu: {scale: base}}\n")
    return found


@pytest.fixture
def train(root: Path, tmp_path: Path) -> Callable[..., Path]:
    """Puts the tables of a made-up study into the checkout."""

    def trained(study: str = "glu_variants", factors: dict[str, list[Any]] = FFN, **options: Any) -> Path:
        options = {"seeds": range(5), "experiment": study} | options
        name = fabricate(tmp_path / "results", factors, study=study, **options)
        folder = root / "experiments" / "results" / name
        write_tables(load_study(tmp_path / "results", name), folder)
        return folder

    return trained


def gallery(root: Path, capsys: Capture) -> tuple[int, str]:
    code = main([str(root)])
    said = capsys.readouterr()
    return code, said.out + said.err


def contents(root: Path) -> dict[Path, tuple[bytes, int]]:
    """Every file with its time, which a file that is written again does not keep."""
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in root.rglob("*") if file.is_file()}


def findings(root: Path) -> str:
    return (root / "experiments" / "FINDINGS.md").read_text(encoding="utf-8")


def counted(root: Path) -> dict[str, list[str]]:
    """The table of all verdicts, by its first column."""
    rows = re.findall(r"^\| ([a-z].*) \|$", findings(root).partition("## glu")[0], re.MULTILINE)
    return {name: rest for name, *rest in (row.split(" | ") for row in rows)}


def test_without_a_study_the_pages_say_what_was_not_run(root: Path, capsys: Capture) -> None:
    assert gallery(root, capsys)[0] == 0
    text = findings(root)
    assert text.startswith(f"# Findings\n\n{BEGIN}\n\n## ") and text.endswith(f"{END}\n\nby hand\n")
    assert "old words" not in text and "All verdicts" not in text
    assert "Do gates help?" in text and "Not run yet: `ablate +experiment=glu_variants`." in text
    assert "`ablate +experiment=alone` and `ablate +experiment=alone tier=gpu`" in text
    assert text.index("## glu_variants") < text.index("## alone"), "what is worth most first, as in make studies"
    assert "Not run yet: glu_variants, alone." in (root / "docs" / "gallery.md").read_text()


def test_a_study_is_drawn_told_and_left_alone_the_second_time(root, train, capsys, monkeypatch):
    folder = train(figure="curves", claims={"gated": CLAIM})
    before = (folder / "curves.csv").read_bytes()
    (folder / "finding.md").write_text("2026-11-22: As *published*.\n")
    monkeypatch.setattr(pages, "FRONT", ("glu_variants", "absent"))
    assert gallery(root, capsys)[0] == 0
    names = {f"{name}.{kind}" for name in ("curves", "effects", "claims") for kind in ("png", "csv")}
    assert {file.name for file in (folder / "figures").iterdir()} == {*names, "claims.md", "effects.md", "cells.md"}
    assert (folder / "curves.csv").read_bytes() == before, "what is plotted does not take the place of the table"
    text = findings(root)
    for part in ("yes, 1.94 after 2.00", "gated (registered): supported. SwiGLU is 0.", "2026-11-22: As *published*."):
        assert part in text
    page = (root / "docs" / "gallery.md").read_text()
    assert page.index("figures/curves.png") < page.index("figures/effects.png") < page.index("figures/claims.png")
    assert "ablate +experiment=glu_variants" in page and "nats per byte better in test loss than" in page
    readme = (root / "README.md").read_text()
    assert "**Do gates help?**\n\n![glu_variants: curves]" in readme, "an answer needs its question"
    assert "(experiments/results/glu_variants/figures/curves.png)" in readme and readme.endswith(f"{END}\n\nby hand\n")
    there = contents(root)
    assert gallery(root, capsys) == (0, f"{len(names) + 6} files, 0 of them written anew\n") and contents(root) == there


def test_a_figure_is_stamped_and_drawn_anew_only_for_other_data_or_drawing_code(root, train, capsys, monkeypatch):
    file = train() / "figures" / "effects.png"
    gallery(root, capsys)
    stamped = read_stamp(file.read_bytes())
    assert stamped and stamped["command"] == "ablate analyse glu_variants" and stamped["study"] == "glu_variants"
    assert verify.main([str(file)]) == 0
    effects = next(each for found in study_files(root) for each in found.trained).case.effects
    table, text = pandas.read_csv(file.with_suffix(".csv")), file.with_suffix(".csv").read_text()
    assert table[["mean", "low"]].to_numpy() == pytest.approx(effects[["mean", "low"]].to_numpy(), rel=1e-9)
    digits = [number.lstrip("-0.").replace(".", "") for number in re.findall(r"-?\d+\.\d+", text)]
    assert digits and max(map(len, digits)) <= 10, "what is equal on all machines"
    with Image.open(io.BytesIO(file.read_bytes())) as image:
        from PIL.PngImagePlugin import PngInfo

        info = PngInfo()
        for key, value in metadata(stamped).items():
            info.add_text(key, value)
        image.convert("L").save(file, pnginfo=info)
    of_another_machine = file.read_bytes()
    gallery(root, capsys)
    assert file.read_bytes() == of_another_machine, "the same data, drawn elsewhere"
    monkeypatch.setattr("gallery.write.drawing_hash", lambda: "new")
    assert "effects.png" in gallery(root, capsys)[1] and file.read_bytes() != of_another_machine
    drawn_here = file.read_bytes()
    monkeypatch.setattr("gallery.write.drawing_hash", lambda: "newer")
    assert "effects.png" not in gallery(root, capsys)[1] and file.read_bytes() == drawn_here, "it looks the same"
    file.write_bytes(drawn_here[: len(drawn_here) * 2 // 3])  # torn
    assert "effects.png" in gallery(root, capsys)[1] and len(file.read_bytes()) >= len(drawn_here)


def test_comments_are_no_other_drawing_code() -> None:
    text = 'def f(a: int) -> int:\n    """One."""\n    return a + 1  # why\n'
    assert code(text) == code('def f(a: int) -> int:\n    """Two."""\n\n    return (a + 1)\n')
    assert code(text) != code(text.replace("+ 1", "+ 2"))


def test_verdicts_are_counted_and_the_false_ones_to_be_expected_told(root, train, capsys, undrawn):
    lost = lambda levels, seed: "diverged" if (levels["ffn"], seed) == ("gelu", 0) else "done"  # noqa: E731
    late, everything = CLAIM | {"registered": False}, {"value": "all", "registered": True}
    train(status=lost, claims={"gated": CLAIM, "late": late}, effects=everything)
    train("alone", {"norm": ["ln", "rms"]}, score=lambda levels, seed: 2.0 + 0.01 * (seed % 3))
    gallery(root, capsys)
    table = counted(root)
    # Two effects, one of them withheld, and one that is equal in every seed.
    assert table["effects, corrected within each study"] == ["2", "3", "1", "1", "1"]
    assert table["registered claims, corrected within each study"] == ["1", "1", "1", "0", "0"]
    assert set(table) == {"effects, corrected within each study", "registered claims, corrected within each study"}
    text = " ".join(findings(root).split())
    expected = "0.05 × 3 = 0.15 false verdicts are to be expected among the 2 decided verdicts of 3 groups"
    assert expected in text and "Left out of that sum" not in text
    assert "1 run diverged" in text and "In words: nothing yet" in text


def test_a_file_of_an_earlier_version_of_a_study_goes(root, train, capsys, undrawn):
    old = train() / "figures" / "sensitivity.png"
    old.parent.mkdir()
    old.write_bytes(b"")
    assert f"removed {old}" in gallery(root, capsys)[1] and not old.exists()


def torn(folder: Path) -> None:
    table = folder / "runs.csv"
    table.write_bytes(table.read_bytes()[:-40])


def no_study(folder: Path) -> None:
    (folder.parent / "stray").mkdir()


def no_marks(folder: Path) -> None:
    (folder.parents[2] / "README.md").write_text("# ours\n")


@pytest.mark.parametrize(("harm", "named"), [(torn, "runs.csv"), (no_study, "stray"), (no_marks, "README.md")])
def test_what_is_damaged_is_refused_in_one_line_and_nothing_is_written(root, train, capsys, harm, named):
    harm(train())
    before = contents(root)
    code, said = gallery(root, capsys)
    assert code == 2 and said.count("\n") == 1 and named in said
    assert contents(root) == before


def test_a_folder_that_is_no_checkout_is_refused(tmp_path: Path, capsys: Capture) -> None:
    code, said = gallery(tmp_path, capsys)
    assert code == 2 and said.count("\n") == 1 and "experiments" in said


def test_a_forest_of_every_variant_is_one_page_with_each_factor_named_once(tmp_path: Path) -> None:
    factors = {f"optim.f{i}": list(range(9)) for i in range(6)}
    large = lambda levels, seed: plain_score(levels, seed) + 0.9 * (levels["optim.f5"] == 8)  # noqa: E731
    case = case_of(study_of(factors, range(3), large, design="one_at_a_time"), tmp_path)
    table = figures.tables(case, figures.Edits(figures=["effects"]))["effects"]
    page = figures.page_of(case.study.manifest, figures.edits(case))
    drawn = figures.KINDS["effects"].draw(table, page)
    named = [text.get_text() for text in drawn.axes[0].get_yticklabels()]
    assert len(table) == 48 and len(named) == 54
    assert [text for text in named if text.startswith("optim.")] == list(factors)
    assert drawn.get_figheight() < 10.5, "a page"
    assert drawn.axes[0].get_xlim()[1] < 0.9 and "with its number" in " ".join(table.attrs["caption"])


def test_a_study_of_every_component_says_which_variants_it_lacks() -> None:
    factors = {group: sorted(groups()[group]) for group in NAMED}
    assert lacking(factors) == ""
    factors["ffn"].remove("swiglu")
    factors["norm"].remove("none")
    assert lacking(factors) == "norm=none; ffn=swiglu"
    del factors["norm"]
    assert lacking(factors) == "", "a study of some"


def test_what_helps_joins_two_sizes_and_shows_costs(root, train, capsys, undrawn):
    ffns = {"ffn": ["mlp", "gelu", "silu", "relu2", "swiglu", "glu"]}
    effects = {"catalogue_tuned": {"gelu": -0.2, "silu": -0.3, "relu2": 0.1, "swiglu": -0.1, "glu": 0.0}}
    effects["catalogue_size"] = {"gelu": -0.2, "silu": 0.2, "relu2": -0.3, "swiglu": 0.0}

    def score(study: str) -> Callable[[dict[str, Any], int], float]:
        return lambda levels, seed: plain_score({"as": levels["ffn"]}, seed) + effects[study].get(levels["ffn"], 0.0)

    rates = [2.0**-i for i in range(6)]
    means = [[2.0 + 0.1 * abs(at - i) for at in range(6)] for i in range(6)]
    tuning = {"key": "optim.lr", "values": rates, "seeds": 2, "study": "x-tune"}
    tuning["cells"] = {f"c{i}": {"value": rates[i], "scores": means[i], "edge": False} for i in range(6)}
    page = root / "docs" / "what-helps.md"
    small: Any = {"design": "one_at_a_time", "seeds": range(8), "tuning": tuning}
    train("catalogue_tuned", ffns, score=score("catalogue_tuned"), **small)
    gallery(root, capsys)
    rows = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    assert [row[2] for row in rows[2:]] == ["better"] * 3 + ["not shown", "worse"]
    assert [row[6] for row in rows[2:]] == ["0.25", "0.5", "0.0625", "0.03125", "0.125"], "each change's own"
    # silu, the third: at the reference's rate, the first, 0.2 above it, at the last four 0.2 below
    assert rows[2][4:6] == ["+0.200", "4 of 6"]
    assert "6 of 6 configurations" in page.read_text() and "rate costs 0.100" in page.read_text()
    assert (
        "**Better at 0.12 M: SiLU MLP, GELU MLP and SwiGLU.** The others, at 0.12 M: 1 not shown, 1 worse."
        in page.read_text()
    )
    assert "no larger size has been trained" in page.read_text()
    large = {"ffn": [name for name in ffns["ffn"] if name != "glu"]}
    train("catalogue_size", large, score=score("catalogue_size"), design="one_at_a_time", seeds=range(8))
    gallery(root, capsys)
    rows = [line.strip("| ").split(" | ") for line in page.read_text().splitlines() if line.startswith("| ")]
    found = {row[0]: row[2] for row in rows[2:]}
    assert "**Better at both sizes tried: GELU MLP.**" in page.read_text()
    assert "At the larger size each change has the rate\n  with the best mean" in page.read_text()
    expected = ["better (worse at the larger size)", "helps", "better (undecided at the larger size)", "not shown"]
    assert list(found.values()) == [*expected, "worse (better at the larger size)"]
    assert verdict("undecided", "better") == "not shown (better at the larger size)"
    assert verdict("undecided", "undecided") == "not shown" and verdict("withheld") == "no verdict"
    assert verdict("worse", "worse") == "worse (worse at the larger size)"
    assert verdict("better", "") == "better (not trained at the larger size)"
    assert next(row for row in rows if "SiLU" in row[0])[3:5] != ["–", "–"] and rows[-2][4] == "–"
