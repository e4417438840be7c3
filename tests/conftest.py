"""Problems that many tests share."""

from __future__ import annotations

import os
import tempfile
from importlib.metadata import version
from pathlib import Path

os.environ.setdefault("FEDAX_OFFLINE", "1")  # no test downloads anything, unless it brings its own server
# Programs are kept while the tests run. Each worker has its own, and the processes that tests start and kill have
# others: nobody meets a half-written program.
KEPT = tempfile.TemporaryDirectory(prefix="fedax-tests-")
os.environ.setdefault("FEDAX_COMPILE_CACHE", "1")
os.environ["FEDAX_CACHE"] = os.path.join(KEPT.name, "here")
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
os.environ["FEDAX_CACHE"] = os.path.join(KEPT.name, "elsewhere")

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


MAPPED = Path("/proc/self/maps")


def pytest_runtest_teardown(item, nextitem):
    """Compiled programs go with the file that they were for: a process may map a limited number of pieces of memory."""
    other = nextitem is None or nextitem.path != item.path
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
