"""Checks each cell by itself: its keys, components, task and device; counts its cost."""

import dataclasses
import importlib
import json
import os
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import torch
from omegaconf import MISSING

from ablate.config.components import argument_problems, defaults_of, offered_names, own_of, parameters_of, resolve
from ablate.config.compose import Draft
from ablate.config.depth import over_layers, variants_of
from ablate.config.errors import BadComponent, Problem, first_line, one_line
from ablate.config.extra import installed, wandb_project_problem
from ablate.config.read_config import check, readable_number
from ablate.config.schema import VARIED, WITH_ARGUMENTS, Config
from ablate.config.targets import BUILT_IN, current_folder_hint, package_problem, within
from ablate.data.corpus import Unprepared
from ablate.data.task import Task, build_task
from ablate.execution.train_run import described
from ablate.formatting import first_of
from ablate.model.build import build_init, ties
from ablate.model.cost import MAX_PARAMETERS, Budget, count, estimate
from ablate.model.shape import ModelShape
from ablate.model.transformer import Parts
from ablate.planning.cache import once, size_of
from ablate.planning.checks import child
from ablate.planning.checks.small_models import Checked as Checked
from ablate.planning.checks.small_models import with_passes
from ablate.planning.checks.user_code import foreign_parts, runs_user_code
from ablate.planning.reporting import reported
from ablate.planning.study import in_float32_on_cpu
from ablate.runs.key import LIBRARIES, is_foreign, kernels_of, numbers
from ablate.runs.tables import class_name
from ablate.runs.user_files import record_user_code
from ablate.training.hardware import cards
from ablate.training.optim import OFFERED, make_optimiser, rule_of
from ablate.training.schedule import schedule_problems
from ablate.training.vectors import is_pretrained

SHOWN = 4  # cells that have a problem
# A cell with a problem of one of these cannot be built; a wrong learning rate does not prevent it.
BUILDING = (*VARIED, "model", "data", "user")
# Arguments that a model form and an optimiser are offered.
OFFERED_TO = {
    "model": ("shape", "parts", *(field.name for field in dataclasses.fields(ModelShape)), *Parts._fields),
    "optim": OFFERED,
}
STANDARD = "ablate.model.parametrization.Standard"
MODULES = {"fla": ("fla", "triton")}  # imported modules, by kernels


