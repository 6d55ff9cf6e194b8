"""Checks each cell by itself: its keys, components, task and device; counts its cost."""

import dataclasses
import importlib
import json
import os
import traceback
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import torch
from omegaconf import MISSING
from torch import nn

from ablate.config.components import argument_problems, defaults_of, offered_names, own_of, parameters_of, resolve
from ablate.config.depth import over_layers, variants_of
from ablate.config.errors import BadComponent, Problem, first_line, one_line
from ablate.config.extra import installed, wandb_project_problem
from ablate.config.files import read_plain
from ablate.config.groups import PACKAGE, groups
from ablate.config.key_checks import check
from ablate.config.read_config import readable_number
from ablate.config.schema import BUILT, OWNED, VARIED, Config
from ablate.config.targets import BUILT_IN, here, package_problem, within
from ablate.config.typed_json import parse
from ablate.data.corpus import Unprepared
from ablate.data.task import Task, build_task
from ablate.formatting import first_of
from ablate.model.build import build_init, ties
from ablate.model.cost import MOST, Budget, count, estimate
from ablate.model.shape import ModelShape
from ablate.model.transformer import Parts
from ablate.planning.checks import child
from ablate.planning.checks.rehearsal import rehearse
from ablate.planning.checks.small_models import Checked as Checked
from ablate.planning.checks.small_models import with_passes
from ablate.planning.checks.user_code import cached, foreign_parts, import_problems, runs_user_code
from ablate.planning.reporting import reported
from ablate.runs.key import LIBRARIES, is_foreign, kernels_of, numbers
from ablate.runs.tables import class_name
from ablate.runs.user_files import record_user_code
from ablate.training.devices import card_of, cards
from ablate.training.optim import OFFERED, make_optimiser, rule_of
from ablate.training.schedule import schedule_problems
from ablate.training.vectors import is_pretrained

SHOWN = 4  # cells that have a problem
# A cell with a problem of one of these cannot be built; a wrong learning rate does not prevent it.
BUILDING = (*VARIED, "model", "data", "user")

TORCH, ABLATE = (str(folder) + os.sep for folder in (Path(torch.__file__).parent, PACKAGE))


