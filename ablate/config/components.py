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
from ablate.config.schema import COMPONENTS, IN_LAYERS, PLACED, Config
from ablate.config.targets import OWN_PACKAGES, SINK, BadTarget, allowed, locate, within
from ablate.formatting import show

NUMBERS = ("dim", "heads", "head_dim", "layers", "dropout", "context")  # of the shape, available to every component
SHAPE = ("shape", *NUMBERS)
PLACE = ("layer",)  # additionally for groups whose modules are part of each layer
NESTED = ("attention",)  # additionally for cross-attention, which may wrap another attention
WIRING = ("sublayers",)  # additionally for a residual style
STEPPED = ("model", "optimiser", "grad_clip")  # for a training step
ALSO_OFFERED = {"data": ("kind",), "embedding": ("vocab",), "step": STEPPED, "residual": WIRING}
ALSO_OFFERED |= {"cross_attention": NESTED}
BUNDLES = ("shape", "sublayers", "parts", *STEPPED)  # arguments that subclasses must pass on to base classes
IN_SUBLAYERS, IN_SHAPE = ("attention", "cross_attention", "ffn", "norm"), ("encoder_layers", "decoder_layers")
RESERVED = ("_target_", "_partial_")
# The package of each group; all others: ablate.model.
PACKAGES = {"data": "ablate.data", "optim": "ablate.training.optim", "schedule": "ablate.training.schedule"}
PACKAGES |= {"step": "ablate.training.step", "track": "ablate.execution.tracking"}
KINDS = {"data": "ablate.data.task.Task", "init": "ablate.model.init.Init"}
KINDS |= {"parametrization": "ablate.model.parametrization.Parametrization"}
KINDS |= {"objective": "ablate.model.objective.Objective", "schedule": "ablate.training.schedule.Schedule"}
KINDS |= {"step": "ablate.training.step.Step"}
CALLED = {"track": "tracking service: a class with log, finish and close"}
CALLED |= {"model": "model form: an nn.Module whose `kinds` are those of the tasks that it does"}
FUNCTIONS = (*PLACED, "optim")  # groups whose targets may be functions


def resolve(group: str, target: str, user: Iterable[str] = ()) -> Callable[..., Any]:
    """The class or function that a `_target_` names, of a package and a type of the group.  Raises BadComponent."""
    key, packages = f"{group}._target_", allowed(PACKAGES.get(group, "ablate.model"), user)
    packages += ("torch.optim",) * (group == "optim")
    try:
        found = locate(target, packages)
    except BadTarget as error:
        raise BadComponent(key, str(error)) from None
    if not _is_of_kind(group, found):
        kind = _kind_of(group).__name__
        raise BadComponent(key, f"{target!r} is no {CALLED.get(group) or 'nn.' * (kind == 'Module') + kind}")
    if problem := _constructor_problem(found):
        raise BadComponent(key, problem)
    return found


def _constructor_problem(found: Any) -> str | None:
    """What is wrong with a user class whose constructor lacks arguments that its built-in base class needs."""
    bases = inspect.getmro(found)[1:] if inspect.isclass(found) else ()
    base = next((base for base in bases if within(base.__module__, OWN_PACKAGES)), None)
    if base is None:
        return None
    taken, needed = parameters_of(found), parameters_of(base)
    bundles = [name for name in BUNDLES if name in needed]
    if all(name in taken for name in bundles):
        return None
    names = ", ".join(bundles)
    how = f"write def __init__(self, {names}, ...) and super().__init__({names}, ...)"
    return f"{found.__name__} derives from {base.__name__}, whose constructor takes {names}; {how}"


def _kind_of(group: str) -> type:
    if group in KINDS:
        return locate(KINDS[group], ("ablate",))
    import torch  # not needed for tasks

    return torch.optim.Optimizer if group == "optim" else torch.nn.Module


def _is_of_kind(group: str, found: Any) -> bool:
    """Whether a target suits a group: a class of the group's type, or a function if the group allows functions."""
    if group == "track":
        return inspect.isclass(found) and all(callable(getattr(found, name, None)) for name in SINK)
    if inspect.isclass(found):
        return issubclass(found, _kind_of(group)) and (group != "model" or hasattr(found, "kinds"))
    if group not in FUNCTIONS or not within(found.__module__, OWN_PACKAGES):
        return group in FUNCTIONS
    try:
        hint = hints_of(found).get("return")
    except NameError:  # a name imported only under TYPE_CHECKING
        return False
    return any(inspect.isclass(one) and issubclass(one, _kind_of(group)) for one in (hint, *typing.get_args(hint)))


