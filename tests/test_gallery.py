"""`make figures`: what committed tables say, drawn and written; on small studies whose numbers are known."""

import io
import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pandas
import pytest
from fake_studies import fabricate, plain_score
from gallery import pages
from gallery.__main__ import main
from gallery.studies import study_files
from gallery.write import BEGIN, END
from PIL import Image
from PIL.PngImagePlugin import PngInfo
from shown_studies import claim

from ablate.runs.kept_tables import write_tables
from ablate.runs.study import load_study
from analysis.cli import verify
from analysis.figures.stamp import metadata, read_stamp

Capture = pytest.CaptureFixture[str]
Train = Callable[..., Path]
FFN = {"ffn": ["mlp", "gelu", "swiglu"]}
CLAIM = claim(less=[{"ffn": "swiglu"}, {"ffn": "mlp"}], metric="test/loss")


@pytest.fixture
def root(tmp_path) -> Path:
    """A checkout without studies: two pages with marks around old words, two study files, and the recorded seeds."""
    checkout = tmp_path / "checkout"
    for name, title in (("README.md", "ours"), ("experiments/FINDINGS.md", "Findings")):
        (checkout / name).parent.mkdir(parents=True, exist_ok=True)
        (checkout / name).write_text(f"# {title}\n\n{BEGIN}\n\nold words\n\n{END}\n\nby hand\n")
    study_file = "question: Do gates help?\npublished: yes, 1.94 after 2.00\n"
    (checkout / "experiments" / "glu_variants.yaml").write_text(study_file)
    (checkout / "experiments" / "alone.yaml").write_text("question: And this?\ntiers: {gpu: {scale: base}}\n")
    return checkout


@pytest.fixture
def train(root, tmp_path) -> Train:
    """Puts the tables of a made-up study into the checkout, and returns their folder."""

    def put(study: str = "glu_variants", factors: dict[str, list[Any]] = FFN, **options: Any) -> Path:
        options = {"seeds": range(5), "experiment": study} | options
        name = fabricate(tmp_path / "results", factors, study=study, **options)
        folder = root / "experiments" / "results" / name
        write_tables(load_study(tmp_path / "results", name), folder)
        return folder

    return put


def make_figures(root: Path, capsys: Capture) -> str:
    """What `make figures` prints."""
    assert main([str(root)]) == 0
    return capsys.readouterr().out


def contents(root: Path) -> dict[Path, tuple[bytes, int]]:
    """Every file with its time, which a file that is written again does not keep."""
    return {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in root.rglob("*") if file.is_file()}


def index_of(root: Path) -> str:
    return (root / "experiments" / "FINDINGS.md").read_text(encoding="utf-8")


def study_page(root: Path, study: str = "glu_variants") -> str:
    return (root / "experiments" / "findings" / f"{study}.md").read_text(encoding="utf-8")


def rows_of(text: str) -> list[list[str]]:
    """The rows of the tables in a page, without their heads."""
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("|")]
    return [row for row in rows if not row[0].startswith("---")]


def test_the_index_says_between_its_marks_what_was_not_run(root, capsys):
    make_figures(root, capsys)
    text = index_of(root)
    assert text.startswith(f"# Findings\n\n{BEGIN}\n\n## ") and text.endswith(f"{END}\n\nby hand\n")
    assert "old words" not in text
    assert "| glu_variants | Do gates help? | not run yet; published: yes, 1.94 after 2.00 |" in text
    assert "`ablate +experiment=NAME` for every study; `ablate +experiment=NAME tier=gpu` for alone." in text
    assert text.index("| glu_variants") < text.index("| alone"), "the order of make studies"
    assert "Not run yet: glu_variants and alone." in (root / "docs" / "gallery.md").read_text()


def test_the_files_of_a_study_are_its_figures_their_data_and_tables(root, train, capsys):
    folder = train(figure="curves", claims={"gated": CLAIM})
    before = (folder / "curves.csv").read_bytes()
    make_figures(root, capsys)
    expected = {f"{name}.{kind}" for name in ("curves", "effects", "claims") for kind in ("png", "csv")}
    assert {file.name for file in (folder / "figures").iterdir()} == {*expected, "claims.md", "effects.md", "cells.md"}
    assert (folder / "curves.csv").read_bytes() == before, "what is plotted does not take the place of the table"


