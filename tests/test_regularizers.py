"""Regularizers: each prox against certificates and solvers, leaves, sums, mirror maps, the envelope, bad input."""

from __future__ import annotations

import logging

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.optimize import LinearConstraint, NonlinearConstraint, lsq_linear, minimize, minimize_scalar
from sklearn.linear_model import Lasso

import fedax
from conftest import LEAST_SQUARES, regression
from fedax import Vector
from fedax.regularizers import (
    L1,
    L2,
    MIRRORS,
    REGULARIZERS,
    Box,
    ElasticNet,
    Euclidean,
    GroupLasso,
    L1Ball,
    L2Ball,
    LInfBall,
    NegativeEntropy,
    NonNegative,
    Nuclear,
    NuclearBall,
    PNorm,
    Simplex,
    SquaredL2,
    TotalVariation1D,
    envelope,
    mirror,
    regularizer,
)
from fedax.testing.whole_runs import compilations

SHAPE = (7, 4)
#: norm psi / strength and its dual norm, in NumPy: p is the prox of t psi at x if and only if d = (x - p) / t has
#: a dual norm of at most the strength and <d, p> = psi(p)
NORMS = {
    "L1": (L1(0.7), lambda p: np.abs(p).sum(), lambda d: np.abs(d).max()),
    "L2": (L2(0.7), np.linalg.norm, np.linalg.norm),
    "GroupLasso rows": (
        GroupLasso(0.7),
        lambda p: np.linalg.norm(p, axis=1).sum(),
        lambda d: np.linalg.norm(d, axis=1).max(),
    ),
    "GroupLasso columns": (
        GroupLasso(0.7, axis=-1),
        lambda p: np.linalg.norm(p, axis=0).sum(),
        lambda d: np.linalg.norm(d, axis=0).max(),
    ),
    "Nuclear": (Nuclear(0.7), lambda p: np.linalg.norm(p, "nuc"), lambda d: np.linalg.norm(d, 2)),
    "TotalVariation1D": (
        TotalVariation1D(0.7),
        lambda p: np.abs(np.diff(p, axis=0)).sum(),
        # d = D'u has one u only if d sums to 0 along the axis; its size is then the dual norm
        lambda d: np.abs(np.cumsum(d, axis=0)[:-1]).max() + 1e3 * np.abs(d.sum(axis=0)).max(),
    ),
}
#: membership and support function sup over z in the set of <d, z>, in NumPy: p is the projection of x if and only
#: if p is in the set and the support of d = x - p is <d, p>
SETS = {
    "NonNegative": (NonNegative(), lambda p: p.min() >= 0, lambda d: 0 if d.max() <= 1e-12 else np.inf),
    "Box": (
        Box(-0.5, 0.2),
        lambda p: p.min() >= -0.5 and p.max() <= 0.2,
        lambda d: np.maximum(-0.5 * d, 0.2 * d).sum(),
    ),
    "Simplex": (
        Simplex(1.5),
        lambda p: p.min() >= 0 and abs(p.sum() - 1.5) < 1e-12,
        lambda d: 1.5 * d.max(),
    ),
    "L1Ball": (L1Ball(1.5), lambda p: np.abs(p).sum() <= 1.5 + 1e-12, lambda d: 1.5 * np.abs(d).max()),
    "L2Ball": (L2Ball(1.5), lambda p: np.linalg.norm(p) <= 1.5 + 1e-12, lambda d: 1.5 * np.linalg.norm(d)),
    "LInfBall": (LInfBall(0.3), lambda p: np.abs(p).max() <= 0.3, lambda d: 0.3 * np.abs(d).sum()),
    "NuclearBall": (
        NuclearBall(1.5),
        lambda p: np.linalg.norm(p, "nuc") <= 1.5 + 1e-12,
        lambda d: 1.5 * np.linalg.norm(d, 2),
    ),
}
ALL = {name: case[0] for name, case in (NORMS | SETS).items()} | {
    "SquaredL2": SquaredL2(0.7),
    "ElasticNet": ElasticNet(0.7, 0.4),
}


def points(seed, scale, shape=SHAPE):
    """Random arrays, also with ties and zeros, where an algorithm that sorts or divides may stumble."""
    rng = np.random.default_rng(seed)
    x = scale * rng.normal(size=shape)
    return [x, np.round(x), x * (rng.random(shape) < 0.3), np.zeros(shape), np.ones(shape)]


def prox(psi, x, t=1.0):
    return np.asarray(psi.prox(Vector(jnp.asarray(x)), t).tree)


@pytest.mark.parametrize("name", NORMS)
@pytest.mark.parametrize("scale", [0.3, 1.0, 30.0])
def test_prox_of_a_norm_has_the_certificate_of_its_dual_norm(x64, name, scale):
    psi, norm, dual = NORMS[name]
    for x in points(0, scale):
        for t in (0.05, 1.3):
            p = prox(psi, x, t)
            d = (x - p) / t
            assert dual(d) <= 0.7 * (1 + 1e-9)
            assert np.sum(d * p) == pytest.approx(0.7 * norm(p), rel=1e-9, abs=1e-11)
            assert float(psi.value(Vector(jnp.asarray(p)))) == pytest.approx(0.7 * norm(p), rel=1e-9, abs=1e-11)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("scale", [0.1, 1.0, 30.0])
