"""Claims: every mistake in their grammar, which cells they compare, and when they were written."""

from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from fake_studies import a_cell

from ablate.config.claims import Claim, applicable, metric_problems, read_claims, read_criterion, sides_of, weighed
from ablate.config.designs import DESIGNS
from ablate.config.typed_json import parse
from ablate.planning.earlier_runs import register
from ablate.runs.records import Cell, ClaimEntry, ClaimText

FACTORS = {"ffn": ["mlp", "gelu", "swiglu"], "norm": ["ln", "rms"], "optim.lr": [1e-3, 2e-3]}
GOOD = {"less": [{"ffn": "swiglu"}, {"ffn": ["mlp", "gelu"]}], "metric": "test/loss"}
ALIKE = [{"ffn": "mlp"}, {"ffn": "mlp"}]
PAIR = ["test/loss@512", "test/loss@64"]
CELLS = [
    a_cell(id=f"{ffn}-{norm}-{rate}", label=f"{ffn} + {norm}", levels={"ffn": ffn, "norm": norm, "optim.lr": rate})
    for ffn in FACTORS["ffn"]
    for norm in FACTORS["norm"]
    for rate in FACTORS["optim.lr"]
]


def typed(claim: dict[str, Any]) -> Claim:
    """A claim as it is read."""
    return parse(Claim, claim)


RANKED = {"rank_correlates": [{"ffn": ["mlp", "gelu", "swiglu"]}, [2.1, 2.0, 1.9]]}


@pytest.mark.parametrize(
    "claim",
    [
        GOOD,
        {"greater": [{"ffn": "swiglu", "norm": "ln"}, {"ffn": "mlp"}], "at": {"optim.lr": 1e-3}},
        {"equivalent": [{"norm": "ln"}, {"norm": "rms"}], "margin": "2 %"},
        {"not_greater": GOOD["less"], "margin": 0.3},
        {"not_less": GOOD["less"], "metric": "test/accuracy", "margin": 0.01},
        {"not_greater": ALIKE, "metric": ["test/loss@512", "test/loss@64"], "margin": 0.02},
        {"diverges_more": [{"norm": "ln"}, {"norm": "rms"}]},
        RANKED,
        GOOD | {"at": {"optim.lr": 1e-3, "norm": "ln"}, "than_at": {"norm": "rms"}},
    ],
)
def test_what_claims_may_say(claim):
    read, problems = read_claims({"name": claim}, FACTORS)
    assert problems == [] and read["name"].as_json() == claim
    assert applicable(read, CELLS) == (read, [])


