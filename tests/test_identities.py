"""What the methods for one shared model must be: reductions, fixed points, the papers' recursions in NumPy.

The NumPy versions are written from the formulas, one client after another, and share no code with the
methods.
"""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedax
from conftest import LEAST_SQUARES, quadratic_loss, quadratics, regression
from fedax import schedules
from fedax.algorithms import Context
from fedax.errors import FedaxError
from fedax.regularizers import L1
from fedax.vectors import uniform

X0 = np.arange(5.0) - 1.5
PROBLEM = fedax.Problem(loss=quadratic_loss, init=lambda key: jnp.arange(5.0) - 1.5)
seeds = st.integers(0, 10_000)
few = settings(max_examples=2, deadline=None, derandomize=True)


def _coin(round, seed=0):
    return uniform(Context(seed=seed).common_key(round))


@pytest.fixture(autouse=True, scope="module")
def double():
    """Double precision for this module."""
    with jax.enable_x64(True):
        yield


def run(algorithm, federation, problem=PROBLEM, *, rounds=6, **options):
    return fedax.simulate(problem, federation, algorithm, rounds=rounds, eval_every=rounds, **options)


def distance(algorithm, seed=0, cohort=None, *, rounds=1500, local_steps=5):
    """How far from the minimiser of 8 heterogeneous quadratics a method ends."""
    federation, optimum = quadratics(seed)
    result = run(algorithm, federation, rounds=rounds, local_steps=local_steps, cohort=cohort)
    return np.linalg.norm(result.model - optimum)


class Clients:
    """The same quadratics for NumPy: each client's gradient, and the cohorts that a run draws."""

    def __init__(self, seed, count, cohort, rounds):
        self.federation, self.optimum = quadratics(seed, clients=count)
        self.count, self.cohort, self.rounds = count, cohort, rounds
        self.A, self.b = self.federation.arrays["A"], self.federation.arrays["b"]

    def gradient(self, i, x):
        return self.A[i] @ (x - self.b[i])

    def mean_gradient(self, x):
        return np.mean([self.gradient(i, x) for i in range(self.count)], axis=0)

    def result(self, algorithm, local_steps):
        """What the method makes, and who took part in each round."""
        options = {"rounds": self.rounds, "cohort": self.cohort, "local_steps": local_steps}
        simulation = fedax.Simulation(PROBLEM, self.federation, algorithm, eval_every=self.rounds, **options)
        for _ in simulation:
            pass
        return simulation.result, simulation.prepared.engine.draws.cohorts(0, self.rounds)


# -- reductions --------------------------------------------------------------------------------------------

