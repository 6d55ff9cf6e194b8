"""Every mistake that a command line can hold is found before anything trains, all at once, one line each."""

import dataclasses
import sys

import pytest
from composed import composed
from conftest import SHAPE
from faulty_package import CODE
from model_variants import ALONE

from ablate.config.groups import defaults, groups
from ablate.config.schema import COMPONENTS
from ablate.model import cost
from ablate.planning.checks.validate import Validator
from ablate.planning.plan import PlanError, plan_study


def problems(*overrides: str) -> list[str]:
    """What the plan says is wrong."""
    with pytest.raises(PlanError) as error:
        plan_study(tuple(overrides))
    return [str(problem) for problem in error.value.problems]


MISTAKES = {
    "norm.epss=1": ["norm.epss", "no such key", "eps"],
    "model.heads=3": ["model.dim=64 must be divisible by model.heads=3"],
    "attention.sink=zero": ["attention.sink", "takes a plus: +attention.sink"],
    "model.heads=64": ["position: ", "must be even", "1"],
    "seeds=[3,3]": ["seeds", "has a seed twice; write each once"],
    "optim.lr=nan": ["optim.lr", "≥ 1e-12 and ≤ 1000", "not nan"],
    "schedule=wsd schedule.form=exponential optim.min_lr_ratio=0": ["schedule.form=exponential", "optim.min_lr", "> 0"],
    "schedule=constant optim.min_lr_ratio=0.5": ["optim.min_lr_ratio", "no effect on schedule=constant"],
    "schedule=linear,cosine ffn=mlp(hidden=64,mult=9)": ["ffn.mult", "no effect where ffn.hidden is set"],
    "model.share_embeddings=false": ["model.share_embeddings", "write model=encoder_decoder, too, or leave it out"],
    "schedule.decay=0.2": ["schedule.decay", "schedule=wsd has it"],
    "optim=sgd optim.betas=[0.9,0.99]": ["optim.betas", "sgd has none"],
    "parametrization=mup optim=adafactor": ["parametrization", "no rule for adafactor", "adamw, lion and sgd"],
    "parametrization=mup parametrization.base_dim=32 ffn=moe": ["parametrization", "reads the width"],
    "optim=sgd optim.momentum=0 optim.nesterov=true": ["optim.nesterov", "optim.momentum > 0"],
    "optim.betas=[0.9,1.0]": ["optim.betas", "two numbers"],
    "eval.lengths=[[]]": ["eval.lengths", "must be a list of"],
    "train.parts=3": ["train.parts", "a power of two up to train.batch_size=16", "not 3"],
    "train.devices=2": ["train.devices", "divides train.parts=1, not 2"],
    "train.parts=2 norm=bn": ["train.parts", "by the whole batch", "leave it out"],
    "train.capture=true": ["train.capture", "on a GPU", "leave it out"],
    "study=verify": ["study", "is a command of ablate analyse"],
    f"study={'x' * 101}": ["study", "cannot name a folder", "up to 100 letters"],
    "user=[no_such_package]": ["user", "'no_such_package' cannot be imported"],
    "results_dir=/dev/null/x": ["results_dir", "/dev/null cannot be written"],
    "data=text data.path=/no/such/file": ["data.path=/no/such/file does not exist", "FILE, FOLDER or 'GLOB'"],
    "data.context=10000000": ["data", "too short", "data.context=10000000"],
    "train.compile=false,auto": ["is the same configuration as", "leave one of them out"],
    "embedding=factorised embedding.width=6 norm=group model.norm_embeddings=true": ["norm.groups", "the width 6"],
    "embedding=factorised embedding.width=7 position=sinusoidal": ["position: the width of an embedding", "not 7"],
    "model=encoder_decoder data=reverse cross_attention=mha +cross_attention.soft_cap=-1": ["cross_attention.soft_cap"],
    "data=mqar data.solved_at=0": ["data.solved_at: must be above 0 and at most 1, not 0"],
    "+data.solved_at=0.5": ["data.solved_at: is for shares, which loss, its first metric, is not"],
    "data=mqar zip=[norm,data.solved_at] norm=ln,rms data.solved_at=0.9,0.8": [
        "data.solved_at: is 0.9 and 0.8 in configurations of one task; write one for all"
    ],
    "data=digits model=encoder embedding.frozen=true": ["embedding: "],
    "data.tokenizer=bpe data.vocab_size=2": ["data.vocab_size must be ≥ 257"],
}


@pytest.mark.parametrize("overrides", MISTAKES)
def test_a_mistake_is_one_line_that_helps(overrides):
    found = problems(*overrides.split())
    assert len(found) == 1 and "\n" not in found[0], found
    for word in MISTAKES[overrides]:
        assert word in found[0]


def test_all_mistakes_are_reported_at_once():
    found = problems("norm=ln,lnn", "ffn=mpl", "model.dim=0", "optim.lr=nan", "seeds=3,7", "+norm.foo=1", "modle.dim=3")
    keys = ["ffn=mpl", "model.dim", "modle.dim=3", "norm.foo", "norm=lnn", "optim.lr", "seeds=3,7"]
    assert sorted(line.partition(":")[0] for line in found) == keys
    assert any("must be divisible" in line for line in problems("model.heads=3", "optim.lr=nan"))


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "is empty"), (bytes(range(256)) * 50, "is binary"), (b"too short to learn", "too short")],
)
def test_data_that_cannot_be_used(content, said, tmp_path):
    (tmp_path / "x.txt").write_bytes(content)
    [line] = problems("data=text", f"data.path={tmp_path / 'x.txt'}")
    assert said in line


