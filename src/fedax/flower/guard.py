"""What is checked of an upload before it counts: its arrays, that they are finite, and how large it is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from fedax.errors import FedaxError

Arrays = Mapping[str, np.ndarray[Any, Any]]


@dataclasses.dataclass(frozen=True)
class Guard:
    """The checks of a server.

    max_norm: the largest L2 norm of an upload, all of its arrays as one vector, above 0; None for no bound.

    >>> guard = Guard(max_norm=2.0)
    >>> model = {"w": np.zeros(2, np.float32)}
    >>> guard.check(7, model, {"w": np.float32([0.6, 0.8])})
    >>> guard.check(7, model, {"w": np.float32([3.0, 4.0])})
    'the upload of node 7 has norm 5: at most 2 is allowed'
    """

    max_norm: float | None = None

    def __post_init__(self) -> None:
        bound = self.max_norm
        if bound is not None and (isinstance(bound, bool) or not isinstance(bound, int | float) or not bound > 0):
            raise FedaxError(f"max_norm is {bound!r}: it must be a number above 0, or None for no bound")

    def check(self, node: int, expected: Arrays, upload: Arrays) -> str | None:
        """Why the upload of a node must not be used, in one sentence, or None if it may.

        expected: arrays of the names, shapes and dtypes that the method uploads; their values do not matter.
        """
        why = _apart(expected, upload) or _not_finite(upload) or self._too_large(upload)
        return None if why is None else f"the upload of node {node} {why}"

    def _too_large(self, upload: Arrays) -> str | None:
        if self.max_norm is None:
            return None
        size = norm(upload)
        return f"has norm {size:.6g}: at most {self.max_norm:.6g} is allowed" if size > self.max_norm else None


def norm(upload: Arrays) -> float:
    """The L2 norm of all arrays as one vector, summed in double precision.

    >>> norm({"w": np.float32([3.0]), "b": np.float32([4.0])})
    5.0
    """
    return math.sqrt(sum(float(np.sum(np.square(_wide(array)))) for array in upload.values()))


def _wide(array: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
    return np.asarray(array, np.float64)


def _apart(expected: Arrays, upload: Arrays) -> str | None:
    if upload.keys() != expected.keys():
        given, wanted = (", ".join(sorted(arrays)) or "none" for arrays in (upload, expected))
        return f"has the arrays {given}: they must be {wanted}"
    for name, wanted_array in expected.items():
        given_array = upload[name]
        if given_array.shape != wanted_array.shape or given_array.dtype != wanted_array.dtype:
            given, wanted = (f"{array.dtype}{list(array.shape)}" for array in (given_array, wanted_array))
            return f"has {name} as {given}: it must be {wanted}"
    return None


def _not_finite(upload: Arrays) -> str | None:
    for name, array in upload.items():
        bad = int(array.size - np.count_nonzero(np.isfinite(_wide(array))))
        if bad:
            return f"has NaN or infinity in {bad} of the {array.size} entries of {name}"
    return None
