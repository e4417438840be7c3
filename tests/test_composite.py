"""Composite problems: every method lands where an independent solver does, and the solutions are really sparse."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from scipy.optimize import minimize
from sklearn.linear_model import Lasso

import fedax
from conftest import vector
from fedax.engine import Simulation
from fedax.models import model
from fedax.regularizers import L1, L1Ball, L2Ball, Nuclear, NuclearBall, Simplex
from fedax.testing.whole_runs import compilations


def rows(seed, clients, n, d, truth, noise=0.3):
    rng = np.random.default_rng(seed)
    made = []
    for _ in range(clients):
        x = rng.normal(size=(n, *np.shape(truth))) + 0.3 * rng.normal(size=np.shape(truth))
        made.append({"x": x, "y": np.tensordot(x, truth, np.ndim(truth)) + noise * rng.normal(size=n)})
    return fedax.Federation.from_clients(made)


TRUTH = np.concatenate([np.ones(5), np.zeros(15)])
LINEAR = (lambda key, x: {"w": jnp.zeros(x.shape[1:])}, lambda p, x: jnp.tensordot(x, p["w"], x.ndim - 1))
#: methods whose limit with one client, or with K = 1 and all clients, is the solution for (a multiple of) psi
METHODS = [
    (fedax.FedMiD(lr=0.2), 2.0),
    (fedax.FedMiD(lr=0.2, client_prox=False), 1.0),
    (fedax.FedDualAvg(lr=0.2), 1.0),
    (fedax.FedADMM(lr=0.2, eta=1.0), 1.0),
]


def lasso(federation, strength):
    x, y = federation.arrays["x"], federation.arrays["y"]
    return Lasso(alpha=strength, fit_intercept=False, tol=1e-12, max_iter=100_000).fit(x, y).coef_


@pytest.mark.parametrize("clients", [1, 4])
@pytest.mark.parametrize(("method", "multiple"), METHODS, ids=lambda m: repr(m)[:60])
def test_lasso_is_that_of_scikit_learn(method, multiple, clients, x64):
    federation = rows(0, clients, 60, 20, TRUTH)
    problem = fedax.Problem(LINEAR, loss="squared", regularizer=L1(0.1))
    result = fedax.simulate(problem, federation, method, rounds=800, eval_every=800)
    expected = lasso(federation, multiple * 0.1)
    np.testing.assert_allclose(result.model["w"], expected, atol=1e-8)
    last = result.history[-1]
    assert last["density"] == np.mean(np.abs(expected) > 1e-2)
    assert (last["prox_gradient"] < 1e-8) == (multiple == 1.0)


def test_pfedfbe_rests_where_f_plus_psi_does(x64):
    federation = rows(0, 1, 60, 20, TRUTH)
    problem = fedax.Problem(LINEAR, loss="squared", regularizer=L1(0.1))
    for hessian, tolerance in (("exact", 1e-8), ("finite-difference", 1e-6), ("none", 1e-8)):
        method = fedax.PFedFBE(lr=0.15, lam=4.0, hessian=hessian)
        result = fedax.simulate(problem, federation, method, rounds=800, eval_every=800)
        np.testing.assert_allclose(result.personal(0)["w"], lasso(federation, 0.1), atol=tolerance)


def test_pfedfbe_keeps_the_last_theta_of_a_clients_own_round(x64):
    """One client, one local step from w: that theta is eq. 8's at the w before the round."""
    federation = rows(0, 1, 60, 20, TRUTH)
    problem = fedax.Problem(LINEAR, loss="squared", regularizer=L1(0.1))
    before = fedax.simulate(problem, federation, fedax.PFedFBE(lr=0.15, lam=4.0), rounds=3, eval_every=3)
    after = fedax.simulate(problem, federation, fedax.PFedFBE(lr=0.15, lam=4.0, own="rounds"), rounds=4, eval_every=4)
    np.testing.assert_allclose(after.personal(0)["w"], before.personal(0)["w"], atol=1e-12)


