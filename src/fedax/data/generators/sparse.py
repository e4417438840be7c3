"""Synthetic regressions with a known sparse or low-rank truth: lasso and low-rank matrix recovery.

Client m has a mean mu_m ~ N(0, I), times `spread`, and observes

    a = mu_m + delta,   delta ~ N(0, I)
    b = <w_m, a> + x0 + noise * eps,   eps ~ N(0, 1)

The truth w_m starts with `ones` ones; `own` further places, drawn for each client or once for all (`places`), hold
`own_value`; the rest is zero. Lasso's w_m is that vector, low-rank recovery's the diagonal matrix with that diagonal,
of rank `ones + own`. The intercept x0 is one draw from N(0, 1) for all clients, or 0.

The presets "thesis-..." are those of H. Yuan, "On Principled Local Optimization Methods for Federated
Learning", sections 4.5.2 and 4.5.3, and "pfedfbe..." those of the pFedFBE paper, sections 4.1 and 4.2. Both
penalise (<w, a> + x0 - b)^2, without a factor 1/2, plus a multiple of the l1 or the nuclear norm of w.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, fields, replace
from typing import TYPE_CHECKING, Any, ClassVar, Literal

import numpy as np
from numpy.typing import DTypeLike, NDArray

from fedax.data.checks import Array, check_count
from fedax.data.federation import Federation
from fedax.data.generators.base import Generator
from fedax.data.partitions.base import check_number
from fedax.errors import FedaxError, unknown

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class LassoClients(Generator):
    """Clients of a sparse linear regression: `x` has rows of shape [dimension], `y` one number a row.

    Parameters
    ----------
    clients : at least 1; default 64
    dimension : the length of the truth's vector, or the side of its matrix; at least 1, default 1024
    ones : the leading ones of the truth, the same for all clients; at least 0, default 64
    rows : training rows a client; at least 1, default 128
    test_rows : test rows a client, drawn like its training rows; at least 0, default 32
    own : further non-zeros, at distinct places among the other `dimension - ones`; default 0
    own_value : their value; finite, default 0.5
    places : "client" draws these places for each client, "common" once for all of them; default "client"
    intercept : whether x0 is drawn from N(0, 1), otherwise it is 0; default True
    noise : the standard deviation of the noise; finite and at least 0, default 1
    spread : the standard deviation of a client's mean mu_m; finite and at least 0, default 1; 0 makes clients alike

    Rows are drawn in single precision, and worked out in double where JAX is in double precision.

    >>> import jax
    >>> rows = LassoClients(dimension=12, ones=3).client(jax.random.key(0), 999_999, rows=5)
    >>> {name: array.shape for name, array in rows.items()}
    {'x': (5, 12), 'y': (5,)}
    """

    clients: int = 64
    dimension: int = 1024
    ones: int = 64
    rows: int = 128
    test_rows: int = 32
    own: int = 0
    own_value: float = 0.5
    places: Literal["client", "common"] = "client"
    intercept: bool = True
    noise: float = 1.0
    spread: float = 1.0

    name: ClassVar[str] = "lasso"

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, minimum in (("dimension", 1), ("ones", 0), ("rows", 1), ("test_rows", 0), ("own", 0)):
            check_count(field, getattr(self, field), minimum)
        if self.ones + self.own > self.dimension:
            raise FedaxError(
                f"ones is {self.ones} and own is {self.own}: together they must be at most dimension, {self.dimension}"
            )
        check_number("own_value", self.own_value, -math.inf)
        check_number("noise", self.noise, 0)
        check_number("spread", self.spread, 0)
        if self.places not in ("client", "common"):
            raise unknown("places", str(self.places), ("client", "common"))
        if not isinstance(self.intercept, bool):
            raise FedaxError(f"intercept is {self.intercept!r}: it must be True or False")

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the truth, and of a row of `x`."""
        return (self.dimension,)

    def sizes(self, seed: int) -> NDArray[np.int64]:
        """`rows` for training and `test_rows` for testing."""
        return np.full((self.clients, 2), [self.rows, self.test_rows])

    def start(self, key: jax.Array) -> jax.Array:
        """The intercept x0 of all clients."""
        import jax
        import jax.numpy as jnp

        drawn = jax.random.normal(jax.random.split(key)[0], (), jnp.float32)
        return drawn if self.intercept else 0 * drawn

    def diagonal(self, key: jax.Array, number: int | jax.Array) -> jax.Array:
        """A client's truth as a vector: ones first, then zeros, with its own non-zeros among them.

        >>> import jax
        >>> drawn = LassoClients(dimension=6, ones=2, own=1).diagonal(jax.random.key(0), 7)
        >>> drawn[:2].tolist(), sorted(drawn[2:].tolist())
        ([1.0, 1.0], [0.0, 0.0, 0.0, 0.5])
        """
        import jax
        import jax.numpy as jnp

        truth = (jnp.arange(self.dimension) < self.ones).astype(jnp.result_type(float))
        if not self.own:
            return truth
        common = jax.random.fold_in(jax.random.split(key)[0], 1)
        drawn_with = common if self.places == "common" else self._keys(key, number)[0]
        places = jax.random.permutation(drawn_with, self.dimension - self.ones)[: self.own]
        return truth.at[self.ones + places].set(self.own_value)

    def client(self, key: jax.Array, number: int | jax.Array, rows: int) -> dict[str, jax.Array]:
        """A client's first `rows` rows; those for testing do not depend on how many there are for training."""
        import jax
        import jax.numpy as jnp

        _, for_mean, for_train, for_test = self._keys(key, number)
        features, precise = math.prod(self.shape), jnp.result_type(float)
        mean = self.spread * jax.random.normal(for_mean, (features,), jnp.float32).astype(precise)

        def row(r: jax.Array) -> tuple[jax.Array, jax.Array]:
            own = jax.random.fold_in(jnp.where(r < self.rows, for_train, for_test), r - self.rows * (r >= self.rows))
            drawn = jax.random.normal(own, (features + 1,), jnp.float32).astype(precise)
            return (mean + drawn[:-1]).reshape(self.shape), drawn[-1]

        x, noise = jax.vmap(row)(jnp.arange(rows))
        observed = self._on_the_diagonal(x) @ self.diagonal(key, number)
        return {"x": x, "y": observed + self.start(key) + self.noise * noise}

    def describe(self, seed: int, arrays: dict[str, Array]) -> dict[str, Any]:
        """The truth: `weights`, one of a client each where they have non-zeros of their own, and `intercept`."""
        import jax

        key = jax.random.key(np.uint32(seed))
        clients = len(arrays["y"]) // (self.rows + self.test_rows)
        differ = self.own > 0 and self.places == "client"
        every = jax.vmap(lambda i: self.diagonal(key, i))(np.arange(clients if differ else 1))
        weights = self._as_truth(np.asarray(every, arrays["x"].dtype))
        truth = {"weights": weights if differ else weights[0], "intercept": float(self.start(key))}
        return {"dataset": self.name, "classes": None, "truth": truth}

    def _keys(self, key: jax.Array, number: int | jax.Array) -> jax.Array:
        """A client's keys: its own places, its mean, its rows for training and for testing."""
        import jax

        return jax.random.split(jax.random.fold_in(jax.random.split(key)[1], number), 4)

    def _on_the_diagonal(self, x: jax.Array) -> jax.Array:
        """The entries of rows of `x` that the truth's vector meets."""
        return x

    def _as_truth(self, diagonals: Array) -> Array:
        return diagonals


