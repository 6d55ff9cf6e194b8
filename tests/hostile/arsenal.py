"""What somebody else may put into a results folder, a study file or a folder of variants to have it executed.

Each attack would create the canary, a file that no command may leave behind.
"""

import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

from ablate.runs.files import SEAL, seal_of

STUDY = "theirs"
CANARY = "canary"
PACKAGE = "loaded_gun"
# Runs each command, or those that are named: its exit code and what it printed.
RunCommands = Callable[..., dict[str, tuple[int, str]]]


def write_package(folder: Path) -> None:
    """A package where Python finds it, which fires when it is imported or one of its classes is made."""
    (folder / PACKAGE).mkdir()
    (folder / PACKAGE / "__init__.py").write_text(
        "import pathlib\n"
        "from torch import nn\n"
        f"fire = pathlib.Path({str(folder / CANARY)!r}).touch\n"
        "fire()\n"
        "class Norm(nn.Module):\n"
        "    def __init__(self, dim: int):\n        fire()\n"
        "class Sink:\n"
        "    def __init__(self):\n        fire()\n"
        "    log = finish = close = fire\n"
    )


def attacks(folder: Path) -> dict[str, tuple[list[str], dict[str, Any]]]:
    """What `user` would name, and the node of a component that would run something if it were called."""
    shot = f"touch {folder / CANARY}"
    package = {"_target_": f"{PACKAGE}.Norm", "_partial_": True}
    worker = "ablate.execution.worker.subprocess.run"
    return {
        "stdlib": (["os"], {"_target_": "os.system", "command": shot}),
        "subprocess": (["subprocess"], {"_target_": "subprocess.Popen", "args": shot, "shell": True}),
        "builtins": (["builtins"], {"_target_": "builtins.exec", "source": f"import os; os.system('{shot}')"}),
        "torch": (["torch"], {"_target_": "torch.hub.load", "repo_or_dir": str(folder)}),
        "dependency": (["hydra"], {"_target_": "hydra.utils.instantiate", "config": package}),
        "imported by ablate": (["ablate"], {"_target_": worker, "args": shot, "shell": True}),
        "walk": ([], {"_target_": "ablate.model.norm.torch.os.system", "command": shot}),
        "package": ([PACKAGE], package),
        "nested": ([PACKAGE], {"inner": package, "_target_": "os.system"}),
        "number": ([], {"_target_": 7}),
        "function": ([], {"_target_": "ablate.model.init.initialise"}),
    }


class Shot:
    """Fires when it is unpickled."""

    def __init__(self, folder: Path):
        self.file = str(folder / CANARY)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mknod, (self.file,)


def firing_pickle(folder: Path) -> bytes:
    """A pickle that fires."""
    return pickle.dumps(Shot(folder))


def firing_yaml(folder: Path) -> str:
    """YAML that fires in a loader that makes objects."""
    return f"!!python/object/apply:os.mknod ['{folder / CANARY}']\n"


def edit_yaml(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a YAML file that a run has written."""
    content = yaml.safe_load(file.read_text())
    change(content)
    file.write_text(yaml.safe_dump(content, sort_keys=False))


def write_sealed(file: Path, content: dict[str, Any]) -> None:
    """Write any JSON object with its checksum, as somebody would who wants it to pass for what the software wrote."""
    file.write_text(json.dumps(content | {SEAL: seal_of(content)}))


def forget_package() -> None:
    """Have the package imported anew by whoever imports it next."""
    sys.modules.pop(PACKAGE, None)
