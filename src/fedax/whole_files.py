"""Files that are whole or not there: written under another name in the same directory, then renamed; and read only
where they are files."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from collections.abc import Iterator
from pathlib import Path


@contextlib.contextmanager
def aside(path: Path) -> Iterator[Path]:
    """A name beside `path` to write to: the file gets its own name at the end, and is removed after an error.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with aside(folder / "a.txt") as part:
    ...     _ = part.write_text("whole")
    >>> [path.name for path in folder.iterdir()]
    ['a.txt']
    """
    part = path.with_name(f".{path.name}.{os.getpid()}.part")
    try:
        yield part
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def read_regular(path: Path) -> bytes:
    """The bytes of a file; a pipe or a device, which may never end, is an OSError.

    >>> read_regular(Path("/dev/null"))
    Traceback (most recent call last):
    OSError: [Errno 22] not a regular file: '/dev/null'
    """
    if not is_regular(path):
        raise OSError(errno.EINVAL, "not a regular file", str(path))
    return path.read_bytes()


def is_regular(path: Path) -> bool:
    """Whether a path names neither a pipe nor a device nor a socket; what is missing is an OSError.

    >>> is_regular(Path("/dev/null"))
    False
    """
    kind = path.stat().st_mode
    return stat.S_ISREG(kind) or stat.S_ISDIR(kind)


def write_whole(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file whole or not at all, on the disk when this returns. mode: who may read it, before the umask.

    A link stays a link to the file that is written; a device or a pipe is written to, not replaced by a file. An error
    of the system's names the file.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> write_whole(path, b"whole")
    >>> path.read_text()
    'whole'
    """
    if path.exists() and not is_regular(path):
        # without waiting: a pipe that nobody reads is an error
        with named(path), os.fdopen(os.open(path, os.O_WRONLY | os.O_NONBLOCK), "wb") as file:
            os.set_blocking(file.fileno(), True)
            file.write(content)
        return
    with named(path), aside(Path(os.path.realpath(path))) as part:
        part.unlink(missing_ok=True)  # of a process that died and had the same number
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())


@contextlib.contextmanager
def named(path: Path) -> Iterator[None]:
    """Give an error of the system's this file's name where it has none, as one of a full disk has.

    >>> with named(Path("a.txt")):
    ...     raise OSError(28, "No space left on device")
    Traceback (most recent call last):
    OSError: [Errno 28] No space left on device: 'a.txt'
    """
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = str(path)
        raise
