"""Which code a `_target_` may name: this package's own, and that of packages which the person at the keyboard named.

What stands in files (results, studies, variants) may choose among these and add nothing to them.  Nothing here needs
torch.  What each group asks of a target beside: `components.resolve`.
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

NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
OURS = ("ablate", "analysis", "hydra_plugins")
BUILT_IN = ("ablate", "torch.optim")  # whose code is that of ablate and torch, and no user's
# The distributions that pyproject.toml names; what these need in turn, their metadata say.
NEEDED = """
torch hydra-core omegaconf numpy pandas scipy pyDOE3 matplotlib seaborn plotly jinja2 pyyaml rich safetensors wandb
pybtex msgspec argcomplete tqdm hydra-joblib-launcher hydra-submitit-launcher hydra-ray-launcher babel scikit-learn
tokenizers datasets gensim pyarrow selenium hatchling fla-core triton pytest statsmodels pytest-xdist ruff mypy
transformers""".split()  # noqa: SIM905
# Classes of ours that a word of a component's settings chooses: part of the code of the cells that say it, no others'.
QK_NORM = {"qk_norm": {"rms": "ablate.model.norm.RMSNorm", "ln": "ablate.model.norm.LayerNorm"}}
CHOSEN = {"attention": QK_NORM, "cross_attention": QK_NORM}
CHOSEN |= {"residual": {"first_norm": {"False": "ablate.model.norm.NoNorm"}}}
SINK = ("log", "finish", "close")  # what a tracking service can do


class BadTarget(ValueError):
    """A `_target_` that may not be used, or cannot be found; the message says why."""


@functools.cache
def package_problem(package: str) -> str | None:
    """Why targets may not come from a package, as the end of a sentence; None where they may."""
    top = package.partition(".")[0]
    if not NAME.fullmatch(package):
        return "is not the name of a package"
    if top in OURS:
        return "is ablate's own; user= is for packages of yours"
    if top in sys.stdlib_module_names or top.startswith("__"):
        return "belongs to Python; user= is for packages of yours"
    if top in dependencies():
        return "is a library that ablate needs; user= is for packages of yours"
    return None


@functools.cache
def dependencies() -> frozenset[str]:
    """The modules that ablate's dependencies, and theirs, install."""
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
    """The packages that a caller allows.  Raises ValueError, naming one that cannot be a package of the user's."""
    packages = [user] if isinstance(user, str) else list(user)
    for package in packages:
        if why := package_problem(package):
            raise ValueError(f"user: {package!r} {why}")
    return packages


def allowed(own: str, user: Iterable[str]) -> tuple[str, ...]:
    """The packages that targets may come from: a group's `own`, and those of the user's that may be ones."""
    return (own, *(package for package in user if package_problem(package) is None))


def within(name: object, packages: Iterable[str]) -> bool:
    """Whether a dotted name is a package's, or of something in it."""
    return isinstance(name, str) and any(name == package or name.startswith(f"{package}.") for package in packages)


def chosen_class(group: str, key: str, word: object) -> Any:
    """The class that a word of a component's settings chooses."""
    return locate(CHOSEN[group][key][str(word)], OURS)


def locate(target: object, packages: tuple[str, ...]) -> Any:
    """The class or function that a `_target_` names, defined in one of `packages`; imports its module.

    A name that leads out of them, through what a module imports say, is refused.  Raises BadTarget.
    """
    if not isinstance(target, str) or not NAME.fullmatch(target) or not within(target.rpartition(".")[0], packages):
        raise BadTarget(f"{target!r} is not in {' or '.join(packages)}")
    module, _, name = target.rpartition(".")
    try:
        found = getattr(importlib.import_module(module), name)
    except Exception as error:  # whatever a module of the user's own does on import
        raise BadTarget(f"{target!r} cannot be found ({one_line(error)}){here(str(error))}") from None
    if not inspect.isclass(found) and not inspect.isfunction(found):
        raise BadTarget(f"{target!r} is not a class or function")
    if not within(found.__module__, packages):
        raise BadTarget(f"{target!r} is defined in {found.__module__}, not in {' or '.join(packages)}")
    return found


def here(error: str) -> str:
    """What to write where what a module imports lies in the current folder; nothing for other errors."""
    found = re.search(r"No module named '(\w+)", error)
    name = found[1] if found else ""
    lies = name and (os.path.isdir(name) or os.path.isfile(f"{name}.py"))
    return f"; {name} lies in the current folder, of which user=[...] has to name it, too" if lies else ""


def is_sink(found: Any) -> bool:
    """Whether a class can do what a tracking service does."""
    return inspect.isclass(found) and all(callable(getattr(found, name, None)) for name in SINK)