def test_projection_has_the_certificate_of_the_support_function(x64, name, scale):
    psi, inside, support = SETS[name]
    for x in points(1, scale):
        p = prox(psi, x)
        assert inside(p)
        assert support(x - p) <= np.sum((x - p) * p) + 1e-11 * scale
        np.testing.assert_array_equal(prox(psi, x, 17.0), p)
        v = Vector(jnp.asarray(x))
        assert float(psi.violation(v)) == pytest.approx(np.linalg.norm(x - p), abs=1e-12)
        assert float(psi.value(v)) == (0 if inside(x) else np.inf)
        assert psi.feasible(v) == psi.feasible(x) == bool(inside(x))


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 1e4])
def test_single_precision_projections_are_feasible(name, scale):
    psi = SETS[name][0]
    for x in points(2, scale, (64, 48)):
        p = psi.prox(Vector(jnp.asarray(x, jnp.float32)), 1.0)
        assert p.tree.dtype == jnp.float32
        assert psi.feasible(p)
        assert float(psi.value(p)) == 0
        assert float(psi.violation(p)) <= 1e-5
    # far from the set and all entries nearly equal: the digits that count are the last ones
    p = np.asarray(psi.prox(Vector(jnp.asarray(scale + points(2, 0.1)[0], jnp.float32)), 1.0).tree, np.float64)
    if name == "Simplex":
        assert p.sum() == pytest.approx(1.5, rel=1e-6)
    if name == "L1Ball" and scale >= 1:
        assert np.abs(p).sum() == pytest.approx(1.5, rel=1e-6)


@settings(max_examples=25, deadline=None, derandomize=True)
@given(
    st.floats(-3, 3),
    st.floats(0.01, 2),
    st.floats(0, 2),
    st.sampled_from([L1, SquaredL2, lambda s: ElasticNet(s, 0.7), L2, GroupLasso]),
)
def test_prox_is_the_minimiser_of_its_definition(x, t, strength, kind):
    psi = kind(strength)
    found = float(psi.prox(Vector(jnp.array([x])), t).tree[0])

    def objective(z):
        penalty = strength * abs(z) if kind is not SquaredL2 else strength * z * z / 2
        ridge = 0.35 * z * z if isinstance(psi, ElasticNet) else 0
        return penalty + ridge + (z - x) ** 2 / (2 * t)

    best = minimize_scalar(objective, bounds=(-4, 4), method="bounded", options={"xatol": 1e-10})
    assert objective(found) <= best.fun + 1e-6


@pytest.mark.parametrize("n", [1, 2, 3, 50])
def test_total_variation_equals_the_bounded_least_squares_of_its_dual(x64, n):
    y = np.cumsum(np.random.default_rng(n).normal(size=n))
    for lam in (0.0, 0.3, 2.0, 100.0):
        expected = y
        if n > 1 and lam > 0:
            difference = np.diff(np.eye(n), axis=0)
            u = lsq_linear(difference.T, y, bounds=(-lam, lam), method="bvls", tol=1e-14).x
            expected = y - difference.T @ u
        np.testing.assert_allclose(prox(TotalVariation1D(1.0), y, lam), expected, atol=1e-10)


def test_total_variation_is_exact_on_long_single_precision_sequences():
    y = np.cumsum(np.random.default_rng(0).normal(size=(600, 2)), axis=0).astype(np.float32)
    p = np.asarray(prox(TotalVariation1D(3.0), y), np.float64)
    u = np.cumsum(y - p, axis=0)[:-1]
    jumps = np.diff(p, axis=0)
    assert np.abs(u).max() <= 3 * (1 + 1e-4)
    np.testing.assert_allclose(u[jumps != 0], -3 * np.sign(jumps[jumps != 0]), atol=2e-4)
    assert np.mean(jumps == 0) > 0.5


@pytest.mark.parametrize("kind", ["Simplex", "L2Ball", "L1Ball", "NuclearBall"])
def test_projections_equal_a_general_solver(x64, kind):
    rng = np.random.default_rng(3)
    x = np.diag([1.0, 1.5, 1.0]) @ rng.normal(size=(3, 2))
    psi = {"Simplex": Simplex(), "L2Ball": L2Ball(1.0), "L1Ball": L1Ball(1.0), "NuclearBall": NuclearBall(3.5)}[kind]
    flat = x.ravel()
    start, read, bounds = np.full(6, 0.1), lambda z: z, None
    if kind == "Simplex":
        constraints, bounds = LinearConstraint(np.ones(6), 1, 1), [(0, None)] * 6
    elif kind == "L2Ball":
        constraints = NonlinearConstraint(lambda z: z @ z, -np.inf, 1)
    elif kind == "L1Ball":  # positive and negative parts
        start, read, bounds = np.full(12, 0.01), lambda z: z[:6] - z[6:], [(0, None)] * 12
        constraints = LinearConstraint(np.ones(12), -np.inf, 1)
    else:  # a radius at which the rank stays full, for the solver needs the norm to be smooth
        constraints = NonlinearConstraint(lambda z: np.linalg.norm(z.reshape(3, 2), "nuc"), -np.inf, 3.5)
    solved = minimize(
        lambda z: np.sum((read(z) - flat) ** 2) / 2,
        start,
        bounds=bounds,
        constraints=constraints,
        method="SLSQP",
        options={"ftol": 1e-14, "maxiter": 500},
    )
    np.testing.assert_allclose(prox(psi, x).ravel(), read(solved.x), atol=2e-5)