MISTAKES: list[tuple[Any, str]] = [
    ("swiglu wins", "'swiglu wins' must be a mapping; write {less: [SIDE, SIDE]}"),
    ({}, "has no relation; write one of less, greater, equivalent, not_greater, not_less, diverges_more, rank_corr"),
    (GOOD | {"greater": GOOD["less"]}, "has less and greater; make two claims of them"),
    (GOOD | {"metrik": 1}, "no such key: metrik; did you mean metric?"),
    ({"less": [{"ffn": "mlp"}]}, "less: [{'ffn': 'mlp'}] must be two sides; write [{ffn: swiglu}, {ffn: [mlp, ge"),
    ({"less": [{"ffn": "mlp"}, "gelu"]}, "less: [{'ffn': 'mlp'}, 'gelu'] must be two sides"),
    ({"less": [{"ffn": "mlp"}, {}]}, "less: {} must map factors to levels; write {ffn: swiglu} or {ffn: [mlp, gelu]}"),
    ({"less": [{"ffn": "mlp"}, {"fnn": "gelu"}]}, "less: fnn is not a factor of this study; did you mean ffn?"),
    ({"less": [{"ffn": "mlp"}, {"ffn": "swigloo"}]}, "less: ffn has no level swigloo; did you mean swiglu?"),
    ({"less": [{"ffn": "mlp"}, {"ffn": "swiglu(8)"}]}, "less: ffn has no level swiglu(8); there are "),
    ({"less": [{"ffn": "mlp"}, {"ffn": []}]}, "less: ffn has no levels; write at least one"),
    (GOOD | {"margin": "2 %"}, "margin: 2 % must be a number above 0: by how much less at least"),
    ({"diverges_more": GOOD["less"], "margin": 0.1}, "margin: diverges_more takes none; it goes with less, gr"),
    ({"equivalent": GOOD["less"]}, "equivalent needs a margin"),
    ({"less": ALIKE, "metric": "test/loss"}, "less: both sides are {'ffn': 'mlp'}; write what differs"),
    (GOOD | {"metric": PAIR[:1]}, "metric: ['test/loss@512'] must be one metric, or that of side one and that of side"),
    (GOOD | {"metric": PAIR[:1] * 2}, "metric: both are test/loss@512; write it once"),
    (GOOD | {"metric": {"a": 1}}, "metric: {'a': 1} must be one metric, or that of side one and that of side two"),
    ({"diverges_more": GOOD["less"], "metric": PAIR}, "metric: diverges_more counts runs that diverge"),
    (RANKED | {"metric": PAIR}, "metric: rank_correlates ranks by one metric; two go with less"),
    ({"equivalent": ALIKE, "metric": PAIR, "margin": "2 %"}, "margin: 2 % is a share of the training steps"),
    ({"equivalent": GOOD["less"], "margin": True}, "margin: True must be a number above 0"),
    ({"equivalent": GOOD["less"], "margin": "2 percent"}, "or a share of the training steps as in 2 %"),
    (GOOD | {"at": {"optim.lr": 3e-3}}, "at: optim.lr has no level 0.003; there are 0.001, 0.002"),
    *((GOOD | {"at": at}, f"at: {at} must map factors to levels") for at in (None, 5, [{"ffn": "mlp"}])),
    (GOOD | {"at": {"ffn": "mlp"}}, "at: ffn is what its sides compare; leave it out"),
    ({"rank_correlates": [{"ffn": ["mlp", "gelu"]}, [1, 2]]}, "takes one factor's levels, at least 3"),
    (GOOD | {"at": {"norm": "ln"}, "than_at": 5}, "than_at: 5 must map factors to levels"),
    (GOOD | {"at": {"norm": "ln"}, "than_at": {"norm": "lm"}}, "than_at: norm has no level lm; there are ln, rms"),
    (GOOD | {"than_at": {"norm": "ln"}}, "than_at: at has no norm; write there the level that is compared with ln"),
    (
        GOOD | {"at": {"norm": "ln"}, "than_at": {"norm": "ln"}},
        "than_at: at has norm=ln, too; write another level there",
    ),
    (GOOD | {"at": {"norm": "ln"}, "than_at": {"ffn": "mlp"}}, "than_at: at has no ffn; write there"),
    (GOOD | {"at": {"norm": "ln"}, "than_at": {"norm": "rms"}, "metric": PAIR}, "than_at: goes with less, greater, "),
    (
        {"diverges_more": GOOD["less"], "at": {"norm": "ln"}, "than_at": {"norm": "rms"}},
        "than_at: goes with less, greater, equivalent, not_greater and not_less, of one metric, and a margin in its",
    ),
]


@pytest.mark.parametrize(("claim", "message"), MISTAKES, ids=[message[:40] for _, message in MISTAKES])
def test_a_mistake_is_one_line_that_names_the_claim(claim, message):
    _, found = read_claims({"fine": GOOD, "name": claim}, FACTORS)
    assert len(found) == 1 and found[0].key == "claims.name" and message in found[0].message, found


def test_all_mistakes_are_told_at_once():
    claims = {str(i): claim for i, (claim, _) in enumerate(MISTAKES)}
    assert len(read_claims(claims, FACTORS)[1]) == len(MISTAKES)
    assert read_claims([], FACTORS)[1][0].key == "claims"
    (problem,) = read_claims({}, FACTORS, {"norm": "bn"})[1]
    assert str(problem) == "at: norm has no level bn; there are ln, rms"