def test_the_page_of_a_study_has_question_answer_text_and_claims_and_the_index_its_answer(root, train, capsys):
    folder = train(claims={"gated": CLAIM})
    (folder / "finding.md").write_text("Answer: Yes, by 0.1.\n\n2026-11-22: As *published*.\n")
    make_figures(root, capsys)
    text = study_page(root)
    for part in ("**Do gates help?**", "Yes, by 0.1.", "yes, 1.94 after 2.00", "2026-11-22: As *published*."):
        assert part in text
    assert "- gated (registered): supported. SwiGLU is 0." in text
    assert "Answer:" not in text
    assert "| [glu_variants](findings/glu_variants.md) | Do gates help? | Yes, by 0.1. | – |" in index_of(root)


def test_the_readme_shows_the_figure_and_the_question(root, train, capsys, monkeypatch):
    train(figure="curves")
    monkeypatch.setattr(pages, "FRONT", ("glu_variants", "absent"))
    make_figures(root, capsys)
    readme = (root / "README.md").read_text()
    picture = "![glu_variants: curves](experiments/results/glu_variants/figures/curves.png)"
    assert f"**Do gates help?**\n\n{picture}" in readme
    assert readme.endswith(f"{END}\n\nby hand\n")


def test_a_second_call_writes_nothing(root, train, capsys):
    train(claims={"gated": CLAIM})
    make_figures(root, capsys)
    before = contents(root)
    assert ", 0 of them written anew" in make_figures(root, capsys)
    assert contents(root) == before


def test_a_committed_figure_names_its_command_and_verifies(root, train, capsys):
    file = train() / "figures" / "effects.png"
    make_figures(root, capsys)
    stamp = read_stamp(file.read_bytes())
    assert stamp and stamp["command"] == "ablate analyse glu_variants" and stamp["study"] == "glu_variants"
    assert verify.main([str(file)]) == 0


def test_plotted_data_are_the_effects_with_digits_that_are_equal_on_all_machines(root, train, capsys):
    file = train() / "figures" / "effects.csv"
    make_figures(root, capsys)
    effects = next(study for found in study_files(root) for study in found.trained).case.effects
    table = pandas.read_csv(file)
    assert table[["mean", "low"]].to_numpy() == pytest.approx(effects[["mean", "low"]].to_numpy(), rel=1e-9)
    digits = [number.lstrip("-0.").replace(".", "") for number in re.findall(r"-?\d+\.\d+", file.read_text())]
    assert digits and max(map(len, digits)) <= 10


def recoloured(file: Path) -> bytes:
    """The content of a figure's file after its pixels were changed, with the stamp that it had."""
    stamp = read_stamp(file.read_bytes())
    assert stamp
    with Image.open(io.BytesIO(file.read_bytes())) as image:
        info = PngInfo()
        for key, value in metadata(stamp).items():
            info.add_text(key, value)
        image.convert("L").save(file, pnginfo=info)
    return file.read_bytes()


def test_a_figure_of_the_same_data_stays_until_other_code_draws_it_differently(root, train, capsys, monkeypatch):
    file = train() / "figures" / "effects.png"
    make_figures(root, capsys)
    before = recoloured(file)
    make_figures(root, capsys)
    assert file.read_bytes() == before, "as another machine drew it"
    monkeypatch.setattr("gallery.write.drawing_hash", lambda: "new")
    assert "effects.png" in make_figures(root, capsys)
    drawn = file.read_bytes()
    assert drawn != before
    monkeypatch.setattr("gallery.write.drawing_hash", lambda: "newer")
    assert "effects.png" not in make_figures(root, capsys)
    assert file.read_bytes() == drawn