@pytest.mark.parametrize("name", ALL)
def test_prox_is_nonexpansive_and_lowers_its_objective(x64, name):
    psi = ALL[name]
    rng = np.random.default_rng(4)
    for scale in (0.1, 1.0, 10.0):
        x, z = scale * rng.normal(size=(2, *SHAPE))
        p, q = prox(psi, x, 0.8), prox(psi, z, 0.8)
        assert np.sum((p - q) ** 2) <= np.sum((p - q) * (x - z)) + 1e-12  # firmly nonexpansive

        def objective(a, x=x):
            return float(psi.value(Vector(jnp.asarray(a)))) + np.sum((a - x) ** 2) / 1.6

        best = objective(p)
        for _ in range(20):
            assert best <= objective(prox(psi, p + 0.01 * scale * rng.normal(size=SHAPE), 0.0)) + 1e-10


@pytest.mark.parametrize("name", ALL)
def test_outside_of_a_program_nothing_is_compiled_twice(name):
    """Each evaluated round asks for a value and a violation: what it compiled would never be given back."""
    psi = ALL[name]

    def ask(seed):
        x = Vector(jnp.asarray(np.random.default_rng(seed).normal(size=SHAPE)))
        return psi.value(x), psi.violation(x), psi.prox(x, 0.5), psi.prox(psi.prox(0.01 * x, 0.5), 0.5)

    compilations()  # counts from now on
    ask(0)
    before = compilations()
    ask(1)
    assert compilations() == before


@pytest.mark.parametrize("t", [0.1, 2.0])
def test_moreau_identity(x64, t):
    x = np.random.default_rng(5).normal(size=SHAPE)
    # prox of t times a norm + projection onto the ball of radius t of the dual norm = identity
    for norm, ball in ((L1(0.5), LInfBall), (L2(0.5), L2Ball)):
        np.testing.assert_allclose(prox(norm, x, t) + prox(ball(0.5 * t), x), x, atol=1e-14)
    u, s, vt = np.linalg.svd(x, full_matrices=False)
    np.testing.assert_allclose(prox(Nuclear(0.5), x, t) + (u * np.minimum(s, 0.5 * t)) @ vt, x, atol=1e-13)
    # psi* of the ridge penalty c/2 ||x||^2 is ||y||^2 / (2c)
    conjugate = SquaredL2(1 / 0.5)
    np.testing.assert_allclose(prox(SquaredL2(0.5), x, t) + t * prox(conjugate, x / t, 1 / t), x, atol=1e-14)
    # psi* of the indicator of x >= 0 is that of y <= 0
    np.testing.assert_allclose(prox(NonNegative(), x) - prox(NonNegative(), -x), x)


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_prox_under_jit_vmap_and_scan(name, dtype):
    psi = ALL[name]
    with jax.enable_x64(dtype == jnp.float64):
        x = jnp.asarray(np.random.default_rng(6).normal(size=(3, *SHAPE)), dtype)
        rates = jnp.asarray([0.1, 0.5, 2.0], dtype)

        def thrice(a, t):
            def step(carry, _):
                moved = psi.prox(1.1 * carry, t)
                return moved, psi.value(moved)

            return jax.lax.scan(step, Vector(a), None, length=3)[0].tree

        found = jax.jit(jax.vmap(thrice))(x, rates)
        assert found.dtype == dtype
        for i in range(3):
            expected = Vector(x[i])
            for _ in range(3):
                expected = psi.prox(1.1 * expected, rates[i])
            np.testing.assert_allclose(found[i], expected.tree, atol=1e-5 if dtype == jnp.float32 else 1e-12)
        shared = jax.vmap(lambda t: psi.prox(Vector(x[0]), t).tree)(rates)
        np.testing.assert_allclose(shared[1], prox(psi, x[0], rates[1]), atol=1e-6)


@pytest.mark.parametrize("name", [n for n in ALL if not ALL[n].constraint])
def test_subgradient_inequality(x64, name):
    psi = ALL[name]
    rng = np.random.default_rng(7)
    for x in points(8, 1.0):
        if name == "Nuclear":
            x = x @ np.diag([1.0, 1.0, 0.0, 0.0])
        v = Vector(jnp.asarray(x))
        g = psi.subgradient(v)
        for _ in range(10):
            z = Vector(jnp.asarray(x + rng.normal(size=SHAPE) * 10.0 ** rng.integers(-3, 2)))
            assert float(psi.value(z)) >= float(psi.value(v) + g @ (z - v)) - 1e-10


