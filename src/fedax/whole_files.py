"""Files that are whole or not there: written under another name in the same directory, then renamed."""

from __future__ import annotations

import contextlib
import os
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


def write_whole(path: Path, content: bytes, mode: int = 0o666) -> None:
    """Write a file whole or not at all, on the disk when this returns. mode: who may read it, before the umask.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "a.txt"
    >>> write_whole(path, b"whole")
    >>> path.read_text()
    'whole'
    """
    with aside(path) as part:
        part.unlink(missing_ok=True)  # of a process that died and had the same number
        with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
