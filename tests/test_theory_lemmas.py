"""Bounds of the thesis and the papers beside what they bound, which is worked out here exactly or step by step."""

from __future__ import annotations

import itertools
import math

import numpy as np
import pytest

import fedax
from fedax.bounds import (
    pfedfbe_lemma_1,
    pfedfbe_lemma_2,
    pfedfbe_lemma_3,
    pfedfbe_lemma_4,
    pfedfbe_personal_step,
    pfedfbe_proposition_1,
    proposition_2_1,
    proposition_3_2,
    table_2_1,
    theorem_2_8,
    theorem_2_10,
    theorem_2_19,
    theorem_3_4,
    theorem_4_3,
    theorem_a_1,
    theorem_a_4,
    theorem_a_7,
    theorem_a_9,
    theorem_b_22,
    theorem_b_22_rate,
    theorem_b_23,
    theorem_b_23_rate,
    weights_2_19,
    weights_3_2,
    weights_b_18,
    weights_c_13,
)
from fedax.errors import FedaxError
from fedax.papers.theory import identical_clients, piecewise_quadratic

SEEDS = 40


def exact_bias(slope, noise, *, lr, steps):
    """|E x_k - z_k| for k = 1 .. steps, from 0: the density of SGD's point on a grid, moved step by step.

    noise(width) gives a step's own distribution on a grid of that width, as a vector whose middle is 0.
    """
    reach, width = 12 * lr * steps**0.5, 12 * lr * steps**0.5 / 6000
    x = np.arange(-6000, 6001) * width
    step, density, z, found = noise(width), np.zeros(x.size), 0.0, []
    density[6000] = 1.0
    for _ in range(steps):
        moved = (x - lr * slope(x)) / width + 6000
        low = np.clip(np.floor(moved).astype(int), 0, x.size - 2)
        split = np.bincount(low, density * (low + 1 - moved), x.size) + np.bincount(
            low + 1, density * (moved - low), x.size
        )
        density = np.convolve(split, step, mode="same")
        z -= lr * slope(z)
        found.append(abs(density @ x - z))
    assert abs(density.sum() - 1) < 1e-9, f"the grid's reach {reach} is too small"
    return np.array(found)


def normal(lr, sigma):
    def on(width):
        at = np.arange(-math.ceil(8 * lr * sigma / width), math.ceil(8 * lr * sigma / width) + 1) * width
        weights = np.exp(-((at / (lr * sigma)) ** 2) / 2)
        return weights / weights.sum()

    return on


def uniform(lr, sigma):
    def on(width):
        half = round(lr * sigma / width)
        return np.full(2 * half + 1, 1 / (2 * half + 1))

    return on


def test_the_iterate_bias_of_the_kink_is_between_theorems_a_1_and_a_4():
    L, sigma, steps = 1.0, 1.0, 24
    for lr in (0.5, 0.1, 0.02):
        # eq. 2.4: F = (L/2) psi, psi'' = 2 right of 0 and 1 left of it, so that F'' is L and L/2
        found = exact_bias(lambda x: np.where(x >= 0, L, L / 2) * x, normal(lr, sigma), lr=lr, steps=steps)
        for k in range(2, steps + 1):
            assert (
                theorem_a_4(lr=lr, k=k, L=L, sigma=sigma) <= found[k - 1] <= theorem_a_1(lr=lr, k=k, L=L, sigma=sigma)
            )
        assert found[0] < 1e-3 * found[1]  # k = 1 has none: the print's "k <= K" begins at 2
    assert theorem_a_4(lr=0.1, k=1, L=L, sigma=sigma) == 0


def test_the_iterate_bias_of_the_smooth_bend_is_between_theorems_a_7_and_a_9():
    L, sigma, steps = 1.0, 1.0, 16
    Q = L**2 / (12 * (steps + 1) * sigma)
    for lr in (0.5, 0.1):
        found = exact_bias(
            lambda x: 0.75 * L * x + L**2 / (16 * Q) * np.log(np.cosh(4 * Q / L * x)),
            uniform(lr, sigma),
            lr=lr,
            steps=steps,
        )
        for k in range(2, steps + 1):
            least = theorem_a_9(lr=lr, k=k, K=steps + 1, L=L, Q=Q, sigma=sigma)
            assert 0 < least <= found[k - 1] <= theorem_a_7(lr=lr, k=k, L=L, Q=Q, sigma=sigma)
    with pytest.raises(FedaxError, match="Q must be at most"):
        theorem_a_9(lr=0.1, k=2, K=steps, L=L, Q=1.1 * L**2 / (12 * steps * sigma), sigma=sigma)


