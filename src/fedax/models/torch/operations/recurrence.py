"""Recurrent layers as a loop over a sequence: RNN, LSTM and GRU, in layers and in both directions.

The inputs' products with the weights are taken for the whole sequence at once, so a step has the state's product left.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from fedax.models.torch.operations.random_draws import dropped
from fedax.models.torch.registry import operation

State = tuple[jax.Array, ...]
#: one step of a cell: (the inputs' products, the state, the state's weights and bias) -> the state
Cell = Callable[[jax.Array, State, jax.Array, jax.Array], State]


def _lstm_cell(projected: jax.Array | None = None) -> Cell:
    """i, f, g, o = W x + U h + b,  c <- sigma(f) c + sigma(i) tanh(g),  h <- sigma(o) tanh(c), times a projection."""

    def step(gates: jax.Array, state: State, weight: jax.Array, bias: jax.Array) -> State:
        i, f, g, o = jnp.split(gates + state[0] @ weight.T + bias, 4, -1)
        c = jax.nn.sigmoid(f) * state[1] + jax.nn.sigmoid(i) * jnp.tanh(g)
        h = jax.nn.sigmoid(o) * jnp.tanh(c)
        return (h if projected is None else h @ projected.T), c

    return step


def _gru_cell(gates: jax.Array, state: State, weight: jax.Array, bias: jax.Array) -> State:
    """r, z = sigma(W x + U h),  n = tanh(W x + r U h),  h <- (1 - z) n + z h."""
    (h,) = state
    (r, z, n), (hr, hz, hn) = jnp.split(gates, 3, -1), jnp.split(h @ weight.T + bias, 3, -1)
    r, z = jax.nn.sigmoid(r + hr), jax.nn.sigmoid(z + hz)
    n = jnp.tanh(n + r * hn)
    return ((1 - z) * n + z * h,)


def _rnn_cell(activation: Callable[[jax.Array], jax.Array]) -> Cell:
    """h <- activation(W x + U h)."""

    def step(gates: jax.Array, state: State, weight: jax.Array, bias: jax.Array) -> State:
        return (activation(gates + state[0] @ weight.T + bias),)

    return step


def _sequence(
    cell: Cell, x: jax.Array, state: State, weights: Sequence[Any], backward: bool
) -> tuple[jax.Array, State]:
    """One layer in one direction over x of shape [steps, rows, features]."""
    w, u, b, c = weights
    gates = x @ w.T + b

    def body(carry: State, step: jax.Array) -> tuple[State, jax.Array]:
        new = cell(step, carry, u, c)
        return new, new[0]

    last, outputs = lax.scan(body, state, gates, reverse=backward)
    return outputs, last


def _layers(
    make: Callable[[jax.Array | None], Cell],
    x: jax.Array,
    states: State,
    params: Sequence[jax.Array],
    has_biases: bool,
    layers: int,
    dropout: float,
    train: bool,
    bidirectional: bool,
    batch_first: bool,
    *,
    key: jax.Array | None,
) -> tuple[jax.Array, ...]:
    """All layers: the last one's outputs, and the last states of all."""
    x = jnp.swapaxes(x, 0, 1) if batch_first and x.ndim == 3 else x
    directions = 2 if bidirectional else 1
    each = len(params) // (layers * directions)
    last: list[State] = []
    for layer in range(layers):
        outputs = []
        for direction in range(directions):
            number = layer * directions + direction
            own = list(params[number * each : (number + 1) * each])
            projected = own.pop() if each == 2 * (1 + has_biases) + 1 else None
            weights = own if has_biases else [*own, jnp.zeros((), x.dtype), jnp.zeros((), x.dtype)]
            state = tuple(s[number] for s in states)
            found, end = _sequence(make(projected), x, state, weights, direction == 1)
            outputs.append(found)
            last.append(end)
        x = jnp.concatenate(outputs, -1)
        if train and dropout > 0 and layer < layers - 1:
            assert key is not None
            x = dropped(jax.random.fold_in(key, layer), x, dropout)
    x = jnp.swapaxes(x, 0, 1) if batch_first and x.ndim == 3 else x
    return x, *(jnp.stack(parts) for parts in zip(*last, strict=True))


def _drops(
    x: Any, states: Any, params: Any, has_biases: bool, layers: int, dropout: float, train: bool, *_: Any
) -> bool:
    return train and dropout > 0 and layers > 1


@operation("aten.lstm.input", draws=_drops)
def lstm(x: jax.Array, states: Sequence[jax.Array], *options: Any, key: jax.Array | None = None) -> tuple[Any, ...]:
    """The outputs, the last h and the last c."""
    return _layers(_lstm_cell, x, tuple(states), *options, key=key)


@operation("aten.gru.input", draws=_drops)
def gru(x: jax.Array, state: jax.Array, *options: Any, key: jax.Array | None = None) -> tuple[Any, ...]:
    """The outputs and the last h."""
    return _layers(lambda projected: _gru_cell, x, (state,), *options, key=key)


@operation("aten.rnn_tanh.input", draws=_drops)
def rnn_tanh(x: jax.Array, state: jax.Array, *options: Any, key: jax.Array | None = None) -> tuple[Any, ...]:
    """The outputs and the last h."""
    return _layers(lambda projected: _rnn_cell(jnp.tanh), x, (state,), *options, key=key)


@operation("aten.rnn_relu.input", draws=_drops)
def rnn_relu(x: jax.Array, state: jax.Array, *options: Any, key: jax.Array | None = None) -> tuple[Any, ...]:
    """The outputs and the last h."""
    return _layers(lambda projected: _rnn_cell(jax.nn.relu), x, (state,), *options, key=key)
