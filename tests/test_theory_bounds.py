"""The bounds: their limits, and that they hold on runs of problems whose constants are known exactly.

The runs are written out here in NumPy, step by step as the theorems' algorithms, so that the averages over local steps
that the theorems bound can be taken.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy.optimize import minimize_scalar

import fedax
from fedax.bounds import (
    apfl_theorem_1,
    apfl_theorem_2,
    apfl_theorem_3,
    feddeper_theorem_1,
    feddeper_theorem_2,
    fedspeed_theorem_4_4,
    pfedfbe_theorem_1,
    proposition_2_1,
    table_2_1,
    table_3_1,
    theorem_2_19,
    theorem_2_22,
    theorem_2_23,
    theorem_3_1,
    theorem_3_3,
    theorem_3_4,
    theorem_4_3,
    theorem_4_4,
    theorem_4_7,
    theorem_b_21,
)
from fedax.errors import FedaxError
from fedax.papers.theory import bounds, identical_clients, optimal_mixing_weight, piecewise_quadratic, smooth_bend

WORK = {"M": 8, "K": 5, "R": 40}
CONVEX = {"L": 2.0, "B": 3.0, "sigma": 1.5} | WORK
STRONG = {"L": 2.0, "mu": 0.1, "sigma": 1.5, "potential": 4.0} | WORK
FREE = {"L": 2.0, "Delta": 1.0, "G": 1.5, "sigma": 1.0} | WORK
RISKS = {"local_risk": 0.2, "shared_risk": 0.3, "local_rows": 50, "all_rows": 900, "dimension": 7}
SEEDS = 40


def fedavg(gradients, start, *, lr, K, R, noise, seed=0):
    """The mean of the clients before each of the K R steps, for each seed: [KR, seeds, d]; and the last one.

    gradients(x) takes [seeds, M, d] to the clients' gradients; noise(rng, shape) is added to them.
    """
    rng, path = np.random.default_rng(seed), []
    x = np.broadcast_to(start, (SEEDS, *start.shape)).copy()
    for _ in range(R):
        for _ in range(K):
            path.append(x.mean(1))
            x = x - lr * (gradients(x) + noise(rng, x.shape))
        x = np.broadcast_to(x.mean(1, keepdims=True), x.shape)
    return np.array(path), x.mean(1)


def gaussian(sigma, d):
    return lambda rng, shape: rng.normal(size=shape) * sigma / math.sqrt(d)


@pytest.mark.parametrize("lr", [None, 0.01, 0.125])
def test_proposition_2_1_holds(lr):
    A, rng = np.diag([2.0, 0.5, 0.05]), np.random.default_rng(1)
    pull = rng.normal(size=(WORK["M"], 3))
    pull -= pull.mean(0)  # client m: x'Ax/2 + pull_m x, so the minimiser of the mean is 0, and zeta is exact
    zeta = np.linalg.norm(pull, axis=1).max()
    start = np.tile([1.0, 2.0, 2.0], (WORK["M"], 1))
    bound = proposition_2_1(**CONVEX | {"B": 3.0}, zeta=zeta, lr=lr)
    path, last = fedavg(lambda x: x @ A + pull, start, lr=bound.lr, K=5, R=40, noise=gaussian(1.5, 3))
    steps = np.concatenate([path[1:], last[None]])
    error = np.einsum("tsi,ij,tsj->", steps, A, steps) / 2 / steps[..., 0].size
    assert 0.001 * bound.total < error < bound.total


@pytest.mark.parametrize("lr", [None, 0.02])
def test_theorems_2_19_and_3_4_hold(lr):
    L, Q, sigma, M, K, R = 1.0, 2.0, 0.8, 4, 6, 30

    def slope(x):  # of smooth_bend, eq. A.15: F'' in [L/2, L], F''' in [0, Q]
        return 0.75 * L * x + L**2 / (16 * Q) * np.log(np.cosh(4 * Q / L * x))

    def height(x):
        grid = np.linspace(0, 1, 2001) * np.asarray(x)[..., None]
        return np.trapezoid(slope(grid), grid, axis=-1)

    fourth = 3**0.25 * sigma  # the fourth moment of a Gaussian is 3 sigma^4
    start, B = np.full((M, 1), 2.0), 2.0
    setting = {"L": L, "Q": Q, "B": B, "sigma": fourth, "M": M, "K": K, "R": R, "lr": lr}
    for bound, weight in (
        (theorem_2_19(**setting), lambda t, lr: (1 + 1 / (K * R)) ** -(t + 1)),
        (theorem_3_4(**setting, mu=L / 2), lambda t, lr: (1 - lr * L / 4) ** (K * R - t - 1)),
    ):
        path, _ = fedavg(slope, start, lr=bound.lr, K=K, R=R, noise=gaussian(sigma, 1))
        weights = weight(np.arange(K * R), bound.lr)
        mean = np.tensordot(weights / weights.sum(), path, 1)[:, 0]
        assert height(mean).mean() < bound.total, bound.theorem


def test_theorems_2_22_and_2_23_hold():
    # sqrt(1 + x^2): F'' at most 1, |F'''| at most 3/2 * 1.25^-2.5; noise of +- 1/2, so no gradient is longer than 3/2
    L, Q, G, sigma, M, K, R = 1.0, 1.5 * 1.25**-2.5, 1.5, 0.5, 8, 6, 50
    start = np.full((M, 1), 2.0)
    setting = {"L": L, "Delta": math.sqrt(5) - 1, "G": G, "sigma": sigma, "M": M, "K": K, "R": R}

    def slope(x):
        return x / np.sqrt(1 + x**2)

    for bound in (theorem_2_22(**setting), theorem_2_23(**setting, Q=Q), theorem_2_22(**setting, lr=1.0)):
        path, _ = fedavg(
            slope, start, lr=bound.lr, K=K, R=R, noise=lambda rng, shape: rng.choice([-0.5, 0.5], size=shape)
        )
        assert np.mean(slope(path) ** 2) < bound.total


BENT = identical_clients(piecewise_quadratic(1.0, left=0.05), sigma=0.5, clients=64, start=2.0)


@pytest.mark.parametrize("variant", ["I", "II"])
@pytest.mark.parametrize("lr", [None, 0.5])
def test_theorem_3_1_holds(variant, lr):
    L, mu, sigma, M, K, R, start = 1.0, 0.05, 0.5, 64, 8, 24, 2.0
    made, F = BENT, BENT.objective
    potential = float(F(start)) + mu / (2 if variant == "I" else 6) * start**2
    bound = theorem_3_1(mu=mu, L=L, sigma=sigma, potential=potential, M=M, K=K, R=R, variant=variant, lr=lr)
    end = mean_end(made, fedax.FedAc(lr=bound.lr, mu=mu, variant=variant), K, R)
    assert end < bound.total
    assert end < potential / 4  # it has converged some way, so that the bound says something


def mean_end(made, method, K, R, seeds=4):
    """The mean of F at a method's last models."""
    options = {"local_steps": K, "batch_size": 1, "sampling": "iid", "eval_every": R, "eval_on": ("train",)}
    runs = (fedax.simulate(made.problem, made.federation, method, rounds=R, seed=s, **options) for s in range(seeds))
    return np.mean([float(made.objective(run.model)) for run in runs])