def test_theorem_2_8_is_its_other_form():
    """The display and the one "or rearranging" agree up to a constant, as each of them is meant."""
    rng = np.random.default_rng(0)
    for _ in range(2000):
        L, B, sigma = 10.0 ** rng.uniform(-3, 3, 3)
        M, K, R = 10.0 ** rng.uniform(0, 4, 3)
        common, alone = L * B**2 / (K * R), sigma * B / math.sqrt(K * R)
        bent = (L * sigma**2 * B**4 / (K * R**2)) ** (1 / 3)
        other = min(L * B**2, common + alone, common + alone / math.sqrt(M) + bent)
        assert 1 / 3 < theorem_2_8(L=L, B=B, sigma=sigma, M=M, K=K, R=R) / other < 3


def test_the_lower_bounds_are_below_the_upper_ones_and_are_table_2_1_where_noise_is_small():
    rng = np.random.default_rng(1)
    for _ in range(2000):
        L, B, sigma, zeta = 10.0 ** rng.uniform(-2, 2, 4)
        M, K, R = 10.0 ** rng.uniform(0, 4, 3)
        work = {"L": L, "B": B, "sigma": sigma, "M": M, "K": K, "R": R}
        table = table_2_1(**work, zeta=zeta, zeta_star=zeta)
        whole = theorem_2_10(**work, zeta_star=zeta)
        assert whole <= table["lower"] * (1 + 1e-12)
        assert theorem_2_8(**work) <= whole
    small = {"L": 1.0, "B": 1.0, "sigma": 0.01, "M": 16.0, "K": 8.0, "R": 10.0}
    assert theorem_2_8(**small) < table_2_1(**small)["lower"]  # here sigma B / sqrt(K R) is the lesser
    large = small | {"sigma": 0.5, "R": 1e4}
    assert theorem_2_10(**large, zeta_star=0.5) == pytest.approx(table_2_1(**large, zeta_star=0.5)["lower"])


def test_the_weights_are_those_that_the_proofs_telescope():
    K, R, lr, mu = 3, 4, 0.2, 0.7
    T = K * R
    early, late, later = (
        weights_2_19(K=K, R=R),
        weights_b_18(lr=lr, mu=mu, K=K, R=R),
        weights_3_2(lr=lr, mu=mu, K=K, R=R),
    )
    for found in (early, late, later):
        assert found.shape == (R, K)
        assert found.sum() == pytest.approx(1)
    steps = [one.ravel() for one in (early, late, later)]
    np.testing.assert_allclose(steps[0][1:] * (1 + 1 / T), steps[0][:-1])
    np.testing.assert_allclose(steps[1][1:] * (1 - lr * mu / 2), steps[1][:-1])
    np.testing.assert_allclose(steps[2][1:] * (1 - lr * mu), steps[2][:-1])
    np.testing.assert_allclose(weights_c_13(R=R), 1 / R)


def fedavg(gradients, start, *, lr, K, R, noise, seed=0):
    """The clients' mean before each of the K R steps and after the last, for each seed: [K R + 1, seeds, d]."""
    rng, path = np.random.default_rng(seed), []
    x = np.broadcast_to(start, (SEEDS, *start.shape)).copy()
    for _ in range(R):
        for _ in range(K):
            path.append(x.mean(1))
            x = x - lr * (gradients(x) + noise(rng, x.shape))
        x = np.broadcast_to(x.mean(1, keepdims=True), x.shape)
    return np.array([*path, x.mean(1)])


@pytest.mark.parametrize("lr", [None, 0.05])
def test_proposition_3_2_holds_at_its_weighted_output(lr):
    A, sigma, M, K, R = np.diag([2.0, 0.5, 0.1]), 1.5, 8, 5, 40
    start = np.tile([1.0, 2.0, 2.0], (M, 1))
    bound = proposition_3_2(mu=0.1, L=2.0, B=3.0, sigma=sigma, M=M, K=K, R=R, lr=lr)
    path = fedavg(lambda x: x @ A, start, lr=bound.lr, K=K, R=R, noise=lambda g, s: g.normal(size=s) * sigma / 3**0.5)
    weights = weights_3_2(lr=bound.lr, mu=0.1, K=K, R=R).ravel()
    mean = np.tensordot(weights, path[1:], 1)  # of the models after each step
    error = np.einsum("si,ij,sj->s", mean, A, mean).mean() / 2
    assert 1e-3 * bound.total < error < bound.total