class Validator:
    """Checks cells one after another; tasks and models that cells share are built once.  It imports user code."""

    def __init__(self) -> None:
        self.tasks: dict[str, Any] = {}

    def validate(self, drafts: Sequence[Draft]) -> tuple[list[Checked], list[Problem]]:
        """The cells that pass, checked and counted, and the problems of the others, each once.  A problem without a key
        that only some cells have begins with their labels."""
        passed: list[Checked] = []
        cells_with: dict[Problem, list[str]] = {}
        for draft in reported(drafts, "checking"):
            config = draft.config
            problems, cell = self.check_with_user_code(config) if runs_user_code(config) else self.check(config)
            for problem in dict.fromkeys(problems):
                cells_with.setdefault(problem, []).append(draft.label)
            if cell and not problems:
                passed.append(cell)
            if any(problem.key == "user" for problem in problems):
                break  # what is wrong with a package can be the cause of all else
        problems = []
        for problem, cells in cells_with.items():
            if drafts[0].label and not problem.key and len(cells) < len(drafts):
                problem = problem._replace(key=first_of(cells, SHOWN))
            problems.append(problem)
        return passed, problems

    def check_with_user_code(self, config: Config) -> tuple[list[Problem], Checked | None]:
        """`check` of a cell with user code, which is imported anew, so that what the cell imports can be recorded in
        its key."""
        parts = foreign_parts(config)
        cause = parts or ", ".join(config.user)
        child.begin(cause)
        self.tasks = {key: task for key, task in self.tasks.items() if within(type(task).__module__, BUILT_IN)}
        try:
            problems, cell = self.check(config)
            changes = child.changed_settings(cause)
            if changes:
                return [Problem("user", change) for change in changes], None
            if cell and is_foreign(numbers(cell.config)):  # else a tracking service alone is foreign
                cell = cell._replace(user_code=record_user_code(config.user))
        except BaseException as error:  # also SystemExit and KeyboardInterrupt, which only user code raises here
            if not parts:
                raise
            return [Problem("", f"{parts}: {one_line(error)}")], None
        return problems, cell

    def check(self, config: Config) -> tuple[list[Problem], Checked | None]:
        """The problems of a cell, and the checked and counted cell if it can be built."""
        problems = check(config)
        config, misfits = over_layers(config)
        problems += misfits
        problems += package_problems(config.user) or component_problems(config)
        if not problems:
            problems += schedule_problems(config) + step_problems(config)
        cell = None
        if not any(problem.key.split(".")[0] in BUILDING for problem in problems):
            try:
                config = resolve_auto(config)
                cell = self.built(config)
                if not any(problem.key == "eval.lengths" for problem in problems):
                    problems += length_problems(config, cell.task)
                if config.train.parts > 1 and cell.budget.running:
                    why = "norms with running statistics normalise by the whole batch, and would by each part"
                    problems.append(Problem("train.parts", f"{why}; leave it out, or write another norm"))
            except BadComponent as error:
                problems.append(Problem(error.key, first_line(error)))
            except Unprepared:
                pass
        return problems + worker_problems(config), cell

    def built(self, config: Config) -> Checked:
        """A cell whose keys are right, with its task, defaults and budget.  Raises BadComponent."""
        task = self.task(config)
        refuse_lacking(config, task)
        # Replaced by what they result in, so that cells that differ in these only are equal.
        config = config.with_value("model.tie_embeddings", ties(config, task))
        config = config.with_value("data.context", task.context)
        defaults: dict[str, Any] = {}
        for group in VARIED:
            for node in variants_of(getattr(config, group)):
                values = defaults_of(group, node, config.user)
                defaults |= {f"{group}.{name}": value for name, value in values.items()}
        return counted(config, task)._replace(defaults=defaults)

    def task(self, config: Config) -> Any:
        """The cell's task.  Raises BadComponent if the data are missing or too small, or no task of the model form."""
        key = json.dumps([config.data, config.model._target_], sort_keys=True)
        if key not in self.tasks:
            try:
                self.tasks[key] = build_task(config)
            except BadComponent as error:
                hint = "; write another data, or another model" if error.key == "data" else ""
                raise BadComponent(error.key, f"{error}{hint}") from None
            except (ValueError, OSError) as error:
                raise BadComponent("" if str(error).startswith("data.") else "data", str(error)) from None
        return self.tasks[key]


def counted(config: Config, task: Any) -> Checked:
    """A cell with its budget and the width of its FFN.  Raises BadComponent if its components do not fit together."""
    size = estimate(config, task.vocab)
    if size > MAX_PARAMETERS:
        message = f"would have about {readable_number(size)} parameters; write a smaller model.dim or layers"
        raise BadComponent("model", message)
    budget = once("budget", config, size_of(task), partial(budget_of, config, task))
    if budget.hidden is not None and any("hidden" in node for node in variants_of(config.ffn)):
        config = config.with_value("ffn.hidden", budget.hidden)  # equal models have equal configurations
    return Checked(config, task, budget)


def package_problems(packages: list[str]) -> list[Problem]:
    """Problems of user packages."""
    problems = []
    for package in [] if packages == MISSING else packages:  # that is reported like any key without a value
        why = package_problem(package) or import_problem(package)
        if why:
            problems.append(Problem("user", f"{package!r} {why}"))
    return problems


def import_problem(package: str) -> str | None:
    """Why a package cannot be imported, if so."""
    try:
        importlib.import_module(package)
    except Exception as error:
        message = one_line(error)
        return f"cannot be imported ({message}){current_folder_hint(message)}"
    return None