def test_theorem_3_3_holds():
    L, Q, sigma, M, K, R, start = 1.0, 2.0, 0.3, 32, 6, 20, 1.0
    made = identical_clients(smooth_bend(L, Q), sigma, M, start)
    xi = made.federation.arrays["xi"]
    potential = float(made.objective(start)) + L / 2 / 6 * start**2
    fourth = np.mean(xi**4) ** 0.25
    bound = theorem_3_3(mu=L / 2, L=L, Q=Q, sigma=fourth, potential=potential, M=M, K=K, R=R)
    assert mean_end(made, fedax.FedAc(lr=bound.lr, mu=L / 2, variant="II"), K, R) < bound.total


def test_theorem_b_21_holds():
    # flat left of 0: convex, with no strong convexity; the nearest minimiser is 0
    L, sigma, M, K, R, start = 1.0, 0.05, 64, 6, 30, 2.0
    made = identical_clients(piecewise_quadratic(L, left=0.0), sigma, M, start)
    bound, weight = theorem_b_21(L=L, B=start, sigma=sigma, M=M, K=K, R=R)
    end = mean_end(made, fedax.FedAc(lr=bound.lr, mu=weight, augment=True), K, R)
    assert end < bound.total
    assert end < float(made.objective(start)) / 4


def soft(x):
    """sqrt(1 + x^2) - 1: L = 1, convex with no strong convexity, and |F'''| is at most 3/2 * 1.25^-2.5."""
    return (1 + x**2) ** 0.5 - 1


