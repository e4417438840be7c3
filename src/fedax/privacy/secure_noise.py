"""Gaussian noise that nobody can reproduce: from the operating system's cryptographic generator.

Floating-point numbers betray noise that is added carelessly: not every double can come out of "value plus noise", and
which can depends on the value (Mironov 2012). So the sum is taken in double precision and rounded to a grid of about a
millionth of the noise, far coarser than the gaps of doubles near it; then every grid point can come out of every value.
That is the known mitigation and no proof: the normal numbers are those of Box and Muller, in double precision, and end
at 8.5 standard deviations. Whoever needs exact arithmetic takes a discrete mechanism. How long it takes to draw is not
hidden either.
"""

from __future__ import annotations

import math
import os
from collections.abc import Callable, Collection
from typing import Any

import numpy as np

from fedax.privacy.clipping import Flat

Source = Callable[[int], bytes]
GRID = 20  # bits between the noise and the grid


def standard_normal(count: int, source: Source = os.urandom) -> np.ndarray[Any, Any]:
    """Independent standard normal numbers, by Box and Muller from 53 random bits each.

    >>> standard_normal(3).shape
    (3,)
    """
    half = (count + 1) // 2
    bits = np.frombuffer(source(16 * half), np.uint64).reshape(2, half) >> np.uint64(11)
    radius = np.sqrt(-2.0 * np.log((bits[0] + 1.0) * 2.0**-53))
    angle = 2.0 * math.pi * 2.0**-53 * bits[1]
    return np.concatenate([radius * np.cos(angle), radius * np.sin(angle)])[:count]


def add_noise(mean: Flat, scale: float, public: Collection[str] = (), source: Source = os.urandom) -> Flat:
    """The arrays with Gaussian noise of a standard deviation, above 0; those named in `public` are left as they are.

    >>> noisy = add_noise({"x": np.zeros(100_000, np.float32)}, 0.6)
    >>> round(float(noisy["x"].std()), 1)
    0.6
    """
    grid = 2.0 ** (math.floor(math.log2(scale)) - GRID)
    noisy = dict(mean)
    for name in sorted(mean.keys() - set(public)):
        array = mean[name]
        moved = array.astype(np.float64) + scale * standard_normal(array.size, source).reshape(array.shape)
        noisy[name] = (np.rint(moved / grid) * grid).astype(array.dtype)
    return noisy
