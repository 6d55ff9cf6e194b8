"""Configurations are what Hydra itself composes of the same words."""

import itertools
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from composed import composed, composed_cells, composing_problems
from hydra import compose
from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from ablate.config.command import read_command
from ablate.config.compose import initialize_hydra
from ablate.config.groups import read_groups
from ablate.config.read_config import read_config
from ablate.config.schema import Config

# As Hydra has them, too: without patterns over the layers, settings in parentheses and changes of a preset's variants.
COMMANDS = [
    "",
    "norm=rms ffn=swiglu residual=post position=alibi attention=gqa init=gpt2 optim=sgd optim.momentum=0.5 data=copy",
    "scale=small norm=rms optim.lr=1 optim.warmup=3 seeds=[3,7] optim.betas=[0.8,0.9] model.dim=32 norm.eps=1e-3",
    "study=null train.compile=true \"margin='2 %'\" seed.init=4 track=none",
    "model.dim=${model.heads} model.heads=2 data.context=7 +data.more=1",
    "+preset=gpt2 model.dim=32",
    "+preset=llama scale=base",
    "+preset=t5 data=reverse",
    "+preset=bert data=mlm optim.lr=0.5",
    "+attention.qk_norm=rms ++attention.bias=true ffn.mult=3 step=sam step.rho=0.1",
    "results_dir=${oc.env:HOME}/here",
]
SWEEPS = [
    "norm=ln,rms,bn ffn=mlp,swiglu",
    "model.dim=range(16,64,16) 'optim.lr=choice(1e-3,3e-3)'",
    "+preset=gpt2,llama model.dim=32,64",
    "'norm=glob(r*)' seeds=3",
    "optim.betas=[0.9,0.95],[0.9,0.99]",
    "model.tie_embeddings=true,false,null",
]


def by_hydra(words: list[str], folder: Path | None = None) -> Config:
    """The configuration that Hydra composes."""
    groups = read_groups(str(folder) if folder else None)
    initialize_hydra(groups)
    content: Any = OmegaConf.to_container(compose("config", words), resolve=True)
    config, problems = read_config(content, content)
    assert problems == []
    return config


@pytest.mark.parametrize("command", COMMANDS)
def test_a_command_composes_what_hydra_does(command):
    words = shlex.split(command)
    assert composed(*words).config == by_hydra(words)


def hydras_sweep(words: list[str]) -> list[list[str]]:
    """The jobs of Hydra's basic sweeper: the product of all sweeps, the last word varies fastest."""
    choices = []
    for override in OverridesParser.create().parse_overrides(words):
        if override.is_sweep_override():
            key = override.get_key_element()
            choices.append([f"{key}={value}" for value in override.sweep_string_iterator()])
        else:
            choices.append([str(override.input_line)])
    return [list(job) for job in itertools.product(*choices)]


@pytest.mark.parametrize("command", [command for command in SWEEPS if "glob" not in command])
def test_a_sweep_has_the_cells_of_hydras_multirun(command):
    words = shlex.split(command)
    cells = [cell.config for cell in composed_cells(*words)]
    jobs = [by_hydra(job) for job in hydras_sweep(words)]
    assert cells == jobs


def test_several_values_sweep_also_where_only_one_of_them_is_right():
    command, _ = read_command(["norm=ln,lnn", "ffn=glu", "attention=mha,gqa", "optim.lr=1,2", "seeds=[3,7]"], None)
    assert command.swept == ["norm", "attention", "optim.lr"]


def test_a_glob_sweeps_the_variants_that_hydra_finds():
    cells = composed_cells("norm=glob(r*)")
    assert [cell.choices["norm"] for cell in cells] == sorted(
        name for name in read_groups().variants["norm"] if name[0] == "r"
    )


def write(folder: Path, name: str, text: str) -> None:
    file = folder / f"{name}.yaml"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(text)