@pytest.mark.parametrize(
    ("objective", "mu", "Q", "start"),
    [(smooth_bend(1.0, 2.0), 0.5, 2.0, 1.0), (soft, 0.0, 1.5 * 1.25**-2.5, 2.0)],
    ids=["mu > 0", "mu = 0"],
)
def test_table_3_1_covers_the_best_step_size(objective, mu, Q, start):
    sigma, M, K, R = 2.0, 64, 8, 40
    made = identical_clients(objective, sigma, M, start)
    fourth = np.mean(made.federation.arrays["xi"] ** 4) ** 0.25
    rates = table_3_1(L=1.0, B=start, sigma=fourth, Q=Q, M=M, K=K, R=R, mu=mu)
    weight = mu or theorem_b_21(L=1.0, B=start, sigma=sigma, M=M, K=K, R=R)[1]
    accelerated = (fedax.FedAc(lr=lr, mu=weight, variant="II", augment=not mu) for lr in (0.01, 0.03))
    best = {
        "FedAvg": min(mean_end(made, fedax.FedAvg(lr=lr), K, R, 2) for lr in (0.01, 0.03)),
        "FedAc": min(mean_end(made, method, K, R, 2) for method in accelerated),
    }
    for (_, method), rate in rates.items():
        assert best[method] < rate < float(made.objective(start)) / 4
    if mu:  # the noise that M clients average away is needed: for ever more clients the rate is below this run's error
        limit = table_3_1(L=1.0, B=start, sigma=fourth, Q=Q, M=math.inf, K=K, R=R, mu=mu)
        assert best["FedAvg"] > limit["A3.2", "FedAvg"]


def shrink(y, t):
    return np.sign(y) * np.maximum(np.abs(y) - t, 0)


@pytest.mark.parametrize("theorem", ["4.3", "4.4", "4.7"])
def test_theorems_4_3_4_4_and_4_7_hold_on_a_lasso(theorem):
    # FedDualAvg, h = |x|^2 / 2, F_m = x'x / 2 - b_m x, psi = lam |x|_1: A = I, the theorem's norm is the Euclidean one
    rng, lam, sigma, M, K, R = np.random.default_rng(0), 0.3, 0.7, 6, 4, 30
    b = rng.normal(size=(M, 3)) + np.array([2.0, 0.1, -1.0])
    mean, zeta = b.mean(0), np.linalg.norm(b - b.mean(0), axis=1).max()

    def phi(x):
        return (x**2).sum(-1) / 2 - x @ mean + lam * np.abs(x).sum(-1)

    best = shrink(mean, lam)
    G = 2 * np.linalg.norm(b, axis=1).max() + sigma  # asserted below
    setting = {"L": 1.0, "B": np.linalg.norm(best) / math.sqrt(2), "sigma": sigma, "M": M, "K": K, "R": R}
    bound = {
        "4.3": lambda: theorem_4_3(**setting),
        "4.4": lambda: theorem_4_4(**setting, G=G),
        "4.7": lambda: theorem_4_7(**setting, zeta=zeta),
    }[theorem]()
    server = 1000 if theorem == "4.3" else 1  # 4.3: a tiny client rate, and the server's makes up for it
    lr, models, y = bound.lr / server, [], np.zeros((SEEDS, M, 3))
    for r in range(R):
        first = y[:, 0]
        for k in range(K):
            weight = bound.lr * r * K + lr * k  # Algorithm 6, line 8
            g = shrink(y, weight * lam) - b + rng.choice([-1, 1], size=y.shape) * sigma / math.sqrt(3)
            assert np.linalg.norm(g, axis=2).max() <= G
            y = y - lr * g
            if server == 1:
                models.append(shrink(y.mean(1), (weight + lr) * lam))  # eq. 4.9
        new = first + server * (y.mean(1) - first)
        if server > 1:
            models.append(shrink(new, bound.lr * (r + 1) * K * lam))
        y = np.broadcast_to(new[:, None], y.shape)
    assert 0 < np.mean(phi(np.mean(models, 0))) - phi(best) < bound.total


def history_of_gradients(method, b, rounds, **options):
    """||grad f||^2 before each round, on f_i = |x - b_i|^2 / 2, from the logged training loss."""
    import jax.numpy as jnp

    problem = fedax.Problem(
        loss=lambda x, batch: jnp.mean(jnp.sum((x - batch["b"]) ** 2, -1)) / 2, init=lambda key: jnp.zeros(b.shape[-1])
    )
    federation = fedax.Federation.from_clients([{"b": rows} for rows in b])
    result = fedax.simulate(problem, federation, method, rounds=rounds, eval_on=("train",), **options)
    loss = np.array([row["train_loss"] for row in result.history])[:-1]
    rows, centre = b.reshape(-1, b.shape[-1]), b.mean((0, 1))
    return np.maximum(2 * (loss - ((rows - centre) ** 2).sum(1).mean() / 2), 0)


