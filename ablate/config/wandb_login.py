"""Whether Weights & Biases could log in, and where to: the server is the user's, never the current folder's."""

import contextlib
import netrc
import os
import tempfile
from collections.abc import Iterator
from urllib.parse import urlsplit

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
