"""Reading untrusted files: regular ones only, as pipes and devices could block; YAML as plain data of bounded size and
depth, which are looked at before a parser that recurses."""

import errno
import functools
import json
import os
import re
import stat
from pathlib import Path
from typing import Any

from ablate.config.errors import Corrupt, Unreadable

CALL = re.compile(r"\$\{.*:", re.DOTALL)  # ${model.dim} calls no resolver: it refers to another setting
YAMLS = "tag:yaml.org,2002:"
NAMES = {f"{YAMLS}{name}" for name in ("str", "int", "float", "bool", "null")}
PLAIN = NAMES | {f"{YAMLS}{name}" for name in ("map", "seq", "merge")}
DEEPEST = 50  # the most nested levels of lists and mappings
TOO_DEEP = f"it is more than {DEEPEST} levels deep"
MOST = 100_000  # values in one file, each use of an alias counted
TOO_MANY = "it refers to itself, or stands for more than a file can hold"
MOST_TEXT = 2**24  # bytes of a YAML file


def read_plain(file: Path, loader: Any = None) -> Any:
    """The content of a YAML file.  Raises `Corrupt` if it is invalid, refers to itself or is too large."""
    try:
        return parse_plain(read_regular(file, MOST_TEXT), str(file), loader)
    except OSError as error:
        raise unreadable(file, error) from None


def parse_plain(text: bytes | str, where: str, loader: Any = None) -> Any:
    """The content of a YAML text; `where` names it in errors.  Raises `Corrupt`."""
    import yaml

    loader = loader or plain_loader()
    try:
        refuse_bombs(text, loader)
        reader = loader(text)
        node = reader.get_single_node()
        if node is None:
            return None
        refuse_repeated_keys(node, set())
        return reader.construct_document(node)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        line = f", line {mark.line + 1}" if mark else ""
        why = " ".join(str(getattr(error, "problem", None) or error).split())[:120]
        raise Corrupt(f"{where} is not readable as YAML ({why}{line})") from None


# Numbers as OmegaConf reads them, 1e-3 among them; but neither 010 (8 in octal) nor 1:30 (90), which nobody means so.
WHOLE = re.compile(r"[-+]?(?:0|[1-9][0-9_]*)$")
FLOAT = re.compile(
    r"[-+]?[0-9][0-9_]*\.[0-9_]*(?:[eE][-+]?[0-9]+)?$|[-+]?[0-9][0-9_]*[eE][-+]?[0-9]+$|[-+]?\.[0-9_]+(?:[eE][-+]?[0-9]+)?$"
    r"|[-+]?\.(?:inf|Inf|INF)$|\.(?:nan|NaN|NAN)$"
)


@functools.cache
def plain_loader() -> Any:
    """YAML's safe loader with other numbers; dates stay strings, as in OmegaConf."""
    import yaml

    base = getattr(yaml, "CSafeLoader", yaml.SafeLoader)

    replaced = {f"{YAMLS}{name}" for name in ("timestamp", "int", "float")}
    resolvers: dict[str, list[Any]] = {}
    for first, pairs in base.yaml_implicit_resolvers.items():
        resolvers[first] = [pair for pair in pairs if pair[0] not in replaced]
    loader: Any = type("PlainLoader", (base,), {"yaml_implicit_resolvers": resolvers})
    loader.add_implicit_resolver(f"{YAMLS}int", WHOLE, list("-+0123456789"))
    loader.add_implicit_resolver(f"{YAMLS}float", FLOAT, list("-+.0123456789"))
    return loader


def calls(value: Any) -> str | None:
    """The first string in plain data that calls a resolver, which can read the environment: ${oc.env:HOME}; or None."""
    if isinstance(value, str):
        return value if CALL.search(value) else None
    parts: list[Any] = []
    if isinstance(value, dict):
        parts = [*value, *value.values()]
    elif isinstance(value, list):
        parts = value
    for part in parts:
        call = calls(part)
        if call:
            return call
    return None