def test_metrics_are_those_of_the_tasks_at_lengths_that_are_tested():
    tasks = [{"loss": "min"}, {"accuracy": "max"}]
    for metric in ("test/loss", "test/accuracy@128", "test/bpb"):
        assert metric_problems({"a": typed(GOOD | {"metric": metric})}, tasks, [128]) == []
    known = "there are test/accuracy, test/bpb, test/loss"
    bar = "no such metric: test/solved; it needs a task with solved_at in its YAML"
    for metric, said in (("val/loss", known), ("test/loss@64", "nothing is tested at length 64"), ("test/solved", bar)):
        (found,) = metric_problems({"a": typed(GOOD | {"metric": metric})}, tasks, [128])
        assert found.key == "claims.a" and said in found.message


def test_two_metrics_are_one_at_two_lengths():
    tasks, asked = [{"loss": "min"}, {"accuracy": "max"}], [64, 512]

    def wrong(*metrics: str) -> list[str]:
        return [found.message for found in metric_problems({"a": typed(GOOD | {"metric": metrics})}, tasks, asked)]

    assert wrong(*PAIR) == wrong("test/loss", "test/loss@64") == wrong("test/accuracy@512", "test/accuracy") == []
    for other in ("test/accuracy@64", "test/bpb"):
        same = f"metric: test/loss@512 and {other} are not one metric at two lengths or of two statistics"
        assert wrong("test/loss@512", other) == [f"{same}, and have no difference"]
    assert wrong("test/loss", "test/loss_batch") == wrong("test/loss_batch", "test/loss_recalibrated") == []
    assert wrong("test/accuracy", "test/loss_batch") and wrong("test/loss", "test/loss_bat")
    assert wrong("test/loss@512", "test/loss@32") == ["metric: nothing is tested at length 32; add it to eval.lengths"]
    assert len(wrong("test/los", "test/loss@32")) == 2
    assert "timing=isolated" in wrong("train/step_seconds", "test/loss")[0]


def test_sides_are_all_cells_that_have_their_levels_and_what_at_fixes():
    side, other = sides_of(typed(GOOD), CELLS)
    assert side == {f"swiglu-{norm}-{rate}" for norm in ("ln", "rms") for rate in (1e-3, 2e-3)} and len(other) == 8
    assert sides_of(typed(GOOD | {"at": {"norm": "ln", "optim.lr": 1e-3}}), CELLS)[0] == {"swiglu-ln-0.001"}
    assert [len(side) for side in sides_of(typed(RANKED), CELLS)] == [4, 4, 4]


def test_a_difference_at_one_level_is_compared_with_that_at_another():
    claim = GOOD | {"at": {"norm": "ln", "optim.lr": 1e-3}, "than_at": {"norm": "rms"}}
    assert [len(side) for side in sides_of(typed(claim), CELLS)] == [1, 2, 1, 2]
    one, other = weighed(typed(claim), CELLS)
    assert one == {"swiglu-ln-0.001": 1, "mlp-rms-0.001": 0.5, "gelu-rms-0.001": 0.5}
    assert other == {"swiglu-rms-0.001": 1, "mlp-ln-0.001": 0.5, "gelu-ln-0.001": 0.5}
    cells = [cell for cell in CELLS if cell.levels["norm"] == "ln"]
    assert left_out(claim, cells) == ["claims.a: norm=rms has no configuration in this study"]