def test_proposition_3_2_goes_over_into_proposition_2_1():
    setting = {"L": 2.0, "B": 3.0, "sigma": 1.5, "M": 8, "K": 5, "R": 40, "lr": 0.05}
    flat, strong = proposition_2_1(**setting), proposition_3_2(mu=1e-9, **setting)
    for term in ("distance to go", "noise", "noise between averagings"):
        assert strong.terms[term] == pytest.approx(flat.terms[term], rel=1e-5)
    lr, mu, T = 0.05, 0.3, 200  # what the weighted sum leaves of the start, added up
    left = (1 - lr * mu) ** T * 3.0**2 / (2 * lr * sum((1 - lr * mu) ** (T - t - 1) for t in range(T)))
    assert proposition_3_2(mu=mu, **setting).terms["distance to go"] == pytest.approx(left)


def test_the_weighted_outputs_of_theorems_2_19_and_b_18_are_within_their_bounds():
    L, Q, M, K, R = 1.0, 2.0, 4, 6, 30

    def slope(x):
        return 0.75 * L * x + L**2 / (16 * Q) * np.log(np.cosh(4 * Q / L * x))

    def height(x):
        grid = np.linspace(0, 1, 2001) * np.asarray(x)[..., None]
        return np.trapezoid(slope(grid), grid, axis=-1)

    setting = {"L": L, "Q": Q, "B": 2.0, "sigma": 3**0.25 * 0.8, "M": M, "K": K, "R": R}
    for bound in (theorem_2_19(**setting), theorem_3_4(**setting, mu=L / 2)):
        path = fedavg(
            slope, np.full((M, 1), 2.0), lr=bound.lr, K=K, R=R, noise=lambda rng, shape: 0.8 * rng.normal(size=shape)
        )
        strong = bound.theorem == "Theorem 3.4"
        weights = weights_b_18(lr=bound.lr, mu=L / 2, K=K, R=R) if strong else weights_2_19(K=K, R=R)
        assert height(np.tensordot(weights.ravel(), path[:-1], 1)[:, 0]).mean() < bound.total, bound.theorem


@pytest.mark.parametrize("third_order", [False, True], ids=["B.22", "B.23"])
def test_the_anchored_fedac_2_is_within_its_bound(third_order):
    L, sigma, M, K, R, start = 1.0, 0.05, 64, 10, 100, 2.0
    if third_order:  # sqrt(1 + x^2) - 1: |F'''| at most 3/2 * 1.25^-2.5; the fourth moment of a Gaussian is 3 sigma^4
        made = identical_clients(lambda x: (1 + x**2) ** 0.5 - 1, sigma, M, start)
        setting = {"L": L, "B": start, "sigma": 3**0.25 * sigma, "M": M, "K": K, "R": R, "Q": 1.5 * 1.25**-2.5}
        bound, weight = theorem_b_23(**setting)
    else:  # flat left of 0, and the nearest minimiser is 0
        made = identical_clients(piecewise_quadratic(L, left=0.0), sigma, M, start)
        bound, weight = theorem_b_22(L=L, B=start, sigma=sigma, M=M, K=K, R=R)
    method = fedax.FedAc(lr=bound.lr, mu=weight, variant="II", augment=True)
    options = {"local_steps": K, "batch_size": 1, "sampling": "iid", "eval_every": R, "eval_on": ("train",)}
    runs = (fedax.simulate(made.problem, made.federation, method, rounds=R, seed=s, **options) for s in range(2))
    end = np.mean([float(made.objective(run.model)) for run in runs])
    assert end < bound.total
    assert end < float(made.objective(start)) / 4


def test_theorems_b_22_and_b_23_s_closed_forms_are_above_the_displays_that_they_come_from():
    rng = np.random.default_rng(2)
    for _ in range(2000):
        L, B, sigma, Q = 10.0 ** rng.uniform(-2, 2, 4)
        M, K, R = 10.0 ** rng.uniform(0, 3), 10.0 ** rng.uniform(1, 3), 10.0 ** rng.uniform(2, 4)
        setting = {"L": L, "B": B, "sigma": sigma, "M": M, "K": K, "R": R}
        assert theorem_b_22(**setting)[0].total <= theorem_b_22_rate(**setting)
        assert theorem_b_23(**setting, Q=Q)[0].total <= theorem_b_23_rate(**setting, Q=Q)


