"""Draws: bijections, uniform, epochs that hold every row once, functions of their counters alone."""

from __future__ import annotations

import itertools
from collections import Counter

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from fedax import randomness

KEYS = jax.random.split(jax.random.key(7), 40_000)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(st.integers(1, 5000), st.integers(0, 2**31))
def test_shuffled_is_a_bijection(n, seed):
    index = jnp.arange(5000)  # one shape, so one program
    found = np.asarray(randomness.shuffled(jax.random.key(seed), index % n, n))[:n]
    assert sorted(found.tolist()) == list(range(n))


def ranks(key, index, n):
    """By rank, with a word from the key."""
    return randomness.ranked(jnp.broadcast_to(jax.random.key_data(key)[0], index.shape), index, n)


@pytest.mark.parametrize("n", [1, 2, 7, 33, 64])
def test_ranks_are_a_bijection(n):
    assert all(sorted(ranks(key, jnp.arange(n), n).tolist()) == list(range(n)) for key in KEYS[:5])


@pytest.mark.parametrize("draw", [randomness.shuffled, ranks])
@pytest.mark.parametrize("n", [3, 4, 5, 6])
def test_every_permutation_of_few_is_equally_likely(n, draw):
    drawn = jax.jit(jax.vmap(lambda key: draw(key, jnp.arange(n), n)))(KEYS)
    counts = Counter(map(tuple, np.asarray(drawn).tolist()))
    observed = [counts[p] for p in itertools.permutations(range(n))]
    assert stats.chisquare(observed).pvalue > 1e-4


@pytest.mark.parametrize(
    ("n", "draw"), [(n, randomness.shuffled) for n in (10, 37, 600, 32_561)] + [(n, ranks) for n in (10, 37, 64)]
)
def test_places_and_neighbours_are_uniform_among_many(n, draw):
    drawn = np.asarray(jax.jit(jax.vmap(lambda key: draw(key, jnp.arange(3), n)))(KEYS))
    bins = min(n - 1, 50)
    for place in range(3):
        assert stats.kstest((drawn[:, place] + np.random.default_rng(0).random(len(KEYS))) / n, "uniform").pvalue > 1e-4
    apart = (drawn[:, 1] - drawn[:, 0]) % n
    observed = np.bincount((apart - 1) * bins // (n - 1), minlength=bins)
    edges = np.bincount((np.arange(n - 1)) * bins // (n - 1), minlength=bins)
    assert stats.chisquare(observed, len(KEYS) * edges / edges.sum()).pvalue > 1e-4


@pytest.mark.parametrize(("count", "batch"), [(12, 4), (10, 4), (3, 8)])
def test_epochs_hold_every_row_once(count, batch):
    rows = np.asarray(randomness.draw_rows(KEYS[0], 15, batch, count, "epochs")).ravel()
    epochs = [rows[i : i + count] for i in range(0, len(rows) - count + 1, count)]
    assert all(sorted(epoch.tolist()) == list(range(count)) for epoch in epochs)
    assert count < 4 or any(not np.array_equal(epochs[0], other) for other in epochs[1:])


@pytest.mark.parametrize("count", [20, 64, 65, 200])
def test_rows_depend_on_the_count_not_on_what_other_clients_have(count):
    alone = randomness.draw_rows(KEYS[0], 9, 10, count, "epochs", least=count, most=count)
    among = randomness.draw_rows(KEYS[0], 9, 10, count, "epochs", least=5, most=1000)
    assert np.array_equal(alone, among)


def test_drawing_with_replacement_is_uniform():
    rows = np.asarray(randomness.draw_rows(KEYS[0], 1000, 20, 7, "iid")).ravel()
    assert stats.chisquare(np.bincount(rows, minlength=7)).pvalue > 1e-4


def test_cohorts_are_distinct_and_differ_by_round_and_seed():
    seen = [tuple(randomness.draw_cohort(seed, r, 1000, 20).tolist()) for seed in (0, 1) for r in range(4)]
    assert all(len(set(cohort)) == 20 for cohort in seen)
    assert len(set(seen)) == len(seen)
    assert randomness.draw_cohort(0, 0, 5, 5).tolist() == [0, 1, 2, 3, 4]
    assert max(randomness.draw_cohort(0, 3, 10**6, 1000).tolist()) < 10**6