def test_a_zipped_factor_is_named_by_any_of_its_keys():
    levels = ("2+64", "4+128")
    cells = [a_cell(id=level, label=level, levels={"model.layers+model.dim": level}) for level in levels]
    for key, (few, many) in (("model.dim", (64, 128)), ("model.layers", (2, 4))):
        claim = {"less": [{key: many}, {key: few}]}
        assert sides_of(typed(claim), cells) == [{"4+128"}, {"2+64"}]
    patterns = "window(scale=1e+0)+mha", "mha"
    cells = [a_cell(id=each, label=each, levels={"attention+model.layers": f"{each}+4"}) for each in patterns]
    claim = {"less": [{"attention": patterns[0], "model.layers": 4}, {"attention": patterns[1]}]}
    assert sides_of(typed(claim), cells) == [{patterns[0]}, {patterns[1]}]
    cells = [a_cell(id="x", label="x", levels={"attention+ffn": "window+mha+mlp"})]  # of which key is the pattern?
    assert sides_of(typed({"less": [{"ffn": "mlp"}, {"ffn": "swiglu"}]}), cells) == [set(), set()]


def test_what_a_file_fixes_holds_for_each_claim_that_does_not_compare_it():
    claims = {"a": GOOD, "b": GOOD | {"at": {"norm": "rms"}}}
    fixed, problems = read_claims(claims, FACTORS, {"norm": "ln", "ffn": "mlp"})
    assert not problems and fixed["a"].at == {"norm": "ln"} and fixed["b"].at == {"norm": "rms"}


def left_out(claim: dict[str, Any], cells: list[Cell] = CELLS, **known: Any) -> list[str]:
    """Why a claim cannot be judged in cells of which this is known."""
    return [str(found) for found in applicable({"a": typed(claim)}, cells, **known)[1]]


NORMS = {"less": [{"norm": "rms"}, {"norm": "ln"}]}
TASKS = [f"{cell.levels['norm']} task" for cell in CELLS]


def test_claims_without_cells_or_without_their_metric_are_not_applicable():
    few = [cell for cell in CELLS if cell.levels["ffn"] != "gelu"]
    assert left_out(GOOD, few) == ["claims.a: ffn=gelu has no configuration in this study"]
    assert "both sides hold swiglu + rms" in left_out({"less": [{"ffn": "swiglu"}, {"norm": "rms"}]})[0]
    scored = {"ln task": ["solved", "accuracy"], "rms task": ["accuracy"]}
    for norm, metric, lacks in (("rms", "test/solved", 1), ("ln", "test/solved", 0), ("rms", "test/accuracy@8", 0)):
        claim = {"greater": GOOD["less"], "metric": metric, "at": {"norm": norm}}
        message = "claims.a: metric: the task of its configurations has no test/solved; there is only test/accuracy"
        assert left_out(claim, tasks=TASKS, metrics=scored) == [message] * lacks


def test_scores_of_several_tasks_are_not_compared():
    (found,) = left_out(GOOD, tasks=TASKS)
    assert found.startswith("claims.a: its configurations have 2 tasks") and "at: {" in found
    assert left_out(NORMS, tasks=TASKS) and left_out(RANKED, tasks=TASKS)
    for fine in (GOOD | {"at": {"norm": "ln"}}, {"diverges_more": GOOD["less"]}):
        assert left_out(fine, tasks=TASKS) == []


def test_a_side_without_running_statistics_has_no_loss_by_others():
    running = [cell.levels["norm"] != "ln" for cell in CELLS]
    (found,) = left_out(NORMS | {"metric": "test/loss_batch"}, running=running)
    assert found.endswith(" has no test/loss_batch, as its norms keep no running statistics") and "ln" in found
    assert left_out(NORMS | {"metric": ["test/loss", "test/loss_recalibrated"]}, running=running)
    of_rms = {"less": [{"norm": "rms"}, {"norm": "rms"}], "metric": ["test/loss", "test/loss_batch"]}
    for fine in (NORMS, NORMS | {"metric": ["test/loss_recalibrated", "test/loss"]}, of_rms):
        assert left_out(fine, running=running) == []


def entry(claims: dict[str, Any], earlier: Any, scored: dict[int, set[str]], when: str) -> Any:
    before = earlier.withdrawn | earlier.claims if earlier else {}
    return SimpleNamespace(
        **register({name: typed(each) for name, each in claims.items()}, before, CELLS, scored, when)
    )


