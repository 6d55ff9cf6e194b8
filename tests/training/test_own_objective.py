"""Objectives of one's own: what their terms are given, hidden states, a trained run as a teacher."""

from typing import Any

import pytest
import torch
from conftest import latest
from empty_task import Blank
from model_variants import CONTEXT, configuration, some_tokens
from model_variants import VOCAB as FEW
from one_run import rows_of, train, write_plan
from own_module import write_module
from page_code import code

from ablate.config.errors import BadComponent, PlanError
from ablate.data.task import build_task
from ablate.model.build import build_model, initialised_model, keep_hidden
from ablate.model.objective import Objective, pop_tensors, terms_of
from ablate.planning.checks.small_models import VOCAB
from ablate.planning.plan import plan_study
from ablate.runs.folder import Run
from ablate.training.trainer import Trainer

PAGE = "\n".join(["import torch", *code("own-objective.md", "python")[:3]])
MORE = """
class Strange(Objective):
    def terms(self, logits, weather):
        return {}
"""
YAMLS = {"distillation": "teacher: ???\nweight: 0.5", "activations": "weight: 0.1", "strange": ""}


@pytest.fixture
def own(tmp_path, small, monkeypatch, checks_here) -> Any:
    """Plans a command of the objectives of the how-to page."""
    name = write_module(tmp_path, monkeypatch, PAGE + MORE, "objective", YAMLS)

    def planned(*words: str) -> Any:
        return plan_study(tuple(latest(*small, f"user=[{name}]", "seeds=1", *words)), str(tmp_path / "conf"))

    return planned


def test_a_trained_run_teaches_and_is_no_part_of_the_student(own, tmp_path, monkeypatch):
    text = tmp_path / "many.txt"
    text.write_text("".join(chr(0x4E00 + i * 7 % 600) for i in range(6000)))  # of more ids than a check's small model
    data = ("data.tokenizer=char", f"data.path={text}")
    with monkeypatch.context() as patch:  # the student's plan is tried alone
        patch.setattr("ablate.planning.checks.inspect.try_out", lambda *_: [])
        plain = own("objective=cross_entropy", "study=teacher", *data)
    write_plan(plain)
    status, teacher = train(plain)
    words = (f"objective.teacher={teacher.folder}", "keep=all", "train.log_every=1")
    taught = own("objective=distillation", *data, *words)
    write_plan(taught)
    assert status == "done" and train(taught)[0] == "done"
    [student] = taught.manifest.cells
    run = Run(taught.results, taught.manifest.runs[0].path)
    [cell] = plain.manifest.cells
    assert (student.params, student.flops_per_token) == (cell.params, cell.flops_per_token)
    state = torch.load(run.checkpoint_file, weights_only=True)
    assert state["model"].keys() == build_model(cell.config, build_task(cell.config)).state_dict().keys()
    first = next(row for row in rows_of(run) if "train/loss" in row)
    assert first["train/distillation"] > 0 and build_task(student.config).vocab > VOCAB
    assert first["train/objective"] == pytest.approx(first["train/loss"] + first["train/distillation"], rel=1e-5)


@pytest.mark.parametrize("form", ["decoder", "encoder_decoder"])
def test_hidden_states_are_the_stream_after_each_layer(form):
    class Asking(Objective):
        def terms(self, hidden, inputs):
            self.seen = hidden
            self.inputs = inputs
            return {"first": hidden[0].sum() * 0}

    model = initialised_model(configuration({"model": form}), Blank(FEW, CONTEXT), 0)
    objective = Asking()
    tokens = some_tokens()
    inputs = {"tokens": tokens}
    if form == "encoder_decoder":
        inputs["source"] = tokens
    stacks = [part for part in model.modules() if hasattr(part, "keeps_hidden")]
    after: list[torch.Tensor] = []
    for stack in stacks:
        assert not stack.keeps_hidden
        stack.keeps_hidden = True
        for block in stack.blocks:
            block.register_forward_hook(lambda block, given, stream: after.append(block.leave(stream)))
    terms = terms_of(model, objective, model(**inputs), tokens, inputs, 5, 1.0)
    assert terms.keys() == {"first"} and objective.inputs is inputs
    assert len(stacks) == len(inputs) and len(after) == sum(len(stack.blocks) for stack in stacks)
    assert len(objective.seen) == len(after) and all(map(torch.equal, objective.seen, after))
    assert all(pop_tensors(stack, "hidden_states") == [] for stack in stacks), "they are taken away"


def test_a_loss_over_all_layers_trains_compiled_or_not(own, tmp_path, monkeypatch, untried):
    compiling = torch.nn.Module.compile
    found = []
    monkeypatch.setattr(torch.nn.Module, "compile", lambda model, options: compiling(model, backend="eager"))
    config = own("objective=activations", "train.steps=2", "train.log_every=1").manifest.cells[0].config
    for compiled in (True, False):
        trainer = Trainer(Run(tmp_path, f"a/{compiled}"), config.with_value("train.compile", compiled), 0)
        trainer.train(lambda: False)
        found.append([row["train/activations"] for row in rows_of(trainer.run) if "train/activations" in row])
    assert found[0] == pytest.approx(found[1], rel=1e-5) and found[0][0] > 0


def test_what_no_objective_is_given_is_refused(own):
    with pytest.raises(PlanError, match=r"objective: .*Strange ask for weather; there are logits, targets"):
        own("objective=strange")

    class Bare(torch.nn.Module):
        pass

    class Asking(Objective):
        def terms(self, hidden):
            return {}

    with pytest.raises(BadComponent, match="asks for hidden states, and Bare keeps none"):
        keep_hidden(Bare(), Asking())
