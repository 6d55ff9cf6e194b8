"""Reading untrusted files: regular ones only, as pipes and devices could block; YAML as plain data of bounded size."""

import errno
import functools
import os
import re
import stat
from collections import Counter
from pathlib import Path
from typing import Any

from ablate.config.errors import Corrupt

CALL = re.compile(r"\$\{.*:", re.DOTALL)  # ${model.dim} calls no resolver: it refers to another setting
YAMLS = "tag:yaml.org,2002:"
NAMES = {f"{YAMLS}{name}" for name in ("str", "int", "float", "bool", "null")}
PLAIN = NAMES | {f"{YAMLS}{name}" for name in ("map", "seq", "merge")}
DEEPEST = 50  # the most nested levels of lists and mappings
MOST = 100_000  # values in one file, each use of an alias counted


def read_plain(file: Path, loader: Any = None) -> Any:
    """The content of a YAML file.  Raises `Corrupt` if it is invalid, refers to itself or is too large."""
    try:
        return parse_plain(read_regular(file), str(file), loader)
    except OSError as error:
        raise Corrupt(f"{file} cannot be read ({error.strerror})") from None


def parse_plain(text: bytes | str, where: str, loader: Any = None) -> Any:
    """The content of a YAML text; `where` names it in errors.  Raises `Corrupt`."""
    import yaml

    try:
        node = yaml.compose(text, Loader=loader or _loader())
        if node is not None:
            _count(node, {})
        return yaml.load(text, Loader=loader or _loader())
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        why = " ".join(str(getattr(error, "problem", None) or error).split())[:120]
        raise Corrupt(f"{where} is not readable as YAML ({why}{line})") from None


@functools.cache
def _loader() -> Any:
    """YAML's safe loader, but dates stay strings, as in OmegaConf."""
    import yaml

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    plain = {
        first: [(tag, pattern) for tag, pattern in found if not tag.endswith(":timestamp")]
        for first, found in base.yaml_implicit_resolvers.items()
    }
    return type("PlainLoader", (base,), {"yaml_implicit_resolvers": plain})


def calls(value: Any) -> str | None:
    """The first string in plain data that calls a resolver, which can read the environment: ${oc.env:HOME}; or None."""
    if isinstance(value, str):
        return value if CALL.search(value) else None
    inner = [*value, *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else ()
    return next((found for part in inner if (found := calls(part))), None)


def _count(node: Any, known: dict[int, int], depth: int = 0) -> int:
    """The number of values below a node, aliases followed.  Raises ValueError for nodes that contain themselves, too
    many or too deep ones, and tags such as !!pairs."""
    if node.tag not in PLAIN:
        raise ValueError(f"{node.tag.replace(YAMLS, '!!')} is more than plain data; write the value")
    if depth > DEEPEST:
        raise ValueError(f"it is more than {DEEPEST} levels deep")
    if id(node) not in known:
        known[id(node)] = MOST  # until it is counted, so that a node inside itself exceeds the limit
        inner = node.value if isinstance(node.value, list) else []
        keys = [pair[0] for pair in inner if isinstance(pair, tuple) and pair[0].tag in NAMES]
        given = Counter((key.tag, key.value) for key in keys)
        if twice := next((key for key in reversed(keys) if given[key.tag, key.value] > 1), None):
            raise ValueError(f"{twice.value} is given twice, line {twice.start_mark.line + 1}")
        below = (part for pair in inner for part in (pair if isinstance(pair, tuple) else (pair,)))
        known[id(node)] = 1 + sum(_count(part, known, depth + 1) for part in below)
    if known[id(node)] >= MOST:
        raise ValueError("it refers to itself, or stands for more than a file can hold")
    return known[id(node)]


MOST_BYTES = 2**30  # the largest file that is read


def regular(path: str, flags: int) -> int:
    """An opener for regular files.  Raises OSError for anything else, without blocking."""
    try:
        number = os.open(path, flags | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a pipe without reader, or a socket
            raise
        raise OSError(errno.EINVAL, "it is no file", path) from None
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        what = (errno.EISDIR, os.strerror(errno.EISDIR)) if stat.S_ISDIR(mode) else (errno.EINVAL, "it is no file")
        raise OSError(*what, path)
    return number


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a regular file.  Raises OSError for anything else, and for a file of more than `most` bytes."""
    with open(path, "rb", opener=regular) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
        return file.read()