def test_a_claim_is_registered_while_no_seed_has_both_sides_scored():
    one_side, both = {"mlp-ln-0.001", "gelu-ln-0.001"}, {"mlp-ln-0.001", "swiglu-rms-0.002"}
    for scored, registered in (({}, True), ({0: one_side}, True), ({0: one_side, 1: {"swiglu-ln-0.001"}}, True)):
        assert entry({"a": GOOD}, None, scored, "t").claims["a"].registered == registered
    assert not entry({"a": GOOD}, None, {0: one_side, 1: both}, "t").claims["a"].registered
    assert entry({"a": GOOD | {"at": {"norm": "ln"}}}, None, {1: both}, "t").claims["a"].registered
    alone = {"not_greater": ALIKE, "metric": PAIR, "margin": 0.02}
    assert entry({"a": alone}, None, {0: {"swiglu-ln-0.001"}}, "t").claims["a"].registered
    assert not entry({"a": alone}, None, {0: one_side}, "t").claims["a"].registered, "a run has both numbers"
    assert not entry({"a": RANKED}, None, {0: one_side}, "t").claims["a"].registered


def test_an_edited_claim_is_written_anew_and_keeps_its_earlier_texts():
    both = {0: {"mlp-ln-0.001", "swiglu-ln-0.001"}}
    first = entry({"a": GOOD}, None, {}, "monday")
    same = entry({"a": GOOD}, first, both, "tuesday")
    assert same.claims["a"] == ClaimEntry(claim=typed(GOOD), written="monday", registered=True)
    turned = {"greater": GOOD["less"]}
    after = entry({"a": turned}, same, both, "wednesday")
    edited = after.claims["a"]
    assert edited.written == "wednesday" and not edited.registered
    assert edited.earlier == [ClaimText(claim=typed(GOOD), written="monday", registered=True)]
    again = entry({"a": GOOD}, after, both, "thursday").claims["a"]
    assert [old.written for old in again.earlier] == ["monday", "wednesday"] and not again.registered


def test_a_claim_that_is_taken_out_is_remembered_and_may_come_back():
    both = {0: {"mlp-ln-0.001", "swiglu-ln-0.001"}}
    first = entry({"a": GOOD}, None, {}, "monday")
    gone = entry({}, first, {}, "tuesday")
    assert gone.claims == {} and gone.claims_hash is None
    assert gone.withdrawn == {"a": replace(first.claims["a"], withdrawn="tuesday", seen=False)}
    assert entry({}, gone, both, "later").withdrawn == gone.withdrawn
    assert entry({}, first, both, "later").withdrawn["a"].seen
    assert entry({"a": GOOD}, gone, both, "wednesday") == first


def design(kind: str, **factors: list[str]) -> list[Cell]:
    """Cells of a design as a manifest has them."""
    last = -1 if kind == "leave_one_out" else 0
    base = tuple(range(len(levels))[last] for levels in factors.values())
    combinations = DESIGNS[kind]([len(levels) for levels in factors.values()], base)
    levels = [{name: factors[name][i] for name, i in zip(factors, cell, strict=True)} for cell in combinations]
    return [a_cell(id="+".join(each.values()), label="", levels=each) for each in levels]