def test_a_low_rank_prox_is_exact_to_single_precision():
    rng = np.random.default_rng(9)
    for shape in ((32, 32), (40, 12), (12, 40)):
        low = rng.normal(size=(shape[0], 4)) @ rng.normal(size=(4, shape[1]))
        x = (low + 1e-2 * rng.normal(size=shape)).astype(np.float32)
        for t in (1e-3, 0.05, 1.0):
            u, s, vt = np.linalg.svd(x.astype(np.float64), full_matrices=False)
            expected = (u * np.maximum(s - t, 0)) @ vt
            found = prox(Nuclear(1.0), x, t)
            assert np.abs(found - expected).max() <= 1e-6 * s[0]
    assert np.linalg.matrix_rank(found, rtol=1e-6) == 4
    assert np.all(np.isnan(prox(Nuclear(1.0), np.full((3, 3), np.nan, np.float32))))


@pytest.mark.parametrize("psi", [Nuclear(0.5), NuclearBall(1.0)], ids=str)
def test_lapack_sees_one_matrix_at_a_time(psi):
    # a batched call may wait for ever when there are several devices: they sum over threads that it needs
    x = jnp.zeros((3, *SHAPE), jnp.float32)
    for function in (lambda a: psi.prox(Vector(a), 0.1).tree, lambda a: psi.value(Vector(a))):
        program = jax.jit(jax.vmap(function)).lower(x).as_text()
        calls = [line for line in program.splitlines() if "lapack_sgesdd" in line]
        assert calls
        assert not any("3x7x4" in line for line in calls)


def test_norms_and_balls_take_leaves_together_and_matrices_one_by_one(x64):
    rng = np.random.default_rng(10)
    tree = {"a": jnp.asarray(rng.normal(size=(3, 2))), "b2": jnp.asarray(rng.normal(size=(2, 2)))}
    flat = jnp.concatenate([jnp.ravel(a) for a in tree.values()])
    for psi in (L2(0.4), L1Ball(0.9), L2Ball(0.9), LInfBall(0.2), Simplex(), L1(0.4), SquaredL2(0.4), NonNegative()):
        found = psi.prox(Vector(tree), 0.7).tree
        joint = np.concatenate([np.ravel(found[k]) for k in tree])
        np.testing.assert_allclose(joint, prox(psi, flat, 0.7), atol=1e-14)
    for psi in (Nuclear(0.4), NuclearBall(0.9), GroupLasso(0.4), TotalVariation1D(0.4)):
        found = psi.prox(Vector(tree), 0.7).tree
        for k in tree:
            np.testing.assert_allclose(found[k], prox(psi, tree[k], 0.7), atol=1e-14)


@pytest.mark.parametrize("kind", [L1Ball, L2Ball])
def test_each_leaf_may_have_a_ball_of_its_own(x64, kind):
    rng = np.random.default_rng(11)
    tree = {"a": jnp.asarray(rng.normal(size=(3, 2))), "b2": jnp.asarray(0.01 * rng.normal(size=(2, 2)))}
    found = kind(0.9, each=True).prox(Vector(tree), 0.7).tree
    for k in tree:
        np.testing.assert_allclose(found[k], prox(kind(0.9), tree[k], 0.7), atol=1e-14)
    assert kind(0.9, each=True).feasible(found)
    both = {k: np.asarray(a) * 100 for k, a in tree.items()}
    apart = Vector(kind(0.9, each=True).prox(Vector(both), 0.7).tree)
    assert kind(0.9, each=True).feasible(apart)
    assert not kind(0.9).feasible(apart)


def test_each_leaf_s_entropy_ends_in_its_own_ball(x64):
    y = Vector([jnp.array([1.0, 2.0]), jnp.array([-5.0, 0.5])])
    found = NegativeEntropy().retrieve(y, 1.0, L1Ball(3.0, each=True)).tree
    for one, leaf in zip(found, y.tree, strict=True):
        np.testing.assert_allclose(one, NegativeEntropy().retrieve(Vector(leaf), 1.0, L1Ball(3.0)).tree, atol=1e-14)
    assert float(found[0].sum()) == pytest.approx(3.0)