def test_pfedfbe_follows_equation_9(x64):
    """Two clients, full gradients, three local steps: the recursion written out in NumPy."""
    federation = rows(1, 2, 30, 20, TRUTH)
    lam, lr, strength = 5.0, 0.1, 0.2
    soft = lambda v, t: np.sign(v) * np.maximum(np.abs(v) - t, 0)  # noqa: E731
    w = np.zeros(20)

    def parts(i, w):
        c = federation.client(i)
        hessian = c["x"].T @ c["x"] / 30
        theta = soft(w - c["x"].T @ (c["x"] @ w - c["y"]) / 30 / lam, strength / lam)
        return hessian, theta

    for _ in range(4):
        ends = []
        for i in range(2):
            w_i = w
            for _ in range(3):
                hessian, theta = parts(i, w_i)
                w_i = w_i - lr * lam * (np.eye(20) - hessian / lam) @ (w_i - theta)
            ends.append(w_i)
        w = np.mean(ends, axis=0)
    problem = fedax.Problem(LINEAR, loss="squared", regularizer=L1(strength))
    result = fedax.simulate(problem, federation, fedax.PFedFBE(lr=lr, lam=lam), rounds=4, local_steps=3)
    np.testing.assert_allclose(result.model["w"], w, rtol=1e-10)
    residuals = []
    for i in range(2):
        own, c = parts(i, w)[1], federation.client(i)
        np.testing.assert_allclose(result.personal(i)["w"], own, rtol=1e-10)
        residuals.append(np.linalg.norm(own - soft(own - c["x"].T @ (c["x"] @ own - c["y"]) / 30, strength)))
    assert result.history[-1]["personal_prox_gradient"] == pytest.approx(np.mean(residuals), rel=1e-9)
    assert min(residuals) > 1e-3


def test_pfedfbe_finds_each_clients_own_support_where_every_curvature_is_lam(x64):
    """The paper's Lasso II, reduced to its remark after eq. 8: for Hessians lam I the personal models are the clients'
    own solutions, their soft-thresholded least squares, whatever the shared one is; the other methods' are not."""
    rng, made, solutions = np.random.default_rng(5), [], []
    truths = [np.concatenate([np.ones(4), 0.5 * np.eye(28)[4 * i]]) for i in range(6)]
    for truth in truths:
        x = np.sqrt(32) * np.linalg.qr(rng.normal(size=(32, 32)))[0]
        y = x @ truth + 0.3 * rng.normal(size=32)
        made.append({"x": x, "y": y})
        least_squares = x.T @ y / 32
        solutions.append(np.sign(least_squares) * np.maximum(np.abs(least_squares) - 0.25, 0))
    federation = fedax.Federation.from_clients(made)
    problem = fedax.Problem(LINEAR, loss="squared", regularizer=L1(0.25))
    options = {"rounds": 60, "cohort": 3, "local_steps": 5, "batch_size": 16, "eval_every": 60, "protocol": False}

    def supports(method):
        result = fedax.simulate(problem, federation, method, **options)
        return result, [np.abs(result.personal(i)["w"]) > 1e-2 for i in range(6)]

    own, found = supports(fedax.PFedFBE(lr=0.1, lam=1.0))
    for i, truth in enumerate(truths):
        np.testing.assert_allclose(own.personal(i)["w"], solutions[i], atol=1e-10)
        np.testing.assert_array_equal(found[i], truth > 0)
    others = (
        fedax.FedAvg(lr=0.1),
        fedax.FedMiD(lr=0.1),
        fedax.PFedMe(lr=0.1, lam=1.0, inner_lr=0.1),
        fedax.Ditto(lr=0.1, lam=0.1),
    )
    for method in others:
        assert not any(np.array_equal(a, t > 0) for a, t in zip(supports(method)[1], truths, strict=True)), method


