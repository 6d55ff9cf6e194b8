"""macros.tex: a command with a valid name of its own for every number, and the numbers of the tables."""

import re

import pytest
from analysed_studies import case
from claimed_studies import entry

from ablate import formatting
from analysis.case import Case
from analysis.writing import macros, tables

COMMAND = re.compile(r"\\newcommand\{\\([A-Za-z]+)\}\{(.*)\}")


def unboxed(text: str) -> str:
    return re.sub(r"^\\mbox\{(.*)\}$", r"\1", text)


def commands(found: Case) -> dict[str, str]:
    """The commands by name; fails on a line that is neither one nor a comment, and on a name used twice."""
    texts = {}
    for line in macros.page(found).splitlines():
        if line and not line.startswith("%"):
            match = COMMAND.fullmatch(line)
            assert match, line
            assert match[1] not in texts, line
            texts[match[1]] = unboxed(match[2])
    return texts


@pytest.mark.parametrize(
    "options",
    [
        {"design": "cumulative", "seeds": range(5)},
        {"factors": {"model.layers+model.dim": ["2+64", "-4+128"], "ffn": ["mlp", "relu2"]}, "design": "one_at_a_time"},
        {"factors": {"ffn": ["mlp", "a-b", "a_b", "a b"], "optim.lr": [0.001, 0.003, 1e-5]}},
    ],
)
def test_every_effect_and_cell_has_its_numbers(tmp_path, options):
    found = case(tmp_path, **options)
    names = commands(found).keys()
    assert len([name for name in names if re.fullmatch("ablCell.*Mean", name)]) == len(found.cells)
    for field in ("Delta", "Low", "High", "P", "Verdict"):
        assert len([name for name in names if name.endswith(field)]) == len(found.effects)


def test_what_is_withheld_has_no_number(tmp_path):
    status = lambda levels, seed: "diverged" if levels["ffn"] == "swiglu" and seed else "done"  # noqa: E731
    texts = commands(case(tmp_path, status=status, seeds=range(4)))
    assert {texts[f"ablFfnSwigluMlp{field}"] for field in ("Delta", "Low", "High", "P", "Sd")} == {"--"}
    assert texts["ablFfnSwigluMlpVerdict"] == "withheld"


def test_values_are_set_alike_in_text_and_formulas():
    expected = {"−1.6 %": r"\ensuremath{-}1.6~\%", "< 0.001": r"\ensuremath{<} 0.001", "3e-3": r"\mbox{3e-3}"}
    expected |= {"–": r"\mbox{--}", "undecided": r"\mbox{undecided}", "1,234": "1,234"}
    assert {text: macros.either_mode(text) for text in expected} == expected


def test_labels_are_spelled_in_letters():
    names = {"ln_std": "LnStd", "relu2": "ReluTwo", "optim.lr=0.001": "OptimLrZeroPointZeroZeroOne", "∂∞": ""}
    names |= {"1e-05": "OneEMinusZeroFive", "-4+128": "MinusFourOneTwoEight", "Delétang": "Deletang"}
    assert {text: macros.spelled(text) for text in names} == names


@pytest.mark.parametrize("end", ["\n", "\x0b", "\u2028"], ids=ascii)
def test_labels_cannot_leave_their_comment(end, tmp_path):
    found = case(tmp_path, {"ffn": ["mlp", f"x{end}\\input{{y}}"]})
    assert "ablFfnXInputYMlpDelta" in commands(found)


def test_numbers_are_those_of_the_tables(tmp_path):
    sides = [{"norm": "rms"}, {"norm": "ln"}]
    claims = {"less": entry({"less": sides}), "greater": entry({"greater": sides})}
    found = case(tmp_path, seeds=range(5), claims=claims, effects={"value": "all", "registered": True})
    texts = commands(found)
    stems = [name.removesuffix("Delta") for name in texts if name.endswith("Delta")]
    rows = [*found.effects.itertuples(), *found.claims.itertuples()]
    corrected = [*found.effects["p_bonferroni"], *found.claims["p_holm"]]
    for stem, row, p in zip(stems, rows, corrected, strict=True):
        shown = f"{texts[f'{stem}Delta']} [{texts[f'{stem}Low']}, {texts[f'{stem}High']}]"
        assert shown == macros.either_mode(tables.difference(row))
        assert texts[f"{stem}P"] == unboxed(macros.either_mode(formatting.p_text(p)))