FULL = 6  # clients of `regression`
REDUCTIONS = {
    "FedProx, mu = 0": (fedax.FedProx(lr=0.05, mu=0.0), fedax.FedAvg(lr=0.05), 3, 4),
    "FedProx, K = 1": (fedax.FedProx(lr=0.05, mu=0.7), fedax.FedAvg(lr=0.05), 1, 4),
    "FedAvgM, momentum = 0": (
        fedax.FedAvgM(lr=0.05, server_lr=0.7, momentum=0.0),
        fedax.FedAvg(lr=0.05, server_lr=0.7),
        3,
        4,
    ),
    "FedAdam, v frozen": (
        fedax.FedAdam(lr=0.05, server_lr=0.7, beta1=0.0, beta2=1.0, floor=0.5),
        fedax.FedAvg(lr=0.05, server_lr=0.7),
        3,
        4,
    ),
    "FedYogi, v frozen": (
        fedax.FedYogi(lr=0.05, server_lr=0.7, beta1=0.0, beta2=1.0, floor=0.5),
        fedax.FedAvg(lr=0.05, server_lr=0.7),
        3,
        4,
    ),
    "FedCM, alpha = 1": (fedax.FedCM(lr=0.05, alpha=1.0), fedax.FedAvg(lr=0.05), 3, 4),
    "FedDeper, rho = 0": (fedax.FedDeper(lr=0.05, rho=0.0), fedax.FedAvg(lr=0.05), 3, 4),
    "FedDeper, lam = 1, K = 1": (
        fedax.FedDeper(lr=0.05, rho=0.3, lam=1.0),
        fedax.FedAvg(lr=0.05),
        1,
        FULL,
    ),
    "SCAFFOLD, K = 1": (fedax.SCAFFOLD(lr=0.05), fedax.FedAvg(lr=0.05), 1, FULL),
    "MinibatchSGD, K = 1": (fedax.MinibatchSGD(lr=0.05), fedax.FedAvg(lr=0.05), 1, 4),
    "FedAc, mu lr K >= 1": (fedax.FedAc(lr=0.05, mu=10.0), fedax.FedAvg(lr=0.05), 3, 4),
    "FedAc-I, K = 1": (fedax.FedAc(lr=0.05, mu=0.2), fedax.MinibatchAccSGD(lr=0.05, mu=0.2), 1, 4),
    "vanilla FedAc, K = 1": (
        fedax.FedAc(lr=0.05, mu=0.2, variant="vanilla"),
        fedax.MinibatchAccSGD(lr=0.05, mu=0.2),
        1,
        4,
    ),
    "FedSpeed, rho = 0": (
        fedax.FedSpeed(lr=0.05, rho=0.0, lam=2.0),
        fedax.FedDyn(lr=0.05, alpha=0.5),
        3,
        4,
    ),
    "FedSpeed, alpha = 0": (
        fedax.FedSpeed(lr=0.05, alpha=0.0, lam=2.0),
        fedax.FedDyn(lr=0.05, alpha=0.5),
        3,
        4,
    ),
    "FedSpeed's two server lines": (
        fedax.FedSpeed(lr=0.05, lam=2.0),
        fedax.FedSpeed(lr=0.05, lam=2.0, server="cohort"),
        3,
        FULL,
    ),
    "FedADMM and FedDyn": (fedax.FedADMM(lr=0.05, eta=2.0), fedax.FedDyn(lr=0.05, alpha=0.5), 3, FULL),
    "FedPD, skip = 0": (fedax.FedPD(lr=0.05, eta=2.0), fedax.FedADMM(lr=0.05, eta=2.0), 3, 4),
}


@pytest.mark.parametrize(("one", "other", "steps", "cohort"), REDUCTIONS.values(), ids=REDUCTIONS)
@few
@given(seed=seeds)
def test_a_method_is_another_one(one, other, steps, cohort, seed):
    federation = regression(seed)
    options = {"local_steps": steps, "cohort": cohort, "batch_size": 4, "seed": seed}
    a, b = (run(m, federation, LEAST_SQUARES, **options).model for m in (one, other))
    assert np.linalg.norm(b) > 0.01
    np.testing.assert_allclose(a, b, rtol=0, atol=1e-12)


@pytest.mark.parametrize(
    "algorithm",
    [
        fedax.FedAvg(lr=0.1),
        fedax.FedProx(lr=0.1, mu=0.5),
        fedax.SCAFFOLD(lr=0.1),
        fedax.SCAFFOLD(lr=0.1, option="I"),
        fedax.MinibatchSGD(lr=0.1),
        fedax.FedAvgM(lr=0.1, momentum=0.0),
        fedax.FedCM(lr=0.1, alpha=1.0),
        fedax.FedDeper(lr=0.1, rho=0.05, lam=1.0),
        fedax.FedAc(lr=0.1, mu=10.0),
    ],
    ids=repr,
)
def test_one_local_step_of_all_clients_is_one_gradient_step(algorithm):
    clients = Clients(seed=3, count=8, cohort=None, rounds=5)
    x = X0
    for _ in range(5):
        x = x - 0.1 * clients.mean_gradient(x)
    np.testing.assert_allclose(clients.result(algorithm, 1)[0].model, x, rtol=0, atol=1e-13)


@pytest.mark.parametrize(
    "algorithm",
    [
        fedax.FedDyn(lr=0.1, alpha=0.3),
        fedax.FedADMM(lr=0.1, eta=3.0),
        fedax.FedSpeed(lr=0.1, rho=0.0, lam=3.0),
    ],
    ids=repr,
)
def test_the_dual_methods_first_step_is_twice_the_gradient_step(algorithm):
    clients = Clients(seed=3, count=8, cohort=None, rounds=1)
    x = X0 - 2 * 0.1 * clients.mean_gradient(X0)
    np.testing.assert_allclose(clients.result(algorithm, 1)[0].model, x, rtol=0, atol=1e-13)


# -- fixed points on heterogeneous quadratics --------------------------------------------------------------