@dataclass(frozen=True)
class LowRankClients(LassoClients):
    """Clients of a linear regression on square matrices: `x` has rows of shape [dimension, dimension].

    The parameters are those of `LassoClients`, but for the defaults of `dimension`, 32, and `ones`, 4.

    >>> import jax
    >>> LowRankClients().client(jax.random.key(0), 5, rows=2)["x"].shape
    (2, 32, 32)
    """

    dimension: int = 32
    ones: int = 4

    name: ClassVar[str] = "low_rank"

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape of the truth, and of a row of `x`."""
        return (self.dimension, self.dimension)

    def _on_the_diagonal(self, x: jax.Array) -> jax.Array:
        import jax.numpy as jnp

        met: jax.Array = jnp.diagonal(x, axis1=-2, axis2=-1)
        return met

    def _as_truth(self, diagonals: Array) -> Array:
        matrices: Array = diagonals[:, None] * np.eye(self.dimension, dtype=diagonals.dtype)
        return matrices


LASSO: dict[str, Generator] = {
    "thesis-I": LassoClients(dimension=1024, ones=512, clients=64, rows=128),
    "thesis-II": LassoClients(dimension=1024, ones=64, clients=64, rows=128),
    "thesis-III": LassoClients(dimension=1024, ones=8, clients=64, rows=128),
    "thesis-IV": LassoClients(dimension=1024, ones=512, clients=256, rows=32),
    "pfedfbe-I": LassoClients(dimension=1024, ones=992, clients=30, rows=128, intercept=False),
    "pfedfbe-II": LassoClients(dimension=1024, ones=8, clients=30, rows=128, own=2, own_value=0.5, intercept=False),
}

LOW_RANK: dict[str, Generator] = {
    "thesis-I": LowRankClients(dimension=32, ones=16, clients=64, rows=128),
    "thesis-II": LowRankClients(dimension=32, ones=4, clients=64, rows=128),
    "thesis-III": LowRankClients(dimension=32, ones=1, clients=64, rows=128),
    "thesis-IV": LowRankClients(dimension=32, ones=16, clients=256, rows=32),
    "pfedfbe": LowRankClients(dimension=32, ones=4, clients=30, rows=128, own=1, own_value=0.25, intercept=False),
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
    changes : fields of `LassoClients` that replace the preset's

    `info["truth"]` holds `weights`, [dimension] where all clients share one truth and [clients, dimension]
    where they do not (`own` above 0, `places` "client"), and `intercept`, a float.

    >>> federation = lasso("pfedfbe-II", dimension=16, clients=3, rows=5, test_rows=2)
    >>> federation
    Federation(3 clients, 21 rows of x float32[16], y float32[]; rows a client: train 5, validation 0, test 2)
    >>> truth = federation.info["truth"]
    >>> (truth["weights"] == 1).sum(axis=1), (truth["weights"] == 0.5).sum(axis=1), truth["intercept"]
    (array([8, 8, 8]), array([2, 2, 2]), 0.0)
    """
    return _generate("lasso", preset, LASSO, {"test_rows": test_rows, **changes}, seed, dtype)


