"""The models: shapes, precision, errors, and the convolution against XLA's own."""

from __future__ import annotations

import dataclasses
import subprocess
import sys
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from jax import lax

from fedax.errors import FedaxError
from fedax.kernels import winograd
from fedax.models import CNN, MLP, MODELS, Linear, convolve, max_pool, model

KEY = jax.random.key(0)
SMALL: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": (6,)},
    "cnn": {"channels": (2, 3), "dense": (5,)},
    "resnet18": {"channels": (2, 4)},
    "small_cnn_gn": {"channels": (2, 4)},
}
NHWC = ("NHWC", "HWIO", "NHWC")


def images(dtype: str = "uint8", channels: tuple[int, ...] = (1,), batch: int = 4) -> np.ndarray:
    return np.random.default_rng(0).integers(0, 256, (batch, 8, 9, *channels)).astype(dtype)


def build(name: str, **options: Any) -> nn.Module:
    return model(name, outputs=3, **SMALL.get(name, {}), **options)


# Registry


def test_listing_loads_neither_jax_nor_flax() -> None:
    code = "import sys, fedax.models as m; list(m.MODELS); print(not {'jax', 'flax'} & set(sys.modules))"
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "True"


@pytest.mark.parametrize("name", MODELS)
def test_declared_options_are_the_module_s_own(name: str) -> None:
    entry = MODELS[name]
    fields = {f.name: f.default for f in dataclasses.fields(entry.load())}
    own = {k: v for k, v in fields.items() if k not in ("outputs", "parent", "name")}
    assert own == {k: option.default for k, option in entry.options.items()}
    assert all(option.read(option.default) == option.default for option in entry.options.values())
    assert entry.summary


def test_lists_build_what_tuples_build() -> None:
    assert model("mlp", outputs=2, hidden=[4, 5]) == MLP(outputs=2, hidden=(4, 5))
    assert model("logistic", outputs=np.int64(2)) == model("linear", outputs=2) == Linear(outputs=2)
    assert hash(model("cnn", outputs=2, channels=[4], dense=[])) == hash(CNN(2, channels=(4,), dense=()))