EXACT = [
    fedax.SCAFFOLD(lr=0.1),
    fedax.SCAFFOLD(lr=0.1, option="I"),
    fedax.FedDyn(lr=0.1, alpha=0.5),
    fedax.FedADMM(lr=0.1, eta=2.0),
    fedax.FedSpeed(lr=0.1, rho=0.0, lam=2.0),
]


@pytest.mark.parametrize(
    "algorithm",
    [
        *EXACT,
        fedax.FedPD(lr=0.1, eta=2.0),
        fedax.FedSpeed(lr=0.1, rho=0.0, lam=2.0, server="cohort"),
        fedax.MinibatchSGD(lr=0.1),
        fedax.MinibatchAccSGD(lr=0.1, mu=0.3),
    ],
    ids=repr,
)
@few
@given(seed=seeds)
def test_the_optimum_is_reached_by_all_clients(algorithm, seed):
    assert distance(algorithm, seed) < 1e-8


@pytest.mark.parametrize("algorithm", EXACT, ids=repr)
@few
@given(seed=seeds)
def test_the_optimum_is_reached_by_three_clients_of_eight(algorithm, seed):
    assert distance(algorithm, seed, cohort=3, rounds=3000) < 1e-8


@pytest.mark.parametrize(
    "algorithm",
    [
        fedax.FedAvg(lr=0.1),
        fedax.FedProx(lr=0.1, mu=0.5),
        fedax.FedAvgM(lr=0.1, server_lr=0.1),
        fedax.FedCM(lr=0.1, alpha=0.5),
        fedax.FedAc(lr=0.1, mu=0.3),
        fedax.FedPD(lr=0.1, eta=2.0, skip=0.3),
        fedax.FedSpeed(lr=0.1, rho=0.1, lam=2.0),
    ],
    ids=repr,
)
@few
@given(seed=seeds)
def test_drift_keeps_these_away_from_the_optimum(algorithm, seed):
    assert 1e-3 < distance(algorithm, seed) < 5


@few
@given(seed=seeds)
def test_fedcm_rests_where_fedavg_does_with_its_share_of_the_rate(seed):
    federation, _ = quadratics(seed)
    options = {"rounds": 1500, "local_steps": 5}
    fedcm = run(fedax.FedCM(lr=0.2, alpha=0.25), federation, **options)
    fedavg = run(fedax.FedAvg(lr=0.05), federation, **options)
    np.testing.assert_allclose(fedcm.model, fedavg.model, rtol=0, atol=1e-8)


def test_fedspeeds_printed_server_line_wanders_in_proportion_to_lambda():
    near, far = (
        np.mean([distance(fedax.FedSpeed(lr=0.1, rho=0.0, lam=lam, server="cohort"), s, 3) for s in range(4)])
        for lam in (1.0, 10.0)
    )
    assert near > 1e-3
    assert 3 < far / near < 30
    assert distance(fedax.FedSpeed(lr=0.1, rho=0.0, lam=10.0), 0, 3) < 1e-8


@pytest.mark.parametrize("cohort", [None, 3])
def test_fedadmm_solves_the_regularized_problem_by_the_servers_prox(cohort):
    clients = Clients(seed=5, count=8, cohort=cohort, rounds=3000)
    x = np.zeros(5)
    for _ in range(3000):  # proximal gradient descent on (1/n) sum f_i + 0.6 ||x||_1
        y = x - 0.3 * clients.mean_gradient(x)
        x = np.sign(y) * np.maximum(np.abs(y) - 0.3 * 0.6, 0)
    assert 0 < np.count_nonzero(x) < 5
    problem = fedax.Problem(loss=quadratic_loss, init=lambda key: jnp.ones(5), regularizer=L1(0.6))
    result = run(
        fedax.FedADMM(lr=0.1, eta=0.7),
        clients.federation,
        problem,
        rounds=3000,
        local_steps=5,
        cohort=cohort,
    )
    assert np.linalg.norm(result.model - x) < 1e-8
    assert np.count_nonzero(result.model) == np.count_nonzero(x)


# -- the papers' recursions, in NumPy ----------------------------------------------------------------------


def local_sgd(clients, i, x, lr, steps):
    for _ in range(steps):
        x = x - lr * clients.gradient(i, x)
    return x