class Validator:
    """Checks cells one after another; tasks and models that cells share are built once.  It imports user code."""

    def __init__(self) -> None:
        self.tasks: dict[str, Any] = {}
        self.budgets: dict[str, Budget] = {}
        self.packages: dict[str, str | None] = {}  # what is wrong with each

    def validate(self, configs: Iterable[Config], labels: Sequence[str] = ()) -> tuple[list[Checked], list[Problem]]:
        """The cells that pass, checked and counted, and the problems of the others, each once.  A problem without a key
        that only some cells have begins with their labels."""
        configs = list(configs)
        labels = labels or [""] * len(configs)
        passed: list[Checked] = []
        cells_with: dict[Problem, list[str]] = {}
        for config, label in zip(reported(configs, "checking"), labels, strict=True):
            problems, cell = self._with_user_code(config) if runs_user_code(config) else self._examine(config)
            for problem in dict.fromkeys(problems):
                cells_with.setdefault(problem, []).append(label)
            if cell and not problems:
                passed.append(cell)
            if any(problem.key == "user" for problem in problems):
                break  # what is wrong with a package can be the cause of all else
        problems = []
        for problem, cells in cells_with.items():
            if labels[0] and not problem.key and len(cells) < len(configs):
                problem = problem._replace(key=first_of(cells, SHOWN))
            problems.append(problem)
        return passed, problems

    def _with_user_code(self, config: Config) -> tuple[list[Problem], Checked | None]:
        """What `_examine` finds of a cell with user code, which is imported anew, so that what the cell imports can be
        recorded in its key."""
        parts = foreign_parts(config)
        child.begin(parts or ", ".join(config.user))
        self.tasks = {key: task for key, task in self.tasks.items() if within(type(task).__module__, BUILT_IN)}
        try:
            if changes := import_problems(config):
                return [Problem("user", change) for change in changes], None
            problems, cell = self._examine(config)
            if problems or cell is None or not is_foreign(numbers(cell.config)):  # a tracking service may be foreign
                return problems, cell
            rehearse(cell)
            if changes := child.changed_settings(parts):
                return [Problem("user", change) for change in changes], None
        except BaseException as error:  # also SystemExit and KeyboardInterrupt, which only user code raises here
            if not parts:
                raise
            return [Problem("", f"{parts}: {one_line(error)}")], None
        return [], cell._replace(user_code=record_user_code(config.user))

    def _examine(self, config: Config) -> tuple[list[Problem], Checked | None]:
        """The problems of a cell, and the checked and counted cell if it can be built."""
        found = check(config)
        config, misfits = over_layers(config)
        found += misfits
        found += self._user_problems(config.user) or self._arguments(config)
        checked = None
        if not found:
            found += schedule_problems(config)
        if not any(problem.key.split(".")[0] in BUILDING for problem in found):
            try:
                config = resolve_auto(config)
                task = self._task(config)
                refuse_lacking(config, task)
                # Replaced by what they result in, so that cells that differ in these only are equal.
                config = config.with_value("model.tie_embeddings", ties(config, task))
                config = config.with_value("data.context", task.context)
                nodes = [(group, node) for group in VARIED for node in variants_of(getattr(config, group))]
                given = [(group, defaults_of(group, node, config.user)) for group, node in nodes]
                defaults = {f"{group}.{name}": value for group, values in given for name, value in values.items()}
                checked = self.checked(config, task)._replace(defaults=defaults)
                found += [] if any(p.key == "eval.lengths" for p in found) else length_problems(config, task)
                if config.train.parts > 1 and checked.budget.running:
                    why = "norms with running statistics normalise by the whole batch, and would by each part"
                    found.append(Problem("train.parts", f"{why}; leave it out, or write another norm"))
            except BadComponent as error:
                found.append(Problem(error.key, first_line(error)))
            except Unprepared:
                pass
        return [*found, *_worker_problems(config)], checked

    def _user_problems(self, packages: list[str]) -> list[Problem]:
        """Problems of user packages."""
        packages = [] if packages == MISSING else packages  # reported like any key without a value
        for package in packages:
            if package in self.packages:
                continue
            why = package_problem(package)
            if why is None:
                try:
                    importlib.import_module(package)
                except Exception as error:
                    message = one_line(error)
                    why = f"cannot be imported ({message}){here(message)}"
            self.packages[package] = why
        return [Problem("user", f"{package!r} {why}") for package in packages if (why := self.packages[package])]

    def _arguments(self, config: Config) -> Iterator[Problem]:
        """Problems of every component's target and arguments."""
        for group in (*VARIED, "model", "data", "optim", "track"):
            node = getattr(config, group)
            try:
                if group in OWNED:
                    yield from _own_problems(group, config)
                    continue
                for each in variants_of(node) if node or group != "track" else ():
                    yield from argument_problems(group, each, offered_names(group), config.user)
                    yield from _project_problems(each) if group == "track" else ()
            except BadComponent as error:
                yield Problem(error.key, str(error))

    def _task(self, config: Config) -> Any:
        """The cell's task.  Raises BadComponent if the data are missing or too small."""
        key = json.dumps([config.data, config.model._target_], sort_keys=True)
        if key not in self.tasks:
            try:
                self.tasks[key] = build_task(config)
            except BadComponent as error:
                raise BadComponent(error.key, f"{error}{_fitting(config) if error.key == 'data' else ''}") from None
            except (ValueError, OSError) as error:
                raise BadComponent("" if str(error).startswith("data.") else "data", str(error)) from None
        return self.tasks[key]

    def checked(self, config: Config, task: Any) -> Checked:
        """The cell with its budget and the width of its FFN.  Raises BadComponent."""
        budget = self._budget(config, task)
        if budget.hidden is not None and any("hidden" in node for node in variants_of(config.ffn)):
            config = config.with_value("ffn.hidden", budget.hidden)  # equal models have equal configurations
        return Checked(config, task, budget)

    def _budget(self, config: Config, task: Any) -> Budget:
        """The budget of the cell's model.  Raises BadComponent if its components do not fit together."""
        about = estimate(config, task.vocab)
        if about > MOST:
            size = f"would have about {readable_number(about)} parameters"
            raise BadComponent("model", f"{size}; write a smaller model.dim or layers")

        def make() -> dict[str, Any]:
            return _counted(config, task)

        whole = config.as_json()
        parts = {group: whole[group] for group in (*BUILT, "model")}
        key = json.dumps([parts, task.fingerprint, task.kind, task.context], sort_keys=True)
        if key not in self.budgets:
            blank = {name: [list(x.shape), str(x.dtype)] for name, x in task.blank().items()}
            facts = [task.kind, task.context, task.positions, task.vocab, task.outputs, task.features, blank]
            # User code may depend on more than its source.
            found = make() if is_foreign(config) else cached("budget", [parts, facts], make)
            self.budgets[key] = parse(Budget, found)
        return self.budgets[key]