def test_all_verdicts_are_counted_with_the_false_ones_to_expect(root, train, capsys, undrawn):
    def status(levels: dict[str, Any], seed: int) -> str:
        return "diverged" if (levels["ffn"], seed) == ("gelu", 0) else "done"

    train(status=status, claims={"gated": CLAIM, "late": CLAIM | {"registered": False}})
    train("alone", {"norm": ["ln", "rms"]}, score=lambda levels, seed: 2.0 + 0.01 * (seed % 3))
    make_figures(root, capsys)
    text = index_of(root)
    # Of the study without claims, an effect that is equal in every seed; beside claims, effects are estimates.
    assert ["effects, corrected within each study", "1", "1", "0", "1", "0"] in rows_of(text)
    assert ["registered claims, corrected within each study", "1", "1", "1", "0", "0"] in rows_of(text)
    assert "0.05 × 2 = 0.1 false verdicts are to be expected among the 1 decided verdict of 2 groups" in text
    assert "Left out of that sum" not in text
    assert "1 run diverged" in study_page(root)


def tear_table(folder: Path) -> None:
    table = folder / "runs.csv"
    table.write_bytes(table.read_bytes()[:-40])


def add_empty_folder(folder: Path) -> None:
    (folder.parent / "stray").mkdir()


def remove_marks(folder: Path) -> None:
    (folder.parents[2] / "README.md").write_text("# ours\n")


@pytest.mark.parametrize(
    ("harm", "named"), [(tear_table, "runs.csv"), (add_empty_folder, "stray"), (remove_marks, "README.md")]
)
def test_what_is_damaged_is_refused_in_one_line_and_nothing_is_written(root, train, capsys, harm, named):
    harm(train())
    before = contents(root)
    assert main([str(root)]) == 2
    captured = capsys.readouterr()
    message = captured.out + captured.err
    assert message.count("\n") == 1 and named in message
    assert contents(root) == before


def test_what_helps_joins_the_verdicts_at_two_sizes_and_shows_changes_at_their_own_and_common_rates(
    root, train, capsys, undrawn
):
    """Six FFNs at one size, five of them at another."""
    ffns = {"ffn": ["mlp", "gelu", "silu", "relu2", "swiglu", "glu"]}
    small = {"gelu": -0.2, "silu": -0.3, "relu2": 0.1, "swiglu": -0.1}
    large = {"gelu": -0.2, "silu": 0.2, "relu2": -0.3}

    def score(effects: dict[str, float]) -> Callable[[dict[str, Any], int], float]:
        return lambda levels, seed: plain_score({"as": levels["ffn"]}, seed) + effects.get(levels["ffn"], 0.0)

    rates = [2.0**-i for i in range(6)]
    means = [[2.0 + 0.1 * abs(best - i) for best in range(6)] for i in range(6)]
    cells = {f"c{i}": {"value": rates[i], "scores": means[i], "edge": False} for i in range(6)}
    tuning = {"key": "optim.lr", "values": rates, "seeds": 2, "study": "x-tune", "cells": cells}
    options: Any = {"design": "one_at_a_time", "seeds": range(8)}
    train("catalogue_tuned", ffns, score=score(small), tuning=tuning, **options)
    at_large = {"ffn": [name for name in ffns["ffn"] if name != "glu"]}
    train("catalogue_size", at_large, score=score(large), **options)
    make_figures(root, capsys)
    page = (root / "docs" / "what-helps.md").read_text()
    assert page.startswith("# What helps\n\n**Better at both sizes tried: GELU MLP.**")
    verdicts = {row[0]: row[1] for row in rows_of(page) if len(row) == 5}
    assert verdicts == {
        "change": "verdict",
        "SiLU MLP": "better (worse at the larger size)",
        "GELU MLP": "helps",
        "SwiGLU": "better (undecided at the larger size)",
        "GLU": "not shown",
        "ReLU² MLP": "worse (better at the larger size)",
    }
    rows = {row[0]: row for row in rows_of(page) if len(row) > 5}
    assert [rows[name][4] for name in ("SiLU MLP", "GELU MLP", "SwiGLU")] == ["0.25", "0.5", "0.0625"]
    # SiLU, the third: at the reference's rate, the first, 0.2 above it, at the last four 0.2 below
    assert rows["SiLU MLP"][2:4] == ["+0.200", "4 of 6"]
    assert "6 of 6 configurations. A neighbouring rate costs 0.100" in page