def refuse_bombs(text: bytes | str, loader: Any) -> None:
    """Raise ValueError for a YAML text that is too long or too deep, has tags such as !!pairs, or stands for too many
    values, those counted that aliases stand for.  Only its events are read: composing would recurse until the process
    ends."""
    import yaml

    if len(text) > MOST_TEXT:
        raise ValueError(f"it has more than {MOST_TEXT:,} bytes")
    values = 0
    complete: dict[str, tuple[int, int]] = {}  # by anchor: the values and the levels that an alias stands for
    unfinished: list[list[Any]] = []  # of each open list or mapping: its anchor, the values before it, its levels
    for event in yaml.parse(text, Loader=loader):
        levels = 0
        if isinstance(event, yaml.CollectionEndEvent):
            anchor, values_before, levels = unfinished.pop()
            complete[anchor] = (values - values_before, levels)
        elif isinstance(event, yaml.AliasEvent):
            size, levels = complete.get(event.anchor, (MOST, 0))  # one that is unfinished refers to itself
            values += size
        elif isinstance(event, yaml.NodeEvent):
            if event.tag and event.tag not in PLAIN:
                raise ValueError(f"{event.tag.replace(YAMLS, '!!')} is more than plain data; write the value")
            complete[event.anchor] = (1, 0)
            if isinstance(event, yaml.CollectionStartEvent):
                complete[event.anchor] = (MOST, 0)
                unfinished.append([event.anchor, values, 1])
            values += 1
        if unfinished:
            unfinished[-1][2] = max(unfinished[-1][2], levels + 1)
        if len(unfinished) + levels > DEEPEST:
            raise ValueError(TOO_DEEP)
        if values >= MOST:
            raise ValueError(TOO_MANY)


def refuse_repeated_keys(node: Any, checked: set[int]) -> None:
    """Raise ValueError for a mapping that has a key twice, at any depth below a node."""
    if node.id == "scalar" or id(node) in checked:
        return
    checked.add(id(node))
    if node.id == "sequence":
        for item in node.value:
            refuse_repeated_keys(item, checked)
        return
    keys = set()
    for key, value in node.value:
        if key.tag in NAMES and (key.tag, key.value) in keys:
            raise ValueError(f"{key.value} is given twice, line {key.start_mark.line + 1}")
        if key.tag in NAMES:
            keys.add((key.tag, key.value))
        refuse_repeated_keys(value, checked)


def parse_json(text: bytes | str) -> Any:
    """The value of a JSON text.  Raises ValueError, also for one that is nested too deep."""
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("it is nested too deep") from None


MOST_BYTES = 2**30  # the largest file that is read
# Errors that say what a path leads to.  Any other, such as EIO, says nothing about what the file holds.
NO_FILE = (errno.ENOENT, errno.ENOTDIR, errno.EISDIR, errno.EINVAL, errno.ELOOP, errno.EFBIG)


def regular(path: str, flags: int) -> int:
    """An opener for regular files.  Raises OSError for anything else, without blocking."""
    try:
        number = os.open(path, flags | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a pipe without reader, or a socket
            raise
        raise OSError(errno.EINVAL, "it is no file", path) from None
    mode = os.fstat(number).st_mode
    if stat.S_ISREG(mode):
        return number
    os.close(number)
    if stat.S_ISDIR(mode):
        raise OSError(errno.EISDIR, os.strerror(errno.EISDIR), path)
    raise OSError(errno.EINVAL, "it is no file", path)


def read_regular(path: Path, most: int = MOST_BYTES) -> bytes:
    """The bytes of a regular file.  Raises OSError for anything else, and for a file of more than `most` bytes."""
    with open(path, "rb", opener=regular) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
        return file.read()


def is_of_reading(error: BaseException) -> bool:
    """Whether an error says only that a file could not be read this time, such as EIO or full memory."""
    if isinstance(error, OSError):
        return error.errno is not None and error.errno not in NO_FILE
    return isinstance(error, MemoryError)


def unreadable(file: Path, error: OSError) -> Corrupt:
    """The error to raise where a file could not be read."""
    kind = Unreadable if is_of_reading(error) else Corrupt
    return kind(f"{file} cannot be read ({error.strerror})")
