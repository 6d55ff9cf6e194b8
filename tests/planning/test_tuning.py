"""Tuning: rounds of a command on the small text, with results written by hand, and one real command line."""

import itertools
import re

import pytest
from conftest import SHAPE, STEPS, latest
from fake_studies import edit_json
from one_run import carry_out, sweep_here, write_plan

from ablate import evidence
from ablate.cli.preview import preview
from ablate.cli.summary import summary
from ablate.config.errors import Refused
from ablate.config.groups import CONF
from ablate.evidence.tuned import common
from ablate.planning.checks.preflight import try_out
from ablate.planning.plan import Plan, PlanError, check_study, plan_again, plan_study
from ablate.planning.tuning import at_edge, choose, extended, remarks, tuned
from ablate.runs.files import write_json
from ablate.runs.folder import Run
from ablate.runs.study import load_study
from analysis.case import case_of
from analysis.writing import methods
from analysis.writing.sheet import markdown
from analysis.writing.tables import cells_sheet

GRID = "tune.values=[1e-3,3e-3,1e-2]"
TUNE = ["tune.key=optim.lr", GRID, "seeds=3"]
BOWL = {"ln": 3e-3, "rms": 1e-2, "bn": 3e-3}  # where the loss of each norm is lowest
BEST = {norm: BOWL[norm] for norm in ("ln", "rms")}
pytestmark = pytest.mark.usefixtures("untried", "uncounted")


def bowl(levels: dict, lr: float, seed: int) -> float:
    """A loss that is lowest at the cell's own learning rate, with noise that tuning seeds share and others do not."""
    own = (seed + 1) * (levels["norm"] == "rms") / 1e4 * (seed < 10)
    return 2.0 + abs(lr - BOWL[levels["norm"]]) * (3 if levels["norm"] == "rms" else 1) + seed % 7 / 1000 + own


def write(planned: Plan, score=bowl, most: int = 10**6, **metrics: int) -> int:
    """Results for the first `most` runs to do: each metric so many times the score; NaN means diverged, None failed.

    Test scores of tuning runs must never matter.
    """
    cells, metrics = {cell.id: cell for cell in planned.manifest.cells}, metrics or {"loss": 1}
    todo = [run for run in planned.manifest.runs if run.path in planned.todo][:most]
    for run in todo:
        cell = cells[run.cell]
        value = score(cell.levels, cell.config.optim.lr, run.seed)
        scores = {"val": value, "test": -100.0 * cell.config.optim.lr if run.seed >= 10**6 else value}
        status = "failed" if value is None else "done" if value == value else "diverged"
        every = itertools.product(scores, metrics) if status == "done" else ()
        final = {f"{part}/{name}": metrics[name] * scores[part] for part, name in every}
        result = {"status": status, "final": final, "error": None}
        write_json(Run(planned.results, run.path).result_file, result)
    return len(todo)


def rounds(
    plan, *overrides: str, score=bowl, stop_after: int | None = None, **metrics: int
) -> tuple[int, list[Plan], int]:
    """Carry a command out as the sweeper does: exit code, its rounds, and how many runs were trained.

    `metrics` are the task's, `loss` where none are given; see `write`.
    """
    done: list[Plan] = []
    trained = 0

    def planned() -> Plan:
        done.append(plan_again(done[-1]) if done else plan(*overrides))
        return done[-1]

    def launch(*_) -> None:
        nonlocal trained
        most = 10**6 if stop_after is None else stop_after - trained
        trained += write(done[-1], score, most, **metrics)
        if trained == stop_after:
            raise KeyboardInterrupt

    code = carry_out(planned(), launch, planned)
    return code, done, trained