OWN_FILES = {
    "norm/wide": "# @package _global_\n# Mine.\nnorm: {_target_: ablate.model.norm.RMSNorm, _partial_: true, eps: 1}\n",
    "norm/based": "# Mine.\ndefaults: [rms, _self_]\neps: 0.5\n",
    "ffn/as_wide": "# Mine.\n_target_: ablate.model.ffn.MLP\n_partial_: true\nhidden: ${model.dim}\nbias: true\n",
    "scale/nano": """# @package _global_
# Mine.
model: {dim: 8, layers: 1, heads: 1}
ffn: {mult: 2}
train: {steps: 2, batch_size: 2, eval_every: 1}
optim: {lr: 1, warmup: 0}
eval: {tokens: 8}
""",
    "preset/mine": "# @package _global_\n# Mine.\ndefaults: [gpt2, override /norm: rms]\nnorm: {eps: 0.5}\n",
}


@pytest.mark.parametrize("command", ["norm=wide", "norm=based", "ffn=as_wide model.dim=24", "scale=nano"])
def test_a_file_of_ones_own_is_read_as_hydra_reads_it(command, tmp_path):
    """Its package, its defaults list, its interpolations."""
    for name, text in OWN_FILES.items():
        write(tmp_path, name, text)
    words = command.split()
    assert composed(*words, folder=str(tmp_path)).config == by_hydra(words, tmp_path)


def test_a_preset_extends_another(tmp_path):
    write(tmp_path, "preset/mine", OWN_FILES["preset/mine"])
    config = composed("+preset=mine", folder=str(tmp_path)).config
    assert config.norm["_target_"].endswith("RMSNorm")
    assert config.norm["eps"] == 0.5
    assert config.ffn == composed("+preset=gpt2").config.ffn


def test_an_edited_file_is_read_again(tmp_path):
    write(tmp_path, "norm/mine", "_target_: ablate.model.norm.RMSNorm\n_partial_: true\neps: 1\n")
    assert composed("norm=mine", folder=str(tmp_path)).config.norm["eps"] == 1
    write(tmp_path, "norm/mine", "_target_: ablate.model.norm.RMSNorm\n_partial_: true\neps: 22\n")
    assert composed("norm=mine", folder=str(tmp_path)).config.norm["eps"] == 22


def test_a_variant_sets_no_key_of_a_whole_study(tmp_path):
    write(tmp_path, "norm/mine", "# @package _global_\nseeds: 3\n")
    problems = composing_problems("norm=mine", folder=str(tmp_path))
    assert problems[0] == "norm=mine: sets seeds, a key of a whole study; write it on the command line"


def test_a_reference_to_nothing_names_its_key():
    [problem] = composing_problems("model.dim=${model.width}")
    assert problem.startswith("model.dim: ")
    assert "model.width" in problem


@pytest.mark.parametrize(
    ("word", "value"), [("train.steps=1e3", 1000), ("train.steps='8'", 8), ("optim.lr=1", 1.0), ("study=2024", "2024")]
)
def test_a_value_gets_the_type_of_its_key(word, value):
    key = word.partition("=")[0]
    config: Any = composed(word).config
    for name in key.split("."):
        config = getattr(config, name)
    assert config == value
    assert type(config) is type(value)


def test_words_are_read_where_python_leaves_asserts_out():
    """Hydra's parser steps through its input in asserts."""
    code = """
from ablate.config.groups import read_groups
from ablate.config.words import read_words
words = ["optim.lr=choice(1e-3,3e-3)", "norm=glob(r*)", "model.layers=range(1,3)", "optim.betas=[0.9,0.99]"]
settings, problems = read_words(words, read_groups())
print([[str(value) for value in setting.values] for setting in settings.values()], problems)
"""
    done = subprocess.run([sys.executable, "-O", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[['0.001', '0.003'], ['rms'], ['1', '2'], ['[0.9, 0.99]']] []"
