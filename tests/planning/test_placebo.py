"""Placebos: which draws a kind takes anew, what else stays, and what is concluded from them."""

import math

import numpy as np
import pytest
import torch
from fake_studies import fabricate
from one_run import train_runs, write_plan
from scipy import stats
from test_tuning import rounds

from ablate import evidence
from ablate.cli.summary import summary
from ablate.config.schema import PLACEBOS, Config, Seed
from ablate.data.task import build_task
from ablate.evidence.expected_noise import floors, placebo_lines, round_differences, seeds_needed, split, upper_bound
from ablate.model.build import initialised_model
from ablate.model.init import data_seed
from ablate.planning.plan import plan_study
from ablate.results.run import Run
from ablate.results.study import load_study

KIND = "seed.placebo"
pytestmark = pytest.mark.usefixtures("untried", "uncounted")


def parameters(config: Config, task, kind: str | None, seed: int = 3) -> dict[str, torch.Tensor]:
    model = initialised_model(config.with_value("seed.placebo", kind), task, seed)
    return {name: parameter.detach() for name, parameter in model.named_parameters()}


PARTS = {"ffn": (".ffn.",), "attention": (".attention.", ".cross_attention."), "position": ("position.",)}
PARTS |= {"norm": (), "init": ("",)}  # nothing of a norm is drawn
SHAPE = ["model.dim=16", "model.layers=1", "model.heads=2", "dry_run=true"]


@pytest.mark.parametrize("form", [["position=learned"], ["position=t5", "model=encoder_decoder", "data=copy"]])
def test_a_placebo_draws_only_the_named_component_anew(form):
    config = plan_study((*SHAPE, *form)).manifest.cells[0].config
    task = build_task(config)
    plain = parameters(config, task, None)
    for kind, parts in PARTS.items():
        other = parameters(config, task, kind)
        changed = {name for name in plain if not torch.equal(plain[name], other[name])}
        drawn = {name for name in plain if plain[name].unique().numel() > 2}
        assert changed == {name for name in drawn if any(part in f".{name}" for part in parts)}, kind
        assert changed or kind == "norm"
        for name in changed:
            assert float(other[name].std()) == pytest.approx(float(plain[name].std()), rel=0.5), "equally distributed"
            assert abs(float(torch.corrcoef(torch.stack([plain[name].flatten(), other[name].flatten()]))[0, 1])) < 0.5
    again = parameters(config, task, kind)
    assert all(torch.equal(other[name], again[name]) for name in plain), "the same each time"


def test_chaos_is_below_a_millionth_and_moves_every_drawn_matrix(plan):
    config = plan().manifest.cells[0].config
    task = build_task(config)
    plain, other = parameters(config, task, None), parameters(config, task, "chaos")
    for name, value in plain.items():
        step = (other[name] - value).abs()
        assert (step <= 1e-6 * value.abs()).all()
        assert (step > 0).any() == (value.unique().numel() > 2), name


def test_batches_stay_but_for_another_order_of_the_data(plan):
    cells = plan(f"{KIND}={','.join(['null', *PLACEBOS])}", "ffn=mlp").manifest.cells
    task = build_task(cells[0].config)
    plain = task.batch(5, 0, 4).inputs["tokens"]
    for cell in cells:
        seed = data_seed(cell.config.seed, 5)
        same = torch.equal(task.batch(seed, 0, 4).inputs["tokens"], plain)
        assert same == (cell.levels[KIND] != "data")
        assert (cell.batches == cells[0].batches) == same, "what is unpaired is known to be"
    assert data_seed(Seed(data=7), 5) == 7


def test_runs_differ_by_what_is_drawn_anew_and_by_nothing_else(plan):
    planned = plan(f"{KIND}=null,ffn,data,init,chaos", "seeds=1")
    write_plan(planned)
    assert set(train_runs(planned)) == {"done"}
    losses = {}
    for run, cell in zip(planned.manifest.runs, planned.manifest.cells, strict=True):
        rows = Run(planned.results, run.path).metrics()[0]
        losses[cell.levels[KIND]] = rows[0]["val/loss"], rows[-1]["test/loss"]
    start, end = losses[None]
    assert losses["data"][0] == start and abs(losses["chaos"][0] - start) < 1e-5
    assert all(losses[kind][0] != start for kind in ("ffn", "init"))
    assert all(losses[kind][1] != end for kind in ("ffn", "data", "init"))
    assert abs(losses["chaos"][1] - end) < 1e-3


