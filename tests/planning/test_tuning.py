"""Tuning: rounds of a command on the small text, with results written by hand, and one real command line."""

import re

import pytest
from fake_studies import edit_json
from one_run import carry_out, sweep_here
from planned_rounds import BOWL, TUNING, bowl, rounds, write

from ablate import evidence
from ablate.cli.preview import preview
from ablate.config.errors import Refused
from ablate.planning.plan import Plan, PlanError
from ablate.planning.tuning import choose, doubt, extended, smallest_near
from ablate.runs.files import write_json
from ablate.runs.folder import Run
from ablate.runs.study import load_study

VALUES = [1e-3, 3e-3, 1e-2]
GRID = "tune.values=[1e-3,3e-3,1e-2]"
TUNE = ["tune.key=optim.lr", GRID, "seeds=3"]
pytestmark = pytest.mark.usefixtures("untried", "uncounted")


def rates(plan: Plan) -> dict[str, float]:
    """The learning rate of each cell."""
    return {cell.label: cell.config.optim.lr for cell in plan.manifest.cells}


def test_each_cell_is_scored_at_its_own_best_value_on_fresh_seeds(plan, capsys):
    code, plans, trained = rounds(plan, "norm=ln,rms", *TUNE)
    tuning, study = plans[0].manifest, plans[-1].manifest
    assert code == 0 and trained == 2 * 3 * 2 + 2 * 3
    assert tuning.study == f"{study.study}-tune" and tuning.tunes == study.study
    assert tuning.factors == {"norm": ["ln", "rms"], "optim.lr": VALUES}
    assert tuning.seeds == [TUNING, TUNING + 1] and study.seeds == [0, 1, 2]
    assert evidence.endpoint(tuning) == "val/loss" and evidence.endpoint(study) == "test/loss"
    assert rates(plans[-1]) == {"ln": 3e-3, "rms": 1e-2}
    assert len({cell.batches for cell in study.cells}) == 1, "a tuned learning rate leaves batches paired"
    out = capsys.readouterr().out
    assert "optim.lr tuned per configuration" in out and out.count("effects, simultaneous") == 1
    record = study.tuning
    assert (record.key, record.values, record.seeds, record.study) == ("optim.lr", VALUES, 2, tuning.study)
    for cell in study.cells:
        means = [(bowl(cell.levels, lr, TUNING) + bowl(cell.levels, lr, TUNING + 1)) / 2 for lr in VALUES]
        assert record.cells[cell.id].value == BOWL[cell.label]
        assert record.cells[cell.id].scores == pytest.approx(means)


def test_a_stopped_command_goes_on_where_it_was_stopped_and_then_has_nothing_to_do(plan):
    assert rounds(plan, "norm=ln,rms", *TUNE, stop_after=1)[::2] == (130, 1)
    assert rounds(plan, "norm=ln,rms", *TUNE)[::2] == (0, 12 + 6 - 1)
    assert rounds(plan, "norm=ln,rms", *TUNE)[::2] == (0, 0)


def test_a_confirmation_has_the_tuned_values_and_takes_no_tuning_seeds(plan):
    study = rounds(plan, "norm=ln,rms", *TUNE)[1][-1].manifest
    code, plans, trained = rounds(plan, "norm=ln,rms", *TUNE, "confirm=4")
    confirmed = plans[-1].manifest
    assert code == 0 and trained == 8 and confirmed.seeds == [3, 4, 5, 6]
    assert confirmed.confirms == study.study and confirmed.tuning == study.tuning


def test_best_values_at_an_edge_are_flagged(plan, capsys):
    last = rounds(plan, "norm=ln,rms", *TUNE, "seeds=2")[1][-1]
    flag = "rms: the chosen optim.lr (0.01) is the largest tried; tune.extend=true extends the grid"
    assert [cell.edge for cell in last.manifest.tuning.cells.values()] == [False, True]
    assert flag in capsys.readouterr().out and flag in preview(last)
    low = doubt("optim.lr", [3e-3, 1e-2, 3e-2], 0, [2.0, 2.1, 2.2])
    assert low.startswith("the chosen optim.lr (0.003) is the smallest tried")