def test_intercepts_are_free_by_default():
    x = Vector({"kernel": jnp.ones(2), "bias": jnp.ones(1)})
    assert float(L1(1.0).value(x)) == 2
    assert float(L1(1.0, on="all").value(x)) == 3
    assert float(L1(1.0, on="bias").value(x)) == 1
    assert float(L1(1.0, on=lambda path: path == "kernel").value(x)) == 2
    assert SquaredL2(1.0).subgradient(x).tree["bias"].tolist() == [0.0]
    assert L2Ball(1.0).prox(Vector({"kernel": jnp.full(1, 3.0), "bias": jnp.full(1, 3.0)}), 1.0).tree == {
        "kernel": jnp.ones(1),
        "bias": jnp.full(1, 3.0),
    }
    with pytest.raises(fedax.FedaxError, match="on='kernle' selects none of the leaves bias, kernel"):
        L1(1.0, on="kernle").check(x.tree)
    with pytest.raises(fedax.FedaxError, match="selects none of the leaves"):
        L1(1.0, on="kernel").value(Vector(jnp.ones(2)))


def test_sums_act_on_leaves_of_their_own(x64):
    rng = np.random.default_rng(11)
    tree = {"body": jnp.asarray(rng.normal(size=(4, 3))), "head": jnp.asarray(rng.normal(size=3)), "bias": jnp.ones(1)}
    x = Vector(tree)
    a, b, c = Nuclear(0.3, on="body"), L1(0.2, on="head"), SquaredL2(0.1, on="bias")
    psi = a + b + c
    psi.check(tree)
    assert psi.parts == (a, b, c)
    assert hash(psi) == hash(a + (b + c))
    assert not psi.constraint
    assert not psi.smooth
    assert (SquaredL2(1.0, on="head") + c).smooth
    assert float(psi.value(x)) == pytest.approx(float(a.value(x) + b.value(x) + c.value(x)))
    moved = psi.prox(x, 0.5).tree
    for part, leaf in ((a, "body"), (b, "head"), (c, "bias")):
        np.testing.assert_array_equal(moved[leaf], part.prox(x, 0.5).tree[leaf])
        np.testing.assert_array_equal(psi.subgradient(x).tree[leaf], part.subgradient(x).tree[leaf])
    assert float(psi.violation(x)) == 0
    assert psi.feasible(tree)
    both = L2Ball(0.1, on="body") + LInfBall(0.1, on="head") + c
    assert both.constraint
    assert not both.feasible(tree)
    gaps = [float(part.violation(x)) for part in both.parts]
    assert float(both.violation(x)) == pytest.approx(np.linalg.norm(gaps))
    assert both.feasible(both.prox(x, 1.0))
    with pytest.raises(fedax.FedaxError, match="L1 and L2Ball both act on leaf 'head': give each part"):
        (b + L2Ball(1.0)).check(tree)
    with pytest.raises(fedax.FedaxError, match="L1: on='tail' selects none"):
        (L1(1.0, on="tail") + c).check(tree)
    with pytest.raises(fedax.FedaxError, match="L2Ball is a constraint and has no subgradient"):
        both.subgradient(x)
    with pytest.raises(TypeError):
        a + 1


@pytest.mark.parametrize(
    ("make", "sentence"),
    [
        (lambda: L1(-1.0), "L1: strength must be in [0, inf), not -1.0"),
        (lambda: Nuclear(float("nan")), "Nuclear: strength must be in [0, inf), not nan"),
        (lambda: L2("0.1"), "L2: strength must be a number in [0, inf), not '0.1'"),
        (lambda: ElasticNet(0.1, -2.0), "ElasticNet: l2 must be in [0, inf), not -2.0"),
        (lambda: L1Ball(0.0), "L1Ball: radius must be in (0, inf), not 0.0"),
        (lambda: L1Ball(1.0, each="no"), "L1Ball: each must be true or false, not 'no'"),
        (lambda: NuclearBall(-1), "NuclearBall: radius must be in (0, inf), not -1"),
        (lambda: Simplex(0), "Simplex: scale must be in (0, inf), not 0"),
        (lambda: Box(2.0, 1.0), "Box: low must not exceed high, but 2.0 > 1.0"),
        (lambda: Box(float("nan"), 1.0), "Box: low must be in [-inf, inf), not nan"),
        (lambda: GroupLasso(1.0, axis=0.5), "GroupLasso: axis must be a whole number, not 0.5"),
        (lambda: L1(1.0, on=3), "L1: on must be a path pattern, a function of a path or None, not 3"),
        (
            lambda: Nuclear(1.0).check({"scale": np.ones(4), "kernel": np.ones((2, 2))}),
            "Nuclear acts on matrices, but leaf 'scale' has shape (4,): choose the matrices with on=",
        ),
        (
            lambda: NuclearBall(1.0, on="w").check({"w": np.ones((2, 2, 2))}),
            "NuclearBall acts on matrices, but leaf 'w' has shape (2, 2, 2): choose the matrices with on=",
        ),
        (
            lambda: GroupLasso(1.0, axis=1).check({"w": np.ones(3)}),
            "GroupLasso: leaf 'w' of shape (3,) has no axis 1",
        ),
        (
            lambda: TotalVariation1D(1.0).check({"w": np.ones(())}),
            "TotalVariation1D: leaf 'w' of shape () has no axis 0",
        ),
        (
            lambda: Simplex().subgradient(Vector(jnp.ones(2))),
            "Simplex is a constraint and has no subgradient to step along: use a method that takes proximal steps, "
            "such as FedDualAvg",
        ),
        (lambda: regularizer("L1", stregth=1.0), "unknown field of L1 'stregth': did you mean 'strength'? Allowed: on"),
        (lambda: regularizer("Boxx"), "unknown regularizer 'Boxx': did you mean 'Box'? Allowed: L1, "),
        (lambda: regularizer("box", low=0.0), "Box needs high"),
        (lambda: mirror("entrpy"), "unknown mirror 'entrpy': did you mean 'entropy'? Allowed: euclidean, entropy"),
        (lambda: PNorm(1.0), "PNorm: p must be in (1, 2], not 1.0"),
        (
            lambda: PNorm(1.5).check(ElasticNet(0.1, 0.1)),
            "PNorm has no closed form for ElasticNet: use it with L1 or NonNegative, or the mirror Euclidean",
        ),
        (
            lambda: NegativeEntropy().check(Nuclear(1.0)),
            "NegativeEntropy has no closed form for Nuclear: use it with Simplex, L1Ball, L1, Box, LInfBall or "
            "NonNegative, or the mirror Euclidean",
        ),
        (
            lambda: NegativeEntropy().check(L1(1.0, on="all")),
            "NegativeEntropy has on=None and L1 on='all': both must act on the same leaves",
        ),
        (
            lambda: NegativeEntropy().check(Box(-1.0, 0.0)),
            "NegativeEntropy keeps x above 0, which Box(high=0.0) excludes",
        ),
        (
            lambda: NegativeEntropy().check(Simplex(), {"kernel": np.zeros(3)}),
            "NegativeEntropy needs a start above 0, but leaf 'kernel' has entries that are not",
        ),
        (lambda: envelope(None, 0.0), "envelope: lam must be in (0, inf), not 0.0"),
    ],
)
def test_bad_input_is_refused_in_one_sentence(make, sentence):
    with pytest.raises(fedax.FedaxError) as caught:
        make()
    assert str(caught.value).startswith(sentence)
    assert "\n" not in str(caught.value)