@pytest.mark.parametrize(
    ("overrides", "kinds"),
    [
        (["norm=ln,rms", "ffn=mlp,swiglu"], ["ffn"]),
        (["attention=mha,gated", "position=learned,rope", "init=gpt2,xavier"], ["attention", "position"]),
    ],
)
def test_kinds_are_the_studied_components_that_draw_something(plan, overrides, kinds):
    manifest = plan(*overrides, "placebo_seeds=4", "eval.lengths=[8]").manifest
    assert manifest.factors == {KIND: [None, *kinds, "data", "init", "chaos"]}
    assert manifest.seeds == [0, 1, 2, 3] and manifest.reference == {KIND: None}
    shares = [cell.shared_draws for cell in manifest.cells]
    assert shares[0] == shares[-1] == 1 and shares[-2] == 0 and all(0 < share < 1 for share in shares[1:-3])
    assert [cell.reference for cell in manifest.cells] == [True] + [False] * (len(kinds) + 3)
    study = plan(*overrides, "eval.lengths=[8]", "seeds=3").manifest
    assert manifest.placebo_of == study.study and manifest.study == f"{study.study}-aa"
    plain = {run.path for run in manifest.runs if run.cell == manifest.cells[0].id}
    own = {run.path for run in study.runs if run.cell == study.cells[0].id}
    assert own < plain, "the study's own runs of its reference are the placebos' reference"


def test_the_placebos_are_a_round_before_the_study_at_its_tuned_values(plan):
    tune = ["tune.key=optim.lr", "tune.values=[1e-3,3e-3]"]
    code, done, trained = rounds(plan, "norm=ln,rms", "seeds=3", "placebo_seeds=3", *tune, score=score)
    tuning, placebos, study = (planned.manifest for planned in done)
    assert code == 0 and trained == 8 + 4 * 3 + 3
    assert {cell.config.optim.lr for cell in placebos.cells} == {3e-3}
    assert study.placebos == placebos.study and tuning.tunes == study.study
    assert study.components == ["norm"] and study.seeds == [0, 1, 2]


@pytest.mark.parametrize(
    ("fixed", "kinds"), [("seed.init=3", ["data", "chaos"]), ("seed.data=3", ["ffn", "init", "chaos"])]
)
def test_a_half_that_is_fixed_has_no_placebo(fixed, kinds, plan):
    assert plan("ffn=mlp,gelu", "placebo_seeds=4", fixed).manifest.factors == {KIND: [None, *kinds]}


def score(levels: dict, lr: float, seed: int) -> float:
    return 2.0 - lr + seed / 1000 + len(str(levels)) * seed / 1e5


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["placebo_seeds=2"], "placebo_seeds: must be ≥ 3"),
        (["placebo_seeds=4", f"{KIND}=ffn"], f"placebo_seeds: sets {KIND} by itself"),
        (["placebo_seeds=4", "seed.init=0", "seed.data=0", "seeds=1"], "are both fixed"),
        ([f"{KIND}=fnn"], f"{KIND}: must be one of norm, ffn, "),
    ],
)
def test_nonsense_is_refused(refused, overrides, message):
    [line] = refused("norm=ln,rms", *overrides)
    assert message in line


SPREAD = {"ffn": 0.004, "data": 0.006, "init": 0.005, "chaos": 0.001}


def placebo_score(levels: dict, seed: int) -> float:
    kind = levels[KIND]
    shared = np.random.default_rng([seed, 1]).normal(0, 0.05)
    return 2.0 + shared + (np.random.default_rng([seed, *kind.encode()]).normal(0, SPREAD[kind]) if kind else 0)


def placebos(tmp_path, *kinds: str, seeds: int = 8, ended: dict | None = None, study: str = "a"):
    """A study of placebos of these kinds; `ended` says of which kinds and seeds runs were lost, and how."""
    scores = range(seeds), placebo_score, lambda levels, seed: (ended or {}).get((levels[KIND], seed), "done")
    name = fabricate(tmp_path, {KIND: [None, *kinds]}, *scores, reference={KIND: None}, study=study)
    return load_study(tmp_path, name)


def test_floors_are_the_spread_of_differences_from_the_plain_runs(tmp_path):
    found = {row.kind: row for row in floors(placebos(tmp_path, *SPREAD))}
    assert list(found) == list(SPREAD)
    for kind, row in found.items():
        differences = [placebo_score({KIND: kind}, s) - placebo_score({KIND: None}, s) for s in range(8)]
        assert row.n == 8 and row.sd == pytest.approx(np.std(differences, ddof=1))
        assert stats.chi2.cdf(7 * (row.sd / row.upper) ** 2, 7) == pytest.approx(0.05)
    sources = split(found.values())
    assert sources == pytest.approx({kind: found[kind].sd / math.sqrt(2) for kind in ("data", "init", "chaos")})


