"""From a PyTorch module to a `Graph`: torch.export, then PyTorch's decompositions into the operations of the table.

Two things that PyTorch's decompositions lose are put back. `detach`, and what is computed under `torch.no_grad`, are
marked before, for a gradient through them would be wrong without a word.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import io
import logging
import operator
import threading
import warnings
from collections.abc import Iterator, Mapping
from typing import Any

import jax
import numpy as np

from fedax.errors import FedaxError
from fedax.models.torch.graph import Graph, Ref, Step, array_dtype
from fedax.models.torch.refusals import installed, refused_export
from fedax.models.torch.registry import OPERATIONS
from fedax.models.torch.rewriting import pooled_first

log = logging.getLogger("fedax.models.torch")
ROWS = 3  # of the example that shows torch.export a batch whose number of rows is open
LEFT_OUT = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "generator", "requires_grad")
INPUT = "input:"  # before the names of inputs, which could be those of parameters too
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
                graph = _graph(net, _exported(net, _example(net, x, ROWS), open_rows=True), open_rows=True)
            except FedaxError:
                raise
            except Exception:
                graph = None  # the module wants a certain number of rows, or does not work: the next try tells
            if graph is not None and graph.batch is not None:
                return graph
        try:
            return _graph(net, _exported(net, _example(net, x, None), open_rows=False), open_rows=False)
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
    _mark_constants(program)
    table = _decompositions()
    return program.run_decompositions(table)


def _decompositions() -> Any:
    """PyTorch's decompositions, without those of the operations that are in the table."""
    torch = installed()
    found = torch.export.default_decompositions()
    for target in list(found):
        if str(target) in OPERATIONS:
            del found[target]
    return found


def _mark_constants(program: Any) -> None:
    """Put `stop_gradient` after `detach`, and after what is computed under `torch.no_grad`."""
    torch = installed()
    modules = [module for module in program.graph_module.modules() if isinstance(module, torch.fx.GraphModule)]
    for module in modules:
        for node in list(module.graph.nodes):
            if str(node.target) == "aten.detach.default" and not _is_written_to(node):
                node.target = _stop_gradient()
            elif str(node.target) == "wrap_with_set_grad_enabled" and node.args[0] is False:
                for part in [user for user in node.users if user.target is operator.getitem]:
                    with module.graph.inserting_after(part):
                        marked = module.graph.call_function(_stop_gradient(), (part,))
                    marked.meta = dict(part.meta)
                    part.replace_all_uses_with(marked, delete_user_cb=lambda user, own=marked: user is not own)
        module.recompile()


def _is_written_to(node: Any) -> bool:
    """Whether the forward changes a detached tensor in place, and so the one that it was detached from."""
    users = [user.target for user in node.users if user.args and user.args[0] is node]
    return any(getattr(target, "_schema", None) is not None and target._schema.is_mutable for target in users)


@functools.cache
def _stop_gradient() -> Any:
    """An operation of our own that PyTorch's decompositions leave as it is."""
    torch = installed()

    def forward(x: Any) -> Any:
        return x.clone()

    forward.__annotations__ = {"x": torch.Tensor, "return": torch.Tensor}
    made = torch.library.custom_op("fedax::stop_gradient", forward, mutates_args=())
    made.register_fake(torch.empty_like)
    return torch.ops.fedax.stop_gradient.default


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
    """The module in training or evaluation mode, and as it was afterwards."""
    torch = installed()
    before = {module: module.training for module in net.modules()}
    configs = [c for m in net.modules() if (c := getattr(m, "config", None)) is not None and _caches(c)]
    fast = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)  # one operation for a whole encoder layer
    try:
        net.train(train)
        for config in configs:
            config.use_cache = False  # torch.export does not know its type
        with _own_gradients_refused(net), torch.enable_grad():  # so that `no_grad` within the forward is seen
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
def _own_gradients_refused(net: Any) -> Iterator[None]:
    """Refuse a forward with an autograd.Function of one's own: torch.export would lose its backward."""

    def refusal(name: str) -> Any:
        def forward(*args: Any, **kwargs: Any) -> Any:
            raise FedaxError(
                f"the forward of {type(net).__name__} calls {name}, an autograd.Function, whose backward torch.export "
                "leaves out: write it with operations that have the gradient you want, and .detach()"
            )

        return staticmethod(forward)

    waiting, own = [installed().autograd.Function], {}
    while waiting:
        cls = waiting.pop()
        waiting += cls.__subclasses__()
        if "forward" in vars(cls) and cls.__module__.partition(".")[0] != "torch":
            own[cls] = vars(cls)["forward"]
    try:
        for cls in own:
            cls.forward = refusal(cls.__name__)
        yield
    finally:
        for cls, forward in own.items():
            cls.forward = forward


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