BESIDE = {"encoder": ["data=mlm"], "bert": ["data=mlm"], "encoder_decoder": ["data=copy"]}  # what a form needs
# Presets are validated in test_presets.py, tasks in test_tasks.py, components by globs in test_duplicates.py.
ALLOWED = "allow_duplicates=true"
ELSEWHERE = ("preset", "data", *COMPONENTS)


def test_every_variant_on_disk_passes(uncounted):
    chosen = [(group, name) for group, names in groups().items() for name in names if group not in ELSEWHERE]
    assert len(chosen) > 15
    sizes = ["model.dim=16", "model.heads=2"]
    words = [[f"{group}={name}", *sizes * (group != "scale"), *BESIDE.get(name, ())] for group, name in chosen]
    drafts = [dataclasses.replace(composed("model.layers=1", *given), label=str(given)) for given in words]
    cells, found = Validator().validate(drafts)
    assert found == [] and len(cells) == len(words) and all(cell.budget.params > 0 for cell in cells)


def test_cells_that_differ_in_what_has_no_place_are_one(tmp_path, untried):
    rest = (*SHAPE, f"results_dir={tmp_path}")
    [line] = problems("norm=ln,rms", "residual=pre,rezero", *rest)
    assert (
        line
        == "rms + rezero is the same configuration as ln + rezero, which has no place for a norm; leave one of them out"
    )
    plan = plan_study(("residual=pre,rezero", *rest))
    assert "ReZero: its blocks have no norms, whatever norm= says" in plan.manifest.cells[1].notes
    normed = plan_study(("norm=ln,rms", "residual=rezero", "model.norm_embeddings=true", *rest))
    assert len(normed.manifest.cells) == 2


def test_a_user_package_adds_a_variant_to_any_group(tmp_path, monkeypatch, untried, uncounted, checks_here):
    """A subclass and a copy of the reference's YAML with its name: composed, built, counted and compared."""
    used = [*ALONE, "model", "data"]
    (tmp_path / "my_parts").mkdir()
    sources = ""
    for group in used:
        text = groups()[group][defaults()[group]].read_text()
        module, _, name = next(line for line in text.splitlines() if "_target_" in line).split()[-1].rpartition(".")
        sources += f"from {module} import {name}\n\n\nclass My{name}({name}):\n    pass\n\n\n"
        (tmp_path / "my_conf" / group).mkdir(parents=True)
        (tmp_path / "my_conf" / group / "mine.yaml").write_text(text.replace(f"{module}.{name}", f"my_parts.My{name}"))
    (tmp_path / "my_parts" / "__init__.py").write_text(sources)
    monkeypatch.syspath_prepend(tmp_path)
    sys.modules.pop("my_parts", None)
    conf, sweep = str(tmp_path / "my_conf"), [f"{group}={defaults()[group]},mine" for group in used]
    rest = (f"results_dir={tmp_path}", *SHAPE)
    plan = plan_study((*sweep, *rest, "user=[my_parts]", "seeds=1", "design=one_at_a_time", ALLOWED), conf)
    built_in, *mine = plan.manifest.cells
    assert len(mine) == len(used) and len({run.path for run in plan.manifest.runs}) == 1 + len(used)
    for group, cell in zip(used, mine, strict=True):
        assert cell.levels[group] == "mine" and cell.params == built_in.params and cell.shared_draws == 1
    for given, told in {"user=[]": "add user=.my_package.", "user=my_parts": "user: must be a list of names"}.items():
        with pytest.raises(PlanError, match=told) as refused:
            plan_study((sweep[0], given, *rest), conf)
        assert len(refused.value.problems) == 1, "what follows from a wrong package is not said"


def test_a_user_norm_that_cannot_be_called_is_located_at_its_line_or_the_call(tmp_path, faulty, uncounted, monkeypatch):
    monkeypatch.setattr(cost, "forward_flops", uncounted)
    with pytest.raises(PlanError) as error:
        sweep = ("norm=ln,unmasked,misshapen", "user=[mistakes_of_mine]", f"results_dir={tmp_path}", *SHAPE)
        plan_study(sweep, faulty)
    lines, at = sorted(map(str, error.value.problems)), CODE.splitlines().index("        return x.view(7)")
    assert "misshapen: the model cannot be built" in lines[0] and f"mistakes_of_mine.py:{at + 1}" in lines[0], lines
    assert "unexpected keyword argument 'mask'" in lines[1], lines
    assert lines[1].endswith("write forward(self, x, mask=None)")


def test_a_key_that_some_of_the_variants_swept_do_not_have():
    [line] = problems("norm=ln,dyt", "norm.eps=1e-6")
    assert line.startswith("norm.eps: norm=dyt has no such key; ") and line.endswith("write norm=ln(eps=1e-06)")
    [line] = problems("norm=ln,group", "norm.groups=8")
    assert line == "norm.groups: norm=ln has no such key; norm=group has it: write norm=group(groups=8)"
