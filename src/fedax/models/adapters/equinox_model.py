"""An Equinox module as a model: its floating-point arrays are trained; its call on one row is mapped over rows."""

from __future__ import annotations

import inspect
from typing import Any

import jax

from fedax.errors import FedaxError
from fedax.models.adapters.named_values import Values, matching, numbers
from fedax.models.switches import mode


class EquinoxModel:
    """An `equinox.Module`, or the pair (module, state) of `equinox.nn.make_with_state`, with `init` and `apply`.

    The module's call takes one row, as Equinox's layers do: it is mapped over the rows of a batch, under the axis name
    of its BatchNorm if it has one. Where the call takes `key`, each row gets its own; where it takes `state`, it
    returns (outputs, state). `equinox.nn.inference_mode` sets the mode. Fields that are no floating-point arrays are
    constants.
    """

    def __init__(self, given: Any) -> None:
        import equinox as eqx

        self.net, self._pair = (given[0], True) if isinstance(given, tuple) else (given, False)
        self.name = type(self.net).__name__
        trained, self._static = eqx.partition(self.net, eqx.is_inexact_array)
        self._params, self._params_tree = _named(trained)
        if not self._params:
            raise FedaxError(f"{self.name} has no array of floating-point numbers: nothing would be trained")
        taken = inspect.signature(type(self.net).__call__).parameters
        self._takes = {name for name in ("key", "state") if name in taken}
        self._state, self._state_tree = _named(given[1] if self._pair else self._own_state())
        self._axis = _axis_name(self.net)

    def _own_state(self) -> Any:
        if "state" not in self._takes:
            return ()
        import equinox as eqx

        try:
            return eqx.nn.State(self.net)
        except ValueError as error:
            raise FedaxError(f"the call of {self.name} takes a state: give the pair (module, state)") from error

    def init(self, key: jax.Array, x: Any) -> tuple[Values, Values]:
        """The module's own parameters and state."""
        del key, x  # the module has drawn its weights already
        return dict(self._params), dict(self._state)

    def apply(self, params: Values, state: Any, x: Any, key: jax.Array | None, train: bool) -> tuple[Any, Any]:
        """The outputs of all rows, and the state after them, which changes in training alone."""
        import equinox as eqx

        net = eqx.nn.inference_mode(self._module(params), value=not train)
        x, switches = numbers(x), mode(type(self.net).__call__, train)
        own = "key" in self._takes and key is not None
        keys = jax.random.split(key, jax.tree.leaves(x)[0].shape[0]) if own and key is not None else None

        def row(x: Any, key: Any, state: Any) -> tuple[Any, Any]:
            options = {**switches, **({"key": key} if own else {})}
            return net(x, state=state, **options) if "state" in self._takes else (net(x, **options), state)

        before = self._as_state(state or {})
        mapped = jax.vmap(row, (0, 0 if own else None, None), (0, None), axis_name=self._axis)
        outputs, after = mapped(x, keys, before)
        return outputs, _named(after)[0] if train and state else state

    def restored(self, params: Values, state: Values) -> Any:
        """A copy of the module with other parameters, or of the pair with another state too."""
        net = self._module(matching(self.name, self._params, params))
        return (net, self._as_state(matching(self.name, self._state, state))) if self._pair else net

    def _module(self, params: Values) -> Any:
        import equinox as eqx

        trained = jax.tree.unflatten(self._params_tree, [params[name] for name in self._params])
        return eqx.combine(trained, self._static)

    def _as_state(self, state: Values) -> Any:
        return jax.tree.unflatten(self._state_tree, [state[name] for name in self._state])


def _named(tree: Any) -> tuple[Values, Any]:
    """The arrays of a tree by name, in the tree's order, and the tree's structure."""
    leaves, structure = jax.tree_util.tree_flatten_with_path(tree)
    names = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in leaves]
    return {name: leaf for name, (_, leaf) in zip(names, leaves, strict=True)}, structure


def _axis_name(net: Any) -> str | None:
    """The axis over which the module's BatchNorms take their means."""
    import equinox as eqx

    layers = jax.tree.leaves(net, is_leaf=lambda part: isinstance(part, eqx.nn.BatchNorm))
    found = [layer for layer in layers if isinstance(layer, eqx.nn.BatchNorm)]
    if any(layer.mode == "ema" for layer in found):
        # Its flag of the first batch is set to a constant, which Equinox refuses within shard_map.
        raise FedaxError(f"BatchNorm in {type(net).__name__} has mode='ema': take BatchNorm(..., mode='batch')")
    return found[0].axis_name if found else None