def test_everything_is_found_by_name():
    assert regularizer("elasticnet", l1=0.1, l2=0.2) == ElasticNet(0.1, 0.2)
    assert regularizer("NonNegative", on="all") == NonNegative(on="all")
    assert set(REGULARIZERS) == {type(psi).__name__ for psi in ALL.values()}
    assert [type(mirror(name, **options)) for name, options in (("Entropy", {}), ("p-norm", {"p": 1.5}))] == [
        NegativeEntropy,
        PNorm,
    ]
    assert set(MIRRORS) == {"euclidean", "entropy", "p-norm"}


def entropy(x):
    return np.sum(x * np.log(x) - x)


def p_norm(p):
    return lambda x: np.sum(np.abs(x) ** p) ** (2 / p) / 2


@pytest.mark.parametrize(
    ("h", "psi", "value", "bounds", "constraint"),
    [
        (NegativeEntropy(), None, entropy, (1e-9, None), None),
        (NegativeEntropy(), Simplex(2.0), entropy, (1e-9, None), LinearConstraint(np.ones(5), 2, 2)),
        (NegativeEntropy(), L1Ball(1.0), entropy, (1e-9, None), LinearConstraint(np.ones(5), -np.inf, 1)),
        (NegativeEntropy(), L1Ball(90.0), entropy, (1e-9, None), LinearConstraint(np.ones(5), -np.inf, 90)),
        (NegativeEntropy(), L1(0.4), lambda x: entropy(x) + 0.7 * 0.4 * np.sum(x), (1e-9, None), None),
        (NegativeEntropy(), Box(0.5, 1.1), entropy, (0.5, 1.1), None),
        (NegativeEntropy(), LInfBall(0.9), entropy, (1e-9, 0.9), None),
        (NegativeEntropy(), NonNegative(), entropy, (1e-9, None), None),
        (PNorm(1.5), None, p_norm(1.5), (None, None), None),
        (PNorm(1.5), NonNegative(), p_norm(1.5), (0, None), None),
        (PNorm(2.0), L2Ball(0.8), p_norm(2), (None, None), NonlinearConstraint(lambda x: x @ x, -np.inf, 0.64)),
        (Euclidean(), Box(-0.2, 0.3), p_norm(2), (-0.2, 0.3), None),
    ],
    ids=lambda case: type(case).__name__ if hasattr(case, "check") or case is None else "",
)
def test_retrieving_equals_a_general_solver(x64, h, psi, value, bounds, constraint):
    y = np.random.default_rng(12).normal(size=5)
    h.check(psi)
    found = np.asarray(h.retrieve(Vector(jnp.asarray(y)), 0.7, psi).tree)
    solved = minimize(
        lambda x: value(x) - y @ x,
        np.full(5, 0.2),
        bounds=[bounds] * 5,
        constraints=() if constraint is None else constraint,
        method="SLSQP",
        options={"ftol": 1e-15, "maxiter": 1000},
    )
    np.testing.assert_allclose(found, solved.x, atol=3e-5)