@pytest.mark.parametrize(
    ("name", "options", "message"),
    [
        ("mpl", {}, "unknown model 'mpl': did you mean 'mlp'? Allowed: linear, logistic, trace, mlp, cnn"),
        ("mlp", {"hiden": (3,)}, "unknown mlp option 'hiden': did you mean 'hidden'? Allowed: hidden"),
        ("linear", {"parent": None}, "unknown linear option 'parent'"),
        ("mlp", {"outputs": 0}, "mlp option outputs is 0: allowed is a whole number of at least 1"),
        ("mlp", {"outputs": True}, "mlp option outputs is True"),
        ("mlp", {"outputs": 2.5}, "mlp option outputs is 2.5"),
        (
            "mlp",
            {"hidden": 200},
            "mlp option hidden is 200: allowed is a list of any number of whole numbers",
        ),
        ("mlp", {"hidden": "200"}, "mlp option hidden is '200'"),
        ("mlp", {"hidden": (4, 0)}, r"mlp option hidden is (4, 0)"),
        (
            "cnn",
            {"channels": ()},
            "cnn option channels is (): allowed is a list of one or more whole numbers",
        ),
        ("cnn", {"kernel": -1}, "cnn option kernel is -1"),
        (
            "linear",
            {"kernel_init": "ones"},
            "linear option kernel_init is 'ones': allowed is 'zeros' or 'lecun'",
        ),
        ("logistic", {"use_bias": 1}, "logistic option use_bias is 1: allowed is true or false"),
    ],
)
def test_bad_names_and_values_are_named(name: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(FedaxError) as error:
        model(name, **{"outputs": 2, **options})
    assert str(error.value).startswith(message)


# Every model


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("x64", [False, True])
@pytest.mark.parametrize("dtype", ["uint8", "float32", "int32"])
def test_parameters_and_outputs_follow_x64_mode(name: str, x64: bool, dtype: str) -> None:
    with jax.enable_x64(x64):
        net = build(name)
        out, params = jax.jit(net.init_with_output)(KEY, images(dtype))
        want = jnp.dtype("float64" if x64 else "float32")
        assert {leaf.dtype for leaf in jax.tree.leaves(params)} == {want}
        assert (out.dtype, out.shape) == (want, (4, 3))


@pytest.mark.parametrize("name", [name for name in MODELS if name != "trace"])
def test_bytes_are_fractions_of_255(name: str) -> None:
    net = build(name, **({"kernel_init": "lecun"} if name in ("linear", "logistic") else {}))
    x = images()
    out, params = jax.jit(net.init_with_output)(KEY, x)
    np.testing.assert_allclose(out, net.apply(params, x.astype(np.float32) / 255), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(out, net.apply(params, x[..., 0]), rtol=1e-5, atol=1e-6)
    assert np.ptp(np.asarray(out)) > 0


@pytest.mark.parametrize("name", MODELS)
def test_clients_batched_by_vmap_are_the_clients_one_by_one(name: str) -> None:
    net = build(name)
    x = images(batch=6).reshape(3, 2, 8, 9, 1)
    params = jax.jit(jax.vmap(lambda key: net.init(key, x[0])))(jax.random.split(KEY, 3))
    grad = jax.jit(jax.grad(lambda p, rows: jnp.sum(jnp.sin(net.apply(p, rows) + 1))))
    batched = jax.jit(jax.vmap(grad))(params, x)
    for i in range(3):
        alone = grad(jax.tree.map(lambda leaf: leaf[i], params), x[i])  # noqa: B023
        jax.tree.map(
            lambda a, b: np.testing.assert_allclose(a[i], b, rtol=1e-4, atol=1e-5),  # noqa: B023
            batched,
            alone,
        )


@pytest.mark.parametrize(
    ("name", "options", "inputs"),
    [
        ("mlp", {"hidden": (400,)}, {"Dense_0": 900, "Dense_1": 400}),
        ("cnn", {"channels": (50,), "kernel": 5, "dense": (200,)}, {"Conv_0": 25, "Dense_0": 11250, "Dense_1": 200}),
    ],
)
def test_a_start_like_pytorchs_is_uniform_within_one_over_the_root_of_the_inputs(
    name: str, options: dict[str, Any], inputs: dict[str, int]
) -> None:
    """PyTorch's Linear and Conv2d draw weights and biases from U(-1/sqrt(n), 1/sqrt(n)), n inputs to a unit."""
    net = model(name, outputs=3, kernel_init="pytorch", **options)
    layers = net.init(KEY, jnp.zeros((1, 30, 30, 1)))["params"]
    assert set(layers) == set(inputs)
    for layer, count in inputs.items():
        kernel, bias = (np.asarray(layers[layer][leaf]) * np.sqrt(count) for leaf in ("kernel", "bias"))
        assert max(np.abs(kernel).max(), np.abs(bias).max()) <= 1 + 1e-6
        assert np.abs(bias).max() > 0
        deviations = (kernel.var() - 1 / 3) / np.sqrt((1 / 5 - 1 / 9) / kernel.size)  # of the variance's own spread
        assert abs(deviations) < 5
    other = model(name, outputs=3, **options).init(KEY, jnp.zeros((1, 30, 30, 1)))
    assert jax.tree.structure(other["params"]) == jax.tree.structure(layers)


def test_pytorchs_own_layers_start_like_that() -> None:
    torch = pytest.importorskip("torch")
    for layer, count in ((torch.nn.Linear(900, 400), 900), (torch.nn.Conv2d(4, 300, 5), 100)):
        weight, bias = (np.asarray(leaf.detach()) * np.sqrt(count) for leaf in (layer.weight, layer.bias))
        assert 0.99 < np.abs(weight).max() <= 1 + 1e-6
        assert 0.9 < np.abs(bias).max() <= 1 + 1e-6


def test_linear_starts_at_zero_and_is_linear() -> None:
    x = np.random.default_rng(1).normal(size=(5, 4)).astype(np.float32)
    params = Linear(2).init(KEY, x)
    assert not any(np.any(leaf) for leaf in jax.tree.leaves(params))
    params = Linear(2, use_bias=False, kernel_init="lecun").init(KEY, x)
    (kernel,) = jax.tree.leaves(params)
    np.testing.assert_allclose(Linear(2, use_bias=False).apply(params, x), x @ kernel, rtol=1e-5, atol=1e-6)


def test_sizes_of_the_published_networks() -> None:
    def size(net: nn.Module, *shape: int) -> int:
        params = jax.eval_shape(net.init, KEY, jnp.zeros((1, *shape)))
        return sum(int(np.prod(leaf.shape)) for leaf in jax.tree.leaves(params))

    assert size(MLP(10), 784) == 199_210  # McMahan et al. 2017, section 3
    dense = 7 * 7 * 64 * 1024 + 1024 + 1024 * 512 + 512 + 512 * 10 + 10
    assert size(CNN(10), 28, 28) == (9 * 32 + 32) + (9 * 32 * 64 + 64) + dense


def test_cnn_has_flax_names_and_first_values() -> None:
    class Plain(nn.Module):
        @nn.compact
        def __call__(self, x: Any) -> Any:
            for features in (4, 5):
                x = nn.max_pool(nn.relu(nn.Conv(features, (3, 3))(x)), (2, 2), (2, 2))
            x = nn.relu(nn.Dense(6)(x.reshape(len(x), -1)))
            return nn.Dense(3)(x)

    x = jnp.zeros((1, 8, 8, 2))
    ours, theirs = (net.init(KEY, x) for net in (CNN(3, channels=(4, 5), dense=(6,)), Plain()))
    jax.tree.map(np.testing.assert_array_equal, ours, theirs)


def test_cnn_against_relu_before_xla_s_own_pooling() -> None:
    net, x = CNN(3, channels=(4, 5), dense=(6,), kernel=4), images("float32", (3,)) / 255

    def plain(params: Any, x: Any) -> jax.Array:
        layers = params["params"]
        for name in ("Conv_0", "Conv_1"):
            x = lax.conv_general_dilated(x, layers[name]["kernel"], (1, 1), "SAME", dimension_numbers=NHWC)
            x = nn.max_pool(nn.relu(x + layers[name]["bias"]), (2, 2), (2, 2))
        x = nn.relu(x.reshape(len(x), -1) @ layers["Dense_0"]["kernel"] + layers["Dense_0"]["bias"])
        return x @ layers["Dense_1"]["kernel"] + layers["Dense_1"]["bias"]

    params = jax.jit(net.init)(KEY, x)
    np.testing.assert_allclose(net.apply(params, x), plain(params, x), rtol=1e-4, atol=1e-5)
    ours, theirs = (jax.jit(jax.grad(lambda p, f=f: jnp.sum(f(p, x) ** 2)))(params) for f in (net.apply, plain))
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-3, atol=1e-4), ours, theirs)


