"""The code that a `_target_` may name: this package's, and that of packages which the user allowed on the command line.

Files can choose among these packages but cannot add any; `components.resolve` checks what each group requires, too.
"""

import functools
import importlib
import importlib.metadata
import inspect
import os
import re
import sys
from collections.abc import Iterable
from typing import Any

from ablate.config.errors import one_line
from ablate.config.extra import NotInstalled

NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
OWN_PACKAGES = ("ablate", "analysis", "hydra_plugins")
BUILT_IN = ("ablate", "torch.optim")  # packages that are not user code
# The distributions that pyproject.toml names; their metadata list their own dependencies.
NEEDED = """
torch hydra-core omegaconf numpy pandas scipy matplotlib seaborn plotly jinja2 pyyaml rich safetensors wandb
pybtex msgspec tqdm hydra-joblib-launcher hydra-submitit-launcher hydra-ray-launcher babel scikit-learn
tokenizers tiktoken datasets gensim pyarrow selenium hatchling fla-core triton pytest statsmodels pytest-xdist ruff mypy
transformers nbclient ipykernel tensorboard wandb-workspaces cosmic-ray""".split()  # noqa: SIM905
# Built-in classes that a word in a component's settings chooses; they count as code of the cells with that word only.
QK_NORM = {"qk_norm": {"rms": "ablate.model.norm.RMSNorm", "ln": "ablate.model.norm.LayerNorm"}}
CHOSEN = {"attention": QK_NORM, "cross_attention": QK_NORM}
SINK = ("log", "finish", "close")  # the methods of a tracking service


class BadTarget(ValueError):
    """A `_target_` that is not allowed or cannot be found; the message says why."""


@functools.cache
def package_problem(package: str) -> str | None:
    """Why targets may not come from a package, as the end of a sentence; None if they may."""
    top = package.partition(".")[0]
    if not NAME.fullmatch(package):
        return "is not the name of a package"
    if top in OWN_PACKAGES:
        return "is ablate's own; user= is for packages of yours"
    if top in sys.stdlib_module_names or top.startswith("__"):
        return "belongs to Python; user= is for packages of yours"
    if top in dependencies():
        return "is a library that ablate needs; user= is for packages of yours"
    return None


@functools.cache
def dependencies() -> frozenset[str]:
    """The top-level modules of ablate's direct and indirect dependencies."""
    names, seen, todo = set[str](), set[str](), [*NEEDED]
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        if name in seen:
            continue
        seen.add(name)
        try:
            found = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:
            names.add(name.replace("-", "_"))
            continue
        tops = (found.read_text("top_level.txt") or "").split() or {file.parts[0] for file in found.files or ()}
        names |= {top.removesuffix(".py").partition(".")[0] for top in tops if not top.endswith((".dist-info", ".."))}
        plain = (text for text in found.requires or () if "extra ==" not in text)
        todo += [match[0] for text in plain if (match := re.match(r"[\w.-]+", text))]
    return frozenset(names)


def allowed_packages(user: Iterable[str] | str) -> list[str]:
    """The packages that a caller allows.  Raises ValueError for one that cannot be a user package."""
    packages = [user] if isinstance(user, str) else list(user)
    for package in packages:
        if why := package_problem(package):
            raise ValueError(f"user: {package!r} {why}")
    return packages


def allowed(own: str, user: Iterable[str]) -> tuple[str, ...]:
    """The packages that targets may come from: the group's `own` and the valid user packages."""
    return (own, *(package for package in user if package_problem(package) is None))


def within(name: object, packages: Iterable[str]) -> bool:
    """Whether a dotted name is one of these packages or inside of one."""
    return isinstance(name, str) and any(name == package or name.startswith(f"{package}.") for package in packages)


def chosen_class(group: str, key: str, word: object) -> Any:
    """The class that a word in a component's settings chooses."""
    return locate(CHOSEN[group][key][str(word)], OWN_PACKAGES)


def locate(target: object, packages: tuple[str, ...]) -> Any:
    """Import the class or function that a `_target_` names, defined in one of `packages` itself.  Raises BadTarget."""
    if not isinstance(target, str) or not NAME.fullmatch(target) or not within(target.rpartition(".")[0], packages):
        raise BadTarget(f"{target!r} is not in {' or '.join(packages)}; for your own class add user=[my_package]")
    module, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except NotInstalled as error:
        raise BadTarget(str(error)) from None
    except Exception as error:  # a user module can raise anything on import
        raise BadTarget(f"{target!r} cannot be found ({one_line(error)}){here(str(error))}") from None
    if not inspect.isclass(found) and not inspect.isfunction(found):
        raise BadTarget(f"{target!r} is not a class or function")
    if not within(found.__module__, packages):
        raise BadTarget(f"{target!r} is defined in {found.__module__}, not in {' or '.join(packages)}")
    return found


def here(error: str) -> str:
    """A hint if the module that an import did not find is in the current folder; empty for other errors."""
    found = re.search(r"No module named '(\w+)", error)
    name = found[1] if found else ""
    lies = name and (os.path.isdir(name) or os.path.isfile(f"{name}.py"))
    return f"; {name} is in the current folder: add it to user=[...]" if lies else ""
