"""What somebody else may put into a results folder, a study file or a folder of variants, to have it executed.

Each attack would create the canary: a file that must not be there after any command.
"""

import json
import os
import pickle
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml

CANARY = "canary"
PACKAGE = "loaded_gun"


def package(folder: Path) -> None:
    """A package of nobody's that lies where Python finds it: importing it, or making its class, fires."""
    (folder / PACKAGE).mkdir(parents=True)
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


def targets(folder: Path) -> dict[str, dict[str, Any]]:
    """Nodes of a component, and the `user` beside them, that would run something if they were called."""
    shot = f"touch {folder / CANARY}"
    return {
        "stdlib": {"user": ["os"], "node": {"_target_": "os.system", "command": shot}},
        "subprocess": {"user": ["subprocess"], "node": {"_target_": "subprocess.Popen", "args": shot, "shell": True}},
        "builtins": {"user": ["builtins"], "node": {"_target_": "builtins.exec", "source": f"import os; os.{shot}"}},
        "pickle": {"user": ["pickle"], "node": {"_target_": "pickle.loads", "data": "x"}},
        "torch": {"user": ["torch"], "node": {"_target_": "torch.hub.load", "repo_or_dir": str(folder)}},
        "dependency": {"user": ["hydra"], "node": {"_target_": "hydra.utils.instantiate", "config": {}}},
        "imported": {"user": ["ablate"], "node": {"_target_": "ablate.execution.worker.subprocess.run", "args": shot}},
        "walk": {"user": [], "node": {"_target_": "ablate.model.norm.torch.os.system", "command": shot}},
        "package": {"user": [PACKAGE], "node": {"_target_": f"{PACKAGE}.Norm", "_partial_": True}},
        "nested": {"user": [PACKAGE], "node": {"inner": {"_target_": f"{PACKAGE}.Norm"}, "_target_": "os.system"}},
        "dots": {"user": [""], "node": {"_target_": f"..{PACKAGE}.Norm"}},
        "number": {"user": 7, "node": {"_target_": 7}},
        "function": {"user": [], "node": {"_target_": "ablate.model.init.initialise"}},
    }


class Shot:
    """Fires when it is unpickled."""

    def __init__(self, folder: Path):
        self.file = str(folder / CANARY)

    def __reduce__(self) -> tuple[Any, ...]:
        return os.mknod, (self.file,)


def bullet(folder: Path) -> bytes:
    """A pickle that fires."""
    return pickle.dumps(Shot(folder))


def tag(folder: Path) -> str:
    """YAML that fires in a loader that makes objects."""
    return f"!!python/object/apply:os.mknod ['{folder / CANARY}']\n"


def edit_yaml(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a YAML file that a run has written."""
    content = yaml.load(file.read_text(), Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    change(content)
    file.write_text(yaml.dump(content, Dumper=getattr(yaml, "CSafeDumper", yaml.SafeDumper), sort_keys=False))


def edit_json(file: Path, change: Callable[[dict[str, Any]], object]) -> None:
    """Change a JSON file as somebody would who wants it to pass for what the software wrote."""
    from ablate.runs.files import read_json, write_json

    content = read_json(file)
    change(content)
    write_json(file, content)


def raw_json(file: Path, content: Any) -> None:
    """Put any JSON in place of a file, an object with its checksum."""
    from ablate.runs.files import SEAL, seal_of

    file.write_text(json.dumps(content | {SEAL: seal_of(content)} if isinstance(content, dict) else content))


def forget() -> None:
    """Have the package imported anew by whoever imports it next."""
    sys.modules.pop(PACKAGE, None)
