"""Claims of study files: what they may say, and every mistake in one line."""

from typing import Any

import pytest
from claimed_cells import CELLS, FACTORS, LENGTHS, LESS, RANKED, typed

from ablate.config.claims import applicable, metric_problems, read_claims, read_criterion
from ablate.config.errors import Problem

SIDES = LESS["less"]
SAME = [{"ffn": "mlp"}, {"ffn": "mlp"}]
AT_LN = LESS | {"at": {"norm": "ln"}}


@pytest.mark.parametrize(
    "claim",
    [
        LESS,
        {"greater": [{"ffn": "swiglu", "norm": "ln"}, {"ffn": "mlp"}], "at": {"optim.lr": 1e-3}},
        {"equivalent": [{"norm": "ln"}, {"norm": "rms"}], "margin": "2 %"},
        {"not_greater": SIDES, "margin": 0.3},
        {"not_less": SIDES, "metric": "test/accuracy", "margin": 0.01},
        {"not_greater": SAME, "metric": LENGTHS, "margin": 0.02},
        {"diverges_more": [{"norm": "ln"}, {"norm": "rms"}]},
        RANKED,
        LESS | {"at": {"optim.lr": 1e-3, "norm": "ln"}, "than_at": {"norm": "rms"}},
    ],
)
def test_what_claims_may_say(claim):
    read, problems = read_claims({"name": claim}, FACTORS)
    assert problems == []
    assert read["name"].as_json() == claim
    assert applicable(read, CELLS) == (read, [])


SHARE = "write a number above 0, or for equivalent, of one metric, a share such as 2 %"
MISTAKES: list[tuple[Any, str]] = [
    # its form
    ("swiglu wins", "'swiglu wins' must be a mapping; write {less: ["),
    ({}, "has no relation; write one of less, greater, equivalent, not_greater, not_less, diverges_more, rank_corr"),
    (LESS | {"greater": SIDES}, "has less and greater; write one of less, greater"),
    (LESS | {"metrik": 1}, "no such key: metrik; did you mean metric?"),
    # its sides
    ({"less": [{"ffn": "mlp"}]}, "cannot be read: Expected array of length 2, got 1 - at $.less; write {less: ["),
    ({"less": [{"ffn": "mlp"}, {"fnn": "gelu"}]}, "less: fnn is not a factor of this study; did you mean ffn?"),
    ({"rank_correlates": [{"ffn": ["mlp", "gelu"]}, [1, 2]]}, "takes one factor's levels, at least 3"),
    # its margin
    (LESS | {"margin": "2 %"}, f"margin: 2 %: {SHARE}"),
    (LESS | {"margin": 0}, "margin: 0 must be above 0"),
    ({"diverges_more": SIDES, "margin": 0.1}, "margin: diverges_more takes none; it goes with less, greater"),
    ({"equivalent": SIDES}, "equivalent needs a margin"),
    ({"equivalent": SIDES, "margin": "2 percent"}, SHARE),
    ({"equivalent": SAME, "metric": LENGTHS, "margin": "2 %"}, SHARE),
    # its metrics
    ({"diverges_more": SIDES, "metric": "test/loss"}, "metric: diverges_more counts runs that diverge"),
    (RANKED | {"metric": LENGTHS}, "than_at, or else two metrics, go with less"),
    # where it is compared
    (LESS | {"at": None}, "cannot be read: Expected object, got null - at $.at"),
    (LESS | {"at": {"optim.lr": 3e-3}}, "at: optim.lr has no level 0.003; there are 0.001, 0.002"),
    (AT_LN | {"than_at": {"norm": "rms"}, "metric": LENGTHS}, "than_at, or else two metrics, go with less"),
]


@pytest.mark.parametrize(("claim", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_a_mistake_is_one_line_that_names_the_claim(claim, message):
    read, [problem] = read_claims({"fine": LESS, "name": claim}, FACTORS)
    assert list(read) == ["fine"]
    assert problem.key == "claims.name"
    assert message in problem.message


def test_claims_are_a_mapping():
    assert read_claims([], FACTORS)[1][0].key == "claims"


TASKS = [{"loss": "min"}, {"accuracy": "max"}]


def about(*metrics: str) -> list[str]:
    """What is wrong with the metrics of a claim where tests have the lengths 64 and 512."""
    claim = typed(LESS | {"metric": metrics[0] if len(metrics) == 1 else list(metrics)})
    return [problem.message for problem in metric_problems({"a": claim}, TASKS, [64, 512])]


@pytest.mark.parametrize(
    "metrics",
    [
        ["test/loss"],
        ["test/accuracy@512"],
        ["test/bpb"],
        LENGTHS,
        ["test/loss", "test/loss@64"],
        ["test/loss", "test/loss_batch"],
    ],
)
def test_metrics_are_those_of_the_tasks_at_lengths_that_are_tested(metrics):
    assert about(*metrics) == []


@pytest.mark.parametrize(
    ("metrics", "message"),
    [
        (["val/loss"], "no such metric: val/loss; there are test/accuracy, test/bpb, test/loss"),
        (["test/loss@32"], "metric: nothing is tested at length 32; add it to eval.lengths"),
        (["test/loss@512", "test/accuracy@64"], "metric: test/loss@512 and test/accuracy@64 are not one metric at two"),
        (["test/loss@512", "test/bpb"], "metric: test/loss@512 and test/bpb are not one metric at two lengths or of"),
    ],
    ids=str,
)
def test_a_wrong_metric_is_one_line(metrics, message):
    [line] = about(*metrics)
    assert line.startswith(message)


def test_a_study_may_say_which_claims_count_as_replicated():
    problems: list[Problem] = []
    criterion = read_criterion(["a", "b"], ["a", "b", "c"], problems)
    assert criterion and criterion.of == ["a", "b"]
    assert read_criterion(None, ["a"], problems) is None
    assert problems == []


LISTED = "must list the claims that must all be supported; write [CLAIM, CLAIM]"


@pytest.mark.parametrize(
    ("content", "message"), [("gated", LISTED), ([], LISTED), (["gatd"], "no such claim: gatd; did you mean gated?")]
)
def test_a_mistake_in_what_counts_as_replicated_is_one_line(content, message):
    problems: list[Problem] = []
    read_criterion(content, ["gated", "order"], problems)
    assert problems == [("replicated", message)]
