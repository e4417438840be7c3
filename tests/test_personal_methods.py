"""What the personal methods must be: fixed points in closed form, limits, APFL's options, clients that join late.

The clients are quadratics 1/2 (x - b_i)' A_i (x - b_i), whose answers are linear algebra in NumPy.
"""

from __future__ import annotations

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedax
from conftest import QUADRATIC, quadratics
from fedax.errors import FedaxError
from fedax.regularizers import L1
from fedax.testing.driven_run import DrivenRun
from fedax.testing.problems import ragged, smooth

I = np.eye(5)
REACHED = 1e-8
seeds = st.integers(0, 10_000)
few = settings(max_examples=2, deadline=None, derandomize=True)


@pytest.fixture(autouse=True, scope="module")
def double():
    """Double precision for this module."""
    with jax.enable_x64(True):
        yield


class Clients:
    """Eight quadratics, and what a method makes of them when all take part in every round."""

    def __init__(self, seed):
        self.federation, self.optimum = quadratics(seed)
        self.A, self.b = self.federation.arrays["A"], self.federation.arrays["b"]

    def ends(self, algorithm, rounds=1500, local_steps=1):
        """The shared model and all personal ones after many rounds."""
        trial = DrivenRun(algorithm, smooth(self.federation, local_steps)).advance(rounds)
        return trial.shared, trial.personal

    def balanced(self, weights):
        """Where sum_i M_i (w - b_i) = 0."""
        return np.linalg.solve(weights.sum(0), np.einsum("nij,nj->i", weights, self.b))

    def pulled(self, lam, x):
        """argmin over v of f_i(v) + lam/2 ||v - x||^2, for every client."""
        right = np.einsum("nij,nj->ni", self.A, self.b) + lam * x
        return np.linalg.solve(self.A + lam * I, right[..., None])[..., 0]


def near(found, expected):
    assert np.max(np.abs(found - expected)) < REACHED


# -- fixed points ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("personal_steps", [None, 3])
@few
@given(seed=seeds)
def test_ditto_rests_at_the_proximal_points_of_the_shared_optimum(personal_steps, seed):
    clients = Clients(seed)
    algorithm = fedax.Ditto(lr=0.2, lam=0.7, personal_lr=0.3, personal_steps=personal_steps)
    shared, own = clients.ends(algorithm)
    near(shared, clients.optimum)
    near(own, clients.pulled(0.7, clients.optimum))


@few
@given(seed=seeds)
def test_pfedme_minimises_the_mean_of_the_moreau_envelopes(seed):
    clients, lam = Clients(seed), 1.5
    algorithm = fedax.PFedMe(lr=0.3, lam=lam, inner_lr=1 / (lam + 2), inner_steps=60, beta=1.2)
    shared, own = clients.ends(algorithm)
    best = clients.balanced(lam * np.linalg.solve(clients.A + lam * I, clients.A))
    assert np.linalg.norm(best - clients.optimum) > 1e-3
    near(shared, best)
    near(own, clients.pulled(lam, best))


@pytest.mark.parametrize("order", ["exact", "first", "hessian-free"])
@few
@given(seed=seeds)
def test_perfedavg_rests_where_its_gradients_balance(order, seed):
    clients, alpha = Clients(seed), 0.3
    adapting = I - alpha * clients.A
    weights = clients.A @ adapting if order == "first" else adapting @ clients.A @ adapting
    shared, own = clients.ends(fedax.PerFedAvg(lr=0.3, alpha=alpha, order=order))
    best = clients.balanced(weights)
    assert np.linalg.norm(best - clients.optimum) > 1e-3
    near(shared, best)
    near(own, best - alpha * np.einsum("nij,nj->ni", clients.A, best - clients.b))


@few
@given(seed=seeds)
def test_apfl_without_a_ball_ends_at_each_clients_own_optimum(seed):
    """Remark 2 of the paper: on an unbounded domain the mixed model is the local one."""
    clients = Clients(seed)
    shared, own = clients.ends(fedax.APFL(lr=0.3, alpha=0.6))
    near(shared, clients.optimum)
    near(own, clients.b)


def constrained(A, b, w, alpha, radius):
    """argmin over ||v|| <= radius of f(alpha v + (1 - alpha) w), from the multiplier of the constraint."""
    at = lambda m: np.linalg.solve(alpha**2 * A + m * I, alpha * A @ (b - (1 - alpha) * w))  # noqa: E731
    low, high = 0.0, 1e6
    if np.linalg.norm(at(0.0)) <= radius:
        return at(0.0)
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if np.linalg.norm(at(middle)) > radius else (low, middle)
    return at(high)


@few
@given(seed=seeds)
def test_apfl_in_a_ball_solves_equation_4(seed):
    clients, alpha, radius = Clients(seed), 0.5, 6.0
    shared, own = clients.ends(fedax.APFL(lr=0.3, alpha=alpha, radius=radius), rounds=3000)
    near(shared, clients.optimum)  # lies inside
    v = np.array([constrained(A, b, shared, alpha, radius) for A, b in zip(clients.A, clients.b, strict=True)])
    assert (np.linalg.norm(v, axis=1) > radius - 1e-9).any()
    near(own, alpha * v + (1 - alpha) * shared)


