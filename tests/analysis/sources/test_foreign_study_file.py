"""python -m analysis --runs FILE --study YAML: claims, a margin and designs for runs of other programs."""

import itertools
import shlex
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas
import pytest
import yaml
from analysed_studies import refused_line
from fake_studies import fabricate
from other_runs import analysed, refused

from ablate import evidence
from ablate.config.claims import Claim
from ablate.config.typed_json import parse
from ablate.runs.records import ClaimEntry, MarginEntry
from ablate.runs.study import Study, load_study
from analysis import figures
from analysis.case import case_of
from analysis.cli.main import main
from analysis.writing.tables import runs_csv, write_csv

NUMBERS = ["n", "mean", "low", "high", "p", "verdict", "paired", "family"]
GRID: dict[str, list[Any]] = {"norm": ["ln", "rms"], "ffn": ["mlp", "glu", "swiglu"]}
SCALED: dict[str, list[Any]] = {"norm": ["ln", "rms"], "ffn": ["mlp", "swiglu"], "optim.lr": [0.001, 3e-05]}
CLAIMS = {
    "gated": {"less": [{"ffn": "swiglu"}, {"ffn": "mlp"}], "metric": "test/loss"},
    "same_norm": {"equivalent": [{"norm": "rms"}, {"norm": "ln"}], "margin": 0.02},
    "no_worse": {"greater": [{"ffn": "swiglu"}, {"ffn": "mlp"}]},
    "no_more": {"not_greater": [{"ffn": "swiglu"}, {"ffn": "mlp"}], "margin": 0.02},
    "steady": {"diverges_more": [{"norm": "rms"}, {"norm": "ln"}]},
}


def judged_as(study: Study, claims: dict[str, Any], margin: float | None) -> Study:
    """A study whose claims and margin were written after its results."""
    entries = {name: ClaimEntry(claim=parse(Claim, claim), registered=False) for name, claim in claims.items()}
    manifest = replace(study.manifest, claims=entries, margin=MarginEntry(value=margin))
    return replace(study, manifest=manifest)


def described(folder: Path, **content: Any) -> list[str]:
    """The option that names a study file with this content."""
    (folder / "study.yaml").write_text(yaml.safe_dump(content, sort_keys=False))
    return ["--study", str(folder / "study.yaml")]


def with_steps(study: Study, file: Path) -> Path:
    """All logged steps of a study with the settings of its runs, as people log them."""
    given = ["cell", "seed", "label", "status", "batches", "params"]
    curves = study.curves.drop(columns=["label", "path"]).merge(study.runs[given], on=["cell", "seed"])
    return write_csv(curves, file)


def one_diverged(levels: dict[str, Any], seed: int) -> str:
    return "diverged" if (levels.get("norm"), levels.get("ffn"), seed) == ("rms", "mlp", 1) else "done"


ORDERED = {"rank_correlates": [{"ffn": ["mlp", "glu", "swiglu"]}, [-1, -2, 3.5]]}


@pytest.mark.parametrize(
    ("factors", "design", "claims", "more"),
    [
        (GRID, "grid", CLAIMS | {"order": ORDERED}, {"status": one_diverged}),
        (SCALED, "grid", {name: claim | {"at": {"optim.lr": 3e-05}} for name, claim in CLAIMS.items()}, {}),
        (GRID, "leave_one_out", CLAIMS | {"order": ORDERED}, {"batches": lambda levels: str(levels["norm"])}),
        (GRID, "cumulative", {name: CLAIMS[name] for name in ("gated", "no_worse")}, {}),
    ],
    ids=["diverged", "strata", "leave one out", "cumulative"],
)
def test_a_native_study_with_claims_and_margin_reads_back_equal(tmp_path, factors, design, claims, more):
    """Effects, claims and figures; registered aside: who reads runs of others cannot know it."""
    name = fabricate(tmp_path, factors, design=design, seeds=range(6), every=200, **more)
    native = judged_as(load_study(tmp_path, name), claims, 0.03)
    words = described(tmp_path, design=design, margin=0.03, claims=claims)
    if "optim.lr" in factors:
        words += ["--within", "optim.lr"]
    file = tmp_path / "runs.csv"
    if more or design == "cumulative":
        with_steps(native, file)
    else:
        write_csv(runs_csv(native), file)
    foreign = analysed(file, *words)
    assert foreign.manifest.design == design
    pandas.testing.assert_frame_equal(
        evidence.effects(native)[NUMBERS], evidence.effects(foreign)[NUMBERS], check_exact=True
    )
    theirs = evidence.claims(foreign)
    columns = ["name", "verdict", "mean", "low", "high", "p"]
    pandas.testing.assert_frame_equal(evidence.claims(native)[columns], theirs[columns], check_exact=True)
    assert not theirs["registered"].any()
    if design == "cumulative":
        kinds = [set(figures.tables(case_of(study, tmp_path))) for study in (native, foreign)]
        assert kinds[0] == kinds[1] >= {"claims", "waterfall"}


