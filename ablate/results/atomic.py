"""Files that are written so that a kill loses nothing, and read so that damage is noticed."""

import json
import math
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

from ablate.config.errors import Corrupt
from ablate.config.regular_files import read_regular, regular
from ablate.results.checksum import SEAL, seal_of


def no_link(path: str, flags: int) -> int:
    """An opener for files that are written in place: a link would lead to a file that is not of the results."""
    return regular(path, flags | os.O_NOFOLLOW)


def write_atomic(path: Path, data: bytes, check: Callable[[], None] = lambda: None) -> None:
    """Replace `path` by `data` so that a reader, or a kill, sees the old file or the new one and nothing between.

    `check` raises where the file is not ours to replace any more.  Errors of the system name the file.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with open(temporary, "wb", opener=no_link) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        check()
        os.replace(temporary, path)
    except OSError as error:
        raise OSError(error.errno, error.strerror, str(path)) from None
    finally:
        temporary.unlink(missing_ok=True)


def write_json(path: Path, value: dict[str, Any], check: Callable[[], None] = lambda: None) -> None:
    """Write `value` as strict JSON with its checksum, atomically; a number that is not finite becomes null."""
    plain = json.loads(json.dumps(finite(value), allow_nan=False))  # as it will be read
    text = json.dumps(plain | {SEAL: seal_of(plain)}, indent=1, ensure_ascii=False)
    write_atomic(path, text.encode() + b"\n", check)


def read_json(path: Path) -> dict[str, Any]:
    """Read one JSON object; raises `Corrupt` when the file is not one, or not as `write_json` wrote it,
    FileNotFoundError when it is absent.
    """
    try:
        value = json.loads(read_regular(path).decode())
    except FileNotFoundError:
        raise
    except (OSError, ValueError, RecursionError) as error:
        raise Corrupt(f"{path} is not readable as JSON ({error})") from None
    if not isinstance(value, dict):
        raise Corrupt(f"{path} holds no JSON object")
    if value.pop(SEAL, None) != seal_of(value):
        raise Corrupt(f"{path} is damaged: it was changed after it was written (its checksum does not fit)")
    return value


def set_aside(path: Path) -> Path:
    """Rename a corrupt file to the first free `<name>.corrupt[-n]` beside it, and return the new path."""
    target, n = path.with_name(path.name + ".corrupt"), 1
    while target.exists():
        n += 1
        target = path.with_name(f"{path.name}.corrupt-{n}")
    return path.rename(target)


def finite(value: Any) -> Any:
    """A value with null for every number in it that is not finite."""
    if isinstance(value, dict):
        return {key: finite(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [finite(item) for item in value]
    return None if isinstance(value, float) and not math.isfinite(value) else value
