"""Evaluation of trained models at other lengths than the training length.

`eval.lengths` is not part of a run's key: new lengths evaluate the saved weights, and nothing is trained again.
"""

import contextlib
import copy
import dataclasses

import torch
from torch import nn

from ablate.config.components import resolve
from ablate.config.depth import variants_of
from ablate.config.errors import Corrupt, Problem, first_line
from ablate.config.schema import Config
from ablate.data.task import Task
from ablate.formatting import rough
from ablate.results.atomic import set_aside, write_json
from ablate.results.records import Evaluation
from ablate.results.run import Run
from ablate.training.evaluation import Setting, at_lengths


def length_problems(config: Config, task: Task) -> list[Problem]:
    """Problems of a cell's lengths: its task has no examples of them, or its position encoding does not reach them."""
    found = []
    for length in config.eval.lengths:
        try:
            task.held_out("test", 1, length)
        except ValueError as error:
            problem = f"{task.name} has no test examples of length {length} ({first_line(error)})"
            found.append(Problem("eval.lengths", problem))
            continue
        each = [resolve("position", node["_target_"], config.user) for node in variants_of(config.position)]
        position = next((one for one in each if not getattr(one, "extrapolates", True)), None)
        if position is not None and task.span(length) > task.context:
            name = getattr(position, "__name__", "").lower()
            most = f"position={name} has {task.context} positions, and length {length} needs {task.span(length)}"
            found.append(Problem("eval.lengths", f"{most}; choose another position (rope, say) or shorter lengths"))
    return found


def seen_lengths(config: Config, task: Task) -> dict[str, float]:
    """The lengths of a cell whose test examples occur in training (as JSON keys), with their expected share."""
    examples = config.train.steps * config.train.batch_size
    found = {str(length): task.trained_on(length, examples) for length in config.eval.lengths}
    return {length: share for length, share in found.items() if share > 0}


def seen_in_training(lengths: dict[str, float]) -> list[str]:
    """A note on the lengths whose test examples occur in training; [] if there are none."""
    shares = ", ".join(f"{length} ({rough(share)})" for length, share in lengths.items())
    note = f"eval.lengths seen in training: {shares} of the test examples: there are too few to hold any out"
    return [note] if shares else []


def add_lengths(run: Run, model: nn.Module, task: Task, setting: Setting, lengths: list[int]) -> dict[str, float]:
    """Evaluate a trained model at these lengths and add the metrics to the run's evaluation.json.  Always in eager
    mode: each length would be compiled anew, and saved weights are evaluated in eager mode, too."""
    found = at_lengths(copy.deepcopy(model), task, setting, lengths)
    whose = Evaluation(torch=torch.__version__, data_fingerprint=task.fingerprint)
    try:
        known = run.evaluation(whose)
    except Corrupt:
        known = {}
        with contextlib.suppress(FileNotFoundError):
            set_aside(run.evaluation_file)
    write_json(run.evaluation_file, dataclasses.replace(whose, metrics={**known, **found}).as_json(), run.check)
    return found