def test_a_margin_makes_verdicts_that_say_what_they_rest_on(tmp_path):
    native = load_study(tmp_path, fabricate(tmp_path, GRID, seeds=range(6)))
    file = write_csv(runs_csv(native), tmp_path / "runs.csv")
    assert not set(evidence.effects(analysed(file))["verdict"]) & {"negligible", "equivalent"}
    study = analysed(file, *described(tmp_path, margin=0.2, claims={"gated": CLAIMS["gated"]}))
    effects = evidence.effects(study)
    family = effects[effects["family"]]
    assert set(family["verdict"]) == {"negligible", "equivalent"}
    assert family["note"].str.contains("by a margin written after results").all()
    assert set(effects.loc[~effects["family"], "verdict"]) == {"estimate only"}
    told = "margin: ±0.2, post hoc: nothing tells that it was written before the results"
    assert evidence.margin_line(study) == told
    assert evidence.claims(study)["sentence"].item().startswith("gated (post hoc): estimate only.")


ROWS = [f"{norm},{ffn},{lr},{seed},{2 + i / 9 + seed * (i + 1) / 100},{0.9 - (i + 1) * (9 + seed) / 200},{i + seed / 7}"
        for i, (norm, ffn, lr) in enumerate(itertools.product(["ln", "rms"], ["mlp", "no"], ["0.001", "3e-5"]))
        for seed in range(5)]  # fmt: skip
RUNS = "\n".join(["norm,ffn,optim.lr,seed,test/loss,test/acc,quality", *ROWS])


@pytest.fixture
def runs(tmp_path) -> Path:
    (tmp_path / "runs.csv").write_text(RUNS)
    return tmp_path / "runs.csv"


def test_the_command_line_from_end_to_end(tmp_path, runs, capsys):
    """Levels are texts as they stand there: `no` is no Boolean, 3.0e-05 the number that the runs have as 3e-5."""
    study = tmp_path / "glu.yaml"
    study.write_text(
        "study: gated\nquestion: Does <no> help?\nreference: {norm: rms, ffn: no}\nmargin: 1\nclaims:\n"
        "  gated: {less: [{ffn: no}, {ffn: mlp}], metric: test/acc, at: {optim.lr: 3.0e-05}}\n"
    )
    folder = tmp_path / "out"
    folder.mkdir()
    (folder / "figures.yaml").write_text("subset: {figures: [claims]}")  # all of them take a while
    options = ["--runs", str(runs), "--study", str(study)]
    assert main([*options, "--to", str(folder)]) == 0
    said = capsys.readouterr().out
    assert said.startswith("gated (post hoc): estimate only. ")
    assert "at optim.lr=3e-05" in said
    assert "reference norm=rms, ffn=no" in said
    assert "margin: ±1, post hoc" in said
    assert "Does &lt;no&gt; help?" in (folder / "report.html").read_text()
    assert f"--study {shlex.quote(str(study))}" in (folder / "report.md").read_text()
    assert (folder / "claims.csv").exists()
    assert main(["verify", str(folder / "claims.png"), *options]) == 0
    assert main(["verify", str(folder / "claims.png"), "--runs", str(runs)]) != 0