@pytest.mark.parametrize("p", [1.1, 1.5, 1.9])
def test_p_norm_with_l1_has_the_certificate_of_a_subgradient(x64, p):
    y = np.random.default_rng(13).normal(size=20)
    x = np.asarray(PNorm(p).retrieve(Vector(jnp.asarray(y)), 0.7, L1(0.5)).tree)
    slack = y - np.asarray(PNorm(p).grad(Vector(jnp.asarray(x))).tree)  # must lie in 0.7 * 0.5 * the subdifferential
    assert np.abs(slack).max() <= 0.35 + 1e-12
    np.testing.assert_allclose(slack[x != 0], 0.35 * np.sign(x[x != 0]), atol=1e-12)
    assert 0 < np.sum(x == 0) < 20


@pytest.mark.parametrize("h", [Euclidean(), NegativeEntropy(), PNorm(1.2), PNorm(1.5), PNorm(2.0)], ids=str)
def test_mirrors_invert_and_are_gradients(x64, h):
    rng = np.random.default_rng(14)
    x = Vector({"kernel": jnp.asarray(rng.uniform(0.1, 2, 6)), "bias": jnp.asarray(rng.uniform(0.1, 2, 1))})
    back = h.inverse(h.grad(x)).tree
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-12), back, x.tree)
    assert hash(h) == hash(type(h)(**{f: getattr(h, f) for f in h.__dataclass_fields__}))

    def value(v):
        if isinstance(h, NegativeEntropy):
            k = v.tree["kernel"]
            return jnp.sum(k * jnp.log(k) - k) + jnp.sum(v.tree["bias"] ** 2) / 2
        p = getattr(h, "p", 2)
        total = sum(jnp.sum(jnp.abs(a) ** p) for a in v.tree.values())
        return total ** (2 / p) / 2

    expected = jax.grad(value)(x).tree
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-10), h.grad(x).tree, expected)
    assert float(h.value(x)) == pytest.approx(float(value(x)), rel=1e-12)


@pytest.mark.parametrize("h", [Euclidean(), NegativeEntropy(), PNorm(1.2), PNorm(1.5), PNorm(2.0)], ids=str)
def test_divergences_are_as_convex_as_their_norm_says(x64, h):
    """D_h(x, z) >= (c/2) ||x - z||^2: c = 1 but p - 1 for a p-norm, in the 1-norm on the simplex for the entropy."""
    rng = np.random.default_rng(15)
    order = {NegativeEntropy: 1, PNorm: getattr(h, "p", 2)}.get(type(h), 2)
    constant = h.p - 1 if isinstance(h, PNorm) else 1
    for _ in range(50):
        x, z, u = (Vector(jnp.asarray(rng.dirichlet(np.full(6, 0.4)))) for _ in range(3))
        found = float(h.divergence(x, z))
        assert found >= constant / 2 * np.linalg.norm(x.tree - z.tree, order) ** 2 * (1 - 1e-9)
        if isinstance(h, NegativeEntropy):
            assert found == pytest.approx(float(jnp.sum(x.tree * jnp.log(x.tree / z.tree))), rel=1e-9)
        three = h.divergence(x, u) + h.divergence(u, z) - (h.grad(z) - h.grad(u)) @ (x - u)
        assert found == pytest.approx(float(three), rel=1e-8, abs=1e-12)  # the three points' identity
        assert abs(float(h.divergence(x, x))) < 1e-12


def test_mirrors_at_their_edges():
    zero = Vector(jnp.zeros(3))
    assert PNorm(1.2).grad(zero).tree.tolist() == PNorm(1.2).inverse(zero).tree.tolist() == [0, 0, 0]
    large = Vector(jnp.array([1e30, -1e25, 0.0]))
    assert bool(jnp.all(jnp.isfinite(PNorm(1.1).inverse(large).tree)))
    traced = jax.jit(lambda p: PNorm(p).retrieve(Vector(jnp.array([3.0, -0.5])), 1.0, L1(1.0)).tree)(2.0)
    np.testing.assert_allclose(traced, [2, 0], rtol=1e-6)
    entropy = NegativeEntropy()
    far = entropy.retrieve(Vector(jnp.array([1000.0, -1000.0])), 1.0, Simplex())
    assert far.tree.tolist() == [1, 0]
    assert bool(jnp.all(jnp.isfinite(entropy.grad(far).tree)))
    assert bool(jnp.isnan(entropy.grad(Vector(jnp.array([-1.0]))).tree[0]))
    both = {"v": jnp.array([1.0]), "w": jnp.array([1.0, 1.0]), "bias": jnp.array([7.0])}
    spread = entropy.retrieve(Vector(both), 1.0, Simplex(3.0)).tree
    np.testing.assert_allclose(spread["w"], 1, rtol=1e-6)
    assert float(spread["bias"][0]) == 7
    pair = L1(0.5, on="w") + NonNegative(on="v")
    PNorm(1.5).check(pair)
    PNorm(2.0).check(Nuclear(1.0))


