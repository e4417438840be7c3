"""A Flax NNX module as a model: `Param`s are trained, other variables are state, random streams follow the key."""

from __future__ import annotations

from typing import Any

import jax
from flax import nnx

from fedax.errors import FedaxError
from fedax.models.adapters.named_values import Values, changing, dotted, drawn_in_evaluation, matching, numbers
from fedax.models.switches import mode


class NNXModel:
    """An `nnx.Module` with `init` and `apply`.

    Every `nnx.Param` is trained. A variable of another kind is state if training changes it, such as BatchNorm's
    `BatchStat`s, and a constant if not. `train()` and `eval()` set the mode, and so do `train`, `deterministic` and
    the like among the arguments of the call. In training each random stream starts from a key of its own that follows
    from the run's. The module itself is only read.

    >>> import jax.numpy as jnp
    >>> params, state = NNXModel(nnx.Linear(3, 2, rngs=nnx.Rngs(0))).init(jax.random.key(0), jnp.ones((4, 3)))
    >>> sorted(params), state
    (['bias', 'kernel'], {})
    """

    def __init__(self, net: Any) -> None:
        self.net = net
        self.name = type(net).__name__
        self._parts = {train: _in_mode(net, train) for train in (True, False)}
        _, params, _, others = self._parts[True]
        self._params, self._others = _values(params), _values(others)
        if not self._params:
            raise FedaxError(f"{self.name} has no nnx.Param: nothing would be trained")

    def init(self, key: jax.Array, x: Any) -> tuple[Values, Values]:
        """The module's own parameters, and the variables that training changes."""
        del key  # the module has drawn its weights already
        changed = changing(lambda v: self._call(self._params, v, x, jax.random.key(0), True)[1], self._others)
        return dict(self._params), {name: value for name, value in self._others.items() if name in changed}

    def apply(self, params: Values, state: Any, x: Any, key: jax.Array | None, train: bool) -> tuple[Any, Any]:
        """The outputs, and the state after them, which changes in training alone."""
        outputs, others = self._call(params, {**self._others, **(state or {})}, x, key, train)
        return outputs, {name: others[name] for name in state} if train and state else state

    def restored(self, params: Values, state: Values) -> Any:
        """A copy of the module with other parameters and state."""
        made = nnx.clone(self.net)
        values = matching(self.name, {**self._params, **self._others}, {**params, **state})
        for path, variable in nnx.to_flat_state(nnx.state(made)):
            if (name := dotted(path)) in values:
                variable.set_value(values[name])
                nnx.update(made, nnx.from_flat_state([(path, variable)]))
        return made

    def _call(self, params: Values, others: Values, x: Any, key: jax.Array | None, train: bool) -> tuple[Any, Values]:
        graph, own_params, streams, own_others = self._parts[train]
        streams = streams if key is None else _reseeded(streams, key)
        # Variables of this trace: NNX refuses to change those of another.
        made = nnx.merge(
            graph, _filled(own_params, params), _filled(streams, _values(streams)), _filled(own_others, others)
        )
        outputs = made(numbers(x), **mode(type(self.net).__call__, train))
        _, _, after, changed = _split(made)
        if key is None and any(
            new.get_value() is not old.get_value()
            for (_, new), (_, old) in zip(nnx.to_flat_state(after), nnx.to_flat_state(streams), strict=True)
        ):
            raise drawn_in_evaluation(self.name)
        return outputs, {name: value for name, value in _values(changed).items() if name in others}


def _in_mode(net: Any, train: bool) -> tuple[Any, Any, Any, Any]:
    made = nnx.clone(net)
    made.train() if train else made.eval()
    return _split(made)


def _split(net: Any) -> tuple[Any, Any, Any, Any]:
    """The module's graph, its parameters, its random streams and its other variables."""
    parts: Any = nnx.split(net, nnx.Param, nnx.RngState, ...)
    graph, params, streams, others = parts
    return graph, params, streams, others


def _values(state: Any) -> Values:
    return {dotted(path): variable.get_value() for path, variable in nnx.to_flat_state(state)}


def _filled(state: Any, values: Values) -> Any:
    return nnx.from_flat_state([(p, v.replace(values[dotted(p)])) for p, v in nnx.to_flat_state(state)])


def _reseeded(streams: Any, key: jax.Array) -> Any:
    """Random streams from the beginning, each with a key of its own."""
    made = []
    for i, (path, variable) in enumerate(nnx.to_flat_state(streams)):
        old = variable.get_value()
        if isinstance(variable, nnx.RngKey):
            own = jax.random.fold_in(key, i)
            made.append((path, variable.replace(jax.random.split(own, old.shape) if old.shape else own)))
        else:
            made.append((path, variable.replace(jax.numpy.zeros_like(old))))
    return nnx.from_flat_state(made)