def test_each_cell_is_scored_at_its_own_best_value_on_fresh_seeds(plan, capsys):
    command = ["norm=ln,rms", *TUNE]
    code, done, first = rounds(plan, *command, stop_after=1)
    assert code == 130 and first == 1
    code, done, trained = rounds(plan, *command)
    assert code == 0 and first + trained == 2 * 3 * 2 + 2 * 3, "it goes on where it was stopped"
    tuning, study = done[0].manifest, done[-1].manifest
    assert tuning.study == f"{study.study}-tune" and tuning.tunes == study.study
    assert tuning.factors == {"norm": ["ln", "rms"], "optim.lr": [1e-3, 3e-3, 1e-2]}
    assert tuning.seeds == [1_000_000, 1_000_001] and study.seeds == [0, 1, 2]
    assert evidence.endpoint(tuning) == "val/loss" and evidence.endpoint(study) == "test/loss"
    assert {cell.label: cell.config.optim.lr for cell in study.cells} == BEST
    found = study.tuning
    assert (found.key, found.values, found.seeds, found.study) == ("optim.lr", [1e-3, 3e-3, 1e-2], 2, tuning.study)
    for cell in study.cells:
        tuned = found.cells[cell.id]
        means = [sum(bowl(cell.levels, lr, 10**6 + i) for i in range(2)) / 2 for lr in found.values]
        assert tuned.value == BOWL[cell.label] and tuned.scores == pytest.approx(means)
    assert len({cell.batches for cell in study.cells}) == 1, "a tuned learning rate leaves batches paired"
    assert len({(run.seed, run.path.split("/")[1]) for run in study.runs}) == 6
    out = capsys.readouterr().out
    assert "optim.lr tuned per configuration" in out
    assert out.count("effects, simultaneous") == 1, "one summary, of the study itself"
    assert rounds(plan, *command)[2] == 0, "the same command again trains nothing"
    code, confirmed, trained = rounds(plan, *command, "confirm=4")
    manifest = confirmed[-1].manifest
    assert code == 0 and trained == 8 and manifest.seeds == [3, 4, 5, 6], "tuning seeds are none that were scored"
    assert manifest.confirms == study.study and manifest.tuning == study.tuning


def test_the_plan_of_tuning_has_the_noise_of_the_runs_that_are_scored_later(plan, monkeypatch):
    monkeypatch.setattr(evidence, "noise_lines", lambda manifest: [f"{manifest.study}, {len(manifest.seeds)} seeds"])
    tuned = plan("norm=ln,rms", *TUNE, "study=s")
    assert tuned.manifest.study == "s-tune" and "s, 3 seeds" in preview(tuned).splitlines()
    assert "s-confirm-4, 4 seeds" in preview(plan("norm=ln,rms", *TUNE[:2], "study=s", "confirm=4")).splitlines()
    rounds(plan, "norm=ln,rms", *TUNE, "study=s")
    more = plan("norm=ln,rms,bn", *TUNE, "study=s")
    assert more.manifest.tunes and "s-tune, 2 seeds" in preview(more), "the study is there with tuned cells"


def test_edges_are_flagged_in_every_text(plan, capsys):
    _, done, _ = rounds(plan, "norm=ln,rms", *TUNE, "seeds=2")
    flag = "rms: the chosen optim.lr (0.01) is the largest tried; tune.extend=true extends the grid"
    study = done[-1].manifest
    assert [found.edge for found in study.tuning.cells.values()] == [False, True]
    read = load_study(done[-1].results, study.study)
    assert flag in capsys.readouterr().out and flag in preview(done[-1])
    assert flag in markdown(cells_sheet(case_of(read, done[-1].results)))
    [[low]] = remarks(["ln"], "optim.lr", [3e-3, 1e-2, 3e-2], [0], [[2.0, 2.1, 2.2]], False)
    assert low.startswith("ln: the chosen optim.lr (0.003) is the smallest tried")


def test_a_diverged_value_counts_as_worst_and_is_never_a_number(plan, capsys):
    def score(levels, lr, seed):
        return float("nan") if lr == BOWL[levels["norm"]] and seed == 1_000_001 else bowl(levels, lr, seed)

    _, done, _ = rounds(plan, "norm=ln,rms", *TUNE, score=score)
    study = done[-1].manifest
    assert [found.value for found in study.tuning.cells.values()] == [1e-3, 3e-3]
    assert [found.scores.index(None) for found in study.tuning.cells.values()] == [1, 2]
    [row] = evidence.common_rows(study)[1]
    assert row[2:] == ["3e-3 diverged", "0.01 diverged"]
    [[everywhere]] = remarks(["rms"], "optim.lr", [1.0, 2.0], [0], [[None, None]], False)
    assert "runs diverged at every optim.lr that was tried" in everywhere