# -- reductions and limits ---------------------------------------------------------------------------------


def test_pfedme_nears_fedavg_as_lam_grows():
    federation, _ = quadratics(4)
    shared = lambda algorithm: DrivenRun(algorithm, smooth(federation, 3, 3)).advance(5).shared  # noqa: E731
    limit = shared(fedax.FedAvg(lr=0.1))
    pfedme = lambda lam: fedax.PFedMe(lr=0.1, lam=lam, inner_lr=1 / (lam + 2), inner_steps=30)  # noqa: E731
    away = [np.linalg.norm(shared(pfedme(lam)) - limit) for lam in (1e2, 1e3, 1e4, 1e5)]
    slopes = np.diff(np.log10(away))
    np.testing.assert_allclose(slopes[1:], -1, atol=0.01)  # O(1 / lam)


def test_ditto_holds_its_models_at_the_shared_one_as_lam_grows():
    clients = Clients(4)
    away = []
    for lam in (1e2, 1e3, 1e4):
        shared, own = clients.ends(fedax.Ditto(lr=0.2, lam=lam, personal_lr=1 / (lam + 2)), rounds=3000)
        away.append(np.max(np.abs(own - shared)))
    np.testing.assert_allclose(np.diff(np.log10(away)), -1, atol=0.02)


def test_ditto_may_train_its_models_after_the_local_steps():
    """With full gradients it makes no difference when v is trained, only how often."""
    federation, _ = quadratics(4)
    beside, after, longer = (
        DrivenRun(fedax.Ditto(lr=0.1, lam=0.5, personal_steps=steps), smooth(federation, 3, 3)).advance(4).personal
        for steps in (None, 3, 4)
    )
    np.testing.assert_allclose(after, beside, rtol=0, atol=1e-13)
    assert np.max(np.abs(longer - beside)) > 1e-3


def test_perfedavg_sees_three_minibatches():
    """In one local step the adapted point, its gradient and the Hessian come from different rows."""
    setting = ragged(5)
    client = DrivenRun(fedax.PerFedAvg(lr=0.05, alpha=0.1), setting).client(3)
    oracle = client.oracles()(0)
    seen = [oracle, oracle.fresh(1), oracle.fresh(2)]
    w = fedax.Vector({"w": jnp.ones(4), "intercept": jnp.ones(())})
    values = [float(o.value(w)) for o in seen]
    assert len(set(values)) == 3
    alpha, lr = 0.1, 0.05
    g = seen[0].grad(w - alpha * seen[1].grad(w))
    expected = w - lr * (g - alpha * seen[2].hvp(w, g))
    found = fedax.PerFedAvg(lr=lr, alpha=alpha).step(w, oracle, w, (), client.context())
    np.testing.assert_allclose(found.tree["w"], expected.tree["w"], rtol=0, atol=1e-14)


# -- APFL's two departures ---------------------------------------------------------------------------------


@pytest.mark.parametrize("adaptive", [False, True])
def test_for_a_linear_model_mixing_outputs_is_mixing_parameters(adaptive):
    paper = fedax.APFL(lr=0.05, alpha=0.3, adaptive=adaptive, pull=0.02)
    a, b = (DrivenRun(m, ragged(6)).advance(5) for m in (paper, dataclasses.replace(paper, mix="outputs")))
    np.testing.assert_allclose(a.shared, b.shared, rtol=0, atol=1e-13)
    for one, other in zip(jax.tree.leaves(a.state.clients), jax.tree.leaves(b.state.clients), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-12)
    alphas = a.state.clients[1]
    assert (alphas != 0.3).any() == adaptive


def network(hidden=3):
    """Two layers: mixing outputs and mixing parameters differ."""

    def init(key, x):
        return {"in": jax.random.normal(key, (x.shape[1], hidden)), "out": jnp.ones(hidden)}

    return fedax.Problem((init, lambda p, x: jnp.tanh(x @ p["in"]) @ p["out"]), loss="squared")


def test_mixed_outputs_have_the_derivatives_of_two_models_and_a_weight():
    problem, rng = network(), np.random.default_rng(0)
    batch = {"x": jnp.asarray(rng.normal(size=(7, 4))), "y": jnp.asarray(rng.normal(size=7))}
    own, shared = (problem.init(jax.random.key(k), batch) for k in (0, 1))

    def loss(own, shared, weight):
        outputs = [problem.outputs(p, batch) for p in (own, shared)]
        return jnp.mean((weight * outputs[0] + (1 - weight) * outputs[1] - batch["y"]) ** 2) / 2

    expected = jax.grad(loss, argnums=(0, 1, 2))(own, shared, 0.3)
    found = fedax.Oracle(problem, batch).grad(fedax.Vector(fedax.Mixture(own, shared, jnp.float64(0.3)))).tree
    for one, other in zip(jax.tree.leaves(found), jax.tree.leaves(expected), strict=True):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-14)