def low_rank(
    preset: str, *, test_rows: int = 32, seed: int = 0, dtype: DTypeLike = np.float32, **changes: Any
) -> Federation:
    """A linear regression on square matrices: `x` has rows of shape [dimension, dimension].

    The parameters are those of `lasso`, with the presets in `LOW_RANK`; the truth's `weights` are
    [dimension, dimension], or [clients, dimension, dimension] where clients have places of their own.

    >>> federation = low_rank("thesis-II", dimension=6, clients=2, rows=5, test_rows=0)
    >>> federation
    Federation(2 clients, 10 rows of x float32[6, 6], y float32[]; rows a client: train 5, validation 0, test 0)
    >>> np.linalg.matrix_rank(federation.info["truth"]["weights"])
    np.int64(4)
    """
    return _generate("low_rank", preset, LOW_RANK, {"test_rows": test_rows, **changes}, seed, dtype)


def _generate(
    kind: str, name: str, presets: dict[str, Generator], changes: dict[str, Any], seed: int, dtype: DTypeLike
) -> Federation:
    import jax

    if name not in presets:
        raise unknown(f"{kind} preset", name, presets)
    known = [field.name for field in fields(LassoClients)]
    for change in changes:
        if change not in known:
            raise unknown(f"{kind} argument", change, [*known, "seed", "dtype"])
    precision = _check_dtype(dtype)
    with jax.enable_x64(precision == np.float64):
        made = replace(presets[name], **changes).federation(seed)
    return replace(made, info={**made.info, "dataset": f"{kind} {name}"})


def _check_dtype(dtype: DTypeLike) -> np.dtype[Any]:
    try:
        kind = np.dtype(dtype)
    except TypeError:
        kind = None
    if kind not in (np.float32, np.float64):
        raise FedaxError(f"dtype is {dtype!r}: it must be float32 or float64")
    return kind