def test_the_best_of_equals_is_the_earlier_and_the_direction_is_the_tasks():
    assert choose([2.0, 1.0, 1.0], True) == 1 and choose([2.0, 1.0, 2.0], False) == 0
    assert choose([None, 3.0], True) == 1 and choose([None, 0.1], False) == 1 and choose([None, None], True) == 0
    assert at_edge([3, 1, 2], 0) and at_edge([3, 1, 2], 1) and not at_edge([3, 1, 2], 2)
    assert not at_edge(["cosine", "linear"], 0) and not at_edge([True, False], 0)


def test_each_task_is_tuned_by_its_own_metric(tmp_path, capsys):
    """Copying is scored by accuracy, dates by exact matches."""
    (tmp_path / "data").mkdir()
    dates = (CONF / "data" / "dates.yaml").read_text()
    (tmp_path / "data" / "few.yaml").write_text(re.sub("years: .*", "years: [2000, 2000]", dates))
    shape = ["data=copy,few", "norm=ln,rms", "design=one_at_a_time", "seeds=1", f"results_dir={tmp_path / 'results'}"]
    shape += [text for text in SHAPE if not text.startswith("data.")] + STEPS

    def planned(*words: str) -> Plan:
        return plan_study((*shape, *words), str(tmp_path))

    signs = {"loss": 1, "accuracy": 2, "exact": -3}
    code, done, _ = rounds(planned, *TUNE[:2], score=lambda levels, lr, seed: lr, **signs)
    assert code == 0
    assert "by val/accuracy or val/exact" in done[0].notes[0]
    manifest = done[-1].manifest
    chosen = {cell.levels["data"]: manifest.tuning.cells[cell.id] for cell in manifest.cells}
    assert chosen["copy"].value == 1e-2 and chosen["copy"].scores == [2e-3, 6e-3, 2e-2]
    assert chosen["few"].value == 1e-3 and chosen["few"].scores == pytest.approx([-3e-3, -9e-3, -3e-2])
    rows = [label for label, *_ in evidence.common_rows(manifest)[1]]
    assert rows == ["norm: rms − ln"], "scores of different tasks have no difference"


def test_a_grid_goes_on_by_the_ratio_of_its_outermost_values():
    grid = [1e-3, 3e-3, 1e-2]
    assert extended(grid, grid, [1, 1]) == grid
    assert extended(grid, grid, [2, 1]) == [*grid, 0.0333]
    assert extended(grid, grid, [2, 0]) == [*grid, 0.000333, 0.0333]
    assert extended([10, 100], [10, 100], [1]) == [10, 100, 1000]
    assert extended([1, 2], [1, 2], [0]) == [1, 2], "no whole number lies below"
    wide = [2.0**i for i in range(6)]
    assert extended(wide, wide[:2], [5]) == wide, "four values beyond what was given"


def test_extension_goes_on_for_every_cell_alike_and_resumes(plan):
    far = {"ln": 3e-3, "rms": 0.05}

    def score(levels, lr, seed):
        return abs(lr - far[levels["norm"]])

    command = ["norm=ln,rms", *TUNE, "tune.extend=true", "tune.seeds=1", "seeds=1"]
    code, done, first = rounds(plan, *command, score=score, stop_after=7)  # in the middle of the first extension
    assert code == 130 and first == 7
    code, done, rest = rounds(plan, *command, score=score)
    study = done[-1].manifest
    assert code == 0 and study.tuning.values == [1e-3, 3e-3, 1e-2, 0.0333, 0.111]
    assert [found.value for found in study.tuning.cells.values()] == [3e-3, 0.0333]
    assert not any(found.edge for found in study.tuning.cells.values())
    assert first + rest == 2 * 5 + 2, "nothing was trained twice"
    code, done, again = rounds(plan, *command, score=score)
    assert code == 0 and again == 0 and done[-1].manifest.tuning == study.tuning
    assert len(done) == 1 and [ended.manifest.tunes for ended in done[0].ended][-1] == study.study