@pytest.mark.parametrize(
    ("net", "shape", "message"),
    [
        (Linear(1), (5,), r"shape \(5,\)"),
        (CNN(1), (5, 5), r"shape \(5, 5\)"),
        (CNN(1), (2, 3, 9), r"images are 3x9: 2 poolings need at least 4x4"),
    ],
)
def test_inputs_of_the_wrong_shape_are_named(net: nn.Module, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(FedaxError, match=message):
        net.init(KEY, jnp.zeros(shape))


# Convolution and pooling


def assert_same_convolution(x: Any, w: Any, strides: Any, padding: Any, order: Any = NHWC) -> None:
    def value_and_pullback(f: Any) -> tuple[Any, Any]:
        y, pull = jax.vjp(lambda x, w: f(x, w, strides, padding, dimension_numbers=order), x, w)
        return y, pull(jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape))

    both = jax.jit(lambda: (value_and_pullback(convolve), value_and_pullback(lax.conv_general_dilated)))
    ours, theirs = both()
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-9), ours, theirs)


sides = st.integers(1, 5)
paddings = st.one_of(
    st.sampled_from(["SAME", "VALID"]),
    st.tuples(*[st.tuples(st.integers(0, 2), st.integers(0, 2))] * 2),
)


@settings(deadline=None, max_examples=25)
@given(
    size=st.tuples(st.integers(5, 8), st.integers(5, 8)),
    window=st.tuples(sides, sides),
    strides=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    channels=st.tuples(st.integers(1, 3), st.integers(1, 3)),
    padding=paddings,
)
def test_convolution_is_xla_s_own(size: Any, window: Any, strides: Any, channels: Any, padding: Any) -> None:
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x, w = jnp.asarray(rng.normal(size=(2, *size, channels[0]))), rng.normal(size=(*window, *channels))
        assert_same_convolution(x, jnp.asarray(w), strides, padding)


@settings(deadline=None, max_examples=10)
@given(size=st.tuples(st.integers(2, 7), st.integers(2, 7)), padding=paddings)
def test_fewer_products_give_xla_s_own_convolution(size: Any, padding: Any) -> None:
    rng = np.random.default_rng(0)
    with jax.enable_x64(True):
        x, w = jnp.asarray(rng.normal(size=(2, *size, 16))), jnp.asarray(rng.normal(size=(3, 3, 16, 17)))
        pads = lax.padtype_to_pads(size, (3, 3), (1, 1), padding) if isinstance(padding, str) else padding
        assume(winograd.serves(x, w, (1, 1), pads))
        assert_same_convolution(x, w, (1, 1), padding)


@pytest.mark.parametrize(("side", "serves"), [(1, False), (2, True), (8, True)])
def test_a_tile_serves_where_it_has_fewer_products(side: int, serves: bool) -> None:
    # One output takes 9 products, or a tile of 16; four take 36, or the same tile.
    x, w = jnp.zeros((1, side, side, 16)), jnp.zeros((3, 3, 16, 16))
    assert winograd.serves(x, w, (1, 1), [(1, 1), (1, 1)]) == serves


