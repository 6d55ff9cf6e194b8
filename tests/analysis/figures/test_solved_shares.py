"""Tasks that are solved or not, as figures, tables and methods show them: shares from 0 to 1, with exact intervals."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import matplotlib
import numpy as np
import pytest
from fake_studies import TASK, Levels, edit_manifest, fabricate
from scipy import stats

from ablate.results.study import load_study
from analysis import figures
from analysis.case import Case, case_of
from analysis.case.figures_yaml import Edits
from analysis.figures.draw import style
from analysis.figures.draw.page import page_of
from analysis.writing import methods
from analysis.writing.sentences import sentences

N = 12
MEASURED = TASK | {"metrics": {"accuracy": "max"}, "yardsticks": {}}
SOLVED = TASK | {"metrics": {"solved": "max", "accuracy": "max"}, "shares": ["solved", "accuracy"], "solved_at": 0.9}


def shared(folder: Path, **options: Any) -> Case:
    """Of norm × ffn, ln solves in 1 of 12 seeds, rms with mlp in 10 (two runs diverged), rms with swiglu in 12."""

    def score(levels: Levels, seed: int) -> float:
        return 0.95 if levels["norm"] == "rms" or seed == 0 else 0.3

    def status(levels: Levels, seed: int) -> str:
        return "diverged" if levels == {"norm": "rms", "ffn": "mlp"} and seed in (3, 4) else "done"

    factors = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
    name = fabricate(folder, factors, range(N), score, status, tasks={"f0": MEASURED}, **options)
    edit_manifest(folder, name, lambda manifest: manifest.update(tasks={"f0": SOLVED}))
    return case_of(load_study(folder, name), folder)


def drawn(name: str, given: Case) -> tuple[Any, Any]:
    wanted = Edits(figures=[name])
    table = figures.tables(given, wanted)[name]
    with matplotlib.rc_context(style.RC):
        return table, figures.KINDS[name].draw(table, page_of(given.study.manifest, wanted))


def clopper_pearson(count: int, n: int, tail: float) -> tuple[float, float]:
    found = stats.binomtest(count, n).proportion_ci(1 - 2 * tail, method="exact")
    return float(found.low), float(found.high)


@pytest.mark.parametrize("unpaired", [False, True])
def test_a_marginal_share_has_its_exact_interval(tmp_path: Path, unpaired: bool) -> None:
    given = shared(tmp_path, **({"batches": lambda levels: str(levels)} if unpaired else {}))
    table, figure = drawn("main_effects", given)
    rows = table[table["factor"] == "norm"].set_index("level")
    assert np.allclose(rows.loc[["ln", "rms"], "mean"], [1 / 12, 22 / 24])
    # Of two cells a share takes the values 0, 1/2, 1: two bounds at each end, of both cells where they are independent.
    counts = (12, 10)
    bounds = [clopper_pearson(count, N, 0.05 / 4) for count in counts]
    assert (rows.loc["rms", "low"], rows.loc["rms", "high"]) == pytest.approx(tuple(np.mean(bounds, axis=0)))
    assert table["low"].ge(0).all() and table["high"].le(1).all()
    assert table.attrs["caption"][0].endswith(
        "exact 95 % intervals of each share, 12 seeds, not corrected for their number"
    )
    assert figure.axes[0].get_ylabel().replace("\n", " ") == "share of runs solved"
    assert figure.axes[0].get_ylim() == pytest.approx((-0.03, 1.03))


def test_differences_of_shares_in_the_map_are_decided_by_their_exact_intervals(tmp_path: Path) -> None:
    table, _ = drawn("interactions", shared(tmp_path))
    cells = table[table["one"].notna()].set_index("level")
    low = clopper_pearson(9, N, 0.05 / 4)[0] - clopper_pearson(0, N, 0.05 / 4)[1]
    found = cells.loc["rms, mlp"]
    assert found["difference"] == pytest.approx(9 / 12) and found["difference"] - found["half"] == pytest.approx(low)
    same = cells.loc["ln, swiglu"]  # equal shares: a difference of zero that nothing shows to be one
    assert same["difference"] == 0 and same["half"] == pytest.approx(clopper_pearson(0, N, 0.05 / 4)[1])
    assert "the side of its exact 95 % interval towards zero" in table.attrs["caption"][0]


def test_a_share_beside_a_published_number_has_its_exact_interval(tmp_path: Path) -> None:
    ranked = {"rank_correlates": [{"ffn": ["mlp", "swiglu"]}, [1.0, 2.0]]}
    entry = {"claim": ranked, "written": "2026-01-01", "registered": True}
    given = shared(tmp_path, claims={"theirs": entry})
    table, _ = drawn("proxy", given)
    # Of norm × ffn the difference of two means takes −1, −1/2, … 1: a bound for each of four steps, at each end.
    bounds = [clopper_pearson(count, N, 0.05 / 8) for count in (0, 2, 12, 12)]
    low, high = np.sum(bounds, axis=0) / 2 - 1
    found = table.set_index("level").loc["swiglu"]
    assert found["mean"] == pytest.approx(1 / 12), "a run that diverged did not solve it"
    assert (found["low"], found["high"]) == pytest.approx((low, high))
    assert "bars: exact 95 % intervals within seeds, 12 seeds" in table.attrs["caption"][0]
    beside = {"theirs": entry | {"claim": ranked | {"metric": "test/accuracy"}}}
    table, _ = drawn("proxy", shared(tmp_path / "beside", claims=beside))
    assert table["low"].isna().all() and "no interval" in table.attrs["caption"][0]


def test_axes_captions_and_words_name_the_share(tmp_path: Path) -> None:
    given = shared(tmp_path)
    for name in ("effects", "seeds"):
        _, figure = drawn(name, given)
        label = " ".join(axis.get_xlabel() for axis in figure.axes)
        assert "share of runs solved" in label and "test/solved" not in label
    assert figure.axes[0].get_xlim() == pytest.approx((-0.03, 1.03))
    assert "(Bonferroni, exact, family of 3)" in drawn("effects", given)[0].attrs["caption"][0]
    text = methods.markdown(given)
    assert "exact intervals" in text and " t intervals" not in text
    assert "2 diverged; those that diverged count as unsolved." in text
    assert "undecided (2 runs diverged on each side), test share of runs solved +0.833 [" in " ".join(sentences(given))


def test_what_counts_as_solved_while_training_is_what_the_task_names(tmp_path: Path) -> None:
    given = shared(tmp_path)
    given.study.curves["val/accuracy"] = np.where(given.study.curves["step"] >= 400, 0.95, 0.3)
    table = figures.tables(given, Edits(figures=["solved"]))["solved"]
    assert table["share"].max() == 1 and table.attrs["caption"][0].startswith("solved: 0.9 or more on the validation")
