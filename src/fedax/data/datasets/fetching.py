"""Finds a published file: below FEDAX_DATA, in the cache, or at its publisher's, from where it is fetched once.

A fetch goes through pooch into the cache, the directory FEDAX_CACHE or the user's own cache directory. A broken
download stays beside the file's place as `<file>.part`, and the next try goes on from there. The file gets its name
only when it is whole and its hash is the published one. FEDAX_OFFLINE=1 forbids the network.

If nobody publishes a file's hash, the first download is pinned: it must have the published number of lines, its hash
is kept beside it as `<file>.sha256`, and every later use and download must have that hash.

Files below FEDAX_DATA are the user's own and may be packed in another way: their hash is not checked, and their
readers check their content.
"""

from __future__ import annotations

import hashlib
import logging
import os
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

from fedax.errors import FedaxError
from fedax.extras import needed
from fedax.runtime import user_cache
from fedax.whole_files import write_whole

log = logging.getLogger("fedax")

Progress: TypeAlias = Callable[[str, int, int | None], None]
"""Told (file, bytes here, bytes in all or None) as a file comes in."""

PATIENCE = 30  # seconds without a byte after which a server counts as gone
CHUNK = 1 << 16  # bytes at a time; a connection that breaks off loses less than this
SLOW = 2  # seconds after which a fetch without a progress bar logs what it is doing


@dataclass(frozen=True)
class Published:
    """A published file.

    name: its place below a data directory.
    addresses: URLs of the file, the publisher's first; none if it must be put in place by hand.
    sha256: of the file as published; None where nobody states it, and then a broken fetch starts from the beginning.
    size: in bytes, 0 where not known.
    lines: of a text without a known hash, the number that the publisher states.

    >>> Published("a9a/a9a").place
    'a9a/a9a'
    """

    name: str
    addresses: tuple[str, ...] = ()
    sha256: str | None = None
    size: int = 0
    lines: int = 0

    @property
    def place(self) -> str:
        """The name without the ending .gz: a file may be there plain or gzipped."""
        return self.name.removesuffix(".gz")


def present(file: Published) -> Path | None:
    """The path of the file, plain or gzipped: below FEDAX_DATA, else in the cache, else None."""
    named = os.environ.get("FEDAX_DATA")
    for root in [*([Path(named)] if named else []), user_cache()]:
        for name in (file.place, f"{file.place}.gz"):
            if (root / name).is_file():
                return root / name
    return None


def find(file: Published, progress: Progress | None = None) -> Path:
    """The path of the file, fetched into the cache if needed; a pinned file must still have its hash."""
    path = present(file) or _fetch(file, progress)
    pin = _pin(path)
    if file.lines and path == user_cache() / file.name and pin.is_file() and _hash(path) != pin.read_text():
        raise FedaxError(f"{path} is not what was downloaded: delete it to download it again, or {pin} to keep it")
    return path


def _fetch(file: Published, progress: Progress | None) -> Path:
    target = user_cache() / file.name
    by_hand = f"put the file at {target}" + (", or below FEDAX_DATA" if not os.environ.get("FEDAX_DATA") else "")
    if not file.addresses:
        raise FedaxError(f"{file.name} is missing and cannot be downloaded: {by_hand}")
    if os.environ.get("FEDAX_OFFLINE", "0") not in ("", "0"):
        raise FedaxError(f"{file.name} is missing and FEDAX_OFFLINE is set: {by_hand} ({file.addresses[0]})")
    try:
        with _alone(target):
            return present(file) or _from_any(file, target, progress, by_hand)
    except OSError as error:
        raise FedaxError(f"{file.name} cannot be written to {target.parent}: {error.strerror or error}") from error


def _from_any(file: Published, target: Path, progress: Progress | None, by_hand: str) -> Path:
    """Fetch the file from the first address that gives it whole and with the right hash."""
    pooch = needed("pooch", "download", "a download")
    from requests import RequestException

    part, pin = target.with_name(f"{target.name}.part"), _pin(target)
    known = pin.read_text() if file.lines and pin.is_file() else file.sha256
    reasons = []
    for address in file.addresses:
        download = Continued(file, part, progress or _Unwatched())
        try:
            with _quiet(pooch.get_logger()):
                pooch.retrieve(address, known, target.name, target.parent, downloader=download)
            return target
        except RequestException as error:
            reasons.append(f"{address}: {_reason(error)}")
        except ValueError:  # pooch raises it for a wrong hash too, and deletes the file
            stated = f"whose SHA-256 is {file.sha256}" if file.sha256 else f"of {file.lines} lines"
            first = f", or not the one that came first, whose SHA-256 is in {pin}" if known != file.sha256 else ""
            reasons.append(f"{address}: what came is not the published file, {stated}{first}")
    kept = part.stat().st_size if file.sha256 and part.is_file() else 0
    again = f"the next try goes on from byte {kept}, or {by_hand}" if kept else by_hand
    raise FedaxError(f"{file.name} cannot be downloaded ({'; '.join(reasons)}): {again}")


