"""Versions of the libraries that numbers depend on, known without loading them."""

from __future__ import annotations

import importlib.util
import re
import sys
from pathlib import Path


def torch_version() -> str:
    """`torch.__version__`, from the file that torch itself has it from: loading torch takes a second."""
    loaded, spec = sys.modules.get("torch"), importlib.util.find_spec("torch")
    file = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    written = re.search(r"^__version__ = '(.+)'$", file.read_text(), re.MULTILINE) if file and not loaded else None
    if written:
        return written[1]
    import torch

    return str(torch.__version__)
