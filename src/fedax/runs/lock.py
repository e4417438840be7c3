"""The lock on a run's directory: one process at a time works on a run.

The system releases a lock when its process dies, however that happens. A lock file that nobody holds was left by a
process that was killed, and is taken over.
"""

from __future__ import annotations

import contextlib
import logging
import os
import socket
import sys
import time
from collections.abc import Iterator
from pathlib import Path

from fedax.errors import FedaxError
from fedax.runs.files import LOCK, check_folder
from fedax.runtime import is_main_process

log = logging.getLogger("fedax")
_HELD: set[Path] = set()  # by this process


@contextlib.contextmanager
def locked(folder: Path | None) -> Iterator[None]:
    """Hold the lock on a run's directory, which is made if it does not exist; raise if another process holds it.

    A process that holds the lock may ask for it again. Of several processes of one run the first holds it. The
    directory is removed at the end if it was made here and is still empty. With None nothing is locked.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> with locked(folder):
    ...     [path.name for path in folder.iterdir()]
    ['.lock']
    >>> list(folder.iterdir())
    []
    """
    if folder is None or not is_main_process() or sys.platform == "win32":
        yield
        return
    home = Path(os.path.realpath(check_folder("out", folder)))  # a circle of links is an error of the system's below
    if home in _HELD:
        yield
        return
    made: list[Path] = []
    file = -1
    try:
        try:
            made = [path for path in (home, *home.parents) if not path.exists()]
            home.mkdir(parents=True, exist_ok=True)
            file = _acquire(home / LOCK, Path(folder))
        except FileExistsError:
            raise FedaxError(f"{folder} is not a directory") from None
        except OSError as error:
            raise FedaxError(f"{folder} cannot be written: {(error.strerror or str(error)).lower()}") from error
        _HELD.add(home)
        yield
    finally:
        if file >= 0:
            _HELD.discard(home)
            # removed before it is released: a process that has opened it then finds it gone
            (home / LOCK).unlink(missing_ok=True)
            os.close(file)
        for path in made:
            with contextlib.suppress(OSError):  # the directory is not empty
                path.rmdir()


def _acquire(path: Path, folder: Path) -> int:
    """The open file of the lock, held."""
    import fcntl

    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o644)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not _is_still(path, file):
                os.close(file)
                continue
            before = os.pread(file, 200, 0).decode(errors="replace").strip()
            os.ftruncate(file, 0)
            os.pwrite(file, f"process {os.getpid()} on {socket.gethostname()}\n".encode(), 0)
        except BlockingIOError:
            holder = _holder(file)
            os.close(file)
            raise FedaxError(f"{folder} is in use by {holder}: wait until it has ended, or stop it") from None
        except BaseException:
            os.close(file)
            raise
        if before:
            log.warning("%s was in use by %s, which is gone: this process takes over", folder, before)
        return file


def _holder(file: int) -> str:
    """The process that holds the lock, as it wrote into the file right after taking it."""
    for _ in range(50):
        if said := os.pread(file, 200, 0).decode(errors="replace").strip():
            return said
        time.sleep(0.01)
    return "another process"


def _is_still(path: Path, file: int) -> bool:
    """Whether the open file still has that name: the last holder of the lock may have removed it meanwhile."""
    try:
        return os.path.samestat(os.stat(path), os.fstat(file))
    except FileNotFoundError:
        return False