def test_a_lost_run_takes_its_pair_with_it_and_no_number_is_made_up(tmp_path):
    lost = {(None, 0): "failed", ("data", 1): "diverged"} | {("init", s): "diverged" for s in range(1, 4)}
    found = {row.kind: row for row in floors(placebos(tmp_path, "data", "init", "chaos", seeds=4, ended=lost))}
    assert [found[kind].n for kind in ("data", "init", "chaos")] == [2, 0, 3]
    assert math.isnan(found["init"].sd) and math.isnan(found["init"].upper)


@pytest.mark.parametrize(("ratio", "alpha"), [(2.0, 0.05), (1.0, 0.05 / 3), (0.5, 0.01), (0.2, 0.05), (0.0295, 0.05)])
def test_seeds_needed_are_the_fewest_with_the_power(ratio, alpha):
    def power(n: int) -> float:
        limit, shift = stats.t.isf(alpha / 2, n - 1), ratio * math.sqrt(n)
        return float(stats.nct.sf(limit, n - 1, shift) + stats.nct.cdf(-limit, n - 1, shift))

    n = seeds_needed(-ratio * 0.01, 0.01, alpha)
    assert n is not None and power(n) >= 0.8 > power(n - 1)
    assert seeds_needed(1e-6, 1.0, 0.05) is None, "no number of seeds is enough"


def test_differences_to_ask_about_are_round_and_near_what_was_seen():
    assert round_differences([-0.053, 0.002], 1.0) == [0.05, 0.02, 0.01]
    assert round_differences([float("nan"), 0.0], 0.8) == [1.0, 0.5, 0.2]


def test_the_summary_says_what_noise_alone_makes(tmp_path):
    found = {row.kind: row for row in floors(placebos(tmp_path, *SPREAD, study="mine-aa"))}
    levels = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
    fabricate(tmp_path, levels, range(5), study="mine", placebos="mine-aa")
    lines = summary(load_study(tmp_path, "mine"), tmp_path).splitlines()
    at = next(i for i, line in enumerate(lines) if "placebos" in line)
    own, sources, needed = lines[at : at + 3]
    assert own.startswith("placebos (placebo_seeds=8, ")
    assert f"SD 0.{round(found['ffn'].sd * 1e4):04d} (ffn drawn anew; 95 % upper" in own
    assert "(chaos; 95 % upper bound 0." in own and "data order 0." in sources and "initialisation 0." in sources
    upper = max(found["ffn"].upper, 0)
    table = evidence.effects(load_study(tmp_path, "mine"))
    seen = evidence.noise(table)[0]
    spread = max((found["ffn"].sd, upper), (seen.sd, seen.sd * math.sqrt(4 / stats.chi2.ppf(0.05, 4))))[1]
    assert f"a difference of 0.05 needs about {seeds_needed(0.05, spread, 0.05 / 3)} seeds, 0.02 about" in needed


def test_chaos_alone_promises_nothing_beyond_the_effects_seen_steps_of_a_cumulative_design_among_them(tmp_path):
    beside = placebos(tmp_path, "data", "init", "chaos")
    levels = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"]}
    study = load_study(tmp_path, fabricate(tmp_path, levels, range(5), study="b", design="cumulative"))
    table = evidence.effects(study)
    said = placebo_lines(table, beside)[-1]
    spread = upper_bound(evidence.noise(table)[0].sd, 5)
    assert f"a difference of 0.05 needs about {seeds_needed(0.05, spread, 0.05 / 2)} seeds" in said
    assert "at the upper bound of the SD of the effects seen" in said


def test_seeds_needed_with_looks_are_those_of_their_smaller_level(tmp_path):
    beside = placebos(tmp_path, "chaos")
    auto = {"looks": [5, 8, 12, 20], "at": 5, "max": 20}
    name = fabricate(tmp_path, {"ffn": ["mlp", "swiglu"]}, range(5), study="b", sequential=auto)
    table = evidence.effects(load_study(tmp_path, name))
    spread = upper_bound(evidence.noise(table)[0].sd, 5)
    fixed, looked = (seeds_needed(0.02, spread, alpha) for alpha in (0.05, float(table["alpha"].iloc[0])))
    assert fixed < looked and f"0.02 about {looked}," in placebo_lines(table, beside)[-1]