def test_the_smallest_value_within_one_standard_error_of_the_best_is_chosen_and_said(plan, capsys):
    """And the grid goes on while the best mean is at its edge, though the chosen value is not."""
    means = {
        "ln": {1e-3: 2.5, 3e-3: 2.05, 1e-2: 2.0, 0.0333: 2.3},
        "rms": {1e-3: 2.5, 3e-3: 2.2, 1e-2: 2.0, 0.0333: 2.3},
    }

    def score(levels, lr, seed):
        own = 0.06 * (-1) ** seed * (lr == 3e-3)  # the standard error of a difference; seeds differ by 0.9 alike
        return means[levels["norm"]][lr] + own + 0.9 * (seed % 2)

    command = ["norm=ln,rms", *TUNE, "tune.extend=true", "tune.rule=one_se", "seeds=1"]
    code, done, _ = rounds(plan, *command, score=score)
    found = done[-1].manifest.tuning
    assert code == 0 and found.values == [1e-3, 3e-3, 1e-2, 0.0333] and found.rule == "one_se"
    assert [cell.value for cell in found.cells.values()] == [3e-3, 1e-2]
    said = "(the smallest that differs from the best by no more than a standard error): ln 0.003, rms 0.01"
    assert f"optim.lr by tuning {said}" in preview(done[-1])
    text = methods.markdown(case_of(load_study(done[-1].results, done[-1].manifest.study), done[-1].results))
    assert "by no more than the standard error of that difference, the smallest was taken" in text
    with pytest.raises(PlanError, match=r"was tuned otherwise \(.* tune.rule=one_se\)"):
        plan("norm=ln,rms", *TUNE, "tune.extend=true", "seeds=1", f"study={done[-1].manifest.study}")


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
    others = ([], TUNE, [*TUNE, "tune.seeds=3"], ["tune.key=optim.lr", "tune.values=[1e-3,3e-3]"])
    names = [plan("norm=ln,rms", *more).manifest.study for more in others]
    assert len({*names}) == 4
    before = names[1]
    other = rounds(plan, "norm=ln,rms", *TUNE, score=lambda levels, lr, seed: 2.0 + lr)[1][-1].manifest
    assert f"{other.study}-tune" == before and {c.config.optim.lr for c in other.cells} == {1e-3}


def test_a_choice_that_changed_after_scoring_is_said_clearly(plan, capsys):
    done = rounds(plan, "norm=ln,rms", *TUNE, "study=mine", "seeds=1")[1]
    for run in done[0].manifest.runs:
        lr = next(c.levels["optim.lr"] for c in done[0].manifest.cells if c.id == run.cell)
        file = Run(done[0].results, run.path).result_file
        edit_json(file, lambda result, lr=lr: result["final"].update({"val/loss": lr}))
    with pytest.raises(PlanError, match=r"mine scored ln at optim.lr=0.003, and tuning now chooses 0.001"):
        plan("norm=ln,rms", *TUNE, "study=mine")
    code, _, trained = rounds(plan, "norm=ln,rms,bn", *TUNE, "study=mine")
    assert code == 1 and trained == 6, "the third variant is tuned, and nothing is scored"
    assert capsys.readouterr().err.endswith(
        "tuning now chooses 0.001; write another study=NAME, which trains what is not there\n"
    )


def test_a_plan_says_how_a_value_is_chosen_and_how_far_the_grid_may_grow(plan):
    [note] = plan("norm=ln,rms", *TUNE, "tune.rule=one_se", "tune.extend=true").notes
    assert "by val/loss, rule one_se, with up to 8 more at the ends; then: 2 configurations" in note
    [note] = plan("norm=ln,rms", *TUNE).notes
    assert "by val/loss; then: 2 configurations" in note


def test_what_is_refused_before_anything_trains_is_a_wrong_command(plan):
    def refuse(*_) -> None:
        raise Refused("results/runs: a link leads out of the results")

    assert carry_out(plan("norm=ln,rms"), refuse) == 2


