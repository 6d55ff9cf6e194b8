"""Imports of optional libraries, with errors that say how to install them; credentials of Weights & Biases."""

import contextlib
import importlib
import importlib.util
import netrc
import os
import re
import sys
import tempfile
import threading
from collections.abc import Iterator
from typing import Any
from urllib.parse import urlsplit

INSTALL = "in the checkout: pip install -e '.[{}]'"  # the distribution is not published
NAMES = {"sklearn": "scikit-learn", "fla": "fla-core", "wandb_workspaces": "wandb-workspaces"}  # on PyPI


class NotInstalled(ValueError):
    """A library of an extra is not installed; the message says what needs it and how to install it."""


def extra(module: str, need: str, group: str = "data") -> Any:
    """Import a module of an extra.  Raises NotInstalled."""
    try:
        return importlib.import_module(module)
    except ImportError:
        raise not_installed(module, need, group) from None


def installed(module: str, need: str, group: str) -> None:
    """Raise the error of `extra` if a module is not installed, without importing it: large libraries take seconds."""
    if importlib.util.find_spec(module) is None:
        raise not_installed(module, need, group)


def not_installed(module: str, need: str, group: str) -> NotInstalled:
    """The error for a missing module of an extra."""
    top = module.partition(".")[0]
    return NotInstalled(f"{need} needs {NAMES.get(top, top)}, which is not installed; {INSTALL.format(group)}")


WANDB_HOSTS = ("api.wandb.ai", "api.forge.coreweave.com")  # the default hosts of older and newer versions
WANDB_MODES = {"online": "online", "run": "online", "offline": "offline", "dryrun": "offline", "disabled": "disabled"}


def wandb_credentials() -> bool:
    """Whether Weights & Biases can log in without a prompt."""
    if os.environ.get("WANDB_API_KEY") or os.environ.get("WANDB_IDENTITY_TOKEN_FILE"):
        return True
    hosts = {*WANDB_HOSTS, urlsplit(os.environ.get("WANDB_BASE_URL", "")).netloc}
    for file in (os.environ.get("NETRC"), "~/.netrc", "~/_netrc"):
        if not file:
            continue
        with contextlib.suppress(OSError, ValueError, netrc.NetrcParseError):
            if hosts & netrc.netrc(os.path.expanduser(file)).hosts.keys():
                return True
    return False


def wandb_mode() -> str:
    """`online`, `offline` or `disabled`: as WANDB_MODE says, otherwise online if there are credentials."""
    requested = os.environ.get("WANDB_MODE")
    if requested:
        return WANDB_MODES.get(requested, "offline")  # a misspelt mode is no permission to upload
    return "online" if wandb_credentials() else "offline"


def wandb_project_problem(name: str) -> str | None:
    """Why W&B would refuse the name of a project, and what to write instead; None if it takes it."""
    if re.fullmatch(r"[^/\\#?%:]{1,128}", name):
        return None
    return "W&B takes names of 1 to 128 characters without / \\ # ? % :; a team is written as track.entity"


def wandb_settings(mode: str) -> Any:
    """Silent settings for runs of W&B in `online` or `offline` mode, and the same in its environment."""
    # W&B reads these before any argument.  Silent, its login never prompts; an id would merge all runs; and the
    # service of another process outlives a killed sender, and its runs then are "in use" for the next sender.
    os.environ |= {"WANDB_SILENT": "true", "WANDB_ERROR_REPORTING": "false", "WANDB_MODE": mode}
    for name in ("WANDB_RUN_ID", "WANDB_SWEEP_ID", "WANDB_RESUME", "WANDB_SERVICE"):
        os.environ.pop(name, None)
    import wandb

    settings = wandb.Settings(silent=True, console="off", disable_git=True, disable_code=True)
    settings.save_code = False
    settings.x_save_requirements = False
    if mode == "online":  # otherwise W&B waits for a missing network
        settings.init_timeout = 10
        settings.finish_timeout = 25
        settings.finish_timeout_raises = True
    settings.x_disable_stats = True  # statistics and metadata describe this process, not the training
    settings.x_disable_meta = True
    return settings


def end_wandb(seconds: float | None = None) -> None:
    """End W&B's service, which may wait for the network; after some seconds it is left to end with this process."""

    def end() -> None:
        with contextlib.suppress(Exception):
            sys.modules["wandb"].teardown()

    service = threading.Thread(target=end, daemon=True)
    service.start()
    service.join(seconds)


@contextlib.contextmanager
def nowhere() -> Iterator[None]:
    """Work in an empty folder: W&B reads `wandb/settings` of the current one, which could set another server."""
    with tempfile.TemporaryDirectory() as empty, contextlib.chdir(empty):
        yield