def component_problems(config: Config) -> list[Problem]:
    """Problems of every component's target and arguments."""
    problems = []
    for group in (*VARIED, "model", "data", "optim", "track"):
        node = getattr(config, group)
        is_untracked = group == "track" and not node
        if is_untracked:
            continue
        try:
            if group in WITH_ARGUMENTS:
                problems += section_problems(group, config)
                continue
            for variant in variants_of(node):
                problems += argument_problems(group, variant, offered_names(group), config.user)
                if group == "track":
                    problems += project_problems(variant)
        except BadComponent as error:  # what was found before in this group stays
            problems.append(Problem(error.key, str(error)))
    return problems


def project_problems(service: dict[str, Any]) -> list[Problem]:
    """The problem of a W&B project's name, which W&B would refuse after training."""
    name = service.get("project")
    if service["_target_"] != "ablate.execution.tracking.wandb.WandB" or not isinstance(name, str):
        return []
    problem = wandb_project_problem(name)
    return [Problem("track.project", problem)] if problem else []


def section_problems(section: str, config: Config) -> list[Problem]:
    """Problems of a model form's or optimiser's own arguments, besides those of the schema.  Raises BadComponent."""
    node = getattr(config, section)
    own = config.arguments(section)
    parameters = parameters_of(resolve(section, node._target_, config.user))
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()) and not own:
        return []
    problems = argument_problems(section, {"_target_": node._target_} | own, OFFERED_TO[section], config.user)
    return problems or (optimiser_problems(config) if section == "optim" else [])


def optimiser_problems(config: Config) -> list[Problem]:
    """Keys that an optimiser's signature does not take or lacks."""
    optim = config.optim
    target = resolve("optim", optim._target_, config.user)
    name = target.__name__
    parameters = parameters_of(target)
    betas = parameters.get("betas")
    if not {"model", "params"} & parameters.keys() or "lr" not in parameters:
        taken = ", ".join(parameters) or "none"
        return [Problem("optim._target_", f"{name} must take lr, and model or params; it takes {taken}")]
    if betas is None and optim.betas is not None:
        return [Problem("optim.betas", f"{name} has none; leave them out, or write null")]
    if betas is not None and betas.default is betas.empty and optim.betas is None:
        return [Problem("optim.betas", f"{name} needs two numbers")]
    if "weight_decay" not in parameters and optim.weight_decay:
        return [Problem("optim.weight_decay", f"{name} has none; write 0")]
    if config.parametrization["_target_"] != STANDARD and rule_of(target) is None:
        rules = "there is one for adamw, lion and sgd, and for a class with a `rule`, adam or sgd"
        return [Problem("parametrization", f"has no rule for {name}; {rules}")]
    return []


def step_problems(config: Config) -> list[Problem]:
    """The problem of an optimiser of ablate or torch that cannot take a step on a single layer: one of its own settings
    is wrong, or it needs a closure, sparse gradients, or matrices alone."""
    target = resolve("optim", config.optim._target_, config.user)
    if not within(target.__module__, BUILT_IN) or target.__name__ == "muon":  # which needs more than a layer
        return []
    layer = torch.nn.ParameterList([torch.zeros(2, 2), torch.zeros(2)])
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    try:
        make_optimiser(target, layer, config.optim, own_of(config, "optim")).step()
    except Exception as error:
        return [Problem("optim._target_", f"{target.__name__} cannot take a training step here ({first_line(error)})")]
    return []


def budget_of(config: Config, task: Any) -> Budget:
    """The budget of a cell's model.  Raises BadComponent if it cannot be built."""
    try:
        build_init(config, task)
        return with_passes(count(config, task), config, task)
    except ValueError as error:
        raise BadComponent(error.key if isinstance(error, BadComponent) else "", str(error)) from None
    except Exception as error:  # user code can fail in any way
        reason = described(error, config.user)
        hint = "; write forward(self, x, mask=None)" if "unexpected keyword argument 'mask'" in reason.message else ""
        raise BadComponent("", f"the model cannot be built ({reason.type}: {reason.message}){hint}") from None


