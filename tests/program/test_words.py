"""The words of `ablate command`: settings, options, and all mistakes at once."""

import subprocess
import sys

import pytest

from ablate.config.errors import PlanError
from ablate.config.program_keys import word_of
from ablate.planning.program import plan_program
from ablate.program.words import read_request

COMMAND = "train.py --bias={bias} --seed={seed}"
METRIC = "metric=val/loss"


def problems_of(command: str, *words: str) -> str:
    with pytest.raises(PlanError) as caught:
        plan_program(command, words)
    return str(caught.value)


def test_settings_with_several_values_are_factors():
    request, problems = read_request(f"{COMMAND} --lr={{lr}}", ["bias=true,false", "lr=0.1", METRIC])
    assert not problems
    assert request.settings == {"bias": ["true", "false"], "lr": ["0.1"]}


def test_a_comma_in_double_quotes_separates_nothing():
    request, _ = read_request(COMMAND, ['bias="a,b",c', METRIC])
    assert request.settings["bias"] == ["a,b", "c"]


def test_environment_variables_are_settings_or_hold_fields():
    request, problems = read_request("train.py", ["env.SEED={seed}", "env.LR=1e-3,3e-3", METRIC])
    assert not problems
    assert request.environment == {"SEED": "{seed}", "LR": "{env.LR}"}
    assert request.settings == {"env.LR": ["1e-3", "3e-3"]}


def test_values_as_one_word():
    assert word_of("x", ["a,b", True, None, 0.001]) == 'x="a,b",true,null,0.001'
    assert word_of("read", ["loss, {value}"]) == "read=loss, {value}"


@pytest.mark.parametrize(("text", "seeds"), [("3", [0, 1, 2]), ("[4,2]", [2, 4])])
def test_seeds(text, seeds):
    assert plan_program(COMMAND, ["bias=1,2", METRIC, f"seeds={text}"]).manifest.seeds == seeds


@pytest.mark.parametrize(("text", "seconds"), [("90", 90.0), ("90s", 90.0), ("10m", 600.0), ("1.5h", 5400.0)])
def test_times(text, seconds):
    order = plan_program(COMMAND, ["bias=1,2", METRIC, f"timeout={text}"]).orders()[0]
    assert order.program and order.program.timeout == seconds


@pytest.mark.parametrize(
    ("command", "words", "message"),
    [
        (COMMAND, ["bias=1,2"], "metric: is missing"),
        (COMMAND, ["bia=1,2", METRIC], "has the field {bias}, which has no value; did you mean {bia}?"),
        (COMMAND, ["bias=1,2", "lr=3", METRIC], "lr: is used nowhere"),
        (COMMAND, ["bias=1,2", "metricc=x", METRIC], "did you mean metric?"),
        (COMMAND, ["bias=1,2", "bias=3", METRIC], "bias: is given twice"),
        (COMMAND, ["bias=1,1", METRIC], "bias: has a value twice"),
        (
            "train.py {cell} {seed}",
            ["cell=gru,lstm", METRIC],
            "write {cell_type} in the command, and cell_type=gru,lstm",
        ),
        (COMMAND, ["bias", METRIC], "bias: is no key=value"),
        (COMMAND, ["bias=1,2", "seed=3", METRIC], "write seeds=5"),
        (COMMAND, ["bias=1,2", "design=ladder", METRIC], "design: ladder is for models of ablate"),
        (
            COMMAND,
            ["bias=1,2", "track.project=x", METRIC],
            "track.project: track=none has no such key; track=wandb has it",
        ),
        (COMMAND, ["bias=1,2", "parallel=2", "hydra/launcher=basic", METRIC], "parallel: is for runs on this machine"),
        (COMMAND, ["bias=1,2", "metric=score"], "better: is missing: score does not say which is better"),
        (f"python other.py {COMMAND}", ["bias=1,2", METRIC], "command: other.py is not in"),
        (COMMAND, ["bias=1,2", "timeout=soon", METRIC], "timeout: is a time"),
        (COMMAND, ["bias=1,2", "budget=wallclock", METRIC], "budget: needs a timeout"),
        (COMMAND, ["bias=1,2", "better=low", METRIC], "better: "),
        (COMMAND, ["bias=1,2", "parallel=0", METRIC], "parallel: "),
        (COMMAND, ["bias=1,2", "read=loss", METRIC], "read: "),
        ("train.py {bias?--bias} {seed}", ["bias=yes,maybe", METRIC], "is a switch"),
        ("train.py {bias}", ["bias=1,2", METRIC], "does not use {seed}"),
        ("train.py {bias}", ["bias=1,2", "env.X={seed},{bias}", METRIC], "env.X: has fields and several values"),
    ],
)
def test_mistakes_say_what_to_write(command, words, message):
    assert message in problems_of(command, *words)


def test_all_mistakes_are_said_at_once():
    text = problems_of("train.py {bia}", "bias=1,2", "seeds=x", "timeout=y")
    for part in ("metric:", "{bia}", "seeds:", "timeout:", "{seed}"):
        assert part in text


def test_a_refused_command_does_not_wait_for_large_libraries():
    script = "import sys, ablate.cli.program as program\nprogram.main(['train.py {x}'])\n"
    script += "print({'torch', 'pandas', 'scipy', 'matplotlib'} & {*sys.modules})\n"
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "has the field {x}" in done.stderr
    assert done.stdout == "set()\n"