def test_mixed_outputs_run_are_evaluated_saved_and_read(tmp_path):
    federation = fedax.testing.problems.regression(3)
    options = {"rounds": 4, "local_steps": 3, "batch_size": 4, "eval_on": ["train"], "eval_every": 4}
    algorithm = fedax.APFL(lr=0.05, alpha=0.3, mix="outputs", adaptive=True)
    result = fedax.simulate(problem := network(), federation, algorithm, **options)
    models = [result.personal(i) for i in range(federation.clients)]
    losses = []
    for i, model in enumerate(models):
        assert isinstance(model, fedax.Mixture)
        rows = slice(start := int(federation.train.start[i]), start + int(federation.train.count[i]))
        x, y = (federation.arrays[k][rows] for k in ("x", "y"))
        z = [np.tanh(x @ np.asarray(p["in"])) @ np.asarray(p["out"]) for p in (model.own, model.shared)]
        a = float(model.weight)
        losses.append(np.mean((a * z[0] + (1 - a) * z[1] - y) ** 2) / 2)
    weights = federation.train.count / federation.train.count.sum()
    assert {round(float(m.weight), 9) for m in models} != {0.3}
    np.testing.assert_allclose(result.history[-1]["personal_train_loss"], weights @ losses, rtol=1e-12)
    again = fedax.load(result.save(tmp_path / "run"))
    for i, model in enumerate(models):
        read = again.personal(i)
        assert jax.tree.structure(read) == jax.tree.structure(model)
        jax.tree.map(np.testing.assert_array_equal, read, model)
    plain = fedax.simulate(problem, federation, dataclasses.replace(algorithm, mix="parameters"), **options)
    assert abs(plain.history[-1]["personal_train_loss"] - result.history[-1]["personal_train_loss"]) > 1e-6


def test_what_cannot_be_mixed_is_refused():
    algorithm = fedax.APFL(lr=0.1, mix="outputs")
    with pytest.raises(FedaxError, match="outputs can be mixed only on a problem with a model"):
        fedax.simulate(QUADRATIC, quadratics(0)[0], algorithm, rounds=1)
    penalised = network()
    penalised.regularizer = L1(strength=0.1)
    with pytest.raises(FedaxError, match="mix must be 'parameters' on a problem with a regularizer"):
        fedax.simulate(penalised, fedax.testing.problems.regression(3), algorithm, rounds=1)


# -- clients that come after training ----------------------------------------------------------------------


@few
@given(seed=seeds)
def test_newcomers_follow_their_methods_rule(seed):
    federation, x = quadratics(seed)
    A, b = federation.arrays["A"][2], federation.arrays["b"][2]
    gradient = lambda z: A @ (z - b)  # noqa: E731
    start, lr, steps = np.ones(5), 0.1, 4

    def joined(algorithm):
        """The personal model of client 2, whose state was `start`-like, with the server at x."""
        oracle = DrivenRun(algorithm, smooth(federation)).client(2).full()
        server, state = fedax.Vector(jnp.asarray(x)), algorithm.client_init(fedax.Vector(jnp.asarray(start)))
        state = jax.jit(lambda s, c: algorithm.join(s, c, oracle, steps))(server, state)
        return np.asarray(algorithm.personal(server, state, oracle).tree)

    def descend(v, slope):
        for _ in range(steps):
            v = v - lr * slope(v)
        return v

    near(joined(fedax.LocalOnly(lr=lr)), descend(start, gradient))
    near(joined(fedax.FedDeper(lr=lr, rho=0.1)), descend(x, gradient))
    near(joined(fedax.Ditto(lr=lr, lam=0.8)), descend(x, lambda v: gradient(v) + 0.8 * (v - x)))
    v = descend(x, lambda v: 0.3 * gradient(0.3 * v + 0.7 * x))
    near(joined(fedax.APFL(lr=lr, alpha=0.3)), 0.3 * v + 0.7 * x)
    v, alpha = x, 0.3
    for _ in range(steps):
        g = gradient(alpha * v + (1 - alpha) * x)
        v, alpha = v - lr * alpha * g, np.clip(alpha - lr * ((v - x) @ g + 0.02 * alpha), 0, 1)
    near(joined(fedax.APFL(lr=lr, alpha=0.3, adaptive=True, pull=0.02)), alpha * v + (1 - alpha) * x)
    assert abs(alpha - 0.3) > 1e-3


def test_newcomers_draw_minibatches():
    algorithm = fedax.LocalOnly(lr=0.05)
    client = DrivenRun(algorithm, ragged(3)).client(3)
    oracle, v = client.full(), fedax.Vector({"w": jnp.ones(4), "intercept": jnp.ones(())})
    expected = v
    for n in (1, 2, 3):
        expected = expected - 0.05 * oracle.fresh(n).grad(expected)
    found = algorithm.join(v, v, oracle, 3)
    np.testing.assert_allclose(found.tree["w"], expected.tree["w"], rtol=0, atol=1e-14)
    full = v
    for _ in range(3):
        full = full - 0.05 * oracle.grad(full)
    assert np.max(np.abs(found.tree["w"] - full.tree["w"])) > 1e-4