class Quadratic:
    def __init__(self, rng, shape):
        n = int(np.prod(shape))
        a = rng.normal(size=(n, n))
        self.a, self.b = jnp.asarray(a @ a.T / n), jnp.asarray(rng.normal(size=n))

    def value(self, x):
        z = x.tree.ravel()
        return z @ self.a @ z / 2 - self.b @ z

    def grad(self, x):
        return jax.grad(self.value)(x)

    def hvp(self, x, v):
        return jax.jvp(self.grad, (x,), (v,))[1]


class Logistic(Quadratic):
    def value(self, x):
        return jnp.mean(jnp.logaddexp(0, -3 * self.a @ x.tree.ravel())) + self.b @ x.tree.ravel() / 10


@pytest.mark.parametrize("kind", [Quadratic, Logistic])
@pytest.mark.parametrize("psi", [None, L1(0.3), Nuclear(0.3), SquaredL2(0.3), L2Ball(0.5)], ids=str)
def test_envelope_value_theta_and_gradient(x64, kind, psi):
    rng = np.random.default_rng(15)
    f = kind(rng, (4, 3))
    f.regularizer = psi
    env = envelope(f, 6.0)
    x = Vector(jnp.asarray(rng.normal(size=(4, 3))))

    def model(z):  # what F_lam minimises over z
        step = z - x
        return f.value(x) + f.grad(x) @ step + (0 if psi is None else psi.value(z)) + 3 * (step @ step)

    theta = env.theta(x)
    assert float(env.value(x)) == pytest.approx(float(model(theta)), rel=1e-12)
    assert float(env.value(x)) <= float(f.value(x) + (0 if psi is None else psi.value(x))) + 1e-12
    for _ in range(10):
        near = theta + 0.1 * Vector(jnp.asarray(rng.normal(size=(4, 3))))
        assert float(model(theta)) <= float(model(near if psi is None else psi.prox(near, 0.0)))
    g, value = env.grad(x), jax.jit(env.value)
    for _ in range(5):
        v = Vector(jnp.asarray(rng.normal(size=(4, 3))))
        slope = float(value(x + 1e-5 * v) - value(x - 1e-5 * v)) / 2e-5
        assert float(g @ v) == pytest.approx(slope, rel=1e-6, abs=1e-7)
    free = env.grad(x, hvp=lambda x, v: 0 * v)
    np.testing.assert_allclose(free.tree, 6 * (x - theta).tree)


def test_envelope_of_a_client_is_stationary_at_the_lasso_solution(x64):
    problem = fedax.Problem(loss=LEAST_SQUARES._batch_loss, init=lambda key: jnp.zeros(6), regularizer=L1(0.2))
    batch = {k: jnp.asarray(v) for k, v in regression().arrays.items()}
    env = envelope(problem.on(batch), 10.0)
    x = jax.lax.fori_loop(0, 2000, lambda _, x: env.theta(x), Vector(jnp.zeros(6)))
    exact = Lasso(alpha=0.2, fit_intercept=False, tol=1e-14).fit(np.asarray(batch["x"]), np.asarray(batch["y"]))
    np.testing.assert_allclose(x.tree, exact.coef_, atol=1e-8)
    assert float(fedax.vectors.norm(env.grad(x))) < 1e-10
    assert float(env.value(x)) == pytest.approx(float(problem.loss(x.tree, batch) + problem.regularizer.value(x)))


def test_ridge_regression_by_gradient_steps(x64):
    federation = regression()
    problem = fedax.Problem(loss=LEAST_SQUARES._batch_loss, init=lambda key: jnp.zeros(6), regularizer=SquaredL2(0.3))
    result = fedax.simulate(problem, federation, fedax.FedAvg(lr=0.3), rounds=600, weighted=True, eval_every=600)
    x, y = federation.arrays["x"], federation.arrays["y"]
    expected = np.linalg.solve(x.T @ x / len(y) + 0.3 * np.eye(6), x.T @ y / len(y))
    np.testing.assert_allclose(result.model, expected, rtol=1e-9)


def test_a_smooth_method_says_that_it_takes_subgradients(caplog):
    problem = fedax.Problem(loss=LEAST_SQUARES._batch_loss, init=lambda key: jnp.zeros(6), regularizer=L1(0.1))
    with caplog.at_level(logging.INFO, logger="fedax"):
        fedax.simulate(problem, regression(), fedax.FedAvg(lr=0.1), rounds=1)
    assert "FedAvg has no proximal step: it takes subgradients of L1" in caplog.text


def test_a_smooth_method_refuses_a_constraint():
    problem = fedax.Problem(loss=LEAST_SQUARES._batch_loss, init=lambda key: jnp.zeros(6), regularizer=L2Ball(1.0))
    with pytest.raises(fedax.FedaxError, match="L2Ball is a constraint and has no subgradient to step along"):
        fedax.simulate(problem, regression(), fedax.FedAvg(lr=0.1), rounds=1)