def test_a_diverged_value_counts_as_worst_and_is_never_a_number(plan):
    def score(levels, lr, seed):
        return float("nan") if lr == BOWL[levels["norm"]] and seed == TUNING + 1 else bowl(levels, lr, seed)

    study = rounds(plan, "norm=ln,rms", *TUNE, score=score)[1][-1].manifest
    assert [cell.value for cell in study.tuning.cells.values()] == [1e-3, 3e-3]
    assert [cell.scores.index(None) for cell in study.tuning.cells.values()] == [1, 2]
    [row] = evidence.common_rows(study)[1]
    assert row[2:] == ["3e-3 diverged", "0.01 diverged"]
    assert "runs diverged at every optim.lr that was tried" in doubt("optim.lr", [1.0, 2.0], 0, [None, None])


@pytest.mark.parametrize(
    ("means", "is_loss", "best"),
    [
        ([2.0, 1.0, 1.0], True, 1),
        ([2.0, 1.0, 2.0], False, 0),
        ([None, 3.0], True, 1),
        ([None, 0.1], False, 1),
        ([None, None], True, 0),
    ],
)
def test_the_best_is_the_first_of_equals_in_the_tasks_direction(means, is_loss, best):
    assert choose(means, is_loss) == best


@pytest.mark.parametrize(
    ("grid", "requested", "best", "added"),
    [
        (VALUES, VALUES, [1, 1], []),
        (VALUES, VALUES, [2, 1], [0.0333]),
        (VALUES, VALUES, [2, 0], [0.000333, 0.0333]),
        ([10, 100], [10, 100], [1], [1000]),
        ([1, 2], [1, 2], [0], []),  # no whole number lies below
        ([1.0, 2.0, 4.0, 8.0, 16.0, 32.0], [1.0, 2.0], [5], []),  # four values were added
    ],
)
def test_a_grid_goes_on_by_the_ratio_of_its_outermost_values(grid, requested, best, added):
    assert extended(grid, requested, best) == [*grid, *added]


def test_extension_goes_on_for_every_cell_alike_and_resumes(plan):
    lowest = {"ln": 3e-3, "rms": 0.05}

    def score(levels, lr, seed):
        return abs(lr - lowest[levels["norm"]])

    command = ["norm=ln,rms", *TUNE, "tune.extend=true", "tune.seeds=1", "seeds=1"]
    assert rounds(plan, *command, score=score, stop_after=7)[::2] == (130, 7)  # in the middle of the first extension
    code, plans, trained = rounds(plan, *command, score=score)
    tuning = plans[-1].manifest.tuning
    assert code == 0 and trained == 2 * 5 + 2 - 7, "nothing is trained twice"
    assert tuning.values == [1e-3, 3e-3, 1e-2, 0.0333, 0.111]
    assert [(cell.value, cell.edge) for cell in tuning.cells.values()] == [(3e-3, False), (0.0333, False)]
    code, plans, trained = rounds(plan, *command, score=score)
    assert code == 0 and trained == 0 and [planned.manifest.tuning for planned in plans] == [tuning]
    assert [planned.manifest.tunes for planned in plans[0].ended] == [plans[0].manifest.study]


def test_one_se_chooses_the_smallest_value_within_a_standard_error_of_the_best_seed_by_seed():
    best = [2.0, 2.9, 2.0]  # seeds differ by more than values
    near = [2.15, 2.81, 2.06]  # mean difference 0.04, standard error 0.07
    far = [2.16, 2.94, 2.16]  # mean difference 0.12, standard error 0.04
    assert smallest_near([1e-2, 1e-3, 3e-3], [best, far, near], 0) == 2
    assert smallest_near([1e-2, 1e-3, 3e-3], [best, None, far], 0) == 0
    assert smallest_near([1e-2, 3e-2], [best, near], 0) == 0, "larger values are never taken"