def test_feddepers_theorem_1_holds():
    rng, n, cohort, K, R = np.random.default_rng(0), 8, 4, 4, 60
    b = rng.normal(size=(n, 5, 2)) + 2 * rng.normal(size=(n, 1, 2)) + 3
    own = b.mean(1)
    sigma = math.sqrt(((b - own[:, None]) ** 2).sum(2).mean(1).max())
    spread = math.sqrt(((own - own.mean(0)) ** 2).sum(1).mean())
    Delta = (own.mean(0) ** 2).sum() / 2
    bound = feddeper_theorem_1(L=1.0, Delta=Delta, sigma=sigma, spread=spread, n=n, m=cohort, K=K, R=R)
    method = fedax.FedDeper(lr=bound.lr, rho=bound.lr)
    options = {"local_steps": K, "batch_size": 1, "sampling": "iid", "cohort": cohort}
    found = history_of_gradients(method, b, R, **options)
    assert found.mean() < bound.total


def test_feddepers_theorem_2_needs_a_curvature():
    """FedDeper in NumPy with curvatures 1 and 0.1: the bound holds, and ||x - x*||^2 <= ||grad f||^2 / L^2 does not."""
    rng, n, m, K, R = np.random.default_rng(0), 8, 4, 4, 60
    h, b = np.array([1.0, 0.1]), rng.normal(size=(n, 2)) + 3
    best, spread = b.mean(0), math.sqrt(((h * (b - b.mean(0))) ** 2).sum(1).mean())
    known = {"L": 1.0, "Delta": (h * best**2).sum() / 2, "sigma": 0.0, "spread": spread, "n": n, "m": m, "K": K, "R": R}
    bound = feddeper_theorem_2(mu=0.1, **known)
    x, v, own, shared, slopes = np.zeros(2), np.zeros((n, 2)), [], [], []
    for _ in range(R):
        shared.append(((x - best) ** 2).sum())
        slopes.append(((h * (x - best)) ** 2).sum())
        work = rng.permutation(n)[:m]
        y = np.tile(x, (m, 1))
        for _ in range(K):
            own.append(((v - best) ** 2).sum(1).mean())
            y = y - bound.lr * h * (y - b[work]) - bound.lr * (v[work] + y - 2 * x)
            v[work] -= bound.lr * h * (v[work] - b[work])
        v[work] = (v[work] + y) / 2
        x = y.mean(0)
    assert np.mean(own) < bound.total
    assert np.mean(shared) > np.mean(slopes)


def test_fedspeeds_theorem_4_4_holds():
    rng, m, K, R, lam = np.random.default_rng(0), 6, 60, 80, 0.05
    b, sigma, rho = rng.normal(size=(m, 2)) + 4, 0.5, 0.02
    zeta = math.sqrt(((b - b.mean(0)) ** 2).sum(1).mean())
    lr = 1 / (64 * math.sqrt(3 * K))
    gamma = 1 - (1 - lr / lam) ** K
    x, duals, u, path, first = np.zeros(2), np.zeros((m, 2)), np.zeros(2), [], None
    for _ in range(R):
        local = np.tile(x, (m, 1))
        for _ in range(K):
            noise = rng.normal(size=local.shape) * sigma / math.sqrt(2)
            g = local - b + noise
            g = g + rho * g  # the gradient at x + rho g, through the same draw
            local = local - lr * (g - duals + (local - x) / lam)
        duals = duals - (local - x) / lam
        u, before = local.mean(0), u
        z = u + (1 - gamma) / gamma * (u - before)
        first = first or (((z - b.mean(0)) ** 2).sum() / 2, (duals**2).sum(1).mean(), (duals.mean(0) ** 2).sum())
        path.append(((z - b.mean(0)) ** 2).sum())
        x = u - lam * duals.mean(0)
    bound = fedspeed_theorem_4_4(
        L=1.0,
        Delta=first[0],
        sigma=sigma,
        zeta=zeta,
        lam=lam,
        K=K,
        R=R,
        rho=rho,
        lr=lr,
        duals=first[1],
        mean_dual=first[2],
    )
    assert np.mean(path[:-1]) < bound.total


