"""`--processes`: start the same command in several processes on this machine, and end as they end."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from typing import IO

from fedax.cli.ending import FAILED, Ended, fail
from fedax.errors import FedaxError
from fedax.runtime import cores

MOST = 64  # processes on one machine
PATIENCE = 20.0  # seconds in which the others may end by themselves when one has failed


def launched(arguments: Sequence[str], processes: int | None) -> bool:
    """Whether the command was carried out by several processes; raises `Ended` unless all of them ended well.

    arguments: of the command line, `--processes` among them: a process that was launched knows its number.
    """
    if processes is None or os.environ.get("FEDAX_PROCESS"):
        return False
    if not 1 <= processes <= MOST:
        raise FedaxError(f"--processes must be a whole number from 1 to {MOST}, not {processes}")
    if processes == 1:
        return False
    with contextlib.ExitStack() as stack:
        heard = [None, *(stack.enter_context(tempfile.TemporaryFile()) for _ in range(processes - 1))]
        started = _start(arguments, processes, heard)
        stack.enter_context(_ended_together(started))
        first = _watch(started)
        if first is not None:
            raise Ended(_explain(first, started, heard))
    return True


def _start(arguments: Sequence[str], count: int, heard: Sequence[IO[bytes] | None]) -> list[subprocess.Popen[bytes]]:
    """Start a process for each number. The first prints to this screen, the others to files."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        address = f"127.0.0.1:{free.getsockname()[1]}"
    each = os.environ.get("FEDAX_DEVICES") or str(max(1, cores() // count))
    known = {**os.environ, "FEDAX_COORDINATOR": address, "FEDAX_PROCESSES": str(count), "FEDAX_DEVICES": each}
    return [
        subprocess.Popen(
            [sys.executable, "-m", "fedax", *arguments],
            env={**known, "FEDAX_PROCESS": str(number)},
            stdin=None if file is None else subprocess.DEVNULL,
            stdout=None if file is None else subprocess.DEVNULL,
            stderr=file,
        )
        for number, file in enumerate(heard)
    ]


@contextlib.contextmanager
def _ended_together(started: Sequence[subprocess.Popen[bytes]]) -> Iterator[None]:
    """Leave Ctrl-C to the processes, which all receive it; kill those that are left at the end."""
    before = signal.signal(signal.SIGINT, signal.SIG_IGN), signal.signal(signal.SIGTERM, _terminated)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before[0])
        signal.signal(signal.SIGTERM, before[1])
        for process in started:
            process.kill()
            process.wait()


def _terminated(number: int, frame: object) -> None:
    raise Ended(128 + number)


def _watch(started: Sequence[subprocess.Popen[bytes]]) -> int | None:
    """Wait until all have ended; the number of the first that failed. The others have a while to notice its end."""
    first, since = None, 0.0
    while any(process.poll() is None for process in started):
        failed = [number for number, process in enumerate(started) if process.returncode]
        if failed and first is None:
            first, since = failed[0], time.monotonic()
        if first is not None and time.monotonic() - since > PATIENCE:
            return first
        time.sleep(0.05)
    failed = [number for number, process in enumerate(started) if process.returncode]
    return first if first is not None else failed[0] if failed else None


def _explain(first: int, started: Sequence[subprocess.Popen[bytes]], heard: Sequence[IO[bytes] | None]) -> int:
    """Print why the first failed process failed, unless it has printed that itself; the exit code."""
    code, file = started[first].returncode or 0, heard[first]
    if code < 0 and (started[0].returncode or 0) > 0:  # the first has printed that another ended
        return FAILED
    if code < 0:
        name = signal.Signals(-code).name
        ended = f"process {first} of {len(started)} was ended by {name}, so the others were stopped"
        return fail(f"{ended}: `fedax resume` with as many processes goes on from the last checkpoint", FAILED)
    if file is not None:
        file.seek(0)
        said = [line for line in file.read().decode(errors="replace").splitlines() if line.startswith("error: ")]
        if said:
            print(said[-1], file=sys.stderr)
    return code