def test_with_one_se_the_grid_goes_on_while_the_best_mean_is_at_its_edge(plan):
    means = {1e-3: 2.5, 3e-3: 2.05, 1e-2: 2.0, 0.0333: 2.3}

    def score(levels, lr, seed):
        own = 0.06 * (-1) ** seed if lr == 3e-3 else 0.0
        return means[lr] + own + 0.9 * (seed % 2)

    command = ["norm=ln,rms", *TUNE, "tune.extend=true", "tune.rule=one_se", "seeds=1"]
    code, plans, _ = rounds(plan, *command, score=score)
    tuning = plans[-1].manifest.tuning
    assert code == 0 and tuning.values == [1e-3, 3e-3, 1e-2, 0.0333] and tuning.rule == "one_se"
    assert [cell.value for cell in tuning.cells.values()] == [3e-3, 3e-3]
    rule = "(the smallest that differs from the best by no more than a standard error): ln 0.003, rms 0.003"
    assert f"optim.lr by tuning {rule}" in preview(plans[-1])


def test_a_tuning_run_that_failed_ends_the_command_and_is_tried_again(plan, capsys):
    first = plan("norm=ln,rms", *TUNE)
    write(first)
    path = first.manifest.runs[3].path
    write_json(Run(first.results, path).result_file, {"status": "failed", "final": {}, "error": None})
    again = plan("norm=ln,rms", *TUNE)
    assert again.todo == [path] and again.more
    assert carry_out(again, lambda *_: None, lambda: plan("norm=ln,rms", *TUNE)) == 1
    out = capsys.readouterr().out
    assert "tuning of" in out and "confirm=8" not in out and "1 failed" in out
    assert rounds(plan, "norm=ln,rms", *TUNE)[2] == 1 + 6


def test_names_follow_what_is_tuned_and_not_what_it_chose(plan):
    requests = ([], TUNE, [*TUNE, "tune.seeds=3"], ["tune.key=optim.lr", "tune.values=[1e-3,3e-3]"])
    names = [plan("norm=ln,rms", *words).manifest.study for words in requests]
    assert len({*names}) == 4
    last = rounds(plan, "norm=ln,rms", *TUNE, score=lambda levels, lr, seed: 2.0 + lr)[1][-1]
    assert f"{last.manifest.study}-tune" == names[1] and rates(last) == {"ln": 1e-3, "rms": 1e-3}


def test_a_choice_that_changed_after_scoring_is_refused(plan, capsys):
    tuning = rounds(plan, "norm=ln,rms", *TUNE, "study=mine", "seeds=1")[1][0]
    cells = {cell.id: cell for cell in tuning.manifest.cells}
    for run in tuning.manifest.runs:
        file = Run(tuning.results, run.path).result_file
        rate = cells[run.cell].levels["optim.lr"]
        edit_json(file, lambda result, rate=rate: result["final"].update({"val/loss": rate}))
    with pytest.raises(PlanError, match=r"mine holds 2 other configurations; .* or write another name"):
        plan("norm=ln,rms", *TUNE, "study=mine")
    code, _, trained = rounds(plan, "norm=ln,rms,bn", *TUNE, "study=mine")
    assert code == 1 and trained == 6, "the third variant is tuned, and nothing is scored"
    assert "other configuration" in capsys.readouterr().err


def test_a_plan_says_what_is_tuned_and_what_follows(plan):
    [note] = plan("norm=ln,rms", *TUNE).notes
    assert note == (
        "tuning first: optim.lr of 2 configurations at 3 values, 2 seeds each, by val/loss; "
        "then the study at the tuned values"
    )


def test_what_is_refused_before_anything_trains_is_a_wrong_command(plan):
    def refuse(*_):
        raise Refused("results/runs: a link leads out of the results")

    assert carry_out(plan("norm=ln,rms"), refuse) == 2


