"""Theorem 3.8: the construction, the exact rate at which AGD's two starts part, and FedAc-I on the same ground."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from fedax.errors import FedaxError
from fedax.papers.theory import fedac_one, separation, standard_agd, unstable_objective


@pytest.mark.parametrize(("kappa", "K"), [(25, 16), (100, 8)])
def test_two_starts_part_at_the_proofs_rate(kappa, K):
    F = unstable_objective(kappa, 1, K)
    x, x_ag = separation(F, standard_agd(kappa, 1), K)[-1]
    growth = (-2 * (1 - kappa**-0.5) ** 3) ** K / 2  # the last display of the proof of Theorem 3.8
    assert x == pytest.approx(growth * (kappa**0.5 + 1), rel=1e-9)
    assert x_ag == pytest.approx(growth * (1 + kappa**-0.5), rel=1e-9)
    assert abs(x) >= 1.02**K
    assert abs(x_ag) >= 1.02**K / 2


def test_the_theorem_as_printed_exchanges_x_and_x_ag():
    x, x_ag = separation(unstable_objective(25, 1, 1), standard_agd(25, 1), 1)[-1]
    assert abs(x_ag) < 1.02 <= abs(x)


def test_the_objective_is_what_the_lemma_asks_for():
    K, kappa = 6, 36
    F, method = unstable_objective(kappa, 1, K), standard_agd(kappa, 1)
    assert len(F.intervals) == K
    points = [x_md for _, _, x_md in method.run(F, F.L / F.L, F.L / F.L, 3 * K)[:-1]]
    for t, w in enumerate(points):
        for h in (min(r for _, r in F.intervals) / 8,):
            slope = (F.gradient(w + h) - F.gradient(w - h)) / (2 * h)
            assert float(slope) == pytest.approx(kappa if t % 3 == 1 else 1, rel=1e-6), t
    assert float(F.gradient(F.L * 0)) == 0


@pytest.mark.parametrize("own", [False, True], ids=["on AGD's objective", "on one made for it"])
def test_fedac_one_stays_together(own):
    kappa, K = 400, 12
    method = fedac_one(kappa, 1, 3 * K)
    assert method.gamma > 2 * method.eta  # it does accelerate
    F = unstable_objective(kappa, 1, K, method if own else None)
    ratio, growth = float(method.gamma / method.eta), 1 + 2 * float(method.gamma**2 / method.eta)

    def size(x, x_ag):  # the norm of Proposition 3.16, after X^-1 of eq. 3.22
        return np.hypot(ratio * x_ag, x - ratio * x_ag)

    path = separation(F, method, K)
    start = size(1, 1)
    assert all(size(*apart) <= start * growth**t * (1 + 1e-9) for t, apart in enumerate(path))
    assert growth ** (3 * K) <= np.exp(2)
    assert (
        max(abs(x) for x, _ in path)
        < 20
        < abs(separation(unstable_objective(kappa, 1, K), standard_agd(kappa, 1), K)[-1][0])
    )


def test_gradient_descent_never_parts():
    F = unstable_objective(100, 1, 5)
    slow = fedac_one(100, 1, 10**6)
    assert slow.gamma == slow.eta  # FedAc-I has become gradient descent
    path = separation(F, slow, 5)
    assert all(abs(b[0]) <= abs(a[0]) * (1 + 1e-12) for a, b in itertools.pairwise(path))


def test_bad_input_is_one_sentence():
    with pytest.raises(FedaxError, match="mu must be above 0, not 0: the theorem is for strongly convex problems"):
        unstable_objective(25, 0, 4)
    with pytest.raises(FedaxError, match="L must be at least mu = 2, not 1"):
        standard_agd(1, 2)
    with pytest.raises(FedaxError, match="from 1 on, not 0"):
        fedac_one(25, 1, 0)
