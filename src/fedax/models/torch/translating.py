"""From a program of torch.export to a `Graph`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedax.errors import FedaxError
from fedax.models.torch.graph import INPUT, Graph, Ref, Step, array_dtype
from fedax.models.torch.refusals import installed
from fedax.models.torch.registry import OPERATIONS
from fedax.models.torch.rewriting import pooled_first

LEFT_OUT = ("device", "layout", "pin_memory", "memory_format", "non_blocking", "generator", "requires_grad")


def graph_of(net: Any, program: Any, open_rows: bool) -> Graph:
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
    if _depends_on_data(value):
        raise FedaxError(
            f"the shape of {target} in {layer} depends on the data: use torch.where in place of chosen entries"
        )
    if target not in OPERATIONS:
        raise FedaxError(
            f"{layer} needs {target}, which is not among Fedax's operations: add it with @fedax.models.torch.operation("
            f"{target!r}) on a function of JAX arrays, or write the layer without it"
        )
    kwargs = {key: _argument(value) for key, value in node.kwargs.items() if key not in LEFT_OUT}
    dtype = str(value.dtype).removeprefix("torch.") if hasattr(value, "dtype") and hasattr(value, "shape") else None
    return Step(node.name, target, _argument(node.args), kwargs, dtype, layer)


def target_name(target: Any) -> str:
    """The name of an operation in the table.

    >>> import operator
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

    return any(
        hasattr(one, "shape") and free_unbacked_symbols(one) for one in installed().utils._pytree.tree_leaves(value)
    )


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
    """Which of the outputs the loss sees: the only one, or `.logits`; otherwise a description of the outputs."""
    torch = installed()
    tree = torch.utils._pytree.tree_unflatten(list(range(outputs)), program.call_spec.out_spec)
    logits = tree.get("logits") if isinstance(tree, Mapping) else getattr(tree, "logits", None)
    for found in (tree, logits):
        if isinstance(found, int):
            return found
    if isinstance(tree, Mapping):
        return f"a dictionary of {', '.join(map(str, tree))}"
    return f"a {type(tree).__name__} of {outputs} tensors"
