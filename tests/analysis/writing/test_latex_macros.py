"""macros.tex: every number has a command, every name is valid and its own, every value is the table's."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
from analysed_studies import case
from claimed_studies import entry

from ablate import evidence, formatting
from analysis.case import Case
from analysis.writing import latex, latex_macros, tables

NORMAL = "if differences are roughly normal"  # which fewer than twelve seeds cannot show
GRID = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
COMMAND = re.compile(r"\\newcommand\{\\([A-Za-z]+)\}\{(.*)\}")


def commands(found: Case) -> dict[str, str]:
    """The commands of the page by name; fails on a line that is neither one nor a comment, and on a name used twice."""
    lines = [line for line in latex_macros.page(found).splitlines() if line and not line.startswith("%")]
    read = [COMMAND.fullmatch(line) for line in lines]
    assert all(read), [line for line, match in zip(lines, read, strict=True) if not match]
    assert len({match[1] for match in read if match}) == len(read)
    return {match[1]: unboxed(match[2]) for match in read if match}


def unboxed(text: str) -> str:
    return re.sub(r"^\\mbox\{(.*)\}$", r"\1", text)


STUDIES: list[dict[str, Any]] = [
    {"seeds": range(6)},
    {"seeds": [0]},
    {"design": "cumulative", "seeds": range(5)},
    {"factors": {"norm": ["ln", "rms"], "optim.lr": [0.001, 0.003, 1e-5]}, "seeds": range(3)},
    {"factors": {"model.layers+model.dim": ["2+64", "-4+128"], "ffn": ["mlp", "relu2"]}, "design": "one_at_a_time"},
    {"status": lambda levels, seed: "diverged" if levels["ffn"] == "swiglu" and seed else "done", "seeds": range(4)},
]  # fmt: skip


@pytest.mark.parametrize("options", STUDIES)
def test_names_are_valid_and_every_effect_and_cell_has_its_numbers(tmp_path: Path, options: dict[str, Any]) -> None:
    found = case(tmp_path, **options)
    read = commands(found)
    assert all(re.fullmatch("abl[A-Z][A-Za-z]*", name) for name in read)
    deltas = [name for name in read if name.endswith("Delta")]
    means = [name for name in read if name.startswith("ablCell") and name.endswith("Mean")]
    assert len(deltas) == len(found.effects) and len(means) == len(found.cells)
    for name in deltas:
        stem = name.removesuffix("Delta")
        assert {f"{stem}{field}" for field in ("Low", "High", "P", "N", "Sd", "Dz", "Verdict", "Lost")} <= read.keys()


@pytest.mark.parametrize(
    ("worth", "said"),
    [(0.09, "+9 %"), (-0.1, "−10 %"), (0.41, "more than +25 %"), (float("inf"), "more than +25 %"),
     (-1.0, "less than −20 %"), (float("nan"), "–")],
)  # fmt: skip
def test_steps_beyond_what_was_measured_have_no_number(worth: float, said: str) -> None:
    assert latex_macros._worth(worth) == said


def test_a_worth_without_bounds_is_none(tmp_path: Path) -> None:
    found = case(tmp_path, {"ffn": ["mlp", "swiglu"]})
    wild = found.effects.assign(worth=0.1, worth_low=-1.0, worth_high=float("inf"))
    assert commands(found._replace(effects=wild))["ablFfnSwigluWorth"] == "--"


def test_what_is_withheld_has_no_number(tmp_path: Path) -> None:
    read = commands(case(tmp_path, **STUDIES[-1]))
    assert {read[f"ablFfnSwiglu{field}"] for field in ("Delta", "Low", "High", "P", "Sd", "Dz")} == {"--"}
    assert read["ablFfnSwigluVerdict"] == "withheld" and read["ablFfnSwigluLost"] == "6"


def test_values_are_the_tables(tmp_path: Path) -> None:
    found = case(tmp_path, seeds=range(6))
    read = {
        name: text.replace(r"\ensuremath{-}", "−").replace(r"\ensuremath{<}", "<")
        for name, text in commands(found).items()
    }
    row = next(found.effects.query("label == 'ffn: swiglu − mlp'").itertuples())
    sheet = tables.effects_sheet(found)
    shown = dict(zip(sheet.head, next(texts for texts in sheet.rows if texts[0] == row.label), strict=True))
    delta, low, high = (read[f"ablFfnSwiglu{field}"] for field in ("Delta", "Low", "High"))
    assert f"{delta} [{low}, {high}]" == shown["test/loss, difference [95 %]"]
    assert read["ablFfnSwigluP"] == shown["p (Holm; exploratory: BH)"] and read["ablFfnSwigluN"] == shown["n"]
    assert float(delta.replace("−", "-")) == pytest.approx(row.mean, abs=10.0 ** -len(delta.split(".")[1]))
    assert (
        read["ablFfnSwigluDz"] == formatting.number(row.mean / row.sd, 2)
        and read["ablFfnSwigluVerdict"] == f"better, {NORMAL}"
    )
    cell = next(found.cells.query("label == 'ln + swiglu'").itertuples())
    cells = tables.cells_sheet(found)
    shown = dict(zip(cells.head, next(texts for texts in cells.rows if texts[0] == cell.name), strict=True))
    assert f"{read['ablCellLnSwigluMean']} ± {read['ablCellLnSwigluSd']}" == shown["test/loss, mean ± SD"]
    assert read["ablCellLnSwigluParams"] == f"{cell.params:,}" == shown["parameters"]
    assert read["ablCellLnSwigluParamsChange"] == latex.escape(shown["to reference"])
    assert read["ablStudyRuns"] == "24" and read["ablStudyDone"] == "24"


def test_values_are_set_alike_in_text_and_in_formulas() -> None:
    assert (
        latex_macros.either_mode("−1.6 %") == r"\ensuremath{-}1.6 \%"
        and latex_macros.either_mode("< 0.001") == r"\ensuremath{<} 0.001"
    )
    assert (
        latex_macros.either_mode("undecided") == r"\mbox{undecided}" and latex_macros.either_mode("–") == r"\mbox{--}"
    )
    assert latex_macros.either_mode("3e-3") == r"\mbox{3e-3}" and latex_macros.either_mode("1,234") == "1,234"


def test_names_that_would_be_equal_are_told_apart_in_the_order_of_the_tables(tmp_path: Path) -> None:
    factors = {"ffn": ["mlp", "a-b", "a_b", "a b"]}
    found = case(tmp_path, factors)
    names = [macro.name for macro in latex_macros.macros(found)]
    deltas = [macro.name for macro in latex_macros.macros(found) if macro.field == "Delta"]
    assert deltas == ["ablFfnABDelta", "ablFfnABBDelta", "ablFfnABCDelta"] and len(set(names)) == len(names)


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("swiglu", "Swiglu"),
        ("ln_std", "LnStd"),
        ("relu2", "ReluTwo"),
        ("optim.lr=0.001", "OptimLrZeroPointZeroZeroOne"),
        ("1e-05", "OneEMinusZeroFive"),
        ("-4+128", "MinusFourOneTwoEight"),
        ("Delétang", "Deletang"),
        ("∂∞", ""),
    ],
)
def test_labels_are_spelled_in_letters(text: str, name: str) -> None:
    assert latex_macros.spelled(text) == name


@pytest.mark.parametrize("end", ["\n", "\r", "\x0b", "\x0c", "\x85", "\u2028", "\u2029"], ids=ascii)
def test_labels_cannot_leave_their_comment(end: str, tmp_path: Path) -> None:
    found = case(tmp_path, {"ffn": ["mlp", f"x{end}\\input{{y}}"]})
    assert "ablFfnXInputYDelta" in commands(found)
    assert not any(line.startswith("\\input") for line in latex_macros.page(found).splitlines())


def claim(claim: dict[str, Any], registered: bool = True) -> dict[str, Any]:
    return {"claim": claim, "written": "2026-01-01T00:00:00+00:00", "registered": registered, "earlier": []}


def test_claims_have_their_numbers(tmp_path: Path) -> None:
    claims = {
        "gated_better": claim({"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}], "metric": "test/loss"}),
        "same-2": claim(
            {"equivalent": [{"norm": "rms"}, {"norm": "ln"}], "metric": "test/loss", "margin": 0.01}, False
        ),
    }
    found = case(tmp_path, seeds=range(8), claims=claims)
    read = {
        name: text.replace(r"\ensuremath{-}", "−").replace(r"\ensuremath{<}", "<")
        for name, text in commands(found).items()
    }
    rows = {texts[0]: texts for texts in tables.claims_sheet(found).rows}
    for name, stem in (("gated_better", "ablClaimGatedBetter"), ("same-2", "ablClaimSameTwo")):
        delta, low, high = (read[f"{stem}{field}"] for field in ("Delta", "Low", "High"))
        assert [f"{delta} [{low}, {high}]", read[f"{stem}P"]] == rows[name][3:5]
        assert rows[name][-1].startswith(read[f"{stem}Verdict"].partition(",")[0]) and read[f"{stem}N"] == rows[name][2]
    assert read["ablClaimGatedBetterVerdict"] == f"supported, {NORMAL}" and read["ablClaimSameTwoMargin"] == "0.010"
    assert len([name for name in read if name.startswith("ablClaim") and name.endswith("Sd")]) == 2


def test_worth_and_a_margin_in_steps_are_written_as_in_the_tables(tmp_path: Path) -> None:
    margin = {"value": "5 %", "written": "2026-01-01T00:00:00+00:00", "registered": True, "earlier": []}
    found = case(tmp_path, {"norm": ["ln", "rms"]}, seeds=range(5), margin=margin)
    row = {"worth": 0.0004, "worth_low": -0.016, "worth_high": 0.0164}
    read = commands(found._replace(effects=found.effects.assign(**row)))
    assert evidence.worth_words(next(found.effects.assign(**row).itertuples())).startswith(
        "worth 0.0 % [−1.6, 1.6] more"
    )
    assert [read[f"ablNormRmsWorth{end}"] for end in ("", "Low", "High")] == [
        r"0.0 \%", r"\ensuremath{-}1.6 \%", r"+1.6 \%"
    ]  # fmt: skip
    assert read["ablNormRmsMargin"] == r"5 \%"


def test_p_and_digits_are_those_of_the_tables(tmp_path: Path) -> None:
    """Corrected p, and the digits of half of an interval: four of 0.0075, where the whole, 0.015, takes three."""
    sides = {name: {name: [{"norm": "rms"}, {"norm": "ln"}]} for name in ("less", "greater")}
    found = case(tmp_path, seeds=range(5), claims={name: entry(claim) for name, claim in sides.items()})
    read = commands(found)
    rows = [*found.effects.itertuples(), *found.claims.itertuples()]
    stems = [name.removesuffix("Delta") for name in read if name.endswith("Delta")]
    for stem, row in zip(stems, rows, strict=True):
        shown = {
            at: unboxed(latex_macros.either_mode(formatting.p_text(p)))
            for at, p in row._asdict().items()
            if at[:1] == "p"
        }
        assert read[f"{stem}P"] == shown["p_holm" if row.family else "p_bh"]
    for table in (found.effects, found.claims):
        seen = table[table["family"] & (table["p_holm"] > 1.5 * table["p"]) & (table["p"] > 0.01)]
        assert len(seen), "or raw p would do"
    narrow = found.effects.assign(mean=0.0115, low=0.004, high=0.019, sd=0.01, verdict="undecided")
    (row,) = narrow.iloc[[0]].itertuples()
    assert [latex_macros._effect(row)[name] for name in ("Delta", "Low", "High")] == ["+0.0115", "+0.0040", "+0.0190"]
