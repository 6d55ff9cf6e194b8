"""Components from a resolved configuration: finds targets, checks arguments and binds them to constructors.

A constructor's signature is its schema: each argument in the YAML must be a parameter of the right type.  The model's
shape is passed to parameters of these names, as a whole (`shape`) or in part (`dim`, `heads`, ...).
"""

import functools
import inspect
import sys
import types
import typing
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import msgspec

from ablate.config.errors import BadComponent, Problem
from ablate.config.ranges import BadValue
from ablate.config.schema import COMPONENTS, IN_LAYERS, MISSING, PLACED, Config
from ablate.config.targets import OWN_PACKAGES, SINK, BadTarget, locate, package_problem, within
from ablate.formatting import show

NUMBERS = ("dim", "heads", "head_dim", "layers", "dropout", "context")  # of the shape, available to every component
SHAPE = ("shape", *NUMBERS)
PLACE = ("layer",)  # additionally for groups whose modules are part of each layer
NESTED = ("attention",)  # additionally for cross-attention, which may wrap another attention
WIRING = ("sublayers",)  # additionally for a residual style
STEPPED = ("model", "optimiser", "grad_clip")  # for a training step
ALSO_OFFERED = {
    "data": ("kind",),
    "embedding": ("vocab",),
    "step": STEPPED,
    "residual": WIRING,
    "cross_attention": NESTED,
}
RESERVED = ("_target_", "_partial_")
PACKAGES = {  # of each group; all others: ablate.model
    "data": "ablate.data",
    "optim": "ablate.training.optim",
    "schedule": "ablate.training.schedule",
    "step": "ablate.training.step",
    "track": "ablate.execution.tracking",
}
KINDS = {  # base class of each group; all others: torch.nn.Module
    "data": "ablate.data.task.Task",
    "init": "ablate.model.init.Init",
    "parametrization": "ablate.model.parametrization.Parametrization",
    "objective": "ablate.model.objective.Objective",
    "schedule": "ablate.training.schedule.Schedule",
    "step": "ablate.training.step.Step",
}
FUNCTIONS = (*PLACED, "optim")  # groups whose targets may be functions


def resolve(group: str, target: str, user: Iterable[str] = ()) -> Callable[..., Any]:
    """The class or function that a `_target_` names, of a package and a type of the group.  Raises BadComponent."""
    key = f"{group}._target_"
    packages = [PACKAGES.get(group, "ablate.model"), *(name for name in user if package_problem(name) is None)]
    if group == "optim":
        packages.append("torch.optim")
    try:
        constructor = locate(target, packages)
    except BadTarget as error:
        raise BadComponent(key, str(error)) from None
    if not is_of_kind(group, constructor):
        raise BadComponent(key, f"{target!r} has not the base class or the methods that {group} needs")
    return typing.cast(Callable[..., Any], constructor)


def kind_of(group: str) -> type:
    """The base class of a group's components."""
    if group in KINDS:
        return typing.cast(type, locate(KINDS[group], ("ablate",)))
    import torch  # not needed for tasks

    return torch.optim.Optimizer if group == "optim" else torch.nn.Module


def is_of_kind(group: str, constructor: Any) -> bool:
    """Whether a target suits a group: a class of the group's type, or a function if the group allows functions."""
    if group == "track":
        return inspect.isclass(constructor) and all(callable(getattr(constructor, name, None)) for name in SINK)
    if inspect.isclass(constructor):
        return issubclass(constructor, kind_of(group)) and (group != "model" or hasattr(constructor, "kinds"))
    if group not in FUNCTIONS or not within(constructor.__module__, OWN_PACKAGES):
        return group in FUNCTIONS
    try:
        returned = hints_of(constructor).get("return")
    except NameError:  # a name imported only under TYPE_CHECKING
        return False
    classes = [option for option in (returned, *typing.get_args(returned)) if inspect.isclass(option)]
    return any(issubclass(option, kind_of(group)) for option in classes)


def offered_names(group: str) -> tuple[str, ...]:
    """The arguments that constructors of a group can request by name."""
    names: tuple[str, ...] = SHAPE if group in (*COMPONENTS, "model") else ()
    if group in IN_LAYERS:
        names += PLACE
    return names + ALSO_OFFERED.get(group, ())


def own_of(config: Config, section: str) -> dict[str, Any]:
    """The additional settings of a model form or optimiser that its constructor takes."""
    parameters = parameters_of(resolve(section, getattr(config, section)._target_, config.user))
    return {name: value for name, value in config.arguments(section).items() if name in parameters}