def test_theorem_4_3_holds_in_the_entropy_s_geometry():
    # multiplicative weights on the simplex: D_h is the Kullback-Leibler divergence, h is 1-strongly convex in the
    # 1-norm, f_m = <c_m, x> + |x|^2 / 2 has L = 1 in it, and sigma is the largest entry of the noise
    rng, M, K, R, sigma, d = np.random.default_rng(3), 6, 4, 40, 0.5, 5
    c = rng.normal(size=(M, d))
    mean = c.mean(0)

    def project(y):  # onto the simplex, Euclidean: the minimiser of |x|^2 / 2 + <mean, x>
        ordered = np.sort(y)[::-1]
        excess = (np.cumsum(ordered) - 1) / np.arange(1, y.size + 1)
        return np.maximum(y - excess[ordered > excess][-1], 0)

    best, start = project(-mean), np.full(d, 1 / d)
    B = math.sqrt(sum(p * math.log(p * d) for p in best if p > 0))
    h = fedax.regularizers.mirror("entropy")
    found = float(
        h.divergence(fedax.vectors.Vector(best.astype(np.float32)), fedax.vectors.Vector(start.astype(np.float32)))
    )
    assert found == pytest.approx(B**2, rel=1e-5)
    bound = theorem_4_3(L=1.0, B=B, sigma=sigma, M=M, K=K, R=R)
    server, y, models = 1000, np.zeros((SEEDS, M, d)), []
    for _ in range(R):
        first = y[:, 0]
        for _ in range(K):
            x = np.exp(y - y.max(-1, keepdims=True))
            x /= x.sum(-1, keepdims=True)
            y = y - bound.lr / server * (c + x + rng.choice([-sigma, sigma], size=y.shape))
        new = first + server * (y.mean(1) - first)
        x = np.exp(new - new.max(-1, keepdims=True))
        models.append(x / x.sum(-1, keepdims=True))
        y = np.broadcast_to(new[:, None], y.shape)
    output = np.tensordot(weights_c_13(R=R), np.array(models), 1)
    height = (output @ mean + (output**2).sum(-1) / 2).mean() - (best @ mean + best @ best / 2)
    assert 0 < height < bound.total


class Envelopes:
    """Envelopes of clients f_i(w) = mean over rows of log cosh(a (w - b)), w a number, with psi = strength |w|."""

    strength, lam = 0.3, 4.0

    def __init__(self, rng, clients=4, rows=6):
        self.a, self.b = rng.uniform(0.5, 1.2, (clients, rows)), rng.normal(size=(clients, rows))
        self.L = (self.a**2).mean(1).max()  # log cosh has a second derivative of at most 1 ...
        self.rho = (self.a**3).mean(1).max() * 0.77  # ... and a third of at most 4 / (3 sqrt 3) = 0.7698

    def rows(self, i, w):
        """The gradients and the Hessians of a client's rows."""
        t = np.tanh(self.a[i] * (w - self.b[i]))
        return self.a[i] * t, self.a[i] ** 2 * (1 - t**2)

    def gradient_at(self, w, g, h):
        """(1 - h / lam) lam (w - theta), theta the proximal point: eq. 9, from an estimate of f' and one of f''."""
        moved = w - g / self.lam
        theta = np.sign(moved) * max(abs(moved) - self.strength / self.lam, 0)
        return (1 - h / self.lam) * self.lam * (w - theta)

    def gradient(self, i, w):
        g, h = self.rows(i, w)
        return self.gradient_at(w, g.mean(), h.mean())


def test_lemma_1_covers_the_slope_of_the_envelopes_gradient():
    for seed in range(5):
        F = Envelopes(np.random.default_rng(seed))
        B = max(F.a.mean(1).max(), F.strength)
        at = np.linspace(-6, 6, 4001)
        steepest = max(np.abs(np.diff([F.gradient(i, w) for w in at])).max() / (at[1] - at[0]) for i in range(4))
        assert 0.1 * pfedfbe_lemma_1(lam=F.lam, L=F.L) < steepest
        assert steepest < pfedfbe_lemma_1(lam=F.lam, L=F.L, rho=F.rho, gradient=B)


