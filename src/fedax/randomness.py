"""Counter-based randomness: every draw is a function of (seed, purpose, round, client).

So a result depends neither on the executor, nor on chunking, nor on a resume, nor on what other clients do.

`shuffled(key, index, n)` is a keyed bijection of {0, ..., n-1}, evaluated at the positions asked for, so that
drawing without replacement costs what is drawn and not n: the cohort of a million clients, or a minibatch
of a client with a million rows. It is a Feistel network on pairs (l, r) with l, r < a, a^2 >= n:
one round maps (l, r) to (r, l + F(r) mod a), which is a bijection for any F; a value that lands at or above n
walks on along its cycle until it falls below n, which keeps it a bijection. As a^2 exceeds n by a few sqrt(n),
few ever walk. An even a matters: with an odd one every round is an even permutation, and small n come out
visibly uneven.

Of few rows (up to `FEW`) the bijection is instead the rank of a hash of the index among the hashes of all n, which
costs n comparisons and never walks.
"""

from __future__ import annotations

import functools
from typing import Any, Literal

import jax
import jax.numpy as jnp

COHORT, INIT, ROWS, FRESH, AUGMENT, AUGMENT_FRESH, METHOD, COMMON, MODEL, ATTACK, NOISE = range(11)  # purposes
ROUNDS = 10  # of the Feistel network
FEW = 64  # rows up to which ranking costs less than walking
Sampling = Literal["epochs", "iid"]


def key_for(seed: Any, purpose: int, *counters: Any) -> jax.Array:
    """The key of a draw."""
    key = jax.random.fold_in(seed if isinstance(seed, jax.Array) else jax.random.key(seed), purpose)
    for counter in counters:
        key = jax.random.fold_in(key, counter)
    return key


def _mix(h: jax.Array) -> jax.Array:
    """A 32-bit avalanche: every input bit flips each output bit with probability near 1/2."""
    h = (h ^ (h >> 16)) * jnp.uint32(0x7FEB352D)
    h = (h ^ (h >> 15)) * jnp.uint32(0x846CA68B)
    return h ^ (h >> 16)


def _root(n: jax.Array) -> jax.Array:
    """The smallest even number from 4 on whose square is at least n, exact for n up to 2^31."""
    a = jnp.ceil(jnp.sqrt(n.astype(jnp.float32))).astype(jnp.uint32)
    a = jnp.where((a - 1) * (a - 1) >= n, a - 1, a)
    a = jnp.where(a * a < n, a + 1, a)
    return jnp.maximum(a + a % 2, 4)


@jax.jit
def shuffled(key: jax.Array, index: jax.Array, n: Any) -> jax.Array:
    """The images of indices under a random permutation of {0, ..., n-1} (0 <= index < n < 2^31).

    `key` is one key, or one for each index.

    >>> sorted(shuffled(jax.random.key(0), jnp.arange(6), 6).tolist())
    [0, 1, 2, 3, 4, 5]
    """
    n = jnp.asarray(n, jnp.uint32)
    a = _root(n)
    words = jax.random.key_data(key).astype(jnp.uint32)
    first, second = words[..., 0], words[..., 1]

    def once(i: jax.Array) -> jax.Array:
        left, right = i // a, i % a
        for turn in range(ROUNDS):
            hashed = _mix(right ^ first + jnp.uint32(0x9E3779B9 * turn & 0xFFFFFFFF))
            hashed = _mix(hashed ^ second)
            # a 16-bit draw from {0, ..., a-1} by multiplication; a < 2^16
            shift = ((hashed >> 16) * a) >> 16
            moved = left + shift
            left, right = right, jnp.where(moved >= a, moved - a, moved)
        return left * a + right

    def walk(state: tuple[jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array]:
        i, outside = state
        i = jnp.where(outside, once(i), i)
        return i, i >= n

    start = jnp.broadcast_to(jnp.asarray(index, jnp.uint32), jnp.broadcast_shapes(jnp.shape(index), first.shape))
    found, _ = jax.lax.while_loop(lambda s: jnp.any(s[1]), walk, (start, jnp.ones_like(start, bool)))
    result: jax.Array = found.astype(jnp.int32)
    return result


def draw_cohort(seed: Any, round: Any, clients: int, cohort: int) -> jax.Array:
    """The round's clients: `cohort` of them, drawn without replacement; all in their order if that is everybody."""
    if cohort == clients:
        return jnp.arange(clients, dtype=jnp.int32)
    drawn: jax.Array = shuffled(key_for(seed, COHORT, round), jnp.arange(cohort), clients)
    return drawn


@functools.partial(jax.jit, static_argnames=("most",))
def ranked(word: jax.Array, index: jax.Array, n: Any, most: int = FEW) -> jax.Array:
    """The images of indices under a random permutation of {0, ..., n-1}, n <= most; `word` has 32 bits for each index.

    The hash is a bijection of 32 bits, so no two indices have the same and ranks are a permutation.

    >>> sorted(ranked(jnp.full(6, 2026, jnp.uint32), jnp.arange(6), 6).tolist())
    [0, 1, 2, 3, 4, 5]
    """
    count, own = jnp.asarray(n, jnp.uint32), _mix(word ^ jnp.asarray(index, jnp.uint32))

    def compared(i: jax.Array, before: jax.Array) -> jax.Array:
        other = jnp.asarray(i, jnp.uint32)
        return before + ((_mix(word ^ other) < own) & (other < count))

    # a loop over indices, each compared with all positions at once, takes half as long as a sum over the last axis
    before: jax.Array = jax.lax.fori_loop(0, most, compared, jnp.zeros(own.shape, jnp.int32))
    return before


@functools.partial(jax.jit, static_argnames=("steps", "batch", "sampling", "least", "most"))
def draw_rows(
    key: jax.Array, steps: int, batch: int, count: Any, sampling: Sampling, least: int = 1, most: int = 2**31 - 1
) -> jax.Array:
    """The row numbers [steps, batch] of a client's round: reshuffled epochs, or drawn with replacement.

    Epochs follow one another without a gap: a batch that reaches the end of one is completed from the next.
    The draw is a function of the key and the count alone; the bounds least <= count <= most only save work.
    """
    count = jnp.asarray(count, jnp.int32)
    if sampling == "iid":
        return jax.random.randint(key, (steps, batch), 0, count)
    position = jnp.arange(steps * batch, dtype=jnp.int32)
    epoch = position // count
    index = position - epoch * count
    rows = jnp.zeros_like(position)
    if least <= FEW:
        rows = ranked(_epoch_word(key, epoch), index, count, min(most, FEW))
    if most > FEW:
        words = _epoch_words(key, epoch)
        keys = jax.random.wrap_key_data(jnp.stack(words, axis=-1), impl="threefry2x32")
        rows = jnp.where(count <= FEW, rows, shuffled(keys, index, jnp.maximum(count, FEW)))
    return rows.reshape(steps, batch)


def _epoch_word(key: jax.Array, epoch: jax.Array) -> jax.Array:
    """One word for each position, the same within an epoch."""
    first, second = _epoch_words(key, epoch)
    return _mix(first ^ second)


def _epoch_words(key: jax.Array, epoch: jax.Array) -> tuple[jax.Array, jax.Array]:
    """Two words for each position, the same within an epoch; hashed, for threefry a position would cost more."""
    words = jax.random.key_data(key).astype(jnp.uint32)
    turned = _mix(epoch.astype(jnp.uint32) * jnp.uint32(0x85EBCA6B) + words[0])
    return turned, jnp.broadcast_to(words[1], turned.shape)