def test_a_named_study_grows_with_its_tuning_and_is_not_tuned_otherwise(plan):
    rounds(plan, "norm=ln,rms", *TUNE, "study=mine", "seeds=1")
    code, done, trained = rounds(plan, "norm=ln,rms,bn", *TUNE, "study=mine", "seeds=1")
    assert code == 0 and trained == 6 + 1 and len(done[-1].manifest.cells) == 3
    with pytest.raises(PlanError, match=r"mine was tuned otherwise \(optim.lr in 0.001, 0.003, 0.01, 2 seeds\)"):
        plan("norm=ln,rms", *TUNE, "study=mine", "tune.seeds=3")
    with pytest.raises(PlanError, match="mine was tuned"):
        plan("norm=ln,rms", "study=mine")
    rounds(plan, "norm=ln,rms", "study=plain", "seeds=1")
    with pytest.raises(PlanError, match="plain was trained without tuning"):
        plan("norm=ln,rms", "study=plain", *TUNE)


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["tune.key=optim.lrr", GRID], "tune.key: no such key: optim.lrr; did you mean optim.lr?"),
        (["tune.key=norm", GRID], "tune.key: norm is a group"),
        (["tune.key=seeds", GRID], "tune.key: seeds belongs to the whole study"),
        (["tune.key=eval.tokens", "tune.values=[64,128]"], "tune.key: eval.tokens changes what is scored"),
        (["tune.key=optim.lr", GRID, "optim.lr=1e-3,2e-3"], "tune.key: optim.lr is swept already"),
        (["tune.key=optim.lr", GRID, "optim.lr=1e-3"], "tune.key: optim.lr is given, too"),
        (["tune.key=ffn.hidden", "tune.values=[8,16]", "match=params"], "tune.key: match=params chooses ffn.hidden"),
        (["norm=ln,none", "tune.key=norm.eps", GRID], "tune.key: none has no norm.eps"),
        (["tune.key=optim.lr", "tune.values=[1e-3,1e-3]"], "tune.values: .* at least two different values"),
        (["tune.key=optim.lr", "tune.values=[1e-3,fast]"], "tune.values: 'fast' is not a value of optim.lr"),
        (["tune.key=optim.lr", "tune.values=[1e-3,-1]"], "optim.lr: must be ≥ 1e-12 .*not -1.0"),
        ([GRID], "tune.key: is not given"),
        (["tune.key=ffn.bias", "tune.values=[true,false]", "tune.extend=true"], "tune.extend: goes on by"),
        (["tune.key=ffn.bias", "tune.values=[true,false]", "tune.rule=one_se"], "tune.rule: one_se needs numbers"),
        (["tune.key=optim.lr", GRID, "tune.rule=one_se", "tune.seeds=1"], "tune.rule: one_se .* tune.seeds=2 or more"),
        (["tune.rule=one_se"], "tune.key: is not given"),
        (["seeds=[1000000]"], "seeds: 1000000 to 1999999 are tuning's, and never scored"),
        (["tune.seeds=3"], "tune.seeds: tunes nothing by itself"),
        (["tune.key=optim.min_lr_ratio", "tune.values=[0,0.1]", "schedule=constant"], "is the same configuration as"),
    ],
)
def test_what_cannot_be_tuned_is_refused_in_one_line(refused, overrides, message, monkeypatch):
    monkeypatch.setattr("ablate.planning.check_study.try_out", try_out)
    told = refused("norm=ln,rms", *overrides)
    assert all(re.search(message, line) for line in told)


def test_quoted_values_are_extended_as_numbers(small):
    """Not only planned: the grid grows once its scores are known."""
    study = check_study((*latest(*small), "tune.key=optim.lr", "tune.values=['1e-3','3e-3']", "tune.extend=true"), None)
    rounds = tuned(study)
    plan = next(rounds)
    write_plan(plan)
    for run in plan.manifest.runs:
        rate = next(cell for cell in plan.manifest.cells if cell.id == run.cell).config.optim.lr
        final = {"val/loss": 1 - rate, "test/loss": 1.0}
        write_json(Run(plan.results, run.path).result_file, {"status": "done", "final": final, "error": None})
    assert {cell.config.optim.lr for cell in next(rounds).manifest.cells} == {1e-3, 3e-3, 9e-3}


def test_real_runs_are_tuned_and_scored(small, tmp_path, capsys):
    tune = [TUNE[0], "tune.values=[1e-3,1e-2]", "tune.seeds=1"]
    assert sweep_here(*small, "norm=ln,rms", *tune, "seeds=2") == 0
    said = capsys.readouterr().out
    names = sorted(path.parent.name for path in tmp_path.glob("results/studies/*/manifest.json"))
    name = names[0]
    assert names == [name, f"{name}-tune"]
    study = load_study(tmp_path / "results", name)
    tuned = load_study(tmp_path / "results", f"{name}-tune").runs
    best = {norm: group.loc[group["val/loss"].idxmin(), "optim.lr"] for norm, group in tuned.groupby("norm")}
    assert {cell.label: cell.config.optim.lr for cell in study.manifest.cells} == best
    shown = [line for line in said.splitlines() if not line.startswith("[")]
    assert summary(study, tmp_path / "results").splitlines()[1:-1] == shown[1:-1]


