"""Synthetic regressions with a known sparse or low-rank truth: lasso and low-rank matrix recovery.

Client m has a mean mu_m ~ N(0, I) and observes

    a = mu_m + delta,   delta ~ N(0, I)
    b = <w_m, a> + x0 + noise * eps,   eps ~ N(0, 1)

The truth w_m starts with `ones` ones; `own` further places, drawn for each client, hold `own_value`; the rest
is zero. Lasso's w_m is that vector, low-rank recovery's the diagonal matrix with that diagonal, of rank
`ones + own`. The intercept x0 is one draw from N(0, 1) for all clients, or 0.

The presets "thesis-..." are those of H. Yuan, "On Principled Local Optimization Methods for Federated
Learning", sections 4.5.2 and 4.5.3, and "pfedfbe..." those of the pFedFBE paper, sections 4.1 and 4.2. Both
penalise (<w, a> + x0 - b)^2, without a factor 1/2, plus a multiple of the l1 or the nuclear norm of w.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from fedax.data.checks import Array, check_count
from fedax.data.division import check_number
from fedax.data.federation import Federation, Rows
from fedax.errors import FedaxError, unknown

# The intercept's stream must not be that of client 0: NumPy pads [seed, purpose] with zeros.
_INTERCEPT = 0x10E6
_CLIENT = 0xC11E


@dataclass(frozen=True)
class Synthetic:
    """The sizes of a synthetic regression.

    Parameters
    ----------
    dimension : the length of the truth's vector, or the side of its matrix; at least 1
    ones : the leading ones of the truth, the same for all clients; at least 0
    clients : at least 1
    rows : training rows a client; at least 1
    own : client-specific non-zeros, at distinct places among the other `dimension - ones`; default 0
    own_value : their value; finite, default 0.5
    intercept : whether x0 is drawn from N(0, 1), otherwise it is 0; default True
    noise : the standard deviation of the noise; finite and at least 0, default 1

    >>> Synthetic(dimension=1024, ones=64, clients=64, rows=128).noise
    1.0
    """

    dimension: int
    ones: int
    clients: int
    rows: int
    own: int = 0
    own_value: float = 0.5
    intercept: bool = True
    noise: float = 1.0

    def __post_init__(self) -> None:
        for field, minimum in (("dimension", 1), ("ones", 0), ("clients", 1), ("rows", 1), ("own", 0)):
            check_count(field, getattr(self, field), minimum)
        if self.ones + self.own > self.dimension:
            raise FedaxError(
                f"ones is {self.ones} and own is {self.own}: together they must be at most dimension, {self.dimension}"
            )
        check_number("own_value", self.own_value, -math.inf)
        check_number("noise", self.noise, 0)
        if not isinstance(self.intercept, bool):
            raise FedaxError(f"intercept is {self.intercept!r}: it must be True or False")

    def diagonal(self, rng: np.random.Generator) -> Array:
        """One client's truth as a vector, its own places drawn by `rng`.

        >>> Synthetic(dimension=6, ones=2, clients=1, rows=1, own=1).diagonal(np.random.default_rng(0))
        array([1. , 1. , 0. , 0. , 0. , 0.5])
        """
        truth = np.zeros(self.dimension)
        truth[: self.ones] = 1
        truth[self.ones + rng.choice(self.dimension - self.ones, self.own, replace=False)] = self.own_value
        return truth


LASSO: dict[str, Synthetic] = {
    "thesis-I": Synthetic(dimension=1024, ones=512, clients=64, rows=128),
    "thesis-II": Synthetic(dimension=1024, ones=64, clients=64, rows=128),
    "thesis-III": Synthetic(dimension=1024, ones=8, clients=64, rows=128),
    "thesis-IV": Synthetic(dimension=1024, ones=512, clients=256, rows=32),
    "pfedfbe-I": Synthetic(dimension=1024, ones=992, clients=30, rows=128, intercept=False),
    "pfedfbe-II": Synthetic(dimension=1024, ones=8, clients=30, rows=128, own=2, own_value=0.5, intercept=False),
}

LOW_RANK: dict[str, Synthetic] = {
    "thesis-I": Synthetic(dimension=32, ones=16, clients=64, rows=128),
    "thesis-II": Synthetic(dimension=32, ones=4, clients=64, rows=128),
    "thesis-III": Synthetic(dimension=32, ones=1, clients=64, rows=128),
    "thesis-IV": Synthetic(dimension=32, ones=16, clients=256, rows=32),
    "pfedfbe": Synthetic(dimension=32, ones=4, clients=30, rows=128, own=1, own_value=0.25, intercept=False),
}


def lasso(
    preset: str, *, test_rows: int = 32, seed: int = 0, dtype: DTypeLike = np.float32, **changes: Any
) -> Federation:
    """A sparse linear regression: `x` has rows of shape [dimension], `y` one number a row.

    A client's rows follow from the seed and its number alone: more clients, more rows or other test rows leave
    those it already has as they are.

    Parameters
    ----------
    preset : a name in `LASSO`
    test_rows : test rows a client, drawn like its training rows; at least 0, default 32
    seed : at least 0; default 0
    dtype : float32 or float64; default float32
    changes : fields of `Synthetic` that replace the preset's

    `info["truth"]` holds `weights`, [dimension] where all clients share one truth and [clients, dimension]
    where they do not (`own` above 0), and `intercept`, a float.

    >>> federation = lasso("pfedfbe-II", dimension=16, clients=3, rows=5, test_rows=2)
    >>> federation
    Federation(3 clients, 21 rows of x float32[16], y float32[]; rows a client: train 5, validation 0, test 2)
    >>> truth = federation.info["truth"]
    >>> (truth["weights"] == 1).sum(axis=1), (truth["weights"] == 0.5).sum(axis=1), truth["intercept"]
    (array([8, 8, 8]), array([2, 2, 2]), 0.0)
    """
    sizes = _preset("lasso", preset, LASSO, changes)
    return _generate(f"lasso {preset}", sizes, (sizes.dimension,), test_rows, seed, dtype)


def low_rank(
    preset: str, *, test_rows: int = 32, seed: int = 0, dtype: DTypeLike = np.float32, **changes: Any
) -> Federation:
    """A linear regression on square matrices: `x` has rows of shape [dimension, dimension].

    The parameters are those of `lasso`, with the presets in `LOW_RANK`; the truth's `weights` are
    [dimension, dimension], or [clients, dimension, dimension] where `own` is above 0.

    >>> federation = low_rank("thesis-II", dimension=6, clients=2, rows=5, test_rows=0)
    >>> federation
    Federation(2 clients, 10 rows of x float32[6, 6], y float32[]; rows a client: train 5, validation 0, test 0)
    >>> np.linalg.matrix_rank(federation.info["truth"]["weights"])
    np.int64(4)
    """
    sizes = _preset("low-rank", preset, LOW_RANK, changes)
    return _generate(f"low_rank {preset}", sizes, (sizes.dimension, sizes.dimension), test_rows, seed, dtype)


def _preset(kind: str, name: str, presets: dict[str, Synthetic], changes: dict[str, Any]) -> Synthetic:
    if name not in presets:
        raise unknown(f"{kind} preset", name, presets)
    known = [field.name for field in fields(Synthetic)]
    for change in changes:
        if change not in known:
            raise unknown(f"{kind} argument", change, [*known, "test_rows", "seed", "dtype"])
    return replace(presets[name], **changes)


def _generate(
    dataset: str, sizes: Synthetic, shape: tuple[int, ...], test_rows: int, seed: int, dtype: DTypeLike
) -> Federation:
    seed, kind = check_count("seed", seed, 0), _check_dtype(dtype)
    counts = np.repeat([[sizes.rows, 0, check_count("test_rows", test_rows, 0)]], sizes.clients, axis=0)
    starts = (np.cumsum(counts) - counts.ravel()).reshape(counts.shape)
    train, validation, test = (Rows(starts[:, p], counts[:, p]) for p in range(3))
    features = math.prod(shape)
    x = np.empty((counts.sum(), features), kind)
    y = np.empty(counts.sum(), kind)
    weights = np.empty((sizes.clients, *shape), kind)
    x0 = float(np.random.default_rng([seed, _INTERCEPT]).standard_normal()) if sizes.intercept else 0.0
    for i in range(sizes.clients):
        places, mean, for_train, for_test = np.random.default_rng([seed, _CLIENT, i]).spawn(4)
        diagonal = sizes.diagonal(places)
        truth = diagonal if len(shape) == 1 else np.diag(diagonal)
        mu = mean.standard_normal(features)
        for rows, rng in ((train.of(i), for_train), (test.of(i), for_test)):
            # The noise is drawn as a row's last column, so that more rows do not change the first ones.
            drawn = rng.standard_normal((rows.stop - rows.start, features + 1))
            x[rows] = mu + drawn[:, :-1]
            y[rows] = x[rows].astype(np.float64) @ truth.ravel() + x0 + sizes.noise * drawn[:, -1]
        weights[i] = truth
    info = {
        "dataset": dataset,
        "partition": repr(sizes),
        "seed": seed,
        "classes": None,
        "truth": {"weights": weights if sizes.own else weights[0], "intercept": x0},
    }
    return Federation({"x": x.reshape(-1, *shape), "y": y}, train, validation, test, info=info)


def _check_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = None
    if kind not in (np.float32, np.float64):
        raise FedaxError(f"dtype is {dtype!r}: it must be float32 or float64")
    return kind
