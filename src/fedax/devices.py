"""How JAX is set up before its first use: one device for each core, and compiled programs kept for the next launch.

XLA's own threads only help large matrix products; clients are independent, so giving each core its own
clients is about twice as fast for small models. The count can be set only before JAX's first use.

Compiled programs are kept by JAX's persistent compilation cache, in the directory `programs` of FEDAX_CACHE or of the
user's own cache, which may be emptied at any time. Machine code is for one kind of processor, and JAX's own key does
not name it, so each kind has a directory of its own. The cache is on where it is known to be silent: on Linux, but not
on Intel's processors with AVX-512, where XLA takes its own programs for another machine's and says so at length
(github.com/jax-ml/jax, 38445). FEDAX_COMPILE_CACHE=1 turns it on anywhere, 0 off; whoever has set JAX's own directory
keeps that. JAX writes entries in place: one that was cut short, or is being written by another process, cannot be read
and is compiled anew, without a word.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import warnings
from pathlib import Path

import jax
from jaxlib.version import __version__ as jaxlib_version

from fedax.errors import FedaxError

CPUINFO = Path("/proc/cpuinfo")


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def use_all_cores() -> None:
    """Ask JAX for one CPU device a core, unless it is in use already or was told a number."""
    asked = os.environ.get("FEDAX_DEVICES", "")
    if asked and (not asked.isdigit() or int(asked) < 1):
        raise FedaxError(f"FEDAX_DEVICES must be a whole number from 1 on, not {asked!r}")
    told = "xla_force_host_platform_device_count" in os.environ.get("XLA_FLAGS", "")
    if told or os.environ.get("JAX_NUM_CPU_DEVICES"):
        return
    with contextlib.suppress(RuntimeError):  # JAX is in use: it keeps the devices it has
        jax.config.update("jax_num_cpu_devices", int(asked) if asked else cores())


def keep_programs() -> None:
    """Let JAX keep compiled programs on disk, small ones too: an experiment has many of them."""
    asked = os.environ.get("FEDAX_COMPILE_CACHE", "")
    if asked not in ("", "0", "1"):
        raise FedaxError(f"FEDAX_COMPILE_CACHE must be 0 or 1, not {asked!r}")
    machine = _machine()
    if asked == "0" or getattr(jax.config, "jax_compilation_cache_dir", None) or not (asked or _silent(machine)):
        return
    kind = hashlib.sha256(f"{jax.__version__} {jaxlib_version} {machine}".encode()).hexdigest()[:12]
    folder = _user_cache() / "programs" / kind
    with contextlib.suppress(OSError):  # no place to keep them: they are compiled anew
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)  # what is in there is run
        jax.config.update("jax_compilation_cache_dir", str(folder))
        jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
        jax.config.update("jax_persistent_cache_min_entry_size_bytes", -1)
        warnings.filterwarnings("ignore", "Error (reading|writing) persistent compilation cache entry")


def _machine() -> str:
    """The processor's kind and its instructions; empty where the system does not say."""
    if not CPUINFO.is_file():
        return ""
    first = CPUINFO.read_text().split("\n\n")[0]
    kept = [line for line in first.splitlines() if re.match(r"(vendor_id|model|flags|Features|CPU (impl|part))", line)]
    return "\n".join(kept)


def _silent(machine: str) -> bool:
    return bool(machine) and not ("GenuineIntel" in machine and "avx512" in machine)


def _user_cache() -> Path:
    """Where downloads are kept as well (`fedax.data.fetching`)."""
    named = os.environ.get("FEDAX_CACHE")
    if named:
        return Path(named).absolute()
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedax"
