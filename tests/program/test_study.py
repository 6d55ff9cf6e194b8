"""A study of a program has what every study has: designs, interim analyses, study files with claims, tracking."""

import sys
from pathlib import Path

import pytest
from small_program import COMMAND, TRAIN, WORDS, run
from wandb_files import read_back

import ablate
from ablate.cli.status import main as status
from ablate.config.errors import PlanError
from ablate.planning.program import plan_program
from ablate.runs.manifest import read_manifest

SCORE = "import random, sys\nprint('score:', random.Random(' '.join(sys.argv[1:])).random())\n"  # all is noise
FACTORS = ["bias=0,1", "lr=1,2,3"]
STUDY = """\
question: Does the bias help?
command: "PYTHON train.py --bias={bias} --seed={seed} --out={out}"
metric: val/loss
factors: {bias: [0, 1]}
claims:
  helps: {less: [{bias: 1}, {bias: 0}], margin: 0.001}
  costs: {greater: [{bias: 1}, {bias: 0}]}
replicated: [helps]
"""


@pytest.fixture
def file(tmp_path) -> Path:
    """A study file of the small program."""
    path = tmp_path / "mine.yaml"
    path.write_text(STUDY.replace("PYTHON", sys.executable))
    return path


@pytest.mark.parametrize(
    ("words", "levels", "reference"),
    [
        (["design=grid"], ["01", "02", "03", "11", "12", "13"], "01"),
        (["design=one_at_a_time"], ["01", "11", "02", "03"], "01"),
        (["design=leave_one_out"], ["13", "03", "11", "12"], "13"),
        (["design=cumulative"], ["01", "11", "12", "13"], "01"),
    ],
)
def test_designs(words, levels, reference):
    plan = plan_program(f"{COMMAND} {{lr}}", [*FACTORS, "metric=val/loss", *words])
    cells = plan.manifest.cells
    assert ["".join(map(str, cell.levels.values())) for cell in cells] == levels
    assert ["".join(map(str, cell.levels.values())) for cell in cells if cell.reference] == [reference]


def test_seeds_auto_adds_seeds_until_all_is_decided(program):
    study = ablate.command(COMMAND, *WORDS, seeds="auto")
    assert study.manifest.seeds == [0, 1, 2, 3, 4]  # the effect is clear
    program.write_text(SCORE)
    study = ablate.command(COMMAND, "bias=0,1", "metric=score", "better=max", seeds="auto", seeds_max=8, study="noise")
    assert study.manifest.seeds == [*range(8)]
    looks = read_manifest(Path("results"), "noise").looks
    assert [look.seeds for look in looks] == [[*range(5)], [*range(8)]]


def test_a_study_does_not_turn_its_verdicts_around(program):
    program.write_text(SCORE)
    words = ("bias=0,1", "metric=score", "seeds=2", "study=turned")
    ablate.command(COMMAND, *words, "better=max")
    with pytest.raises(ablate.PlanError, match="takes score as better in the other direction"):
        plan_program(COMMAND, [*words, "better=min"])


def test_claims_of_a_study_file(file, capsys):
    assert run(command=f"study={file}") == 0
    text = capsys.readouterr().out
    assert "helps (registered): supported" in text
    assert "costs (registered): contradicted" in text
    assert "replicated (registered): met" in text
    assert read_manifest(Path("results"), "mine").question == "Does the bias help?"


def test_the_command_line_changes_a_study_file(file):
    assert plan_program(f"study={file}", ["seeds=2"]).manifest.study == "mine"
    changed = plan_program(f"study={file}", ["bias=1,2"])
    assert changed.manifest.study.startswith("mine-")
    assert changed.manifest.factors == {"bias": ["1", "2"]}
    assert any("not tested here: claims.helps" in note for note in changed.notes)


def test_values_in_a_study_file_are_texts(file):
    file.write_text(
        file.read_text()
        .replace("[0, 1]", "[False, 1e-3]")
        .replace("bias: 1", "bias: 1e-3")
        .replace("bias: 0", "bias: False")
    )
    plan = plan_program(f"study={file}", [])
    assert plan.manifest.factors == {"bias": ["False", "1e-3"]}
    assert {*plan.manifest.claims} == {"helps", "costs"}


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("less:", "les:", "mine.yaml: claims.helps: no such key: les; did you mean less?"),
        ("{bias: 1}", "{bias: 7}", "bias has no level 7"),
        ("margin: 0.001", "margin: small", "margin: small: write a number above 0"),
        ("command:", "comand:", "mine.yaml: command: is missing"),
        ("[helps]", "[help]", "no such claim: help"),
        ("metric: val/loss", "metric: val/loss\ntier: gpu", "tier: belongs on the command line"),
        ("margin: 0.001", "metric: test/loss", "metric: is that of the study, val/loss"),
    ],
)
def test_mistakes_in_a_study_file(file, old, new, message):
    file.write_text(file.read_text().replace(old, new))
    with pytest.raises(PlanError) as caught:
        plan_program(f"study={file}", [])
    assert message in str(caught.value)


def test_curves_in_an_offline_run_of_wandb():
    run(*WORDS, "seeds=1", "track=wandb", "track.project=mine", "study=a")
    runs = [read_back(folder) for folder in Path("results/wandb").glob("offline-run-*")]
    assert sorted(run["config"]["bias"] for run in runs) == ["0", "1"]
    assert {run["project"] for run in runs} == {"mine"}
    assert sorted(run["summary"]["val/loss"] for run in runs) == pytest.approx([1.963, 2.011])
    assert [[row["step"] for row in run["history"]] for run in runs] == [[10, 20]] * 2


def test_a_run_is_loaded_with_its_steps_but_no_model():
    study = ablate.command(COMMAND, *WORDS, seeds=1)
    loaded = study.run("bias=1", seed=0)
    assert [row["val/loss"] for row in loaded.metrics] == pytest.approx([2.963, 1.963])
    assert loaded.config is None
    with pytest.raises(ValueError, match=r"is of another program; what that saved is in .*/out"):
        loaded.model()


def test_the_status_names_the_output_of_a_failed_run(program, capsys):
    program.write_text(TRAIN + "assert options.bias == '0', 'no bias here'\n")
    assert run(*WORDS, "seeds=1") == 1
    capsys.readouterr()
    status([])
    [line] = [line for line in capsys.readouterr().out.splitlines() if line.startswith("failed")]
    assert "no bias here" in line
    assert "no bias here" in Path(line.rpartition(" · ")[2]).read_text()