@pytest.mark.parametrize("name", ["FedAdam", "FedYogi", "FedAdagrad"])
@few
@given(seed=seeds)
def test_adaptive_servers(name, seed):
    lr, server_lr, beta1, beta2, floor = 0.05, 0.3, 0.8, 0.95, 0.01
    moments = {"beta1": beta1} if name == "FedAdagrad" else {"beta1": beta1, "beta2": beta2}
    algorithm = getattr(fedax, name)(lr=lr, server_lr=server_lr, floor=floor, **moments)
    clients = Clients(seed, count=6, cohort=4, rounds=7)
    result, who = clients.result(algorithm, 3)
    x, m, v = X0, np.zeros(5), np.full(5, floor**2)
    for cohort in who:
        delta = np.mean([local_sgd(clients, i, x, lr, 3) - x for i in cohort], axis=0)
        m = beta1 * m + (1 - beta1) * delta
        if name == "FedAdam":
            v = beta2 * v + (1 - beta2) * delta**2
        elif name == "FedYogi":
            v = v - (1 - beta2) * delta**2 * np.sign(v - delta**2)
        else:
            v = v + delta**2
        x = x + server_lr * m / (np.sqrt(v) + floor)
    np.testing.assert_allclose(result.model, x, rtol=0, atol=1e-12)


@pytest.mark.parametrize("beta2", [1.0, 0.6])
def test_fedadagrad_sums_the_squares(beta2):
    lr, server_lr, floor = 0.05, 0.3, 0.01
    clients = Clients(2, count=2, cohort=2, rounds=4)
    algorithm = fedax.FedAdagrad(lr=lr, server_lr=server_lr, beta2=beta2, floor=floor)
    simulation = fedax.Simulation(PROBLEM, clients.federation, algorithm, rounds=4, local_steps=1, eval_every=4)
    for _ in simulation:
        pass
    x, deltas = X0, []
    for _ in range(4):
        deltas.append(-lr * clients.mean_gradient(x))
        ages = len(deltas) - 1 - np.arange(len(deltas))
        v = beta2 ** len(deltas) * floor**2 + sum(beta2**age * d**2 for age, d in zip(ages, deltas, strict=True))
        x = x + server_lr * deltas[-1] / (np.sqrt(v) + floor)
    if beta2 == 1:  # the paper's: nothing fades
        np.testing.assert_allclose(v, floor**2 + np.square(deltas).sum(axis=0), rtol=1e-12)
    np.testing.assert_allclose(simulation.state.server[2].tree, v, rtol=1e-10)
    np.testing.assert_allclose(simulation.result.model, x, rtol=0, atol=1e-12)


def test_fedavgm():
    clients = Clients(1, count=6, cohort=4, rounds=7)
    result, who = clients.result(fedax.FedAvgM(lr=0.05, server_lr=0.4, momentum=0.7), 3)
    x, m = X0, np.zeros(5)
    for cohort in who:
        m = 0.7 * m + np.mean([local_sgd(clients, i, x, 0.05, 3) - x for i in cohort], axis=0)
        x = x + 0.4 * m
    np.testing.assert_allclose(result.model, x, rtol=0, atol=1e-12)


def test_fedcm_divides_by_the_rates_that_were_taken():
    clients = Clients(1, count=6, cohort=4, rounds=7)
    decaying = schedules.Exponential(0.1, 0.9, per="step")
    result, who = clients.result(fedax.FedCM(lr=decaying, alpha=0.3, server_lr=0.8), 3)
    x, direction = X0, np.zeros(5)
    for r, cohort in enumerate(who):
        rates = [0.1 * 0.9 ** (3 * r + k) for k in range(3)]
        changes = []
        for i in cohort:
            x_i = x
            for lr in rates:
                x_i = x_i - lr * (0.3 * clients.gradient(i, x_i) + 0.7 * direction)
            changes.append(x_i - x)
        delta = np.mean(changes, axis=0)
        x, direction = x + 0.8 * delta, -delta / sum(rates)
    np.testing.assert_allclose(result.model, x, rtol=0, atol=1e-12)


@few
@given(seed=seeds)
def test_feddyn(seed):
    lr, alpha = 0.1, 0.4
    clients = Clients(seed, count=6, cohort=4, rounds=7)
    result, who = clients.result(fedax.FedDyn(lr=lr, alpha=alpha), 3)
    x, h, h_i = X0, np.zeros(5), np.zeros((6, 5))
    for cohort in who:
        ends = []
        for i in cohort:
            y = x
            for _ in range(3):
                y = y - lr * (clients.gradient(i, y) - h_i[i] + alpha * (y - x))
            h_i[i] = h_i[i] - alpha * (y - x)
            ends.append(y)
        h = h - alpha / 6 * sum(y - x for y in ends)
        x = np.mean(ends, axis=0) - h / alpha
    np.testing.assert_allclose(result.model, x, rtol=0, atol=1e-11)