@pytest.mark.parametrize("order", [("NWC", "WIO", "NWC"), ("NDHWC", "DHWIO", "NDHWC")])
def test_convolution_in_one_and_three_dimensions(order: tuple[str, str, str]) -> None:
    rng, n = np.random.default_rng(0), len(order[0]) - 2
    with jax.enable_x64(True):
        x, w = jnp.asarray(rng.normal(size=(2, *[6] * n, 2))), jnp.asarray(rng.normal(size=(*[3] * n, 2, 3)))
        assert_same_convolution(x, w, (2,) * n, "SAME", order)


def test_only_plain_convolutions_on_the_cpu_are_matrix_products(monkeypatch: pytest.MonkeyPatch) -> None:
    x, w = jnp.ones((1, 6, 6, 2)), jnp.ones((3, 3, 2, 4))

    def native(x: Any, w: Any, padding: Any = "SAME", order: Any = NHWC, **options: Any) -> bool:
        def f(x: Any, w: Any) -> jax.Array:
            return convolve(x, w, (1, 1), padding, dimension_numbers=order, **options)

        shape = lax.conv_general_dilated(x, w, (1, 1), padding, dimension_numbers=order, **options).shape
        assert jax.eval_shape(f, x, w).shape == shape
        return "conv_general_dilated" in str(jax.make_jaxpr(f)(x, w))

    assert not native(x, w)
    assert not native(x, w, rhs_dilation=(1, 1), lhs_dilation=(1, 1))
    assert native(x, w, rhs_dilation=(2, 1))
    assert native(x, w, padding=[(1, 1), (1, 1)], lhs_dilation=(2, 2))
    assert native(x, w[:, :, :1], feature_group_count=2)
    assert native(x, w, order=("NHWC", "HWIO", "NCHW"))
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    assert native(x, w)


def test_kernel_larger_than_the_image_leaves_nothing() -> None:
    x, w = jnp.ones((2, 3, 3, 1)), jnp.ones((5, 5, 1, 2))
    want = lax.conv_general_dilated(x, w, (1, 1), "VALID", dimension_numbers=NHWC)
    assert convolve(x, w, (1, 1), "VALID", dimension_numbers=NHWC).shape == want.shape


@settings(deadline=None, max_examples=15)
@given(size=st.tuples(st.integers(3, 7), st.integers(3, 7)), window=st.integers(1, 3), ties=st.booleans())
def test_pooling_is_xla_s_own_even_in_ties(size: tuple[int, int], window: int, ties: bool) -> None:
    rng = np.random.default_rng(0)
    shape = (2, *size, 3)
    x = jnp.asarray(rng.integers(0, 2, shape) if ties else rng.normal(size=shape), jnp.float32)

    def value_and_pullback(f: Any) -> tuple[Any, Any]:
        y, pull = jax.vjp(f, x)
        return y, pull(jnp.cos(jnp.arange(y.size, dtype=y.dtype)).reshape(y.shape))

    def theirs(x: jax.Array) -> jax.Array:
        return nn.max_pool(x, (window, window), (window, window))

    both = jax.jit(lambda: (value_and_pullback(lambda x: max_pool(x, window)), value_and_pullback(theirs)))
    jax.tree.map(np.testing.assert_array_equal, *both())


def test_pooling_elsewhere_is_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    x = jnp.asarray(np.random.default_rng(0).normal(size=(2, 5, 6, 3)), jnp.float32)
    here = max_pool(x)
    monkeypatch.setattr(jax, "default_backend", lambda: "gpu")
    np.testing.assert_array_equal(here, max_pool(x))


def test_hessian_vector_products_go_through() -> None:
    net = CNN(2, channels=(3,), dense=(4,))
    with jax.enable_x64(True):
        x = images("float64") / 255
        params = jax.jit(net.init)(KEY, x)
        grad = jax.jit(jax.grad(lambda p: jnp.sum(jnp.tanh(net.apply(p, x)) ** 2)))
        v = jax.tree.map(lambda a: jnp.cos(jnp.arange(a.size, dtype=a.dtype)).reshape(a.shape), params)
        hv, h = jax.jit(lambda p, v: jax.jvp(grad, (p,), (v,))[1])(params, v), 1e-6
        ahead, behind = (grad(jax.tree.map(lambda p, u, s=s: p + s * u, params, v)) for s in (h, -h))
        slope = jax.tree.map(lambda a, b: (a - b) / (2 * h), ahead, behind)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-6), hv, slope)