def resolve_auto(config: Config) -> Config:
    """The configuration with each `auto` decided by a rule, and with absolute paths."""
    train = config.train
    if train.device == "auto":
        config = config.with_value("train.device", "cuda" if cards() else "cpu")
    on_gpu = config.train.device == "cuda"
    if train.precision == "auto":
        # A GPU that only emulates bf16 is slower with it.
        has_bf16 = on_gpu and all(card.bf16 for card in cards())
        config = config.with_value("train.precision", "bf16" if has_bf16 else "fp32")
    if config.timing == "isolated" and train.parallel == "auto":
        config = config.with_value("train.parallel", 1)
    if train.matmul == "auto":  # for long runs planning/kernels.py decides
        config = config.with_value("train.matmul", "torch")
    if train.compile == "auto":
        config = config.with_value("train.compile", False)
    data = dict(config.data)
    for key in ("path", "name"):
        if data.get(key) is not None and (key == "path" or os.path.isdir(os.path.expanduser(str(data[key])))):
            data[key] = os.path.abspath(os.path.expanduser(data[key]))
    return config.with_value("data", data)


def length_problems(config: Config, task: Task) -> Iterator[Problem]:
    """Problems of a cell's lengths: its task has no examples of them, or its position encoding does not reach them."""
    for length in config.eval.lengths:
        try:
            task.held_out("test", 1, length)
        except ValueError as error:
            problem = f"{task.name} has no test examples of length {length} ({first_line(error)})"
            yield Problem("eval.lengths", problem)
            continue
        for node in variants_of(config.position):
            position = resolve("position", node["_target_"], config.user)
            if getattr(position, "extrapolates", True) or task.span(length) <= task.context:
                continue
            name = position.__name__.lower()
            most = f"position={name} has {task.context} positions, and length {length} needs {task.span(length)}"
            yield Problem("eval.lengths", f"{most}; choose another position (rope, say) or shorter lengths")
            break


def worker_problems(config: Config) -> list[Problem]:
    """Problems of the number of workers, of parts and devices, and of what a device cannot do."""
    train = config.train
    problems = []
    if config.timing == "isolated" and train.parallel not in ("auto", 1):
        problems.append(Problem("train.parallel", "timing=isolated trains one run at a time; leave one of them out"))
    if train.parts > 1 and (train.parts.bit_count() > 1 or train.parts > train.batch_size):
        most = f"a power of two up to train.batch_size={train.batch_size}"
        problems.append(Problem("train.parts", f"must be {most}, as in 2, 4, 8; not {train.parts}"))
    elif train.devices.bit_count() > 1 or train.parts % train.devices:
        message = f"must be a power of two that divides train.parts={train.parts}, not {train.devices}"
        problems.append(Problem("train.devices", message))
    if train.capture is True and (train.device == "cpu" or train.parts > 1):
        problems.append(Problem("train.capture", "CUDA graphs are of whole batches on a GPU; leave it out"))
    if train.matmul == "onednn" and not (in_float32_on_cpu(config) and torch.backends.mkldnn.is_available()):
        problems.append(Problem("train.matmul", "onednn is for float32 on a CPU, in a torch with it; leave it out"))
    return problems


def refuse_lacking(config: Config, task: Task | Any) -> None:
    """Raise BadComponent for kernels on a CPU, trained vectors of a task without words, or a library not installed."""
    needed = []
    for kernels in kernels_of(config):
        if config.train.device != "cuda":
            message = f"{kernels} has kernels for a GPU, and train.device={config.train.device}; leave it out"
            raise BadComponent("attention.kernels", message)
        needed += [("", module, f"attention.kernels={kernels}", "fla") for module in MODULES[kernels]]
    if is_pretrained(config):
        name = class_name(config.embedding["_target_"])
        if task.training_text() is None:
            message = f"{name} trains vectors on a text, and {task.name} has no words"
            raise BadComponent("embedding", f"{message}; write a data of texts, or leave it out")
        needed += [("embedding", library, name, "vectors") for library in LIBRARIES.get(name, ())]
    for key, library, need, group in needed:
        try:
            installed(library, need, group)
        except ValueError as error:
            raise BadComponent(key, str(error)) from None
