"""Both mistakes of a command with two of them are reported, in one answer."""

import pytest

from ablate.planning.plan import PlanError, plan_study

pytestmark = pytest.mark.usefixtures("untried", "uncounted", "checks_here")

# Each mistake by itself, and how the line that reports it begins.
MISTAKES = {
    "norm=lnn": "norm=lnn: no such norm; did you mean ln?",
    "ffn=swigluu,mlp": "ffn=swigluu: no such ffn; did you mean swiglu?",
    "attention=2windw+mha": "attention=2windw+mha: no such attention; did you mean window?",
    "residual=pre(": "residual=pre(: cannot be read",
    "position=rope(bas=3)": "position.bas: RoPE has no such argument",
    "init=glob(q*)": "init=glob(q*): matches no variant",
    "modle.dim=3": "modle.dim=3: no such key; did you mean model.dim?",
    "lr=1e-3": "lr=1e-3: no such key; did you mean optim.lr?",
    "seeds=3,7": "seeds=3,7: would be a sweep of seeds, which takes a list; write seeds=[3,7]",
    "train.steps=many": "train.steps: must be a whole number",
    "train.batch_size=0": "train.batch_size: must be a whole number ≥ 1",
    "optim.betas=0.9": "optim.betas: must be a list of two numbers",
    "optim.warmup=null": "optim.warmup: must be a whole number ≥ 0, not null",
    "eval.tokens=${oc.env:NO_SUCH_NAME}": "eval.tokens: ",
    "design=gird": "design: must be one of grid",
    "zip=[ffn,norm]": "zip: ",
    "user=[os]": "user: 'os' belongs to Python",
    "study=a/b": "study: 'a/b' cannot name a folder",
    "margin=-1": "margin: must be > 0",
    "confirm=0": "confirm: must be a whole number ≥ 1",
    "dry_run": "dry_run: must be key=value; write dry_run=true",
    "hold=all": "hold=all: no such key; write the setting for all configurations, as in ffn.bias=true",
    "tier=gpu": "tier=gpu: is one of a study file's tiers",
    "track=[wandb,tensorbord]": "track=[wandb,tensorbord]: no such track 'tensorbord'",
    "data=txt": "data=txt: no such data; did you mean text?",
    "train.precision=fp16": "train.precision: must be one of auto, fp32, bf16",
    "+experiment=nope": "+experiment=nope: no such study file",
    "scale=tinny": "scale=tinny: no such scale; did you mean tiny?",
    "model.layers=2 model.layers=3": "model.layers=3: model.layers is given twice",
    "hydra.run.dir=x": "hydra.run.dir=x: has no effect here",
    "cross_attention.kv=1": "cross_attention.kv: no such key",
}
NAMES = list(MISTAKES)
PAIRS = [(NAMES[i], NAMES[(i + step) % len(NAMES)]) for step in (1, 7) for i in range(len(NAMES))]


def refused(*words: str) -> list[str]:
    with pytest.raises(PlanError) as error:
        plan_study((*words, "dry_run=true"))
    return [str(problem) for problem in error.value.problems]


@pytest.mark.parametrize("pair", PAIRS, ids=" ".join)
def test_both_mistakes_are_reported(pair):
    lines = refused(*pair[0].split(), *pair[1].split())
    missing = [mistake for mistake in pair if not any(line.startswith(MISTAKES[mistake]) for line in lines)]
    assert missing == [], lines
    assert len(lines) == 2, lines