def test_pfedfbes_theorem_1_holds():
    # f_i = |x - b_i|^2 / 2, no psi: the envelope is (1 - 1/lam) f_i, its Hessian constant, full gradients
    rng, n, K, R, lam = np.random.default_rng(0), 6, 4, 50, 2.0
    b = rng.normal(size=(n, 1, 2)) + 2
    gamma = np.linalg.norm(b[:, 0] - b.mean((0, 1)), axis=1).max()
    Delta = (1 - 1 / lam) * (b.mean((0, 1)) ** 2).sum() / 2
    bound = pfedfbe_theorem_1(lam=lam, L=1.0, Delta=Delta, N=n, S=n, K=K, R=R, gamma_G=gamma, batch=1, rows=1)
    found = (1 - 1 / lam) ** 2 * history_of_gradients(fedax.PFedFBE(lr=bound.lr, lam=lam), b, R, local_steps=K)
    assert found.mean() < bound.total
    assert bound.total < 1e3 * found.mean()


def test_without_noise_or_difference_only_the_distance_is_left():
    calm = {"sigma": 0.0}
    for bound in (
        proposition_2_1(**CONVEX | calm),
        theorem_2_19(**CONVEX | calm, Q=3.0),
        theorem_3_1(**STRONG | calm),
        theorem_3_1(**STRONG | calm, variant="II"),
        theorem_3_3(**STRONG | calm, Q=3.0),
        theorem_3_4(**{k: v for k, v in (STRONG | calm).items() if k != "potential"}, B=1.0, Q=3.0),
        theorem_4_3(**CONVEX | calm),
        theorem_4_4(**CONVEX | calm, G=0.0),
        theorem_4_7(**CONVEX | calm),
        feddeper_theorem_1(L=1.0, Delta=1.0, sigma=0.0, n=4, m=4, K=3, R=10),
        fedspeed_theorem_4_4(L=1.0, Delta=1.0, sigma=0.0, zeta=0.0, lam=0.01, K=9, R=9),
        pfedfbe_theorem_1(lam=3.0, L=1.0, Delta=1.0, N=4, S=4, K=3, R=9),
    ):
        assert bound.total == pytest.approx(next(iter(bound.terms.values()))), bound.theorem
        assert len([v for v in bound.terms.values() if v]) == 1, bound.theorem


def test_the_third_order_bounds_have_no_overhead_on_a_quadratic():
    for bound in (
        theorem_2_19(**CONVEX, Q=0.0),
        theorem_2_23(**FREE, Q=0.0),
        theorem_3_3(**STRONG, Q=0.0),
        theorem_3_4(**{k: v for k, v in STRONG.items() if k != "potential"}, B=1.0, Q=0.0),
    ):
        assert list(bound.terms.values())[-1] == 0, bound.theorem


def test_with_ever_more_clients_only_what_averaging_cannot_remove_is_left():
    many = {"M": math.inf}
    for bound in (
        proposition_2_1(**CONVEX | many),
        theorem_2_19(**CONVEX | many, Q=1.0),
        theorem_2_22(**FREE | many),
        theorem_3_1(**STRONG | many),
        theorem_3_1(**STRONG | many, variant="II"),
        theorem_4_7(**CONVEX | many),
    ):
        assert bound.terms["noise"] == 0, bound.theorem
        assert 0 < bound.total < math.inf, bound.theorem
    assert table_2_1(**CONVEX | many)["upper"] < table_2_1(**CONVEX)["upper"]


def test_the_chosen_rate_is_nearly_the_best():
    # the proofs balance the terms: no rate can halve them more often than there are terms
    for theorem, setting in (
        (proposition_2_1, CONVEX | {"zeta": 0.7}),
        (theorem_2_19, CONVEX | {"Q": 0.5}),
        (theorem_2_22, FREE),
        (theorem_4_7, CONVEX | {"zeta": 0.7}),
    ):
        chosen = theorem(**setting)
        limit = math.log(theorem(**setting | {"sigma": 0.0} | ({"zeta": 0.0} if "zeta" in setting else {})).lr)

        def at(log_lr, theorem=theorem, setting=setting):
            return theorem(**setting, lr=math.exp(log_lr)).total

        best = minimize_scalar(at, bounds=(limit - 12, limit), method="bounded").fun
        assert best <= chosen.total * (1 + 1e-6)
        assert chosen.total < 40 * best, theorem.__name__


def test_the_rates_of_the_tables():
    setting = {"L": 1.0, "B": 2.0, "sigma": 3.0, "M": 4, "K": 5, "R": 6}
    upper = 4 / 30 + 6 / math.sqrt(120) + (9 * 16 / (5 * 36)) ** (1 / 3)
    assert table_2_1(**setting)["upper"] == pytest.approx(upper)
    assert table_2_1(**setting, zeta=2.0)["upper"] == pytest.approx(upper + (4 * 16 / 36) ** (1 / 3))
    assert table_2_1(**setting, zeta=2.0)["lower"] == pytest.approx(upper)
    rows = table_3_1(**setting, Q=0.0)
    assert rows["A3.1", "FedAvg"] == pytest.approx(upper)  # the same rate in both tables
    assert rows["A3.2", "FedAvg"] == pytest.approx(4 / 30 + 6 / math.sqrt(120))
    strong = table_3_1(**setting, Q=2.0, mu=0.5)
    assert strong["A3.1", "FedAvg"] == pytest.approx(9 / (0.5 * 120) + 9 / (0.25 * 5 * 36))
    assert strong["A3.2", "FedAc"] == pytest.approx(9 / (0.5 * 120) + 4 * 81 / (0.5**5 * 25 * 6**8))


