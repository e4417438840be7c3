"""From a PyTorch module to a `Graph`: torch.export, then PyTorch's decompositions into the operations of the table."""

from __future__ import annotations

import contextlib
import inspect
import io
import logging
import threading
import warnings
from collections.abc import Iterator
from typing import Any

import jax
import numpy as np

from fedax.errors import FedaxError
from fedax.models.torch.graph import Graph
from fedax.models.torch.refusals import installed, refused_export
from fedax.models.torch.registry import OPERATIONS
from fedax.models.torch.stopped_gradients import inference_without_gradients, mark_constants, own_gradients_refused
from fedax.models.torch.translating import graph_of

log = logging.getLogger("fedax.models.torch")
ROWS = 3  # rows of the example from which torch.export makes a program for any number of rows
_LOCK = threading.RLock()  # torch.export changes global state while it runs


def export(net: Any, x: Any, train: bool, open_rows: bool = True) -> Graph:
    """The forward of a module on inputs of this shape, in training or evaluation mode.

    x: an array, or a dictionary of arrays that are the forward's keyword arguments; only shapes and types matter.
    open_rows: whether to leave the number of rows open where the module allows it, for all batches from two rows.
    """
    log.info("%s is exported from PyTorch, in %s", type(net).__name__, "training" if train else "evaluation")
    with _LOCK, _quiet(), _mode(net, train):
        if open_rows:
            try:
                graph = graph_of(net, _exported(net, _example(net, x, ROWS), open_rows=True), open_rows=True)
            except FedaxError:
                raise
            except Exception:
                graph = None  # it needs a fixed number of rows, or fails anyway: the next try shows which
            if graph is not None and graph.batch is not None:
                return graph
        try:
            return graph_of(net, _exported(net, _example(net, x, None), open_rows=False), open_rows=False)
        except FedaxError:
            raise
        except Exception as error:
            raise refused_export(net, x, train, error) from error


def rows_of(x: Any) -> int:
    """The number of rows of a batch.

    >>> rows_of({"tokens": np.zeros((4, 7)), "mask": np.zeros((4, 7))})
    4
    """
    sizes = {np.shape(a)[0] if np.ndim(a) else None for a in jax.tree.leaves(x)}
    if len(sizes) != 1 or None in sizes:
        raise FedaxError(f"a PyTorch module's inputs need the same number of rows each, not {sizes}")
    return int(sizes.pop())  # type: ignore[arg-type]


def _exported(net: Any, example: Any, open_rows: bool) -> Any:
    torch = installed()
    args, kwargs = ((), example) if isinstance(example, dict) else ((example,), {})
    shapes: Any = None
    if open_rows:
        given = inspect.signature(net.forward).bind(*args, **kwargs).arguments
        shapes = torch.utils._pytree.tree_map(lambda tensor: {0: torch.export.Dim.AUTO}, dict(given))
    program = torch.export.export(net, args, kwargs, dynamic_shapes=shapes, strict=False)
    mark_constants(program)
    table = _decompositions()
    return program.run_decompositions(table)


def _decompositions() -> Any:
    """PyTorch's decompositions, without those of the operations that are in the table."""
    torch = installed()
    found = torch.export.default_decompositions()
    found.update(torch._decomp.get_decompositions([torch.ops.aten.grid_sampler_2d]))
    for target in list(found):
        if str(target) in OPERATIONS:
            del found[target]
    return found


def _example(net: Any, x: Any, rows: int | None) -> Any:
    """Tensors of zeros in the shape of a batch, or of `rows` rows of it; numbers have the type of the parameters."""
    torch = installed()
    own = next((p.dtype for p in net.parameters() if p.is_floating_point()), torch.get_default_dtype())

    def one(a: Any) -> Any:
        shape, kind = np.shape(a) if rows is None else (rows, *np.shape(a)[1:]), jax.dtypes.canonicalize_dtype(a.dtype)
        whole = torch.bool if kind == np.bool_ else torch.int64
        return torch.zeros(shape, dtype=own if jax.numpy.issubdtype(kind, np.inexact) else whole)

    return jax.tree.map(one, x)


@contextlib.contextmanager
def _mode(net: Any, train: bool) -> Iterator[None]:
    """The module in training or evaluation mode within the block; its mode is restored after it."""
    torch = installed()
    before = {module: module.training for module in net.modules()}
    configs = [c for m in net.modules() if (c := getattr(m, "config", None)) is not None and _caches(c)]
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # one operation for a whole encoder layer
    try:
        net.train(train)
        for config in configs:
            config.use_cache = False  # torch.export does not know its type
        with own_gradients_refused(net), inference_without_gradients(), torch.enable_grad():  # `no_grad` is seen
            yield
    finally:
        torch.backends.mha.set_fastpath_enabled(fast)
        for config in configs:
            config.use_cache = True
        for module, mode in before.items():
            module.training = mode


def _caches(config: Any) -> bool:
    """Whether a Hugging Face model keeps what it computed for the tokens so far, to generate the next."""
    return getattr(config, "use_cache", None) is True


@contextlib.contextmanager
def _quiet() -> Iterator[None]:
    """Without torch.export's warnings and pages of logs: an error is one sentence of ours."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        with warnings.catch_warnings(), contextlib.redirect_stderr(io.StringIO()):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