class Continued:
    """A downloader for pooch that goes on from what an earlier try left in `part`.

    Only a file with a known hash is continued: the two pieces may be of different files.

    >>> Continued(Published("a9a/a9a"), Path("a9a.part"), print).part.name
    'a9a.part'
    """

    def __init__(self, file: Published, part: Path, progress: Progress) -> None:
        self.file, self.part, self.progress = file, part, progress

    def __call__(self, url: str, output_file: str, pooch: Any) -> None:
        """Download `url` to `output_file`, or raise and keep the part that came."""
        import requests

        if self.file.sha256 is None:
            self.part.unlink(missing_ok=True)
        here = self.part.stat().st_size if self.part.is_file() else 0
        # As stored: a server that compresses on the way would send another file and no length.
        headers = {"Accept-Encoding": "identity", **({"Range": f"bytes={here}-"} if here else {})}
        with requests.get(url, headers=headers, stream=True, timeout=PATIENCE) as answer:
            if answer.status_code != requests.codes.requested_range_not_satisfiable:  # else all of it is here
                answer.raise_for_status()
                self._receive(answer, here if answer.status_code == requests.codes.partial_content else 0)
        if self.file.lines and _lines(self.part) != self.file.lines:
            self.part.unlink()
            raise ValueError("another number of lines")
        if self.file.lines:
            _keep_first(_pin(self.part.with_suffix("")), _hash(self.part))
        self.part.replace(output_file)

    def _receive(self, answer: Any, here: int) -> None:
        length = answer.headers.get("Content-Length")
        total = here + int(length) if length is not None else None
        with self.part.open("ab" if here else "wb") as file:
            for chunk in answer.iter_content(CHUNK):
                file.write(chunk)
                here += len(chunk)
                self.progress(self.file.name, here, total)


def _pin(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _keep_first(pin: Path, sha256: str) -> None:
    """Write the pin, whole or not at all, if there is none."""
    if not pin.is_file():
        write_whole(pin, sha256.encode())


def _hash(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _lines(path: Path) -> int:
    with path.open("rb") as file:
        return sum(1 for _ in file)


class _Unwatched:
    """Says once in the log that a long download is under way."""

    def __init__(self) -> None:
        self.began, self.said = time.monotonic(), False

    def __call__(self, name: str, here: int, total: int | None) -> None:
        if not self.said and time.monotonic() - self.began > SLOW:
            self.said = True
            of = f" of {total / 1e6:.0f}" if total else ""
            log.warning("downloading %s: %.0f%s MB so far", name, here / 1e6, of)


def _reason(error: Exception) -> str:
    """Why a download failed, in few words."""
    from requests import ConnectionError as Unreachable
    from requests import Timeout
    from requests.exceptions import ChunkedEncodingError

    answer = getattr(error, "response", None)
    if answer is not None:
        return f"the server says {answer.status_code} {answer.reason}"
    if isinstance(error, Timeout):
        return f"no answer within {PATIENCE} seconds"
    if isinstance(error, ChunkedEncodingError):
        return "the connection broke off"
    return "no connection" if isinstance(error, Unreachable) else " ".join(str(error).split())


@contextmanager
def _alone(target: Path) -> Iterator[None]:
    """Alone among processes in the target's directory, where the system has locks: others wait, then find the file."""
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        import fcntl
    except ImportError:
        yield
        return
    directory = os.open(target.parent, os.O_RDONLY)
    try:
        fcntl.flock(directory, fcntl.LOCK_EX)
        yield
    finally:
        os.close(directory)


@contextmanager
def _quiet(logger: logging.Logger) -> Iterator[None]:
    """Without the lines that pooch writes to the terminal."""
    before = logger.level
    logger.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logger.setLevel(before)
