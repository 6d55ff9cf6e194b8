"""Optional libraries: imported, or named with what to install; whether Weights & Biases could log in."""

import contextlib
import importlib
import importlib.util
import netrc
import os
import tempfile
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

NAMES = {"sklearn": "scikit-learn", "fla": "fla-core"}  # of what is imported and installed by two names


def extra(module: str, need: str, group: str = "data") -> Any:
    """A module of an extra, `data` or another.  Raises ValueError, saying what needs it and how to install it."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise ValueError(_lacking(module, need, group)) from None


def installed(module: str, need: str, group: str) -> None:
    """Raise what `extra` would, without the seconds that importing a large library takes."""
    if importlib.util.find_spec(module) is None:
        raise ValueError(_lacking(module, need, group))


def _lacking(module: str, need: str, group: str) -> str:
    top = module.partition(".")[0]
    return f"{need} needs {NAMES.get(top, top)}, which is not installed; write pip install 'ablate[{group}]'"


WANDB_HOSTS = ("api.wandb.ai", "api.forge.coreweave.com")  # the default host of older versions, and of newer ones


def wandb_credentials() -> bool:
    """Whether Weights & Biases could log in without asking anybody."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    hosts = (*WANDB_HOSTS, urlsplit(os.environ.get("WANDB_BASE_URL", "")).netloc)
    for file in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        with contextlib.suppress(OSError, ValueError, netrc.NetrcParseError):
            if file and not netrc.netrc(os.path.expanduser(file)).hosts.keys().isdisjoint(hosts):
                return True
    return False


@contextlib.contextmanager
def nowhere() -> Iterator[None]:
    """The current folder is an empty one meanwhile: W&B heeds a `wandb/settings` there, which would name the server."""
    with tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):
        yield