def test_sides_are_weighed_so_that_only_what_they_name_differs():
    """With cell means that are sums of effects of levels, a claim's difference is the effects' own, in any design."""
    factors = {"ffn": ["mlp", "gelu", "glu"], "norm": ["ln", "rms"], "init": ["a", "b"], "position": ["no", "rope"]}
    effect = {level: 10.0**i for i, level in enumerate(level for levels in factors.values() for level in levels)}
    claim = {"less": [{"ffn": ["gelu", "glu"]}, {"ffn": "mlp"}]}
    for kind in ("grid", "one_at_a_time", "leave_one_out", "cumulative"):
        few = {"cumulative": {"ffn": ["mlp", "gelu"]}, "leave_one_out": {"ffn": ["gelu", "mlp"]}}.get(kind, {})
        cells = design(kind, **factors | few)
        asked = claim | ({"less": [{"ffn": "gelu"}, {"ffn": "mlp"}]} if few else {})
        means = {cell.id: sum(effect[level] for level in cell.levels.values()) for cell in cells}
        one, other = weighed(typed(asked), cells)
        assert sum(one.values()) == pytest.approx(1) == sum(other.values())
        found = sum(w * means[c] for c, w in one.items()) - sum(w * means[c] for c, w in other.items())
        upper = effect["gelu"] if few else (effect["gelu"] + effect["glu"]) / 2
        assert found == pytest.approx(upper - effect["mlp"]), kind
    assert applicable({"a": typed(claim)}, design("one_at_a_time", **factors)) == ({"a": typed(claim)}, [])


def test_a_side_weighs_every_level_of_the_others_alike_however_many_cells_it_has_there():
    cells = [cell for cell in design("grid", ffn=["mlp", "gelu", "glu"], norm=["ln", "rms"]) if cell.id != "glu+rms"]
    one, other = weighed(typed({"less": [{"ffn": ["gelu", "glu"]}, {"ffn": "mlp"}]}), cells)
    assert one == {"gelu+ln": 0.25, "glu+ln": 0.25, "gelu+rms": 0.5} and other == {"mlp+ln": 0.5, "mlp+rms": 0.5}
    alone = weighed(typed({"less": [{"ffn": "glu"}, {"ffn": ["mlp", "gelu"]}]}), cells)
    assert alone == [{"glu+ln": 1.0}, {"mlp+ln": 0.5, "gelu+ln": 0.5}], "rms is on one side only"


def test_sides_that_differ_in_what_they_do_not_name_are_refused():
    cells = design("one_at_a_time", ffn=["mlp", "gelu"], norm=["ln", "rms"], init=["a", "b"])
    claim = {"less": [{"ffn": "gelu"}, {"norm": "rms"}]}
    assert applicable({"a": typed(claim)}, cells)[0], "both have every other factor at its first value"
    broken = [cell for cell in cells if cell.id not in ("mlp+ln+a", "mlp+rms+a")]
    claim = {"less": [{"ffn": "gelu"}, {"ffn": "mlp"}]}
    (problem,) = applicable({"a": typed(claim)}, broken)[1]
    assert "no levels of the other factors in common" in problem.message and "use `at`" in problem.message


def test_what_counts_as_replicated():
    both = ["a", "b"]
    for given, of, needed in ((["a"], ["a"], 1), (both, both, 2), ({"of": both}, both, 2)):
        found, problems = read_criterion(given, both)
        assert problems == [] and found is not None and (found.of, found.needed) == (of, needed)
    found, problems = read_criterion({"at_least": 1, "of": both}, both)
    assert problems == [] and found is not None and (found.of, found.needed) == (both, 1)
    assert read_criterion(None, ["a"]) == (None, [])


LISTED = "must list claims; write [CLAIM, CLAIM], all to be supported, or {at_least: 2, of: [CLAIM, CLAIM, CLAIM]}"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("gated", [LISTED]),
        ([], [LISTED]),
        ({"at_least": 2}, [LISTED]),
        (["gatd"], ["no such claim: gatd; did you mean gated?"]),
        (["gated", "gated"], ["has gated twice; write each claim once"]),
        ({"at_least": 3, "of": ["gated", "order"]}, ["at_least: 3 must be a number of its claims, 1 to 2"]),
        ({"atleast": 1, "of": ["gated"]}, ["no such key: atleast; did you mean at_least?"]),
    ],
)
def test_every_mistake_in_what_counts_as_replicated_is_one_line(given, said):
    found, problems = read_criterion(given, ["gated", "order"])
    assert found is None and [(each.key, each.message) for each in problems] == [("replicated", text) for text in said]