@pytest.mark.parametrize(("method", "multiple"), METHODS, ids=lambda m: repr(m)[:60])
def test_nuclear_norm_is_that_of_a_proximal_gradient_in_numpy(method, multiple, x64):
    truth = np.diag([1.0, 1.0, 0, 0, 0])
    # FedMiD averages points that were shrunk client by client: its limit is a solution (for 2 psi) with one client only
    federation = rows(2, 1 if multiple == 2 else 3, 240, 25, truth)
    problem = fedax.Problem(LINEAR, loss="squared", regularizer=Nuclear(0.3))
    result = fedax.simulate(problem, federation, method, rounds=1500, eval_every=1500)
    x, y = federation.arrays["x"].reshape(-1, 25), federation.arrays["y"]
    w, step = np.zeros((5, 5)), 1 / np.linalg.norm(x.T @ x / len(y), 2)
    for _ in range(5000):
        g = (x.T @ (x @ w.ravel() - y) / len(y)).reshape(5, 5)
        u, s, vt = np.linalg.svd(w - step * g)
        w = (u * np.maximum(s - step * multiple * 0.3, 0)) @ vt
    # w is the minimiser, whatever found it: -g is a subgradient of the norm there
    g = (x.T @ (x @ w.ravel() - y) / len(y)).reshape(5, 5)
    assert np.linalg.norm(g, 2) <= multiple * 0.3 + 1e-9
    assert np.sum(g * w) == pytest.approx(-multiple * 0.3 * np.linalg.norm(w, "nuc"), abs=1e-9)
    np.testing.assert_allclose(result.model["w"], w, atol=1e-4)
    assert result.history[-1]["rank"] == np.sum(np.linalg.svd(w, compute_uv=False) > 1e-2)


@pytest.mark.parametrize("mirror", ["entropy", "euclidean"])
def test_on_the_simplex_both_mirrors_reach_the_constrained_minimum(mirror, x64):
    federation = rows(3, 3, 50, 6, np.array([0.7, 0.3, 0, 0, -0.5, 0]))
    start = (lambda key, x: {"w": jnp.full(6, 1 / 6)}, LINEAR[1])
    problem = fedax.Problem(start, loss="squared", regularizer=Simplex())
    method = fedax.FedDualAvg(lr=0.5, mirror=mirror)
    result = fedax.simulate(problem, federation, method, rounds=4000, eval_every=4000)
    x, y = federation.arrays["x"], federation.arrays["y"]
    best = minimize(
        lambda w: np.mean((x @ w - y) ** 2) / 2,
        np.full(6, 1 / 6),
        jac=lambda w: x.T @ (x @ w - y) / len(y),
        bounds=[(0, 1)] * 6,
        constraints={"type": "eq", "fun": lambda w: w.sum() - 1},
        method="SLSQP",
        options={"ftol": 1e-14},
    )
    np.testing.assert_allclose(result.model["w"], best.x, atol=2e-3 if mirror == "entropy" else 1e-6)
    assert result.history[-1]["violation"] < 1e-12


@pytest.mark.parametrize("method", [fedax.FedMiD(lr=0.1), fedax.FedDualAvg(lr=0.1)], ids=repr)
def test_constraints_hold_throughout(method):
    federation = rows(4, 6, 40, 20, 3 * TRUTH)
    problem = fedax.Problem(LINEAR, loss="squared", regularizer=L2Ball(1.0))
    for row in fedax.stream(problem, federation, method, rounds=20, cohort=3, local_steps=5, batch_size=8):
        assert row["violation"] < 1e-6