@few
@given(seed=seeds)
def test_fedadmm_and_fedpd_with_skipped_rounds(seed):
    lr, eta, skip = 0.1, 0.6, 0.5
    clients = Clients(seed, count=4, cohort=None, rounds=9)
    result, _ = clients.result(fedax.FedPD(lr=lr, eta=eta, skip=skip), 3)
    shared, own, z = X0, np.tile(X0, (4, 1)), np.zeros((4, 5))
    skipped = [bool(_coin(r + 1) < skip) for r in range(9)]
    assert {True, False} == set(skipped)
    for r in range(9):
        for i in range(4):
            y = own[i]
            for _ in range(3):
                y = y - lr * (clients.gradient(i, y) + z[i] + (y - own[i]) / eta)
            z[i] = z[i] + (y - own[i]) / eta
            own[i] = y + eta * z[i]
        if not skipped[r]:
            shared = np.mean(own, axis=0)
            own = np.tile(shared, (4, 1))
    np.testing.assert_allclose(result.model, shared, rtol=0, atol=1e-11)


def test_fedpd_skips_as_often_as_it_says():
    often = np.mean([float(_coin(r)) < 0.3 for r in range(1000)])
    assert abs(often - 0.3) < 0.05


@pytest.mark.parametrize("server", ["all-clients", "cohort"])
@pytest.mark.parametrize("normalize", [True, False])
@few
@given(seed=seeds)
def test_fedspeed(server, normalize, seed):
    lr, lam, rho, alpha = 0.05, 2.0, 0.2, 0.7
    clients = Clients(seed, count=6, cohort=4, rounds=7)
    algorithm = fedax.FedSpeed(lr=lr, lam=lam, rho=rho, alpha=alpha, normalize=normalize, server=server)
    result, who = clients.result(algorithm, 3)
    x, ghat = X0, np.zeros((6, 5))
    for cohort in who:
        ends = []
        for i in cohort:
            y = x
            for _ in range(3):
                g1 = clients.gradient(i, y)
                g2 = clients.gradient(i, y + rho * g1 / (np.linalg.norm(g1) if normalize else 1))
                y = y - lr * ((1 - alpha) * g1 + alpha * g2 - ghat[i] + (y - x) / lam)
            ghat[i] = ghat[i] - (y - x) / lam
            ends.append(y)
        x = np.mean(ends, axis=0) - lam * ghat[cohort if server == "cohort" else slice(None)].mean(axis=0)
    np.testing.assert_allclose(result.model, x, rtol=0, atol=1e-11)


@few
@given(seed=seeds)
def test_feddeper_with_a_client_that_sits_out(seed):
    lr, rho, lam = 0.1, 0.15, 0.6
    clients = Clients(seed, count=2, cohort=1, rounds=7)
    result, who = clients.result(fedax.FedDeper(lr=lr, rho=rho, lam=lam), 3)
    x, v = X0, np.tile(X0, (2, 1))
    for (i,) in who:
        y = x
        for _ in range(3):
            y = y - lr * clients.gradient(i, y) - rho * (v[i] + y - 2 * x)
            v[i] = v[i] - lr * clients.gradient(i, v[i])
        v[i] = (1 - lam) * v[i] + lam * y
        x = y
    np.testing.assert_allclose(result.model, x, rtol=0, atol=1e-12)
    for i in range(2):
        np.testing.assert_allclose(result.personal(i), v[i], rtol=0, atol=1e-12)


def accelerated(gradient, x, x_ag, eta, gamma, alpha, beta):
    """Lines 7 to 10 of FedAc: one step of generalised accelerated SGD."""
    x_md = x / beta + (1 - 1 / beta) * x_ag
    g = gradient(x_md)
    return (1 - 1 / alpha) * x + x_md / alpha - gamma * g, x_md - eta * g


