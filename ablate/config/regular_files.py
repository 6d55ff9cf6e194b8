"""Files that end: a pipe or a device in the place of one would keep its reader waiting, or fed, for ever."""

import errno
import os
import stat
from pathlib import Path

MOST = 2**30  # bytes that are read at once


def regular(path: str, flags: int) -> int:
    """An opener for regular files.  Raises OSError for anything else, without waiting for it."""
    try:
        number = os.open(path, flags | os.O_NONBLOCK, 0o666)
    except OSError as error:
        if error.errno != errno.ENXIO:  # a pipe that nobody reads, or a socket
            raise
        raise OSError(errno.EINVAL, "it is no file", path) from None
    mode = os.fstat(number).st_mode
    if not stat.S_ISREG(mode):
        os.close(number)
        what = (errno.EISDIR, os.strerror(errno.EISDIR)) if stat.S_ISDIR(mode) else (errno.EINVAL, "it is no file")
        raise OSError(*what, path)
    return number


def read_regular(path: Path, most: int = MOST) -> bytes:
    """The bytes of a regular file.  Raises OSError for anything else, and for a file of more than `most` bytes."""
    with open(path, "rb", opener=regular) as file:
        if os.fstat(file.fileno()).st_size > most:
            raise OSError(errno.EFBIG, f"it has more than {most:,} bytes", str(path))
        return file.read()