def test_verdicts_name_the_tuned_values_beside_differences_at_common_ones(plan, capsys):
    """What two tuning seeds chose is in no interval, however many seeds are scored."""
    _, done, _ = rounds(plan, "norm=ln,rms", "ffn=mlp,gelu", *TUNE)
    study = load_study(done[-1].results, done[-1].manifest.study)
    found = common(study.manifest)
    expected = [bowl({"norm": "rms"}, lr, 10**6) - bowl({"norm": "ln"}, lr, 10**6) for lr in (1e-3, 3e-3, 1e-2)]
    assert found["norm: rms − ln"] == pytest.approx(expected)
    assert found["ffn: gelu − mlp"] == pytest.approx([0, 0, 0], abs=1e-12)
    assert found["norm × ffn"] == pytest.approx([0, 0, 0], abs=1e-12)
    own = evidence.effects(load_study(done[0].results, done[0].manifest.study))
    own = own[(own["kind"] == "main") & (own["factor"] == "norm")]
    assert list(own["mean"]) == pytest.approx(expected), "as the tuning study says by itself"
    heading, rows = evidence.common_rows(study.manifest)
    assert "validation split, 2 tuning seeds" in heading
    assert rows[0] == ["norm: rms − ln", "1e-3 +0.0250", "3e-3 +0.0210", "0.01 −0.0070"]
    assert "intervals ignore tuning noise" in methods.markdown(case_of(study, done[-1].results))


def test_tuning_scores_all_of_the_validation_split_whatever_the_study_does(plan) -> None:
    planned = plan("norm=ln,rms", *TUNE, "eval.val_share=0.5", "eval.lengths=[8]")
    tuning, scored = planned.manifest.cells, planned.requested.cells.rows
    assert {(cell.config.eval.val_share, *cell.config.eval.lengths) for cell in tuning} == {(1.0,)}
    assert {(cell.config.eval.val_share, *cell.config.eval.lengths) for cell in scored} == {(0.5, 8)}


def test_matched_widths_are_matched_at_each_value(plan):
    cells = plan("ffn=mlp,swiglu", "tune.key=attention.bias", "tune.values=[false,true]", "match=params").manifest.cells
    assert [cell.config.attention["bias"] for cell in cells] == [False, False, True, True]
    for reference, cell in zip(cells[::2], cells[1::2], strict=True):
        assert cell.matched.reference == reference.matched.value and abs(cell.matched.difference) < 0.01
    assert cells[1].matched.reference < cells[3].matched.reference


def test_an_argument_of_an_optimisers_class_is_tuned_as_it_is_written(plan):
    cells = plan("optim=sgd", "tune.key=optim.momentum", "tune.values=[0.8,0.9]").manifest.cells
    assert [cell.config.arguments("optim")["momentum"] for cell in cells] == [0.8, 0.9]


def test_patterns_and_a_choice_across_stacks_go_through_tuning(tmp_path):
    tiny = ("model=encoder_decoder", "model.layers=2", "model.dim=16", "model.heads=2", "data=copy", *STEPS)
    words = ("attention=mha,mqa+mha", "cross_attention=same,mha", "+attention.sink=learned", "design=one_at_a_time")
    tune = ("tune.key=optim.lr", "tune.values=[1e-3,3e-3]", "tune.seeds=1", "seeds=1")

    def planned(*more: str) -> Plan:
        return plan_study((*tiny, f"results_dir={tmp_path}", *more))

    def score(levels: dict[str, object], lr: float, seed: int) -> float:
        return abs(lr - (1e-3 if levels.get("attention") == "mqa+mha" else 3e-3))  # an accuracy

    code, done, _ = rounds(planned, *words, *tune, score=score, accuracy=1)
    manifest = done[-1].manifest
    assert code == 0 and manifest.factors == {"attention": ["mha", "mqa+mha"], "cross_attention": ["same", "mha"]}
    assert [cell.config.optim.lr for cell in manifest.cells] == [1e-3, 3e-3, 1e-3]
    configs = [cell.config for plan in done for cell in plan.manifest.cells]
    nodes = [config.attention for config in configs if "_layers_" in config.attention]
    assert nodes and all(node[name]["sink"] == "learned" for node in nodes for name in ("mqa", "mha"))