def fedac_parameters(variant, eta, mu, steps):
    gamma = np.sqrt(eta / mu) if variant == "vanilla" else max(np.sqrt(eta / (mu * steps)), eta)
    if variant == "II":
        alpha = 3 / (2 * gamma * mu) - 1 / 2
        return eta, gamma, alpha, (2 * alpha**2 - 1) / (alpha - 1)
    alpha = 1 / (gamma * mu)
    return eta, gamma, alpha, alpha + 1


@pytest.mark.parametrize(
    ("variant", "steps", "augment"),
    [
        ("I", 1, False),
        ("II", 1, False),
        ("vanilla", 1, False),
        ("I", 4, False),
        ("II", 4, False),
        ("vanilla", 4, False),
        ("I", 4, True),
    ],
)
def test_fedac(variant, steps, augment):
    eta, mu = 0.2, 0.3
    clients = Clients(2, count=6, cohort=4, rounds=7)
    algorithm = fedax.FedAc(lr=eta, mu=mu, variant=variant, augment=augment)
    result, who = clients.result(algorithm, steps)
    parameters = fedac_parameters(variant, eta, mu, steps)
    x = x_ag = X0
    for cohort in who:
        ends = []
        for i in cohort:
            pair = x, x_ag
            for _ in range(steps):
                gradient = lambda z, i=i: clients.gradient(i, z) + (mu * (z - X0) if augment else 0)  # noqa: E731
                pair = accelerated(gradient, *pair, *parameters)
            ends.append(pair)
        x, x_ag = np.mean(ends, axis=0)
    np.testing.assert_allclose(result.model, x_ag, rtol=0, atol=1e-12)


def test_augmented_fedac_minimises_the_augmented_objective():
    clients = Clients(2, count=8, cohort=None, rounds=500)
    result, _ = clients.result(fedax.FedAc(lr=0.2, mu=0.3, augment=True), 1)
    A, b = clients.A.mean(axis=0), np.einsum("nij,nj->i", clients.A, clients.b) / 8
    np.testing.assert_allclose(result.model, np.linalg.solve(A + 0.3 * np.eye(5), b + 0.3 * X0), atol=1e-10)


def test_minibatch_accelerated_sgd():
    clients = Clients(2, count=6, cohort=4, rounds=7)
    result, who = clients.result(fedax.MinibatchAccSGD(lr=0.2, mu=0.3), 4)
    x = x_ag = X0
    for cohort in who:
        gradient = lambda z, s=cohort: np.mean([clients.gradient(i, z) for i in s], axis=0)  # noqa: E731
        x, x_ag = accelerated(gradient, x, x_ag, *fedac_parameters("vanilla", 0.2, 0.3, 4))
    np.testing.assert_allclose(result.model, x_ag, rtol=0, atol=1e-12)


# -- bad input ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("build", "message"),
    [
        (
            lambda: fedax.FedDeper(lr=0.1, rho=0.1, lam=0.2),
            "lam must be in .0.5, 1., not 0.2: the paper proves",
        ),
        (lambda: fedax.FedDeper(lr=0.1, rho=-0.1), "rho must be in"),
        (lambda: fedax.FedProx(lr=0.1, mu=-1.0), "mu must be in"),
        (lambda: fedax.FedAvgM(lr=0.1, momentum=1.0), "momentum must be in"),
        (lambda: fedax.FedAdam(lr=0.1, server_lr=0.0), "server_lr must be in"),
        (lambda: fedax.FedYogi(lr=0.1, server_lr=0.1, floor=0.0), "floor must be in"),
        (lambda: fedax.FedCM(lr=0.1, alpha=0.0), "alpha must be in"),
        (lambda: fedax.FedDyn(lr=0.1, alpha=0.0), "alpha must be in"),
        (lambda: fedax.FedADMM(lr=0.1, eta=0.0), "eta must be in"),
        (lambda: fedax.FedPD(lr=0.1, eta=1.0, skip=1.0), "skip must be in"),
        (lambda: fedax.FedSpeed(lr=0.1, lam=0.0), "lam must be in"),
        (lambda: fedax.FedSpeed(lr=0.1, server="printed"), "unknown FedSpeed server"),
        (lambda: fedax.FedAc(lr=0.1, mu=0.0), "mu must be in"),
        (lambda: fedax.FedAc(lr=0.1, mu=0.1, variant="III"), "unknown FedAc variant"),
    ],
)
def test_a_parameter_outside_its_range_is_refused(build, message):
    with pytest.raises(FedaxError, match=message):
        build()
