"""A partition by features: the labels are alike, the pictures are not."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from fedax.data.checks import Array, Split
from fedax.data.federation import Federation
from fedax.data.partitions.base import IID, check_number
from fedax.data.splits import PARTS
from fedax.errors import FedaxError

_PURPOSE = 0x5417


@dataclass(frozen=True)
class FeatureShift(IID):
    """Rows dealt out at random, then every client's `x` turned or made noisy in its own way.

    Client i = 0, 1, ... turns its images anticlockwise by `rotation * i / clients` degrees, by bilinear interpolation
    (exactly, where square images are turned by right angles), and adds normal noise of standard deviation
    `noise * i / clients`. So client 0 keeps its rows, and 360 degrees with 4 clients are the four right angles.
    Bytes become floats from 0 to 1.

    Parameters
    ----------
    clients : at least 1
    rotation : in degrees, finite; default 0; images have rows [height, width] or [height, width, channels], or are
        flat and square
    noise : finite and at least 0; default 0

    >>> images = {"x": np.arange(24, dtype=np.float32).reshape(6, 2, 2), "y": np.arange(6)}
    >>> federation = FeatureShift(2, rotation=360).divide(images)
    >>> row = federation.client(1)
    >>> bool((row["x"] == images["x"][row["y"], ::-1, ::-1]).all())
    True
    """

    rotation: float = 0.0
    noise: float = 0.0

    def __post_init__(self) -> None:
        super().__post_init__()
        check_number("rotation", self.rotation, -math.inf)
        check_number("noise", self.noise, 0)

    def check(self, arrays: Mapping[str, Array], rows: int) -> None:
        super().check(arrays, rows)
        if "x" not in arrays:
            raise FedaxError(f"{self!r} changes the array 'x': the dataset has none")
        shape = arrays["x"].shape[1:]
        if self.rotation and len(shape) not in (2, 3) and not _flat_square(shape):
            raise FedaxError(
                f"rotation is {self.rotation}: 'x' has rows of shape {shape}, it must have images [height, width] or "
                "[height, width, channels], or flat square ones"
            )

    def _federate(self, flat: dict[str, Array], rows: int, split: Split | None, seed: int) -> Federation:
        federation = super()._federate(flat, rows, split, seed)
        given = federation.arrays["x"]
        x = given.astype(np.float32) / 255 if given.dtype == np.uint8 else given.astype(np.result_type(given, "f4"))
        for i in range(self.clients):
            rng = np.random.default_rng([seed, _PURPOSE, i])
            for part in PARTS:
                mine = federation.part(part).of(i)
                turned = turn(x[mine], self.rotation * i / self.clients)
                x[mine] = turned + self.noise * i / self.clients * rng.standard_normal(turned.shape)
        return replace(federation, arrays={**federation.arrays, "x": x})


def turn(images: Array, degrees: float) -> Array:
    """Images turned anticlockwise about their centres, in frames of the same size; what comes in is zero.

    >>> turn(np.array([[[1.0, 2.0], [3.0, 4.0]]]), 90).tolist()
    [[[2.0, 4.0], [1.0, 3.0]]]
    """
    if degrees % 360 == 0 or not len(images):
        return images
    if _flat_square(images.shape[1:]):
        side = math.isqrt(images.shape[1])
        return turn(images.reshape(-1, side, side), degrees).reshape(images.shape)
    if degrees % 90 == 0 and images.shape[1] == images.shape[2]:
        return np.rot90(images, int(degrees // 90), axes=(1, 2))
    from scipy.ndimage import rotate

    turned: Array = rotate(images, degrees, axes=(1, 2), reshape=False, order=1)
    return turned


def _flat_square(shape: tuple[int, ...]) -> bool:
    return len(shape) == 1 and math.isqrt(shape[0]) ** 2 == shape[0]
