"""How JAX is set up before its first use: one device a core, several processes, programs kept for the next launch.

Nothing happens at import. `configure` does it once a process; `simulate`, the command line and generators that draw
with JAX call it before they first use JAX.

XLA's own threads only help large matrix products; clients are independent, so giving each core its own
clients is about twice as fast for small models. The count can be set only before JAX's first use.

A run may be spread over several processes, on one machine or on many: each is started alike, with FEDAX_COORDINATOR,
the address and port of the first, FEDAX_PROCESSES, how many there are, and FEDAX_PROCESS, its own number from 0 on.
The tasks of one `srun` are found by JAX's own detection of Slurm. Clients are divided over the processes (see
`fedax.client.shares`), and process 0 alone writes files and prints. Process 0 decides everything that depends on the
clock or on the user (`agreed`).

Compiled programs are kept by JAX's persistent compilation cache, in the directory `programs` of FEDAX_CACHE or of the
user's own cache, which may be emptied at any time. Machine code is for one kind of processor and of accelerator, and
JAX's own key does not name the processor, so each kind has a directory of its own. Some versions of XLA take their own
programs for another machine's and print long warnings when they read one (github.com/jax-ml/jax, 38445): the first
launch with a directory reads a small program back, and leaves the cache off if that prints anything.
FEDAX_COMPILE_CACHE=1 turns the cache on anywhere, 0 turns it off; a directory set in JAX itself stays. JAX writes
entries in place: an entry that was cut short or damaged, or is being written by another process, cannot be read and is
compiled again without a warning; so are all if the directory cannot be written.
"""

from __future__ import annotations

import contextlib
import functools
import hashlib
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Iterator
from pathlib import Path

from fedax.errors import FedaxError, LostProcessError

MOST_DEVICES = 1024  # of a CPU: each has threads of its own
CPUINFO = Path("/proc/cpuinfo")
# the words of Gloo and of JAX's coordination service when they cannot reach a process
_GONE = re.compile(r"Gloo|NCCL|Connection (reset|closed|refused)|coordination service|DEADLINE_EXCEEDED|UNAVAILABLE")
log = logging.getLogger("fedax")


@functools.cache
def configure() -> None:
    """Set JAX up for runs, once: a device for each core, several processes, compiled programs kept on disk.

    Call it before JAX's first use where JAX code of your own comes before `fedax.simulate`; where JAX is in use
    already, it keeps the devices that it has, and a warning says so.

    >>> configure()
    """
    use_all_cores()
    join_processes()
    keep_programs()


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_all_cores() -> None:
    """Ask JAX for one CPU device a core, unless JAX is in use already or the user has set a number."""
    asked = os.environ.get("FEDAX_DEVICES", "")
    if asked and not (asked.isdecimal() and len(asked) < 9 and 1 <= int(asked) <= MOST_DEVICES):
        raise FedaxError(f"FEDAX_DEVICES must be a whole number from 1 to {MOST_DEVICES}, not {asked!r}")
    told = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if told or os.environ.get("JAX_NUM_CPU_DEVICES"):
        return
    import jax

    wanted = int(asked) if asked else cores()
    try:
        jax.config.update("jax_num_cpu_devices", wanted)
    except RuntimeError:  # JAX is in use: it keeps the devices it has
        if jax.default_backend() == "cpu" and (have := jax.local_device_count()) < wanted:
            log.warning(
                "JAX was in use before the run, with %d of %d devices: call fedax.configure() before JAX's first use "
                "to have one for each core",
                have,
                wanted,
            )


def join_processes() -> None:
    """Become one of several processes, if the environment says so; waits until all are there."""
    coordinator, processes, process = _asked()
    if not (coordinator or processes or process):
        if _slurm_tasks() > 1:
            import jax

            if not jax.distributed.is_initialized():
                jax.distributed.initialize()
        return
    if not re.fullmatch(r"[^:\s]+:\d+", coordinator):
        raise FedaxError(f"FEDAX_COORDINATOR must be host:port, such as 10.0.0.1:9000, not {coordinator!r}")
    if not processes.isdecimal() or int(processes) < 1:
        raise FedaxError(f"FEDAX_PROCESSES must be a whole number from 1 on, not {processes!r}")
    if not process.isdecimal() or int(process) >= int(processes):
        raise FedaxError(f"FEDAX_PROCESS must be a whole number in [0, {int(processes) - 1}], not {process!r}")
    import jax

    if not jax.distributed.is_initialized():
        host = coordinator.rpartition(":")[0]
        only_here = coordinator if host in ("127.0.0.1", "localhost") else None  # else it listens on all addresses
        jax.distributed.initialize(coordinator, int(processes), int(process), coordinator_bind_address=only_here)


def _asked() -> tuple[str, str, str]:
    """The coordinator, the number of processes and the number of this one, from the environment."""
    coordinator, processes, process = (
        os.environ.get(name, "") for name in ("FEDAX_COORDINATOR", "FEDAX_PROCESSES", "FEDAX_PROCESS")
    )
    return coordinator, processes, process


