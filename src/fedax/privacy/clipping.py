"""Clipping of an upload that goes over a network, as flat arrays."""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping
from typing import Any

import numpy as np

Flat = dict[str, np.ndarray[Any, Any]]


def norm(arrays: Mapping[str, np.ndarray[Any, Any]]) -> float:
    """The L2 norm of all arrays as one vector, summed in double precision.

    >>> norm({"w": np.float32([3.0]), "b": np.float32([4.0])})
    5.0
    """
    return math.sqrt(sum(float(np.sum(np.square(np.asarray(array, np.float64)))) for array in arrays.values()))


def clip(upload: Flat, bound: float, public: Collection[str] = ()) -> Flat:
    """The upload, scaled down to an L2 norm of at most `bound`; arrays named in `public` are left as they are.

    >>> clip({"x": np.float32([3.0]), "c": np.float32([4.0])}, 1.0)
    {'x': array([0.6], dtype=float32), 'c': array([0.8], dtype=float32)}
    """
    size = norm({name: array for name, array in upload.items() if name not in public})
    if size <= bound:
        return upload
    return {
        name: array if name in public else (array.astype(np.float64) * (bound / size)).astype(array.dtype)
        for name, array in upload.items()
    }