def test_lemma_2_covers_the_distance_of_the_envelopes_gradients():
    for seed in range(5):
        F = Envelopes(np.random.default_rng(seed))
        B = max(F.a.mean(1).max(), F.strength)
        for w in np.linspace(-4, 4, 81):
            each = np.array([[part.mean() for part in F.rows(i, w)] for i in range(4)])
            apart = (each - each.mean(0)) ** 2
            bound = pfedfbe_lemma_2(
                lam=F.lam, gamma_G=apart[:, 0].mean() ** 0.5, gamma_H=apart[:, 1].mean() ** 0.5, gradient=B
            )
            found = np.array([F.gradient(i, w) for i in range(4)])
            assert ((found - found.mean()) ** 2).mean() <= bound


def test_lemma_3_covers_every_minibatch_of_a_small_client():
    F, batch = Envelopes(np.random.default_rng(0)), 2
    B = max(F.a.mean(1).max(), F.strength)
    draws = list(itertools.combinations(range(6), batch))
    nearest = []
    for w in np.linspace(-3, 3, 41):
        g, h = F.rows(0, w)
        errors = np.array(
            [F.gradient_at(w, g[list(p)].mean(), h[list(q)].mean()) - F.gradient(0, w) for p in draws for q in draws]
        )
        bias, square = pfedfbe_lemma_3(lam=F.lam, sigma_G=g.std(), sigma_H=h.std(), gradient=B, batch=batch, rows=6)
        assert abs(errors.mean()) <= bias
        assert (errors**2).mean() <= square
        nearest.append((errors**2).mean() / square)
    assert max(nearest) > 0.05
    assert pfedfbe_lemma_3(lam=F.lam, sigma_G=1.0, batch=6, rows=6) == (0.0, 0.0)


def test_lemma_4_covers_how_far_clients_part():
    F, K = Envelopes(np.random.default_rng(1)), 6
    B = max(F.a.mean(1).max(), F.strength)
    L_F = pfedfbe_lemma_1(lam=F.lam, L=F.L, rho=F.rho, gradient=B)
    apart = max(np.std([F.gradient(i, w) for i in range(4)]) for w in np.linspace(-3, 3, 601))
    lr = 1 / (10 * K * L_F)
    w = np.full(4, 1.5)
    for t in range(1, K + 1):
        w = w - lr * np.array([F.gradient(i, w[i]) for i in range(4)])
        mean, square = pfedfbe_lemma_4(lr=lr, t=t, K=K, L_F=L_F, sigma_F=0.0, gamma_F=apart)
        assert 0 < np.abs(w - w.mean()).mean() <= mean
        assert ((w - w.mean()) ** 2).mean() <= square
    with pytest.raises(FedaxError, match="lr must be"):
        pfedfbe_lemma_4(lr=2 * lr, t=1, K=K, L_F=L_F, sigma_F=0.0, gamma_F=apart)


def test_proposition_1_is_about_envelopes_that_fall_without_end():
    def envelope(w, L, lam):  # of L w^2 / 2, without psi: f(w) - f'(w)^2 / (2 lam)
        return L * w**2 / 2 - (L * w) ** 2 / (2 * lam)

    pfedfbe_proposition_1(lam=2.1, L=2.0)
    assert envelope(1e3, 2.0, 2.1) > 1e3
    assert envelope(1e3, 2.0, 1.9) < -1e3
    for lam in (1.9, 2.0):
        with pytest.raises(FedaxError, match="the envelope is not smooth"):
            pfedfbe_proposition_1(lam=lam, L=2.0)


def test_a_personal_model_is_no_farther_than_one_step():
    rng, lam, strength = np.random.default_rng(4), 7.0, 0.4
    w, g = rng.normal(size=5000), 3 * rng.normal(size=5000)
    moved = w - g / lam
    theta = np.sign(moved) * np.maximum(np.abs(moved) - strength / lam, 0)
    farthest = np.array([pfedfbe_personal_step(gradient=abs(one), strength=strength, lam=lam) for one in g])
    assert np.all(np.abs(theta - w) <= farthest * (1 + 1e-12))
    assert np.max(np.abs(theta - w) / farthest) > 1 - 1e-9