def _graph(net: Any, program: Any, open_rows: bool) -> Graph:
    """A program of torch.export as a `Graph`, or a sentence about the first operation that is not in the table."""
    inputs, constants = _inputs(program)
    steps, outputs = [], ()
    for node in program.graph.nodes:
        if node.op == "call_function":
            steps.append(_step(net, node))
        elif node.op == "output":
            outputs = node.args[0]
        elif node.op != "placeholder":
            raise FedaxError(f"{type(net).__name__} branches with torch.cond or the like: write it with torch.where")
    shown, changes = [], {}
    for spec, node in zip(program.graph_signature.output_specs, outputs, strict=True):
        kind = spec.kind.name
        if kind == "USER_OUTPUT":
            shown.append(_argument(node))
        elif kind == "BUFFER_MUTATION":
            changes[spec.target] = Ref(node.name)
        elif kind != "TOKEN":
            raise FedaxError(
                f"the forward of {type(net).__name__} changes {spec.target} in place: leave it to the training"
            )
    batch = _open_rows(program) if open_rows else None
    ordered = pooled_first(steps, [shown, changes])
    return Graph(inputs, constants, ordered, tuple(shown), changes, _shown(program, len(shown)), batch)


def _inputs(program: Any) -> tuple[tuple[tuple[str, str], ...], dict[str, np.ndarray]]:
    inputs, constants = [], {}
    for spec in program.graph_signature.input_specs:
        kind, name = spec.kind.name, spec.arg.name
        if kind == "USER_INPUT":
            inputs.append((name, INPUT + name))
        elif kind in ("PARAMETER", "BUFFER"):
            inputs.append((name, spec.target))
        elif kind == "CONSTANT_TENSOR":
            constants[name] = program.constants[spec.target].detach().numpy()
        elif kind == "TOKEN":
            constants[name] = np.zeros(0)
    return tuple(inputs), constants


def _step(net: Any, node: Any) -> Step:
    target, layer = target_name(node.target), _layer(net, node)
    value = node.meta.get("val")
    if target not in OPERATIONS:
        raise FedaxError(
            f"{layer} needs {target}, which is not among Fedax's operations: add it with @fedax.models.torch.operation("
            f"{target!r}) on a function of JAX arrays, or write the layer without it"
        )
    if _depends_on_data(value):
        raise FedaxError(
            f"the shape of {target} in {layer} depends on the data: use torch.where in place of chosen entries"
        )
    kwargs = {key: _argument(value) for key, value in node.kwargs.items() if key not in LEFT_OUT}
    dtype = str(value.dtype).removeprefix("torch.") if hasattr(value, "dtype") and hasattr(value, "shape") else None
    return Step(node.name, target, _argument(node.args), kwargs, dtype, layer)


def target_name(target: Any) -> str:
    """The name of an operation in the table.

    >>> target_name(operator.mul)
    'operator.mul'
    """
    module = getattr(target, "__module__", "")
    if module in ("_operator", "math", "torch"):
        return f"{module.removeprefix('_')}.{target.__name__}"
    return str(target)


def _argument(argument: Any) -> Any:
    """A node's argument with names in place of nodes, and JAX's types in place of PyTorch's."""
    torch = installed()
    if isinstance(argument, torch.fx.Node):
        return Ref(argument.name)
    if isinstance(argument, Mapping):
        return {key: _argument(value) for key, value in argument.items()}
    if isinstance(argument, list | tuple):
        return [_argument(a) for a in argument] if isinstance(argument, list) else tuple(map(_argument, argument))
    if isinstance(argument, torch.dtype):
        return array_dtype(str(argument).removeprefix("torch."))
    return argument


def _layer(net: Any, node: Any) -> str:
    """Where in the module a node is, such as "features.0 (Conv2d)"."""
    stack = list((node.meta.get("nn_module_stack") or {}).values())
    path, kind = stack[-1] if stack and not str(stack[-1][0]).startswith("_empty") else ("", type(net))
    name = kind.rsplit(".", 1)[-1] if isinstance(kind, str) else kind.__name__
    return f"{path} ({name})" if path else name


def _depends_on_data(value: Any) -> bool:
    from torch.fx.experimental.symbolic_shapes import free_unbacked_symbols

    return hasattr(value, "shape") and bool(free_unbacked_symbols(value))


def _open_rows(program: Any) -> tuple[int, float] | None:
    """The numbers of rows that a program serves, or None if it serves that of its example alone."""
    inputs = {spec.arg.name for spec in program.graph_signature.input_specs if spec.kind.name == "USER_INPUT"}
    values = [node.meta["val"] for node in program.graph.nodes if node.op == "placeholder" and node.name in inputs]
    if any(isinstance(value.shape[0], int) for value in values):
        return None
    ranges = [program.range_constraints[value.shape[0].node.expr] for value in values]
    highs = [float(r.upper) if r.upper.is_number and r.upper.is_finite else float("inf") for r in ranges]
    return max(2, *(int(r.lower) for r in ranges)), min(highs)


def _shown(program: Any, outputs: int) -> int | str:
    """Which of the outputs the loss sees: the only one, or `.logits`; or a description of what there is."""
    torch = installed()
    tree = torch.utils._pytree.tree_unflatten(list(range(outputs)), program.call_spec.out_spec)
    logits = tree.get("logits") if isinstance(tree, Mapping) else getattr(tree, "logits", None)
    for found in (tree, logits):
        if isinstance(found, int):
            return found
    if isinstance(tree, Mapping):
        return f"a dictionary of {', '.join(map(str, tree))}"
    return f"a {type(tree).__name__} of {outputs} tensors"