def test_dual_averaging_keeps_the_rank_that_primal_averaging_loses():
    """The thesis' low-rank estimation, reduced: the best of a grid has the true rank, FedMiD's has not."""
    federation = fedax.data.low_rank("thesis-II", dimension=12, ones=2, clients=32, rows=64)
    problem = fedax.Problem(model("trace", outputs=1), loss="mse", regularizer=Nuclear(0.5))
    options = {"rounds": 60, "cohort": 8, "local_epochs": 1, "batch_size": 10, "eval_every": 20}
    rank = {}
    for method in (fedax.FedDualAvg(lr=0.1), fedax.FedMiD(lr=0.1), fedax.FedMiD(lr=0.1, client_prox=False)):
        grid = fedax.grid(method, {"lr": [0.001, 0.003], "server_lr": [0.3, 1.0, 3.0]})
        results = fedax.sweep(problem, federation, grid, **options)
        best = min(results, key=lambda r: r.history[-1]["recovery_error"])
        rank[type(method).__name__, method.client_prox] = best.history[-1]["rank"]
    assert rank.pop(("FedDualAvg", True)) == 2
    assert all(other > 2 for other in rank.values())


def equation_4_9(federation, cohorts, steps, strength, lr, server_lr, weighted):
    """Algorithm 6 with full gradients and psi = strength ||x||_1, and its output of eq. 4.9."""

    def retrieve(y, t):
        return np.sign(y) * np.maximum(np.abs(y) - strength * t, 0)

    def gradient(i, w):
        x, y = (federation.client(i)[key] for key in ("x", "y"))
        return x.T @ (x @ w - y) / len(y)

    y, points = np.zeros(len(TRUTH)), []
    for r, cohort in enumerate(cohorts):
        shares = federation.train.count[cohort] if weighted else np.ones(len(cohort))
        duals = np.tile(y, (len(cohort), 1))
        for k in range(steps):
            weight = lr * (server_lr * r * steps + k)
            duals = np.array([v - lr * gradient(i, retrieve(v, weight)) for i, v in zip(cohort, duals, strict=True)])
            mean = np.average(duals, axis=0, weights=shares)
            points.append(retrieve(mean, weight + lr))
        y = y + server_lr * (mean - y)
    return np.mean(points, axis=0)


@pytest.mark.parametrize(
    ("steps", "server_lr", "weighted"), [(1, 1.0, False), (5, 1.0, False), (5, 0.5, True)], ids=str
)
def test_the_averaged_output_is_that_of_equation_4_9(steps, server_lr, weighted, x64):
    parts = [rows(i, 1, n, 20, TRUTH).client(0) for i, n in enumerate((30, 12, 20, 45, 8))]
    federation = fedax.Federation.from_clients(parts)
    problem = fedax.Problem(LINEAR, loss="squared", regularizer=L1(0.2))
    method = fedax.FedDualAvg(lr=0.05, server_lr=server_lr, average=True)
    options = {"rounds": 6, "cohort": 3, "local_steps": steps, "weighted": weighted, "eval_every": 6}
    run = fedax.engine.Simulation(problem, federation, method, **options)
    expected = equation_4_9(federation, run.prepared.engine.draws.cohorts(0, 6), steps, 0.2, 0.05, server_lr, weighted)
    result = fedax.simulate(problem, federation, method, **options)
    np.testing.assert_allclose(vector(result.model), expected, rtol=1e-11, atol=1e-13)
    assert np.abs(expected).max() > 0.1
    # K duals and the K sums of rates that go with them
    assert result.history[-1]["floats_up"] == 6 * 3 * steps * (len(TRUTH) + 1)


def test_the_averaged_output_with_rates_that_change_within_a_round(x64):
    """A rate that falls over the round: the weight of psi is the sum of the rates taken, at every step."""
    federation = rows(0, 3, 30, 20, TRUTH)
    problem = fedax.Problem(LINEAR, loss="squared", regularizer=L1(0.2))
    rate = fedax.schedules.schedule("exponential", initial=0.1, decay=0.5, per="step")
    result = fedax.simulate(problem, federation, fedax.FedDualAvg(lr=rate, average=True), rounds=1, local_steps=3)
    y, weight, points = np.zeros((3, 20)), 0.0, []
    for lr in (0.1, 0.05, 0.025):
        for i in range(3):
            point = np.sign(y[i]) * np.maximum(np.abs(y[i]) - 0.2 * weight, 0)
            data = federation.client(i)
            y[i] -= lr * data["x"].T @ (data["x"] @ point - data["y"]) / 30
        weight += lr
        points.append(np.sign(y.mean(0)) * np.maximum(np.abs(y.mean(0)) - 0.2 * weight, 0))
    np.testing.assert_allclose(vector(result.model), np.mean(points, axis=0), rtol=1e-11, atol=1e-13)


