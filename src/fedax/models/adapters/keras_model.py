"""A Keras model on the JAX backend: trainable variables are trained, others are state or constants."""

from __future__ import annotations

from typing import Any

import jax

from fedax.errors import FedaxError
from fedax.models.adapters.named_values import Values, changing, drawn_in_evaluation, matching, numbers

SEED = "seed_generator_state"  # the last part of the names of Keras's random streams


class KerasModel:
    """A `keras.Model` or `keras.Layer` of Keras 3 with `init` and `apply`, by its `stateless_call`.

    Trainable variables are trained. Of the others, those that training changes, such as BatchNormalization's means, are
    state, and the rest are constants. In training each random stream is drawn from the run's key. Names are the paths
    of Keras's variables with dots. The model itself is only read.
    """

    def __init__(self, net: Any) -> None:
        import keras

        self.net = net
        self.name = type(net).__name__
        if (backend := keras.backend.backend()) != "jax":
            raise FedaxError(f"Keras runs on {backend}: set KERAS_BACKEND=jax before Keras is imported")
        if not net.built:
            raise FedaxError(f"{self.name} has no weights yet: call it on a batch first, or begin it with keras.Input")
        self._params = _named(net.trainable_variables)
        self._others = _named(net.non_trainable_variables)
        if not self._params:
            raise FedaxError(f"{self.name} has no trainable variable: nothing would be trained")

    def init(self, key: jax.Array, x: Any) -> tuple[Values, Values]:
        """The model's own parameters, and the other variables that training changes."""
        del key  # the model has drawn its weights already
        others = {name: v.value for name, v in self._others.items()}
        params = {name: v.value for name, v in self._params.items()}
        changed = changing(lambda v: self._call(params, v, x, jax.random.key(0), True)[1], others)
        return params, {name: others[name] for name in others if name in changed and not name.endswith(SEED)}

    def apply(self, params: Values, state: Any, x: Any, key: jax.Array | None, train: bool) -> tuple[Any, Any]:
        """The outputs, and the state after them, which changes in training alone."""
        before = {**{name: v.value for name, v in self._others.items()}, **(state or {})}
        outputs, after = self._call(params, before, x, key, train)
        return outputs, {name: after[name] for name in state} if train and state else state

    def restored(self, params: Values, state: Values) -> Any:
        """A copy of the model with other parameters and state."""
        import keras

        own = {**self._params, **self._others}
        values = matching(self.name, own, {**params, **state})
        try:
            made = keras.models.clone_model(self.net)
        except (NotImplementedError, TypeError, ValueError) as error:
            raise FedaxError(f"Keras cannot copy {self.name}: give it get_config()") from error
        if not made.built:
            made.build(self.net.input_shape)
        copies = [*made.trainable_variables, *made.non_trainable_variables]
        for copy, value in zip(copies, (values[name] for name in own), strict=True):
            copy.assign(value)
        return made

    def _call(self, params: Values, others: Values, x: Any, key: jax.Array | None, train: bool) -> tuple[Any, Values]:
        given = others if key is None else _reseeded(others, key)
        outputs, after = self.net.stateless_call(
            [params[name] for name in self._params],
            [given[name] for name in self._others],
            numbers(x),
            training=train,
        )
        named = dict(zip(self._others, after, strict=True))
        if key is None and any(named[name] is not given[name] for name in named if name.endswith(SEED)):
            raise drawn_in_evaluation(self.name)
        return outputs, named


def _named(variables: Any) -> dict[str, Any]:
    """Variables by their paths; of equal paths the later ones get a number."""
    found: dict[str, Any] = {}
    for variable in variables:
        name = plain = variable.path.replace("/", ".")
        number = 1
        while name in found:
            name, number = f"{plain}.{number}", number + 1
        found[name] = variable
    return found


def _reseeded(others: Values, key: jax.Array) -> Values:
    names = [name for name in others if name.endswith(SEED)]
    drawn = {
        name: jax.random.bits(jax.random.fold_in(key, i), others[name].shape, others[name].dtype)
        for i, name in enumerate(names)
    }
    return {**others, **drawn}