def _project_problems(service: dict[str, Any]) -> Iterator[Problem]:
    """The problem of a W&B project's name, which W&B would refuse after training."""
    name = service.get("project")
    is_wandb = service["_target_"] == "ablate.execution.tracking.wandb.WandB"
    if is_wandb and isinstance(name, str) and (problem := wandb_project_problem(name)):
        yield Problem("track.project", problem)


def _own_problems(section: str, config: Config) -> list[Problem]:
    """Problems of a model form's or optimiser's own arguments, besides those of the schema.  Raises BadComponent.  An
    optimiser gets the arguments of `OFFERED` that its signature names."""
    node, own = getattr(config, section), config.arguments(section)
    parameters = parameters_of(resolve(section, node._target_, config.user))
    if any(each.kind == each.VAR_KEYWORD for each in parameters.values()) and not own:
        return []
    shape = ("shape", "parts", *(field.name for field in dataclasses.fields(ModelShape)), *Parts._fields)
    given = shape if section == "model" else OFFERED
    rows = argument_problems(section, {"_target_": node._target_} | own, given, config.user)
    return rows or (optimiser_problems(config) if section == "optim" else [])


def _counted(config: Config, task: Any) -> dict[str, Any]:
    """The budget of a cell's model, as plain data.  Raises BadComponent if it cannot be built."""
    try:
        build_init(config, task)
        return with_passes(count(config, task), config, task).as_json()
    except ValueError as error:
        raise BadComponent(error.key if isinstance(error, BadComponent) else "", str(error)) from None
    except Exception as error:  # user code can fail in any way
        frames = traceback.extract_tb(error.__traceback__)
        beyond_torch = [frame for frame in frames if not frame.filename.startswith(TORCH)]
        own = [frame for frame in beyond_torch if not frame.filename.startswith(ABLATE)]
        at = (own or beyond_torch or frames)[-1]  # the last line in a user's file, else the one that called torch
        where = f"{type(error).__name__}: {error}), at {at.filename}:{at.lineno}"
        raise BadComponent("", f"the model cannot be built ({where}") from None


def _fitting(config: Config) -> str:
    """A hint what to write if task and model form do not fit together."""

    def fitting(group: str, other: Any) -> list[str]:
        files = groups()[group].items()
        known: dict[str, Any] = {name: resolve(group, read_plain(file)["_target_"]) for name, file in files}
        return [name for name, each in known.items() if {*each.kinds} & {*other.kinds}]

    models = fitting("model", resolve("data", config.data["_target_"], config.user))
    tasks = fitting("data", resolve("model", config.model._target_, config.user))
    return f"; write model={' or '.join(models)}, or data={', '.join(tasks)}"


def resolve_auto(config: Config) -> Config:
    """The configuration with each `auto` decided by a rule, and with absolute paths.  Raises BadComponent."""
    if config.train.device == "auto":
        config = config.with_value("train.device", "cuda" if cards() else "cpu")
    try:
        planned = [] if config.train.memory is None else [card_of(config.train.memory)]
    except ValueError as error:
        raise BadComponent("train.memory", str(error)) from None
    if planned and config.train.device == "cpu":
        raise BadComponent("train.memory", "is that of GPUs; write train.device=cuda, too, or leave it out")
    if config.train.precision == "auto":
        # A GPU that only emulates bf16 is slower with it.
        fast = config.train.device == "cuda" and all(card.bf16 for card in planned or cards())
        config = config.with_value("train.precision", "bf16" if fast else "fp32")
    if config.timing == "isolated" and config.train.parallel == "auto":
        config = config.with_value("train.parallel", 1)
    for key, short in (("matmul", "torch"), ("compile", False)):  # long runs: planning/measured.py
        if getattr(config.train, key) == "auto":
            config = config.with_value(f"train.{key}", short)
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
        each = [resolve("position", node["_target_"], config.user) for node in variants_of(config.position)]
        position = next((one for one in each if not getattr(one, "extrapolates", True)), None)
        if position is not None and task.span(length) > task.context:
            name = getattr(position, "__name__", "").lower()
            most = f"position={name} has {task.context} positions, and length {length} needs {task.span(length)}"
            yield Problem("eval.lengths", f"{most}; choose another position (rope, say) or shorter lengths")


