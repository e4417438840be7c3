"""Networks with group normalisation: sizes by hand, and the arithmetic against XLA's own convolution."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn
from jax import lax

from fedax.errors import FedaxError
from fedax.kernels.convolution import overlapping_max_pool
from fedax.models import ResNet18, SmallCNN

KEY = jax.random.key(0)


def size(net: nn.Module, *shape: int) -> int:
    params = jax.eval_shape(net.init, KEY, jnp.zeros((1, *shape)))
    return sum(leaf.size for leaf in jax.tree.leaves(params))


def test_resnet18_has_the_parameters_that_its_layers_need() -> None:
    stem = 3 * 3 * 3 * 64 + 2 * 64
    stages, before = 0, 64
    for c in (64, 128, 256, 512):
        convolutions = 9 * before * c + 3 * (9 * c * c)
        norms = 4 * (2 * c)
        shortcut = 0 if before == c else before * c + 2 * c
        stages, before = stages + convolutions + norms + shortcut, c
    assert size(ResNet18(10), 32, 32, 3) == stem + stages + 512 * 10 + 10
    # What is usually quoted for ResNet-18 on CIFAR-10: batch normalisation has as many parameters.
    assert stem + stages + 512 * 10 + 10 == 11_173_962


def test_the_larger_stem_is_the_published_network() -> None:
    # What is quoted for ResNet-18 on ImageNet is 11,689,512, of which the last layer of 1000 classes has 513,000.
    assert size(ResNet18(10, stem="7x7"), 32, 32, 3) == 11_689_512 - 513_000 + 512 * 10 + 10


@pytest.mark.parametrize("shape", [(2, 8, 8, 3), (1, 7, 10, 2), (1, 1, 2, 1)])
def test_the_stems_pooling_is_xla_s_own(shape: tuple[int, ...]) -> None:
    x = jnp.asarray(np.random.default_rng(1).normal(size=shape), jnp.float32)
    around = ((1, 1), (1, 1))
    pooled = overlapping_max_pool(x)
    np.testing.assert_array_equal(pooled, nn.max_pool(x, (3, 3), (2, 2), around))
    weights = jnp.cos(jnp.arange(float(pooled.size))).reshape(pooled.shape)
    ours, theirs = (
        jax.grad(lambda x, pool=pool: jnp.vdot(weights, pool(x)))(x)
        for pool in (overlapping_max_pool, lambda x: nn.max_pool(x, (3, 3), (2, 2), around))
    )
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_small_cnn_has_the_parameters_that_its_layers_need() -> None:
    layers = sum(9 * before * c + 2 * c for before, c in ((3, 32), (32, 64), (64, 128)))
    assert size(SmallCNN(10), 32, 32, 3) == layers + 4 * 4 * 128 * 10 + 10


def convolution(x: Any, kernel: Any, stride: int = 1) -> jax.Array:
    around = [(kernel.shape[0] // 2, kernel.shape[0] // 2)] * 2
    return lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        around,
        dimension_numbers=lax.ConvDimensionNumbers((0, 3, 1, 2), (3, 2, 0, 1), (0, 3, 1, 2)),
    )


def group_norm(x: Any, layer: Any, groups: int) -> jax.Array:
    """Wu and He 2018, equations 1 and 2, one group at a time."""
    parts = []
    for part in jnp.split(x, groups, axis=-1):
        mean = part.mean(axis=(1, 2, 3), keepdims=True)
        variance = jnp.mean((part - mean) ** 2, axis=(1, 2, 3), keepdims=True)
        parts.append((part - mean) / jnp.sqrt(variance + 1e-5))
    return jnp.concatenate(parts, axis=-1) * layer["scale"] + layer["bias"]


def plain_resnet(params: Any, x: Any, stages: int, groups: int) -> jax.Array:
    layers = params["params"]
    first = layers["Conv_0"]["kernel"]
    large = first.shape[0] == 7
    x = nn.relu(group_norm(convolution(x, first, 2 if large else 1), layers["GroupNorm_0"], groups))
    if large:
        x = nn.max_pool(x, (3, 3), (2, 2), ((1, 1), (1, 1)))
    for b in range(2 * stages):
        block, stride = layers[f"BasicBlock_{b}"], 2 if b and b % 2 == 0 else 1
        y = nn.relu(group_norm(convolution(x, block["Conv_0"]["kernel"], stride), block["GroupNorm_0"], groups))
        y = group_norm(convolution(y, block["Conv_1"]["kernel"]), block["GroupNorm_1"], groups)
        if "Conv_2" in block:
            x = group_norm(convolution(x, block["Conv_2"]["kernel"], stride), block["GroupNorm_2"], groups)
        x = nn.relu(y + x)
    return x.mean(axis=(1, 2)) @ layers["Dense_0"]["kernel"] + layers["Dense_0"]["bias"]


def plain_small(params: Any, x: Any, layers: int, groups: int) -> jax.Array:
    tree = params["params"]
    for i in range(layers):
        x = nn.relu(group_norm(convolution(x, tree[f"Conv_{i}"]["kernel"]), tree[f"GroupNorm_{i}"], groups))
        x = nn.max_pool(x, (2, 2), (2, 2))
    return x.reshape(len(x), -1) @ tree["Dense_0"]["kernel"] + tree["Dense_0"]["bias"]


@pytest.mark.parametrize(
    ("net", "plain"),
    [
        (ResNet18(3, channels=(4, 8), groups=2), plain_resnet),
        (ResNet18(3, channels=(4, 4, 8), groups=4), plain_resnet),
        (ResNet18(3, channels=(4, 8), stem="7x7"), plain_resnet),
        (SmallCNN(3, channels=(4, 6), groups=2), plain_small),
    ],
    ids=["resnet", "resnet with four groups", "resnet with the larger stem", "small"],
)
def test_outputs_and_gradients_are_those_of_the_equations(net: Any, plain: Any) -> None:
    with jax.enable_x64(True):
        rng = np.random.default_rng(0)
        x = jnp.asarray(rng.normal(size=(2, 9, 8, 3)))
        params = jax.jit(net.init)(KEY, x)
        params = jax.tree.map(lambda p: p + 0.1 * jnp.cos(jnp.arange(p.size)).reshape(p.shape), params)

        def loss(outputs: Any) -> jax.Array:
            return jnp.sum(jnp.sin(outputs))

        def both(p: Any) -> Any:
            theirs = lambda p: plain(p, x, len(net.channels), net.groups)  # noqa: E731
            return [jax.value_and_grad(lambda p, f=f: loss(f(p)))(p) for f in (lambda p: net.apply(p, x), theirs)]

        ours, theirs = jax.jit(both)(params)
        jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=1e-7, atol=1e-9), ours, theirs)


@pytest.mark.parametrize("net", [ResNet18(2, channels=(4, 8)), SmallCNN(2, channels=(4, 8))], ids=["resnet", "small"])
def test_an_image_s_outputs_do_not_depend_on_the_rest_of_the_batch(net: Any) -> None:
    x = np.random.default_rng(0).normal(size=(3, 8, 8, 3)).astype(np.float32)
    params = jax.jit(net.init)(KEY, x)
    apply = jax.jit(net.apply)
    np.testing.assert_allclose(apply(params, x)[1:2], apply(params, x[1:2]), rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("net", "shape", "message"),
    [
        (ResNet18(2, channels=(4, 6), groups=4), (1, 8, 8, 3), "groups is 4: it must divide .* 6 is not divisible"),
        (SmallCNN(2, channels=(5,)), (1, 8, 8, 3), "groups is 2: it must divide .* 5 is not divisible"),
        (SmallCNN(2), (1, 7, 9), "images are 7x9: 3 poolings need at least 8x8"),
        (ResNet18(2, stem="7X7"), (1, 8, 8, 3), "unknown stem '7X7'"),
        (ResNet18(2), (3, 8), r"shape \(3, 8\)"),
    ],
)
def test_what_does_not_fit_is_named(net: nn.Module, shape: tuple[int, ...], message: str) -> None:
    with pytest.raises(FedaxError, match=message):
        net.init(KEY, jnp.zeros(shape))
