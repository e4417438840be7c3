"""Checks of an upload before it counts: its arrays, whether they are finite, and its norm."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from fedax.errors import FedaxError
from fedax.privacy.clipping import norm

Arrays = Mapping[str, np.ndarray[Any, Any]]
FACTOR = 10.0  # times the median norm
RECENT = 100  # uploads whose norms are kept


@dataclasses.dataclass(frozen=True)
class Guard:
    """The checks of a server.

    max_norm: the largest L2 norm of an upload, all of its arrays as one vector, above 0; None for no such bound.
    norm_factor: the largest ratio, 1 or more, of an upload's norm to the median norm of recent uploads and this
        round's; None for no such bound. In a first round of two clients it bounds nothing: the median lies between
        their uploads.

    >>> guard = Guard(max_norm=2.0)
    >>> model = {"w": np.zeros(2, np.float32)}
    >>> guard.check(7, model, {"w": np.float32([0.6, 0.8])})
    >>> guard.check(7, model, {"w": np.float32([3.0, 4.0])})
    'the upload of node 7 has norm 5: at most 2 is allowed'
    """

    max_norm: float | None = None
    norm_factor: float | None = FACTOR

    def __post_init__(self) -> None:
        most, factor = self.max_norm, self.norm_factor
        if most is not None and not (_is_number(most) and most > 0):
            raise FedaxError(f"max_norm is {most!r}: it must be a number above 0, or None for no bound")
        if factor is not None and not (_is_number(factor) and factor >= 1):
            raise FedaxError(f"norm_factor is {factor!r}: it must be a number from 1 on, or None for no bound")

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Guard:
        """From Flower's run configuration: `max-norm` and `norm-factor`; 0 is none.

        >>> Guard.of({"norm-factor": 5.0})
        Guard(max_norm=None, norm_factor=5.0)
        """
        return cls(config.get("max-norm") or None, config.get("norm-factor", FACTOR) or None)

    def bound(self, before: Sequence[float], now: Sequence[float]) -> float:
        """The largest norm of an upload of this round, from the norms of uploads before it and of the round's own.

        >>> Guard(norm_factor=10.0).bound([], [1.0, 1.2, 1e12])
        12.0
        """
        if self.norm_factor is None or not now:
            return math.inf
        middle = float(np.median([*before, *now]))
        return self.norm_factor * middle if middle > 0 else math.inf

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


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
