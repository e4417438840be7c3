"""Problems that many tests share."""

from __future__ import annotations

import gc
import os
import shutil
import tempfile
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("FEDAX_OFFLINE", "1")  # no test downloads anything, unless it brings its own server
# Compiled programs are kept from one run of the tests to the next, for both workers and for the processes that tests
# start: `make clean`, or removing the directory, forgets them. Everything else that Fedax keeps ends with the tests.
KEPT = tempfile.TemporaryDirectory(prefix="fedax-tests-")
PROGRAMS = Path(__file__).parent.parent / ".pytest_cache" / "programs"
MOST_KEPT = 2**30  # bytes
if "PYTEST_XDIST_WORKER" not in os.environ and sum(f.stat().st_size for f in PROGRAMS.rglob("*-cache")) > MOST_KEPT:
    shutil.rmtree(PROGRAMS, ignore_errors=True)
PROGRAMS.mkdir(parents=True, exist_ok=True)
os.symlink(PROGRAMS, os.path.join(KEPT.name, "programs"))
os.environ.setdefault("FEDAX_COMPILE_CACHE", "1")
os.environ["FEDAX_CACHE"] = KEPT.name
os.environ["JAX_PERSISTENT_CACHE_ENABLE_XLA_CACHES"] = "none"  # those of GPUs bring the directory's name into each key
# Tests compile much and compute little: code that is not optimised is made in half the time, by XLA's older emitters in
# about a third of that, and a tenth faster in one piece instead of one for each of several threads. The demo's test and
# the benchmarks run what users do; FEDAX_OPTIMISED=1 lets all.
QUICK = ""
if os.environ.get("FEDAX_OPTIMISED", "0") == "0":
    QUICK = " --xla_backend_optimization_level=0 --xla_llvm_disable_expensive_passes=true"
    QUICK += " --xla_cpu_parallel_codegen_split_count=1"
    if version("jaxlib").startswith("0.10."):  # later ones have the newer emitters alone
        QUICK += " --xla_cpu_use_fusion_emitters=false"
os.environ["XLA_FLAGS"] = os.environ.get("XLA_FLAGS", "").removesuffix(QUICK) + QUICK

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedax
from fedax.testing.problems import QUADRATIC, quadratic_loss, quadratics

fedax.configure()

__all__ = ["QUADRATIC", "quadratic_loss", "quadratics"]

try:
    import flwr  # noqa: F401
except ImportError:
    collect_ignore = ["flower_federation.py", "flower_grid.py"]


def pytest_addoption(parser):
    parser.addoption("--fast", action="store_true", help="leave out what tests/slow_tests.txt lists")


def pytest_collection_modifyitems(config, items):
    """With --fast, the tests that take long are not run; `list_slow.py` lists them."""
    if config.getoption("fast"):
        slow = set((Path(__file__).parent / "slow_tests.txt").read_text().split())
        left_out = [item for item in items if item.nodeid.partition("[")[0] in slow]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item.nodeid.partition("[")[0] not in slow]


def pytest_collection_finish():
    """What is imported stays, so the garbage collector need not look through it while programs are traced."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(5_000, 20, 20)


TESTS = Path(__file__).parent
MAPPED = Path("/proc/self/maps")


def pytest_runtest_teardown(item, nextitem):
    """Compiled programs go with the file that they were for: a process may map a limited number of pieces of memory.

    Examples in docstrings make few: a file's stay for those that follow.
    """
    other = nextitem is None or (nextitem.path != item.path and item.path.is_relative_to(TESTS))
    if other or (MAPPED.exists() and MAPPED.read_bytes().count(b"\n") > 20_000):
        jax.clear_caches()


#: one output, squared loss, no bias: least squares
LEAST_SQUARES = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] @ w - b["y"]) ** 2) / 2, init=lambda key: jnp.zeros(6))


def regression(seed=0, sizes=(12, 30, 21, 9, 17, 25), dimension=6):
    """Least squares with clients of unequal size and different truths."""
    rng = np.random.default_rng(seed)
    clients = []
    for n in sizes:
        x = rng.normal(size=(n, dimension))
        clients.append({"x": x, "y": x @ rng.normal(size=dimension) + 0.1 * rng.normal(size=n)})
    return fedax.Federation.from_clients(clients)


@pytest.fixture
def x64():
    """Double precision for one test."""
    with jax.enable_x64(True):
        yield


@pytest.fixture(scope="session")
def digits():
    return fedax.data.load("digits", partition=fedax.data.ByLabel(10, 2), seed=0)


def vector(tree):
    """All parameters as one NumPy vector."""
    return np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)])
