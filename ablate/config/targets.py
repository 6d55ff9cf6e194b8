"""The code that a `_target_` may name: this package's, and that of packages which the user allowed on the command line.

Files can choose among these packages but cannot add any; `components.resolve` checks what each group requires, too.
"""

import importlib
import inspect
import os
import re
import sys
from collections.abc import Iterable, Sequence
from typing import Any

from ablate.config.errors import one_line
from ablate.config.extra import NotInstalled

NAME = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*", re.ASCII)
OWN_PACKAGES = ("ablate", "analysis", "hydra_plugins")
BUILT_IN = ("ablate", "torch.optim")  # packages that are not user code
# Libraries that ablate imports, by module.
LIBRARIES = (
    *("torch", "numpy", "pandas", "scipy", "matplotlib", "seaborn", "plotly", "PIL", "sklearn", "triton", "fla"),
    *("hydra", "omegaconf", "yaml", "msgspec", "safetensors", "pyarrow", "jinja2", "markupsafe", "pybtex", "babel"),
    *("datasets", "tokenizers", "tiktoken", "transformers", "gensim", "wandb", "wandb_workspaces", "tensorboard"),
    *("rich", "tqdm", "IPython"),
)
# Built-in classes that a word in a component's settings chooses; they count as code of the cells with that word only.
QK_NORM = {"qk_norm": {"rms": "ablate.model.norm.RMSNorm", "ln": "ablate.model.norm.LayerNorm"}}
CHOSEN = {"attention": QK_NORM, "cross_attention": QK_NORM}
SINK = ("log", "finish", "close")  # the methods of a tracking service


class BadTarget(ValueError):
    """A `_target_` that is not allowed or cannot be found; the message says why."""


def package_problem(package: str) -> str | None:
    """Why targets may not come from a package, as the end of a sentence; None if they may."""
    top = package.partition(".")[0]
    if not NAME.fullmatch(package):
        return "is not the name of a package"
    if top in (*OWN_PACKAGES, *LIBRARIES, *sys.stdlib_module_names) or top.startswith("__"):
        return "belongs to Python, to ablate, or to what it needs; user= is for packages of yours"
    return None


def allowed_packages(user: Iterable[str] | str) -> list[str]:
    """The packages that a caller allows.  Raises ValueError for one that cannot be a user package."""
    packages = [user] if isinstance(user, str) else list(user)
    for package in packages:
        problem = package_problem(package)
        if problem:
            raise ValueError(f"user: {package!r} {problem}")
    return packages


def within(name: object, packages: Iterable[str]) -> bool:
    """Whether a dotted name is one of these packages or inside of one."""
    return isinstance(name, str) and any(name == package or name.startswith(f"{package}.") for package in packages)


def chosen_class(group: str, key: str, word: object) -> Any:
    """The class that a word in a component's settings chooses."""
    return locate(CHOSEN[group][key][str(word)], OWN_PACKAGES)


def locate(target: object, packages: Sequence[str]) -> Any:
    """Import the class or function that a `_target_` names, defined in one of `packages` itself.  Raises BadTarget."""
    if not isinstance(target, str) or not NAME.fullmatch(target) or not within(target.rpartition(".")[0], packages):
        raise BadTarget(f"{target!r} is not in {' or '.join(packages)}; for your own class add user=[my_package]")
    module, _, name = target.rpartition(".")
    try:
        value = getattr(importlib.import_module(module), name)
    except NotInstalled as error:
        raise BadTarget(str(error)) from None
    except Exception as error:  # a user module can raise anything on import
        raise BadTarget(f"{target!r} cannot be found ({one_line(error)}){current_folder_hint(str(error))}") from None
    if not inspect.isclass(value) and not inspect.isfunction(value):
        raise BadTarget(f"{target!r} is not a class or function")
    if not within(value.__module__, packages):
        raise BadTarget(f"{target!r} is defined in {value.__module__}, not in {' or '.join(packages)}")
    return value


def current_folder_hint(error: str) -> str:
    """A hint if the module that an import did not find is in the current folder; empty for other errors."""
    match = re.search(r"No module named '(\w+)", error)
    if match and (os.path.isdir(match[1]) or os.path.isfile(f"{match[1]}.py")):
        return f"; {match[1]} is in the current folder: add it to user=[...]"
    return ""