def test_an_averaged_output_needs_equal_work():
    federation = fedax.Federation.from_clients([rows(i, 1, n, 20, TRUTH).client(0) for i, n in enumerate((30, 12))])
    problem = fedax.Problem(LINEAR, loss="squared", regularizer=L1(0.2))
    options = {"rounds": 1, "local_epochs": 1, "batch_size": 4}
    words = r"local_epochs=1 gives clients 3 to 8 local steps: FedDualAvg\(.*average=True.*\) needs the same number"
    with pytest.raises(fedax.FedaxError, match=words):
        fedax.simulate(problem, federation, fedax.FedDualAvg(lr=0.05, average=True), **options)


def test_bad_input_is_named(caplog):
    federation = rows(0, 2, 30, 20, TRUTH)
    matrix = fedax.Problem(LINEAR, loss="squared", regularizer=Nuclear(0.1))
    with pytest.raises(fedax.FedaxError, match="Nuclear acts on matrices, but leaf 'w' has shape"):
        fedax.simulate(matrix, federation, fedax.FedDualAvg(lr=0.1), rounds=1)
    outside = fedax.Problem(LINEAR, loss="squared", regularizer=Simplex())
    with pytest.raises(fedax.FedaxError, match="the first parameters lie outside Simplex"):
        fedax.simulate(outside, federation, fedax.FedDualAvg(lr=0.1), rounds=1)
    ball = fedax.Problem(LINEAR, loss="squared", regularizer=L2Ball(1.0))
    with pytest.raises(fedax.FedaxError, match="L2Ball is a constraint and has no subgradient"):
        fedax.simulate(ball, federation, fedax.FedAvg(lr=0.1), rounds=1)
    with pytest.raises(fedax.FedaxError, match="closed form"):
        fedax.simulate(ball, federation, fedax.FedMiD(lr=0.1, mirror="p-norm", p=1.5), rounds=1)
    problem = fedax.Problem(LINEAR, loss="squared", regularizer=L1(0.1))
    fedax.simulate(problem, federation, fedax.PFedFBE(lr=0.1, lam=1.0), rounds=1)
    assert "lam = 1 is not above the clients' smoothness, estimated as L = " in caplog.text
    x = jax.device_get(federation.client(0)["x"])
    largest = np.linalg.norm(x.T @ x / 30, 2)
    estimate = float(caplog.text.split("L = ")[1].split(":")[0])
    assert 0.8 * largest < estimate < 2 * largest


@pytest.mark.parametrize("psi", [L1(0.01), L1Ball(100.0, on="kernel"), NuclearBall(100.0, on="kernel")], ids=repr)
@pytest.mark.parametrize("method", [fedax.FedDualAvg(lr=0.1), fedax.PFedFBE(lr=0.01, lam=20.0)], ids=repr)
def test_an_evaluated_round_compiles_nothing_that_an_earlier_one_has(psi, method):
    federation = fedax.data.load("iris", partition=fedax.data.IID(5))
    problem = fedax.Problem(model("logistic", outputs=3), loss="cross_entropy", regularizer=psi)
    compilations()  # counts from now on
    evaluated = iter(Simulation(problem, federation, method, rounds=6, batch_size=5, eval_every=2))
    for _ in range(3):  # rounds 0, 2 and 4
        next(evaluated)
    before = compilations()
    assert next(evaluated)["round"] == 6
    assert compilations() == before