def bind(group: str, node: dict[str, Any], offered: dict[str, Any], user: Iterable[str] = ()) -> partial[Any]:
    """A constructor with the YAML's arguments and the offered ones that it has parameters for.  Raises BadComponent."""
    constructor = resolve(group, node.get("_target_", ""), user)
    problems = argument_problems(group, node, offered, user)
    if problems:
        raise BadComponent(*problems[0])
    parameters = parameters_of(constructor)
    wanted = {name: value for name, value in offered.items() if name in parameters}
    if group in PACKAGES:
        return partial(constructor, **wanted, **arguments_in(group, node))
    return partial(construct, group, constructor, **wanted, **arguments_in(group, node))


def construct(group: str, constructor: Callable[..., Any], /, **arguments: Any) -> Any:
    """Call a constructor, which does not know the keys of its arguments.  Raises BadComponent with the key."""
    try:
        return constructor(**arguments)
    except BadComponent:  # of a component inside this one
        raise
    except BadValue as error:
        raise BadComponent(f"{group}.{error.name}", error.problem) from error
    except ValueError as error:
        raise BadComponent(group, str(error)) from error


def arguments_in(group: str, node: dict[str, Any]) -> dict[str, Any]:
    """The constructor arguments in a component's YAML: all keys but `RESERVED` and a task's `solved_at`."""
    others = (*RESERVED, "solved_at") if group == "data" else RESERVED
    return {key: value for key, value in node.items() if key not in others}


def argument_problems(
    group: str, node: dict[str, Any], offered: Iterable[str], user: Iterable[str] = ()
) -> list[Problem]:
    """The problems of a component's arguments, without calling its constructor."""
    constructor = resolve(group, node.get("_target_", ""), user)
    parameters = parameters_of(constructor)
    class_name = constructor.__name__
    try:
        hints = hints_of(constructor)
    except Exception as error:  # a user's annotations can raise anything
        return [Problem(f"{group}._target_", f"the annotations of {class_name} cannot be read ({error})")]
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
        message = f"{class_name} takes **kwargs, which would swallow misspelt keys; name them"
        return [Problem(f"{group}._target_", message)]
    settable = [name for name, each in parameters.items() if name not in offered and each.kind != each.VAR_POSITIONAL]
    arguments = arguments_in(group, node)
    problems = []
    for name, value in arguments.items():
        key = f"{group}.{name}"
        if name in offered:
            problems.append(Problem(key, "is set by the model or the data; set model.* or data.* instead"))
        elif name not in parameters:
            problems.append(Problem(key, f"{class_name} has no such argument; it has {', '.join(settable) or 'none'}"))
        elif value == MISSING:
            problems.append(Problem(key, f"has no value; write {key}=..."))
        elif not fits(value, hints.get(name, Any)):
            problems.append(Problem(key, wrong_type(key, value, hints[name])))
    for name in settable:
        if name not in arguments and parameters[name].default is inspect.Parameter.empty:
            problems.append(Problem(f"{group}.{name}", f"{class_name} needs {name}; write it in the YAML"))
    return problems


def wrong_type(key: str, value: Any, hint: Any) -> str:
    """The message for a value of another type than its argument's."""
    kind = hint.__name__ if inspect.isclass(hint) else str(hint).replace("typing.", "")
    message = f"{value!r} is not of type {kind}"
    if isinstance(value, list) and value:
        message += f"; to compare several write {key}={','.join(show(item) for item in value)}"
    return message


def defaults_of(group: str, node: dict[str, Any], user: Iterable[str] = ()) -> dict[str, Any]:
    """The defaults of arguments that a component's YAML leaves out; not None, which leaves a choice to the variant."""
    defaults = {}
    for name, parameter in parameters_of(resolve(group, node.get("_target_", ""), user)).items():
        is_left_out = name not in node and name not in offered_names(group)
        if is_left_out and isinstance(parameter.default, bool | int | float | str):
            defaults[name] = parameter.default
    return defaults


@functools.cache
def parameters_of(target: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """A constructor's parameters by name; empty for a module without `__init__`."""
    torch = sys.modules.get("torch")  # if torch is not imported, the target is no module
    if torch and inspect.isclass(target) and target.__init__ is torch.nn.Module.__init__:
        return {}
    return inspect.signature(target).parameters


@functools.cache
def hints_of(target: Callable[..., Any]) -> dict[str, Any]:
    """The type hints of a constructor or function.  Raises what evaluating annotations raises."""
    return typing.get_type_hints(target.__init__ if inspect.isclass(target) else target)


def annotation(target: Callable[..., Any], name: str) -> Any:
    """The type hint of a parameter, or of `return`; Any if there is none."""
    return hints_of(target).get(name, Any)


def fits(value: Any, hint: Any) -> bool:
    """Whether a YAML value is of an annotated type; an int is accepted as a float, a bool is no number."""
    if typing.get_origin(hint) in (typing.Union, types.UnionType):
        return any(fits(value, option) for option in typing.get_args(hint))
    try:
        msgspec.convert(value, hint)
    except msgspec.ValidationError:
        return False
    except TypeError:  # a type that msgspec cannot check
        pass
    return True
