"""Versions of the libraries that numbers depend on, known without loading them."""

import functools
import importlib.metadata
import importlib.util
import re
import sys
from pathlib import Path

# That classes, by their own names, leave a part of their numbers to; and that kernels are from.
LIBRARIES = {"Word2Vec": ("gensim",), "fla": ("fla-core", "triton")}


def torch_version() -> str:
    """`torch.__version__`, from the file that torch itself has it from: loading torch takes a second."""
    loaded, spec = sys.modules.get("torch"), importlib.util.find_spec("torch")
    file = Path(spec.origin).with_name("version.py") if spec and spec.origin else None
    written = re.search(r"^__version__ = '(.+)'$", file.read_text(), re.MULTILINE) if file and not loaded else None
    if written:
        return written[1]
    import torch

    return str(torch.__version__)


@functools.cache
def library_versions(name: str) -> dict[str, str]:
    """The versions of the libraries that the numbers of a class, by its own name, or of kernels depend on; "" if
    lacking."""
    return {library: _version(library) for library in LIBRARIES.get(name, ())}


def _version(library: str) -> str:
    try:
        return importlib.metadata.version(library)
    except importlib.metadata.PackageNotFoundError:
        return ""