@pytest.mark.parametrize("mu", [0.0, 0.1])
def test_a_rate_has_the_unit_of_the_objective(mu):
    # x -> x / l, F -> f F: L f l^2, Q f l^3, sigma f l, B / l; every rate must scale as F
    f, l = 3.0, 2.0
    setting = {"L": 1.0, "B": 2.0, "sigma": 3.0, "M": 4, "K": 5, "R": 6}
    scaled = setting | {"L": f * l**2, "B": 2.0 / l, "sigma": 3.0 * f * l}
    one = table_3_1(**setting, Q=2.0, mu=mu)
    other = table_3_1(**scaled, Q=2.0 * f * l**3, mu=mu * f * l**2)
    for key in one:
        assert other[key] == pytest.approx(f * one[key]), key
    assert table_2_1(**scaled, zeta=f * l)["upper"] == pytest.approx(f * table_2_1(**setting, zeta=1.0)["upper"])
    speed = {"Delta": 1.0, "sigma": 1.0, "zeta": 1.0, "K": 50, "R": 9, "duals": 1.0, "mean_dual": 1.0}
    square = (f * l) ** 2
    there = {"Delta": f, "sigma": f * l, "zeta": f * l, "K": 50, "R": 9, "duals": square, "mean_dual": square}
    a = fedspeed_theorem_4_4(L=1.0, lam=0.05, rho=0.1, **speed).total
    b = fedspeed_theorem_4_4(L=f * l**2, lam=0.05 / (f * l**2), rho=0.1 / (f * l**2), **there).total
    assert b == pytest.approx(square * a)
    own = {"N": 4, "S": 2, "K": 3, "R": 9}
    here = pfedfbe_theorem_1(lam=3.0, L=1.0, Delta=1.0, gamma_G=1.0, sigma_G=1.0, lr=0.001, **own).total
    unit = f * l**2
    far = pfedfbe_theorem_1(lam=3 * unit, L=unit, Delta=f, gamma_G=f * l, sigma_G=f * l, lr=0.001 / unit, **own).total
    assert far == pytest.approx(square * here)
    mixed = {"n": 4, "T": 400, "K": 3}
    here = apfl_theorem_3(0.5, L=1.0, diameter=3.0, own_height=1.0, height=1.0, zeta_i=1.0, zeta=2.0, **mixed).total
    there = {"own_height": f, "height": f, "zeta_i": square, "zeta": 2 * square}
    assert apfl_theorem_3(0.5, L=unit, diameter=3 / l**2, **there, **mixed).total == pytest.approx(square * here)


def test_apfls_limits():
    setting = {"mu": 0.5, "L": 1.0, "sigma": 1.0, "n": 10, "m": 10, "T": 1e4, "K": 10}
    assert apfl_theorem_2(1.0, **setting, zeta_i=3.0, zeta=30.0, optima_apart=4.0).total == pytest.approx(2 / 5000)
    mixed = apfl_theorem_2(0.96, **setting | {"T": math.inf}, zeta_i=3.0, zeta=30.0, optima_apart=4.0)
    assert mixed.total == mixed.terms["residual"] > 0
    assert apfl_theorem_2(0.96, **setting | {"T": math.inf}).total == 0  # clients alike: no residual
    free = {"L": 1.0, "n": 10, "K": 4, "diameter": 9.0, "own_height": 2.0, "height": 5.0, "zeta_i": 3.0}
    alone = apfl_theorem_3(1.0, **free, T=400, zeta=30.0)
    assert alone.total == pytest.approx(8 * 2 / (alone.lr * 400)) == pytest.approx(2 * 16 * math.sqrt(5) / 20)
    shared = apfl_theorem_3(0.0, **free, T=1e30)
    assert shared.total == pytest.approx(48 * 3 + 128 * 9)
    short = apfl_theorem_3(0.5, **free | {"K": 100}, T=400)  # K above sqrt(T): Lemma 10's limit is the smaller one
    assert short.lr == pytest.approx(1 / (2 * math.sqrt(5) * 100))