def _worker_problems(config: Config) -> Iterator[Problem]:
    """Problems of the number of workers, of compiling, and of the library for products."""
    train = config.train
    if config.timing == "isolated" and train.parallel not in ("auto", 1):
        message = f"timing=isolated trains one run at a time, not {train.parallel}; leave one of them out"
        yield Problem("train.parallel", message)
    if train.parts > 1 and (train.parts.bit_count() > 1 or train.parts > train.batch_size):
        most = f"a power of two up to train.batch_size={train.batch_size}"
        yield Problem("train.parts", f"must be {most}, as in 2, 4, 8; not {train.parts}")
    elif train.devices > 0 and (train.devices.bit_count() > 1 or train.parts % train.devices):
        message = f"must be a power of two that divides train.parts={train.parts}, not {train.devices}"
        fitting = f"; write train.parts={train.devices}, too" * (train.devices.bit_count() == 1)
        yield Problem("train.devices", f"{message}{fitting}")
    if train.capture is True and (train.device == "cpu" or train.parts > 1):
        where = "a CPU" if train.device == "cpu" else f"train.parts={train.parts}"
        message = f"CUDA graphs are of whole batches on a GPU, not for {where}; leave it out"
        yield Problem("train.capture", message)
    if train.matmul == "onednn" and not torch.backends.mkldnn.is_available():
        yield Problem("train.matmul", "onednn is no part of this torch; write train.matmul=torch")
    elif train.matmul == "onednn" and not in_float32_on_cpu(config):
        where = f"train.precision={train.precision} on train.device={train.device}"
        yield Problem("train.matmul", f"onednn is for float32 on a CPU, not {where}; leave it out")


def in_float32_on_cpu(config: Config) -> bool:
    """Whether a configuration has float32 products on a CPU, for which there is more than one library."""
    return config.train.device != "cuda" and config.train.precision != "bf16"


STANDARD = "ablate.model.parametrization.Standard"
MODULES = {"fla": ("fla", "triton")}  # imported modules, by kernels


def optimiser_problems(config: Config) -> list[Problem]:
    """Problems of an optimiser: keys that its signature does not take or lacks, wrong values.  Optimisers of ablate and
    torch are tried on a single layer."""
    optim = config.optim
    target = resolve("optim", optim._target_, config.user)
    names, name = parameters_of(target), target.__name__
    betas = names.get("betas")
    if not {"model", "params"} & names.keys() or "lr" not in names:
        taken = ", ".join(names) or "none"
        return [Problem("optim._target_", f"{name} must take lr, and model or params; it takes {taken}")]
    if betas is None and optim.betas is not None:
        return [Problem("optim.betas", f"{name} has none; leave them out, or write null")]
    if betas is not None and betas.default is betas.empty and optim.betas is None:
        return [Problem("optim.betas", f"{name} needs two numbers")]
    if "weight_decay" not in names and optim.weight_decay:
        return [Problem("optim.weight_decay", f"{name} has none; write 0")]
    if config.parametrization["_target_"] != STANDARD and rule_of(target) is None:
        rules = "there is one for adamw, lion and sgd, and for a class with a `rule`, adam or sgd"
        return [Problem("parametrization", f"has no rule for {name}; {rules}")]
    if not within(target.__module__, BUILT_IN) or name == "muon":  # muon needs more than a layer
        return []
    with torch.random.fork_rng(devices=[]):
        layer = nn.Linear(2, 2)
    for parameter in layer.parameters():
        parameter.grad = torch.ones_like(parameter)
    try:  # with valid values of the keys that are checked elsewhere
        sound = dataclasses.replace(optim, lr=1e-3, weight_decay=0.0, betas=optim.betas and [0.9, 0.99])
        make_optimiser(target, layer, sound, own_of(config, "optim")).step()
    except Exception as error:  # it needs a closure, sparse gradients, or only matrices
        if isinstance(error, ValueError) and within(target.__module__, ["ablate"]):
            return [Problem("", first_line(error))]
        message = f"{name} cannot take a training step here ({first_line(error)}); choose another one"
        return [Problem("optim._target_", message)]
    return []


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
