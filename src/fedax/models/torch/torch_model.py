"""A PyTorch module as a model: parameters by their names in the state dict, buffers that change as state."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np

from fedax.errors import FedaxError
from fedax.models.inputs import as_float
from fedax.models.torch.exporting import export, rows_of
from fedax.models.torch.graph import INPUT, Graph, array_dtype
from fedax.models.torch.refusals import check_module
from fedax.models.torch.weights import first_names, reset, state_dict, weights_of, with_weights

Arrays = dict[str, Any]


class TorchModel:
    """A `torch.nn.Module` in JAX: what it computes, its gradients and its state are PyTorch's, up to rounding.

        net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.ReLU(), torch.nn.Linear(4, 2))
        model = TorchModel(net)
        params, state = model.init(jax.random.key(0), x)
        outputs, state = model.apply(params, state, x, key, True)
        net.load_state_dict(model.state_dict(params, state))

    The forward's input is one array, or a dictionary of arrays that are its keyword arguments; the first axis is the
    rows'. Bytes (uint8) are divided by 255, as in every model here; other whole numbers stay as they are. The forward
    must give one tensor, or an object with `.logits`.

    Parameters that need no gradient (`requires_grad=False`) are frozen, unless the problem's `trainable` says
    otherwise. Tied weights are one parameter, under the first of their names. Buffers that the forward changes in
    training, such as the statistics of batch normalisation, are the state; other buffers are constants. The module
    itself is only read, when the model is made.

    Args:
        net: the module, on the CPU.
        init: "module" starts from the module's own weights, whatever the seed; "reset" draws the weights that need a
            gradient for each seed by the layers' `reset_parameters`, and leaves PyTorch's own generator as it is.
    """

    def __init__(self, net: Any, *, init: Literal["module", "reset"] = "module") -> None:
        check_module(net)
        if init not in ("module", "reset"):
            raise FedaxError(f"init must be 'module' or 'reset', not {init!r}")
        self.net = net
        self._init = init
        weights, buffers = weights_of(net)
        self._weights = {name: a for name, a in weights.items() if jnp.issubdtype(a.dtype, jnp.floating)}
        self._constants = {**buffers, **{name: a for name, a in weights.items() if name not in self._weights}}
        self._names = first_names(net)
        self._graphs: dict[Any, Graph] = {}
        if not any(p.requires_grad for p in net.parameters()):
            raise FedaxError(f"{type(net).__name__} has no parameter that needs a gradient: nothing would be trained")

    def is_trained(self, path: str) -> bool:
        """Whether a parameter is trained where the problem's `trainable` does not say: whether it needs a gradient."""
        return bool(self.net.get_parameter(path).requires_grad)

    def init(self, key: jax.Array, x: Any) -> tuple[Arrays, Arrays]:
        """The first parameters and the first state; of x only the shape is looked at."""
        changed = self.graph(_with_rows(x, max(rows_of(x), 2)), train=True).changes
        weights, constants = self._weights, self._constants
        if self._init == "reset":
            drawn, constants = weights_of(reset(self.net, int(jax.random.bits(key))))
            weights = {name: drawn[name] if self.is_trained(name) else own for name, own in weights.items()}
        params = {name: _in_precision(array) for name, array in weights.items()}
        return params, {name: _in_precision(constants[self._names[name]]) for name in changed}

    def apply(self, params: Arrays, state: Any, x: Any, key: jax.Array | None, train: bool) -> tuple[Any, Any]:
        """The outputs, and the state after them, which changes in training alone; dropout draws from the key."""
        graph = self.graph(x, train)
        if isinstance(graph.shown, str):
            raise FedaxError(
                f"{type(self.net).__name__} gives {graph.shown}: the loss takes one tensor, so let its forward return "
                "that alone, or an object with .logits"
            )
        if not train and key is None and (step := graph.drawing) is not None:
            raise FedaxError(
                f"{step.layer} draws random numbers in evaluation too ({step.target}): let it draw in training alone, "
                "where self.training is true"
            )
        outputs, new = self._run(graph, params, state or {}, x, key)
        changed = train and state
        return outputs[graph.shown], {name: new.get(name, old) for name, old in state.items()} if changed else state

    def _run(
        self, graph: Graph, params: Arrays, state: Arrays, x: Any, key: jax.Array | None
    ) -> tuple[list[Any], dict[str, Any]]:
        """All outputs of the forward, and the changed buffers."""
        for name in self._weights:
            if name not in params:
                raise FedaxError(f"the parameters have no {name!r}: they are not those of {type(self.net).__name__}")
        constants = {name: _in_precision(array) for name, array in self._constants.items()}
        given = {**constants, **params, **state}
        given |= {name: given[first] for name, first in self._names.items()}
        return graph.run({**given, **_inputs(graph, x)}, key)

    def graph(self, x: Any, train: bool) -> Graph:
        """The forward on batches like x; made once for all numbers of rows where the module allows it."""
        rows, rest = rows_of(x), _signature(x)
        found = self._graphs.get((train, rest))
        if found is not None and found.batch is not None and found.batch[0] <= rows <= found.batch[1]:
            return found
        if (train, rest, rows) not in self._graphs:
            graph = export(self.net, _seen(x), train, open_rows=found is None and rows > 1)
            if graph.batch is not None or rows > 1:
                self._graphs[train, rest] = graph
            self._graphs[train, rest, rows] = graph
        return self._graphs[train, rest, rows]

    def state_dict(self, params: Arrays, state: Arrays | None = None) -> dict[str, Any]:
        """Parameters and state as the module's `load_state_dict` takes them, with all that was not trained."""
        return state_dict(self.net, {**params, **(state or {})})

    def restored(self, params: Arrays, state: Arrays) -> Any:
        """A copy of the module with other parameters and state."""
        return with_weights(self.net, {**params, **state})


def _in_precision(array: Any) -> jax.Array:
    """Numbers in JAX's precision; bytes and halves as they are."""
    return jnp.asarray(array, array_dtype(array.dtype.name))


def _seen(x: Any) -> Any:
    """An input as the module gets it, by shape and type."""
    return jax.tree.map(lambda a: jax.eval_shape(_number, jax.ShapeDtypeStruct(np.shape(a), a.dtype)), x)


def _number(a: Any) -> jax.Array:
    return as_float(a) if a.dtype == jnp.uint8 else _in_precision(a)


def _inputs(graph: Graph, x: Any) -> dict[str, jax.Array]:
    names = [source for _, source in graph.inputs if source.startswith(INPUT)]
    given = {INPUT + name: a for name, a in x.items()} if isinstance(x, Mapping) else dict.fromkeys(names[:1], x)
    return {name: _number(jnp.asarray(a)) for name, a in given.items()}


def _signature(x: Any) -> Any:
    leaves, tree = jax.tree.flatten(x)
    return tree, tuple((np.shape(a)[1:], np.dtype(a.dtype).name) for a in leaves), jnp.result_type(float).name


def _with_rows(x: Any, rows: int) -> Any:
    return jax.tree.map(lambda a: jax.ShapeDtypeStruct((rows, *np.shape(a)[1:]), a.dtype), x)