def risk_is_above(p, rows, alpha, seed=0, **changed):
    """How often, over draws, the mixed model's risk is above Theorem 1's bound: for the client where that is oftenest.

    y is 1 with probability p_i on client i, models are the constants in [0, 1] (dimension 1), the loss is squared:
    B = 1, G = 2, lambda_H = 1, ||D - D_i||_1 = 2 |p_i - mean|, and every risk and minimiser has a closed form. Over
    all models a risk differs from its empirical one by at most |p - phat|, so that Hoeffding's inequality for the
    local and the shared rows, delta/2 each, gives C.
    """
    p, delta, draws = np.array(p), 0.05, 400
    C = math.sqrt(math.log(4 / delta) / (2 * (1 + math.log(1 / delta))))
    own = np.random.default_rng(seed).binomial(rows, p, size=(draws, len(p))) / rows
    shared = own.mean(1, keepdims=True)
    local = np.clip((own - (1 - alpha) * shared) / alpha, 0, 1) if alpha else 0 * own
    risk = p * (1 - p) + (alpha * local + (1 - alpha) * shared - p) ** 2
    setting = {"local_rows": rows, "all_rows": rows * len(p), "dimension": 1, "delta": delta, "constant": C}
    above = []
    for i in range(len(p)):
        known = {"local_risk": p[i] * (1 - p[i]), "divergence": 2 * abs(p[i] - p.mean()), "disagreement": 2.0}
        bound = [
            apfl_theorem_1(alpha, **setting | known | {"shared_risk": h * (1 - h)} | changed) for h in shared[:, 0]
        ]
        above.append(np.mean(risk[:, i] > bound))
    return max(above)


RARE, FAR = ([0.01, 0.02, 0.03], 5), ([1.0] + 7 * [0.0], 400)


@pytest.mark.parametrize("alpha", [0.0, 0.3, 0.7, 1.0])
def test_apfls_theorem_1_holds_as_often_as_it_says(alpha):
    for p, rows in (RARE, FAR, ([0.3, 0.5, 0.7], 30)):
        assert risk_is_above(p, rows, alpha) <= 0.05


def test_apfls_theorem_1_needs_its_terms():
    assert risk_is_above(*RARE, 0.0, constant=0.0) > 0.5  # no 1 was drawn, and the empirical risk is 0
    assert risk_is_above(*FAR, 0.0, divergence=0.0) > 0.5  # one client unlike all others


@pytest.mark.parametrize("alpha", [0.0, 0.5, 0.98, 1.0])
def test_apfls_theorem_3_holds(alpha):
    # f_i = 1 - cos(x - b_i), not convex, L = 1; f_i' - F' is a sine whose height is |e^(i b_i) - their mean|
    b, K, T, radius = np.array([-1.0, 0.2, 0.9, 1.3]), 5, 2500, 1.6
    points = np.exp(1j * b)
    apart = np.abs(points - points.mean()) ** 2
    start, lr = -1.5, 1 / (2 * math.sqrt(5 * T))
    w, v, total = np.full(4, start), np.full(4, start), np.zeros(4)
    for t in range(1, T + 1):
        total += np.sin(alpha * v + (1 - alpha) * w.mean() - b) ** 2
        slopes = np.sin(w - b), alpha * np.sin(alpha * v + (1 - alpha) * w - b)
        w, v = (np.clip(x - lr * g, -radius, radius) for x, g in zip((w, v), slopes, strict=True))
        w = np.full(4, w.mean()) if t % K == 0 else w
    for i in range(4):
        heights = {"own_height": 1 - math.cos(start - b[i]), "height": abs(points.mean()) - np.cos(start - b).mean()}
        setting = {"L": 1.0, "n": 4, "T": T, "K": K, "diameter": (2 * radius) ** 2, "zeta": apart.sum()}
        bound = apfl_theorem_3(alpha, **setting, **heights, zeta_i=apart[i])
        assert bound.lr == pytest.approx(lr)
        assert total[i] / T < bound.total
        if alpha == 1:
            assert bound.total < 16 * total[i] / T  # the proof loses a factor 8