def _slurm_tasks() -> int:
    """The number of tasks of the `srun` that started this process."""
    tasks = os.environ.get("SLURM_STEP_NUM_TASKS", "")
    return int(tasks) if tasks.isdigit() and "SLURM_PROCID" in os.environ else 1


def is_main_process() -> bool:
    """Whether this process is the one that writes files and prints, of all processes of the run."""
    if "jax" in sys.modules:
        import jax

        if jax.distributed.is_initialized():
            return jax.process_index() == 0
    number = _asked()[2] or (os.environ["SLURM_PROCID"] if _slurm_tasks() > 1 and not any(_asked()) else "0")
    return number == "0"


def process_count() -> int:
    """The number of processes of the run that this process belongs to, or is about to join.

    >>> process_count()
    1
    """
    if "jax" in sys.modules:
        import jax

        if jax.distributed.is_initialized():
            return int(jax.process_count())
    asked = _asked()[1]
    return int(asked) if asked.isdigit() else 1 if any(_asked()) else _slurm_tasks()


@contextlib.contextmanager
def noticing_losses() -> Iterator[None]:
    """Within the block, a failure to reach another process of the run becomes one sentence."""
    try:
        yield
    except Exception as error:
        if process_count() > 1 and _GONE.search(str(error)) and not isinstance(error, FedaxError):
            raise LostProcessError(
                "another process of the run has ended, so this one stops: `fedax resume` with as many processes goes "
                "on from the last checkpoint"
            ) from error
        raise


@contextlib.contextmanager
def unheard() -> Iterator[None]:
    """Hide the output of libraries within the block: Gloo prints a line for every process that it meets."""
    sys.stdout.flush()
    before, nowhere = os.dup(1), os.open(os.devnull, os.O_WRONLY)
    os.dup2(nowhere, 1)
    try:
        yield
    finally:
        os.dup2(before, 1)
        os.close(before)
        os.close(nowhere)


def agreed(value: int) -> int:
    """The value of process 0, given to all processes; all must call this at the same place.

    >>> agreed(3)
    3
    """
    import jax

    if not jax.distributed.is_initialized() or jax.process_count() == 1:
        return value
    import numpy as np
    from jax.experimental.multihost_utils import broadcast_one_to_all

    return int(broadcast_one_to_all(np.int32(value)))


def keep_programs() -> None:
    """Let JAX keep compiled programs on disk, small ones too: an experiment has many of them."""
    asked = os.environ.get("FEDAX_COMPILE_CACHE", "")
    if asked not in ("", "0", "1"):
        raise FedaxError(f"FEDAX_COMPILE_CACHE must be 0 or 1, not {asked!r}")
    import jax
    from jaxlib.version import __version__ as jaxlib_version

    machine = _machine()
    if asked == "0" or getattr(jax.config, "jax_compilation_cache_dir", None) or not (asked or machine):
        return
    made_by = f"{jax.__version__} {jaxlib_version} {machine}{_accelerators()}"
    kind = hashlib.sha256(made_by.encode()).hexdigest()[:12]
    folder = user_cache() / "programs" / kind
    with contextlib.suppress(OSError):  # no place to keep them: they are compiled again
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # programs in it are executed: its owner alone may write
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")
        if asked or _silent(folder / "silent"):
            return
    jax.config.update("jax_compilation_cache_dir", None)


def _accelerators() -> str:
    """The kinds of devices that JAX computes on, if they are no CPUs."""
    import jax

    if jax.default_backend() == "cpu":
        return ""
    return " ".join(sorted({device.device_kind for device in jax.local_devices()}))


def _machine() -> str:
    """The processor's kind and its instructions; empty where the system does not say."""
    if not CPUINFO.is_file():
        return ""
    first = CPUINFO.read_text().split("\n\n")[0]
    kept = [line for line in first.splitlines() if re.match(r"(vendor_id|model|flags|Features|CPU (impl|part))", line)]
    return "\n".join(kept)


def _silent(noted: Path) -> bool:
    """Whether XLA reads a kept program without printing anything, as noted before or found out now."""
    if not noted.exists():
        noted.write_text("" if _said_on_reading() else "yes")
    return bool(noted.read_bytes())


def _said_on_reading() -> bytes:
    """The text on the error stream while a small program is written and read back."""
    import jax

    sys.stderr.flush()
    before = os.dup(2)
    with tempfile.TemporaryFile() as heard:
        os.dup2(heard.fileno(), 2)
        try:
            for _ in range(2):  # another function of the same program: the second is read

                def small(x: jax.Array) -> jax.Array:
                    return x * 2 + 1

                jax.jit(small).lower(1.0).compile()
        finally:
            os.dup2(before, 2)
            os.close(before)
        heard.seek(0)
        return heard.read()


def user_cache() -> Path:
    """The directory of downloads, compiled programs and other files that can be made again."""
    named = os.environ.get("FEDAX_CACHE")
    if named:
        return Path(named).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedax"