def test_a_named_study_grows_with_its_tuning_and_is_not_tuned_otherwise(plan):
    rounds(plan, "norm=ln,rms", *TUNE, "study=mine", "seeds=1")
    code, plans, trained = rounds(plan, "norm=ln,rms,bn", *TUNE, "study=mine", "seeds=1")
    assert code == 0 and trained == 6 + 1 and len(plans[-1].manifest.cells) == 3
    with pytest.raises(PlanError, match="mine holds 2 other configurations"):
        plan("norm=ln,rms", "study=mine")


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["tune.key=optim.lrr", GRID], "tune.key: ln has no optim.lrr; did you mean optim.lr?"),
        (["tune.key=seeds", GRID], "tune.key: seeds is the same for all values"),
        (["tune.key=optim.lr", GRID, "optim.lr=1e-3,2e-3"], "tune.key: optim.lr is swept already"),
        (["tune.key=optim.lr", GRID, "optim.lr=1e-3"], "tune.key: optim.lr is given, too"),
        (["tune.key=ffn.hidden", "tune.values=[8,16]", "match=params"], "tune.key: match=params chooses ffn.hidden"),
        (["norm=ln,none", "tune.key=norm.eps", GRID], "tune.key: none has no norm.eps"),
        (["tune.key=optim.lr", "tune.values=[1e-3,1e-3]"], "tune.values: .* at least two different values"),
        (["tune.key=optim.lr", "tune.values=[1e-3,fast]"], "tune.values: 'fast' is not a value of optim.lr"),
        (["tune.key=optim.lr", "tune.values=[1e-3,-1]"], "optim.lr: must be a number ≥ 1e-12 .*not -1"),
        ([GRID], "tune.key: is not given"),
        (["tune.key=ffn.bias", "tune.values=[true,false]", "tune.extend=true"], "tune.extend: goes on by"),
        (["tune.key=ffn.bias", "tune.values=[true,false]", "tune.rule=one_se"], "tune.rule: one_se needs numbers"),
        (["tune.key=optim.lr", GRID, "tune.rule=one_se", "tune.seeds=1"], "tune.rule: one_se .* tune.seeds=2 or more"),
        (["seeds=[1000000]"], "seeds: 1000000 to 1999999 are tuning's, and never scored"),
        (["tune.seeds=3"], "tune.seeds: tunes nothing; write tune.key"),
        (["tune.key=optim.min_lr_ratio", "tune.values=[0,0.1]", "schedule=constant"], "is the same configuration as"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_one_line(refused, overrides, message):
    assert all(re.search(message, line) for line in refused("norm=ln,rms", *overrides))


def test_real_runs_are_tuned_and_scored(small, tmp_path):
    tune = [TUNE[0], "tune.values=[1e-3,1e-2]", "tune.seeds=1"]
    assert sweep_here(*small, "norm=ln,rms", *tune, "seeds=2") == 0
    name, tuning = sorted(path.parent.name for path in tmp_path.glob("results/studies/*/manifest.json"))
    assert tuning == f"{name}-tune"
    runs = load_study(tmp_path / "results", tuning).runs
    best = {norm: group.loc[group["val/loss"].idxmin(), "optim.lr"] for norm, group in runs.groupby("norm")}
    study = load_study(tmp_path / "results", name)
    assert {cell.label: cell.config.optim.lr for cell in study.manifest.cells} == best


def test_tuning_scores_all_of_the_validation_split_whatever_the_study_does(plan):
    planned = plan("norm=ln,rms", *TUNE, "eval.val_share=0.5", "eval.lengths=[8]")
    tuning = {(cell.config.eval.val_share, *cell.config.eval.lengths) for cell in planned.manifest.cells}
    scored = {(cell.config.eval.val_share, *cell.config.eval.lengths) for cell in planned.requested.rows}
    assert tuning == {(1.0,)} and scored == {(0.5, 8)}


def test_differences_at_common_values_are_those_of_the_tuning_study(plan):
    """What two tuning seeds chose is in no interval, however many seeds are scored."""
    plans = rounds(plan, "norm=ln,rms", "ffn=mlp,gelu", *TUNE)[1]
    study = plans[-1].manifest
    expected = [bowl({"norm": "rms"}, lr, TUNING) - bowl({"norm": "ln"}, lr, TUNING) for lr in VALUES]
    effects = evidence.effects(load_study(plans[0].results, plans[0].manifest.study))
    of_norm = effects[(effects["kind"] == "main") & (effects["factor"] == "norm")]
    assert list(of_norm["mean"]) == pytest.approx(expected), "as the tuning study says by itself"
    heading, rows = evidence.common_rows(study)
    assert "validation split, 2 tuning seeds" in heading
    assert expected == pytest.approx([0.025, 0.021, -0.007])
    assert rows == [
        ["norm: rms − ln", "1e-3 +0.0250", "3e-3 +0.0210", "0.01 −0.0070"],
        ["ffn: gelu − mlp", "1e-3 0.0000", "3e-3 0.0000", "0.01 0.0000"],
        ["norm × ffn", "1e-3 0.0000", "3e-3 0.0000", "0.01 0.0000"],
    ]