@pytest.mark.parametrize("alpha", [0.95, 1.0])
def test_apfls_theorem_2_with_constants_1_covers_a_run(alpha):
    # f_i = (x - b_i)^2 / 2: L = mu = 1, zeta_i = Delta_i = (b_i - mean)^2, lr = 16 / (t + 128), weights (t + 128)^2
    rng, K, T, sigma, b = np.random.default_rng(0), 5, 2000, 2.0, np.array([-1.0, 0.0, 2.0, 3.0])
    apart = (b - b.mean()) ** 2
    w, v = np.zeros((SEEDS, 4)), np.zeros((SEEDS, 4))
    total, weights = np.zeros((SEEDS, 4)), 0.0
    for t in range(1, T + 1):
        lr, noise = 16 / (t + 128), sigma * rng.normal(size=w.shape)
        mixed = alpha * v + (1 - alpha) * w
        w, v = w - lr * (w - b + noise), v - lr * alpha * (mixed - b + noise)
        if t % K == 0:
            w = np.broadcast_to(w.mean(1, keepdims=True), w.shape)
        total += (t + 128) ** 2 * (alpha * v + (1 - alpha) * w.mean(1, keepdims=True))
        weights += (t + 128) ** 2
    error = ((total / weights - b) ** 2 / 2).mean(0)
    for i in range(4):
        setting = {"zeta_i": apart[i], "zeta": apart.sum(), "optima_apart": apart[i]}
        assert error[i] < apfl_theorem_2(alpha, mu=1.0, L=1.0, sigma=sigma, n=4, m=4, T=T, K=K, **setting).total


def test_the_mixing_weight_minimises_the_bound():
    setting = RISKS
    for divergence in (0.0, 0.4, 2.0):
        best = optimal_mixing_weight(**setting, divergence=divergence)
        found = minimize_scalar(
            lambda a, divergence=divergence: apfl_theorem_1(a, **setting, divergence=divergence),
            bounds=(0, 1),
            method="bounded",
            options={"xatol": 1e-9},
        ).x
        assert best == pytest.approx(found, abs=1e-6)
        assert 0 < best < 1
    endless = setting | {"local_rows": 1e18, "all_rows": 1e18, "local_risk": 0.0, "divergence": 0.5}
    assert optimal_mixing_weight(**endless) == pytest.approx(1, abs=1e-6)


def test_b_21_is_lemma_b_24_at_its_own_weight():
    found, weight = theorem_b_21(L=1.0, B=2.0, sigma=0.5, M=16, K=8, R=50)
    with_mu = theorem_3_1(mu=weight, L=1 + weight, sigma=0.5, potential=1.0, M=16, K=8, R=50, lr=found.lr)
    for term in ("noise", "noise between averagings"):
        assert found.terms[term] == pytest.approx(with_mu.terms[term])
    assert found.terms["weight of the anchor"] == pytest.approx(weight * 2)


@pytest.mark.parametrize(
    ("ask", "sentence"),
    [
        (lambda: theorem_3_1(**STRONG | {"mu": 0.0}), "mu is 0.0: Theorem 3.1 needs a strongly convex problem"),
        (lambda: theorem_3_1(**STRONG | {"mu": 9.0}), "mu must be at most L = 2.0, not 9.0"),
        (lambda: theorem_3_1(**STRONG, variant="III"), "unknown variant 'III': did you mean 'II'"),
        (lambda: proposition_2_1(**CONVEX | {"L": -1.0}), "L must be above 0 and finite, not -1.0"),
        (lambda: proposition_2_1(**CONVEX | {"sigma": -1.0}), "sigma must be in [0, inf), not -1.0"),
        (lambda: proposition_2_1(**CONVEX | {"K": 0}), "K must be at least 1, not 0"),
        (lambda: proposition_2_1(**CONVEX, lr=0.2), "lr must be in (0, 0.125], that is at most 1/(4L), not 0.2"),
        (lambda: optimal_mixing_weight(**RISKS, divergence=3),
         "divergence must be in [0, 2], the L1 distance of two distributions, not 3"),
        (lambda: apfl_theorem_2(0.1, mu=0.1, L=1.0, sigma=1.0, n=2, m=2, T=9, K=1), "alpha must be in [0.98"),
        (lambda: pfedfbe_theorem_1(lam=1.0, L=1.0, Delta=1.0, N=2, S=2, K=1, R=1), "lam must be above L = 1.0"),
        (lambda: fedspeed_theorem_4_4(L=1.0, Delta=1.0, sigma=0, zeta=0, lam=9.0, K=5, R=9), "at least lam = 9.0"),
    ],
)  # fmt: skip
def test_bad_input_is_one_sentence(ask, sentence):
    with pytest.raises(FedaxError) as error:
        ask()
    assert sentence in str(error.value)


def test_every_bound_spells_out_its_assumptions():
    bound = bounds.proposition_2_1(**CONVEX)
    assert bound.dominant in bound.terms
    assert all(isinstance(words, str) and words for words in bound.assumptions)
