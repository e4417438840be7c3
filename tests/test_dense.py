"""The product of dense layers: the derivatives of a plain product, whichever form they are computed in."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from fedax import Problem, Vector
from fedax.kernels import dense
from fedax.models import model
from fedax.problem.oracle import BatchOracle, FullOracle
from fedax.regularizers import SquaredL2
from fedax.vectors import Mixture

SHAPES = [(20, 784, 200), (16, 128, 128), (17, 130, 129), (24, 64, 256)]
OTHERS = [(15, 784, 200), (25, 784, 200), (20, 784, 100), (20, 784, 400), (20, 50, 200)]


def draw(*shape: int) -> jax.Array:
    return jnp.asarray(np.random.default_rng(sum(shape)).normal(size=shape))


@pytest.mark.parametrize(("rows", "inputs", "outputs"), SHAPES + OTHERS)
def test_derivatives_are_those_of_a_plain_product(x64, rows, inputs, outputs):
    x, kernel, along = draw(rows, inputs), draw(inputs, outputs), draw(inputs, outputs)
    assert dense.serves(x, kernel) is ((rows, inputs, outputs) in SHAPES)

    def loss(product):
        return lambda x, kernel: jnp.sum(jnp.tanh(product(x, kernel) / 10) ** 2)

    ours, plain = loss(dense.product), loss(jnp.dot)
    for argument in (0, 1):
        both = [jax.grad(f, argument)(x, kernel) for f in (ours, plain)]
        np.testing.assert_allclose(*both, rtol=1e-12, atol=1e-13)
    bends = [jax.jvp(lambda k, f=f: jax.grad(f, 1)(x, k), (kernel,), (along,))[1] for f in (ours, plain)]
    np.testing.assert_allclose(*bends, rtol=1e-11, atol=1e-12)


@pytest.mark.parametrize(
    ("rows", "inputs", "outputs", "filled"),
    [
        (50, 2048, 1024, True),
        (48, 1024, 2048, True),
        (47, 2048, 1024, False),
        (64, 2048, 1024, False),
        (50, 2047, 1024, False),
        (50, 4096, 1000, False),
    ],
)
def test_rows_are_filled_up_for_wide_kernels_alone(rows, inputs, outputs, filled):
    x, kernel = jax.ShapeDtypeStruct((rows, inputs), jnp.float32), jax.ShapeDtypeStruct((inputs, outputs), jnp.float32)
    assert dense.filling_serves(x, kernel) is filled
    wide = f"f32[64,{outputs}]" in str(jax.make_jaxpr(dense.product)(x, kernel))
    assert wide is (rows == 64 or (filled and jax.default_backend() == "cpu"))


def test_filled_rows_change_nothing():
    x, kernel, along = (jnp.float32(draw(*shape)) for shape in ((50, 2048), (2048, 1024), (50, 1024)))
    assert dense.filling_serves(x, kernel)
    ours, plain = (jax.vjp(f, x, kernel) for f in (dense.product, jnp.dot))
    np.testing.assert_allclose(ours[0], plain[0], rtol=1e-5, atol=1e-3)
    for one, other in zip(ours[1](along), plain[1](along), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-3)
    moves = (x[::-1], kernel[::-1])
    both = [jax.jvp(f, (x, kernel), moves)[1] for f in (dense.product, jnp.dot)]
    np.testing.assert_allclose(*both, rtol=1e-5, atol=1e-3)


def test_clients_side_by_side(x64):
    x, kernel = draw(3, 20, 784), draw(3, 784, 200)
    both = [jax.vmap(jax.grad(lambda k, x, f=f: jnp.sum(f(x, k) ** 3)))(kernel, x) for f in (dense.product, jnp.dot)]
    np.testing.assert_allclose(*both, rtol=1e-12, atol=1e-9)


def test_the_perceptron_steps_along_outer_products():
    """The hidden layers' gradients are no matrix products in the program: that is what makes the step quick."""
    network = model("mlp", outputs=10, hidden=(200, 200))
    params = network.init(jax.random.key(0), jnp.zeros((1, 784)))
    program = jax.make_jaxpr(jax.grad(lambda p, x: network.apply(p, x).sum()))
    products = [str(program(params, jnp.zeros((rows, 784)))).count("dot_general") for rows in (20, 50)]
    # Forward 3, along weights 3, along inputs 2; with 20 rows the hidden weights' two are none, and the derivative
    # along the images is written down, though never computed.
    assert products == ([7, 8] if jax.default_backend() == "cpu" else [8, 8])


@pytest.mark.parametrize("psi", [None, SquaredL2(0.1)], ids=str)
@pytest.mark.parametrize(("rows", "hidden"), [(20, (200, 30)), (7, (9,)), (7, ())])
def test_derivatives_through_a_mixture_are_the_chain_rule_s(x64, rows, hidden, psi):
    """f(a v + (1 - a) w): a g along v and <v - w, g> along a, g the gradient at the mixture; a kernel may be mixed by
    the model itself."""
    task = Problem(model("mlp", outputs=4, hidden=hidden), loss="cross_entropy", regularizer=psi)
    batch = {"x": draw(rows, 100), "y": jnp.arange(rows) % 4}
    v, w = (Vector(task.init(jax.random.key(k), batch)) for k in (1, 2))
    a = jnp.asarray(0.3)
    first = jax.tree.leaves(task.mixed(v.tree, w.tree, a), is_leaf=lambda x: isinstance(x, Mixture))
    assert sum(isinstance(leaf, Mixture) for leaf in first) == bool(hidden)
    every = FullOracle(task, lambda rows: jax.tree.map(lambda x: x[rows], batch), rows, rows, equal=True)
    g = Problem(task.model, loss="cross_entropy").on(batch).grad(a * v + (1 - a) * w)
    g = g if psi is None else g + psi.subgradient(a * v + (1 - a) * w)
    for oracle in (BatchOracle(task, batch), every):
        along_v, along_a = oracle.mixed(v, w, a)
        jax.tree.map(functools.partial(np.testing.assert_allclose, rtol=1e-10, atol=1e-13), along_v, a * g)
        np.testing.assert_allclose(along_a, (v - w) @ g, rtol=1e-10)