def test_runs_of_other_programs_do_not_take_the_place_of_a_study(tmp_path, runs, capsys):
    results = tmp_path / "results"
    name = fabricate(results, GRID)
    options = ["--runs", str(runs), *described(tmp_path, study=name), "--results-dir", str(results)]
    for command in ([], ["export"]):
        assert f"{name} is for the study {name} itself, not for runs of" in refused_line(capsys, *command, *options)
    assert not (results / "figures").exists()
    assert main(["export", *options, "--to", str(tmp_path / "out")]) == 0


def test_the_command_line_wins_over_the_file(tmp_path, runs):
    words = described(
        tmp_path, factors={"ffn": ["no", "mlp"], "norm": ["rms", "ln"]}, reference={"norm": "ln", "ffn": "no"}
    )
    study = analysed(runs, *words, "--reference", "norm=rms", "--within", "optim.lr", "--factors", "norm,ffn,optim.lr")
    assert study.manifest.reference == {"norm": "rms", "ffn": "no"}
    assert study.manifest.factors == {"norm": ["rms", "ln"], "ffn": ["no", "mlp"], "optim.lr": [0.001, 3e-05]}


@pytest.mark.parametrize("design", ["cumulative", "one_at_a_time", "leave_one_out"])
def test_designs_of_runs_in_any_order(tmp_path, design):
    """The order of steps comes from the file; the reference is what all configurations differ from in one factor."""
    native = load_study(tmp_path, fabricate(tmp_path, GRID, design=design, seeds=range(4)))
    rows = native.runs[[*GRID, "seed", "test/loss"]].sample(frac=1, random_state=1)
    file = write_csv(rows, tmp_path / "shuffled.csv")
    order = {"factors": GRID} if design == "cumulative" else {}
    study = analysed(file, *described(tmp_path, design=design, **order))
    assert study.manifest.reference == native.manifest.reference
    ours = evidence.effects(native).query("factor != ''").set_index(["factor", "level"])["mean"]
    theirs = evidence.effects(study).set_index(["factor", "level"])["mean"]
    pandas.testing.assert_series_equal(ours, theirs[ours.index])


REST = "norm: [ln, rms], optim.lr: [0.001, 3e-5]"
KEYS = "the keys for runs of other programs are study, question, factors, reference, design, margin, claims"
LEVELS = "factors.ffn: write each level of the runs once; they are mlp and no"
MISTAKES: list[tuple[str, str]] = [
    ("seeds: 5", f"study.yaml: Object contains unknown field `seeds`; {KEYS}"),
    ("design: ladder", "Invalid enum value 'ladder' - at `$.design`"),
    ("design: cumulative", "form no cumulative: "),
    (f"factors: {{{REST}, ffn: [no, no]}}", LEVELS),
    ("reference: {nrm: ln}", "nrm is no factor of these runs; the factors are norm, ffn"),
    ("reference: {norm: bn}", "reference: norm=bn: there is no such level; there are ln and rms"),
    ("margin: 2 %", "margin: 2 % is not a number above 0 in the metric's unit"),
    ("claims: {a: {less: [{ffn: glu}, {ffn: mlp}]}}", "claims.a: less: ffn has no level glu; there are mlp, no"),
    ("claims: {a: {less: [{ffn: no}, {ffn: mlp}], metric: quality}}", "metric: there is no quality, or its"),
    ("claims: {a: {equivalent: [{ffn: no}, {ffn: mlp}], margin: 3 %}}", "claims.a: margin: 3 % is a share of training"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "said"), MISTAKES, ids=[said[:30] for _, said in MISTAKES])
def test_a_mistake_is_one_line(tmp_path, runs, text, said):
    (tmp_path / "study.yaml").write_text(text)
    assert said in refused(runs, "--study", str(tmp_path / "study.yaml"))