def offered_names(group: str) -> tuple[str, ...]:
    """The arguments that constructors of a group can request by name."""
    shape = SHAPE if group in (*COMPONENTS, "model") else ()
    return (*shape, *PLACE * (group in IN_LAYERS), *ALSO_OFFERED.get(group, ()))


def own_of(config: Config, section: str) -> dict[str, Any]:
    """The additional settings of a model form or optimiser that its constructor takes."""
    parameters = parameters_of(resolve(section, getattr(config, section)._target_, config.user))
    return {name: value for name, value in config.own(section).items() if name in parameters}


def bind(group: str, node: dict[str, Any], offered: dict[str, Any], user: Iterable[str] = ()) -> partial[Any]:
    """A constructor with the YAML's arguments and the offered ones that it has parameters for.  Raises BadComponent."""
    target = resolve(group, node.get("_target_", ""), user)
    if problems := argument_problems(group, node, offered, user):
        raise BadComponent(*problems[0])
    wanted = {name: value for name, value in offered.items() if name in parameters_of(target)}
    return partial(target, **wanted, **_given(group, node))


def _given(group: str, node: dict[str, Any]) -> dict[str, Any]:
    """The constructor arguments in a component's YAML: all keys but `RESERVED` and a task's `solved_at`."""
    other = (*RESERVED, "solved_at") if group == "data" else RESERVED
    return {key: value for key, value in node.items() if key not in other}


def argument_problems(
    group: str, node: dict[str, Any], offered: Iterable[str], user: Iterable[str] = ()
) -> list[Problem]:
    """The problems of a component's arguments, without calling its constructor."""
    target = resolve(group, node.get("_target_", ""), user)
    parameters = parameters_of(target)
    try:
        hints = hints_of(target)
    except Exception as error:  # a user's annotations can raise anything
        return [Problem(f"{group}._target_", f"the annotations of {target.__name__} cannot be read ({error})")]
    if any(parameter.kind == parameter.VAR_KEYWORD for parameter in parameters.values()):
        message = f"{target.__name__} takes **kwargs, which would swallow misspelt keys; name them"
        return [Problem(f"{group}._target_", message)]
    given = _given(group, node)
    own = [name for name, p in parameters.items() if name not in offered and p.kind != p.VAR_POSITIONAL]
    problems = []
    for key, value in given.items():
        if key in offered:
            problems.append(Problem(f"{group}.{key}", "is set by the model's shape; set model.* or data.* instead"))
        elif key not in parameters:
            choices = ", ".join(own) or "none"
            message = f"{target.__name__} has no such argument; it has {choices}"
            problems.append(Problem(f"{group}.{key}", message))
        elif value == "???":
            problems.append(Problem(f"{group}.{key}", f"has no value; write {group}.{key}=..."))
        elif not fits(value, hints.get(key, Any)):
            hint = hints[key]
            kind = hint.__name__ if inspect.isclass(hint) else str(hint).replace("typing.", "")
            several = ",".join(map(show, value)) if isinstance(value, list) else ""
            how = f"; to compare several write {group}.{key}={several}" * bool(several)
            message = f"{value!r} is not of type {kind}{how}"
            problems.append(Problem(f"{group}.{key}", message))
    if group == "norm" and not fits(None, hints.get("layer", Any)):
        message = f"{target.__name__} needs layer: int | None; norms outside of the blocks have no layer"
        problems.append(Problem(f"{group}.layer", message))
    for name in own:
        if name not in given and parameters[name].default is inspect.Parameter.empty:
            bundle = "sublayers" if name in IN_SUBLAYERS else "shape" if name in IN_SHAPE else None
            in_bundle = group == "residual" and bundle
            how = f"take {bundle}, and use {bundle}.{name}" if in_bundle else "write it in the YAML"
            problems.append(Problem(f"{group}.{name}", f"{target.__name__} needs {name}; {how}"))
    return problems


def defaults_of(group: str, node: dict[str, Any], user: Iterable[str] = ()) -> dict[str, Any]:
    """The defaults of arguments that a component's YAML leaves out; not None, which leaves a choice to the variant."""
    parameters = parameters_of(resolve(group, node.get("_target_", ""), user))
    taken = {*node, *offered_names(group)}
    values = {name: each.default for name, each in parameters.items() if name not in taken}
    return {name: value for name, value in values.items() if isinstance(value, bool | int | float | str)}


def taken_by(group: str, node: Mapping[str, Any], user: Iterable[str]) -> Mapping[str, inspect.Parameter]:
    """The parameters of a component's constructor, also those that its YAML does not set; none if it is not found."""
    try:
        return parameters_of(resolve(group, node.get("_target_", ""), user))
    except BadComponent:  # reported where it is built
        return {}


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
