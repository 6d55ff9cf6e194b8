"""Whatever somebody types at a key: exit code 2 and one line per mistake, or it counts; never a traceback or a hang."""

from pathlib import Path

import pytest

from ablate.cli.main import command
from ablate.config.groups import comment_words, groups

HUGE = "734543839430499934233706"


@pytest.fixture
def typed(tmp_path, monkeypatch, capsys):
    """Carries out a command line in this process, as a dry run; its exit code and what it wrote to stderr."""
    monkeypatch.chdir(tmp_path)

    def act(*words):
        dry_run = [] if "--cfg" in words else ["dry_run=true"]
        code = command([*dry_run, *words])
        assert not list(Path(tmp_path).iterdir()), "something was written"
        return code, capsys.readouterr().err.splitlines()

    return act


REFUSED = [
    (["--config-dir=nowhere"], "--config-dir: "),
    (["hydra.mode=RUN"], "hydra.mode=RUN: has no effect here; "),
    (["hydra/sweeper=basic"], "hydra/sweeper=basic: "),
    # What papers and other libraries call a variant or a key.
    (["norm=ln rms"], "norm=ln rms: is one word; to compare several write norm=ln,rms"),
    (["norm=layernorm"], "norm=layernorm: no such norm; did you mean ln?"),
    (["model.d_model=64"], "model.d_model: no such key; did you mean model.dim?"),
    (["wandb.project=mine"], "wandb.project=mine: no such key; did you mean track.project?"),
    (["track=[none,wandb]"], "track=[none,wandb]: takes services, each named once, as in track=[wandb,tensorboard]"),
    (["größe=4"], "größe=4: no such key; there are"),
    (["data.path=größe.txt"], "data.path=größe.txt: cannot be read; close each bracket, leave no gap beside a comma"),
    (["train.seeds=3"], "train.seeds: no such key; did you mean seeds?"),
    (["train.steps=[7,8]"], "train.steps: must be a whole number ≥ 1, not [7, 8]; to compare several write train"),
    (["norm.eps=[0.1,0.2]"], "norm.eps: [0.1, 0.2] is not of type float; to compare several write norm.eps=0.1,0.2"),
    (["norm=ln", "--seeds", "5"], "--seeds: no such option; write seeds=VALUE"),
    (["norm=ln", "--batch-size", "8"], "--batch-size: no such option; write train.batch_size=VALUE"),
    (["norm=ln", "--config_dir", "mine"], "--config_dir: no such option; write --config-dir DIR"),
    (["norm=ln", "--frob"], "--frob: no such option; see ablate --help"),
    (["hydra/launcher=nope", "--cfg", "hydra"], "hydra/launcher=nope: no such launcher"),
    (["--cfg", "everything"], "--cfg: everything is no part of the configuration; write --cfg job or hydra or all"),
    (["match=param"], "match: must be one of none, params, flops, flops_total, not param; did you mean"),
    (["norm", "=", "ln,rms"], "=: stands alone; write key=value without spaces around ="),
    (["eval=${model.dim}"], "eval: is a section of keys; set one of them, as in eval.KEY=VALUE"),
    (["data=memorisation", "data.symbols=999999998"], "data.symbols must be ≤ 10,000,000, not 999999998"),
    (["user=???"], "user: has no value; write one"),
    (["confirm=${ffn}"], "confirm: must be a whole number ≥ 1 and ≤ 1000 or null, not {"),
    (["model._target_=ablate.model.norm.LayerNorm"], "model._target_: 'ablate.model.norm.LayerNorm' has"),
    ([f"model.layers={HUGE}"], "model.layers: must be a whole number ≥ 1 and ≤ 1000, not 7.3e+23"),
    (["model.dim=1000000", "model.layers=1000"], "model: would have about 1.2e+16 parameters"),
]


@pytest.mark.parametrize(("words", "said"), REFUSED, ids=[" ".join(words)[:50] for words, _ in REFUSED])
def test_a_mistake_is_one_line(typed, words, said):
    code, lines = typed(*words)
    assert code == 2 and len(lines) == 1 and lines[0].startswith(f"ablate: {said}"), lines
    assert len(lines[0]) < 300


def test_a_wrong_folder_hides_no_other_mistake(typed):
    code, lines = typed("--config-dir=nowhere", "norm=rmss", "seeds=3,7")
    assert code == 2 and [line.split(": ")[1] for line in lines] == ["--config-dir", "norm=rmss", "seeds=3,7"]


def test_another_name_is_that_of_one_variant():
    for group, variants in groups().items():
        others = [other.lower() for file in variants.values() for other in comment_words(file, "also")]
        assert len({*others, *variants}) == len(others) + len(variants), f"ablate/conf/{group}: a name stands for two"


def test_the_largest_seed_is_planned(typed, untried):
    small = ("model.dim=16", "model.heads=2", "model.layers=2", "model.share_layers=true")
    assert typed(*small, "seeds=[9007199254740992]", "norm.eps=0.5") == (0, [])
