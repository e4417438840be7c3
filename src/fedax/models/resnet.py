"""Convolutional networks with group normalisation in place of batch normalisation.

Batch normalisation mixes the rows of a minibatch and keeps running statistics that clients with different data
cannot share; group normalisation (Wu and He 2018) looks at one image at a time and has nothing but parameters, which
are averaged like all others. Hsieh et al. 2020 proposed the exchange for federated training.

A group of channels of one image is scaled to mean 0 and variance 1, (z - mean) / sqrt(variance + 1e-5), then each
channel gets its own factor and offset. Convolutions before it have no bias: it would be taken out at once.
"""

from __future__ import annotations

import jax
from flax import linen as nn
from jax.typing import ArrayLike

from fedax.errors import FedaxError, unknown
from fedax.kernels.convolution import convolve, max_pool, overlapping_max_pool
from fedax.models.inputs import as_images, precision

STEMS = {"3x3": (3, 1), "7x7": (7, 2)}  # side of the kernel and stride
HE = nn.initializers.variance_scaling(2.0, "fan_out", "normal")


def _convolution(features: int, kernel: int, stride: int = 1) -> nn.Conv:
    """Without bias, padded by (kernel - 1) / 2 on every side: stride 2 takes the same places as in the literature."""
    side, around = (kernel, kernel), ((kernel // 2, kernel // 2),) * 2
    return nn.Conv(
        features,
        side,
        (stride, stride),
        around,
        use_bias=False,
        kernel_init=HE,
        param_dtype=precision(),
        conv_general_dilated=convolve,
    )


def _norm(groups: int) -> nn.GroupNorm:
    return nn.GroupNorm(groups, epsilon=1e-5, param_dtype=precision())


def _check_groups(channels: tuple[int, ...], groups: int) -> None:
    uneven = [c for c in channels if c % groups]
    if uneven:
        raise FedaxError(
            f"groups is {groups}: it must divide each number of channels, and {uneven[0]} is not divisible"
        )


class BasicBlock(nn.Module):
    """Two 3x3 convolutions beside a shortcut (He et al. 2016, figure 5 left), relu(norm(conv(..)) + shortcut(x)).

    Where the block changes the image's size or channels, the shortcut is a 1x1 convolution with a normalisation
    (option B there); elsewhere it is the identity.
    """

    features: int
    stride: int
    groups: int

    @nn.compact
    def __call__(self, x: jax.Array) -> jax.Array:
        y = nn.relu(_norm(self.groups)(_convolution(self.features, 3, self.stride)(x)))
        y = _norm(self.groups)(_convolution(self.features, 3)(y))
        if self.stride != 1 or x.shape[-1] != self.features:
            x = _norm(self.groups)(_convolution(self.features, 1, self.stride)(x))
        return nn.relu(y + x)


class ResNet18(nn.Module):
    """ResNet-18 (He et al. 2016) with group normalisation.

    A first convolution, stages of two basic blocks, of which every one but the first halves the image, the mean over
    the image, a dense layer.

    Input is [batch, height, width, channels], or [batch, height, width] for one channel; bytes (uint8) are
    divided by 255.

    Args:
        outputs: classes or targets, 1 or more.
        channels: of each stage, one or more of them.
        groups: of each normalisation, dividing all channels; 2 is what federated experiments usually take.
        stem: "3x3", a first convolution of stride 1, as usual for images of 32x32; or "7x7", one of stride 2 and a
            3x3 max pooling of stride 2, as He et al. have it for larger images, which leaves 8x8 places of 32x32.
            FedSpeed's experiments have the 7x7.

    >>> import jax, jax.numpy as jnp
    >>> model = ResNet18(outputs=10, channels=(4, 8))
    >>> images = jnp.zeros((2, 8, 8, 3), jnp.uint8)
    >>> out, params = model.init_with_output(jax.random.key(0), images)
    >>> out.shape
    (2, 10)
    """

    outputs: int
    channels: tuple[int, ...] = (64, 128, 256, 512)
    groups: int = 2
    stem: str = "3x3"

    @nn.compact
    def __call__(self, x: ArrayLike) -> jax.Array:
        _check_groups(self.channels, self.groups)
        if self.stem not in STEMS:
            raise unknown("stem", self.stem, STEMS)
        image = nn.relu(_norm(self.groups)(_convolution(self.channels[0], *STEMS[self.stem])(as_images(x))))
        if self.stem == "7x7":
            image = overlapping_max_pool(image)
        for stage, features in enumerate(self.channels):
            image = BasicBlock(features, 1 if stage == 0 else 2, self.groups)(image)
            image = BasicBlock(features, 1, self.groups)(image)
        return nn.Dense(self.outputs, param_dtype=precision())(image.mean(axis=(1, 2)))


class SmallCNN(nn.Module):
    """3x3 convolutions, each with group normalisation, ReLU and a 2x2 max pooling, then one dense layer.

    With three channels of 32x32 and ten classes it has 113,962 parameters, few enough to train on a laptop.

    Input is as for `ResNet18`; the convolutions keep the image's size, each pooling halves it, rounding down.

    Args:
        outputs: classes or targets, 1 or more.
        channels: of each convolution, one or more of them.
        groups: of each normalisation, dividing all channels.

    >>> import jax, jax.numpy as jnp
    >>> model = SmallCNN(outputs=10)
    >>> params = jax.eval_shape(model.init, jax.random.key(0), jnp.zeros((1, 32, 32, 3)))
    >>> sum(leaf.size for leaf in jax.tree.leaves(params))
    113962
    """

    outputs: int
    channels: tuple[int, ...] = (32, 64, 128)
    groups: int = 2

    @nn.compact
    def __call__(self, x: ArrayLike) -> jax.Array:
        _check_groups(self.channels, self.groups)
        image = as_images(x, poolings=len(self.channels))
        for features in self.channels:
            # ReLU and the maximum commute, and after the pooling there is a quarter of the work left.
            image = nn.relu(max_pool(_norm(self.groups)(_convolution(features, 3)(image))))
        return nn.Dense(self.outputs, param_dtype=precision())(image.reshape(image.shape[0], -1))
