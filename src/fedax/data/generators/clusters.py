"""Gaussian clusters: a class is a normal cloud, and each client has moved the clouds a little.

    x = m_y + s_iy + noise * N(0, I),   m_c ~ N(0, separation^2 I),   s_ic ~ N(0, shift^2 I)

The centres m_c are common to all clients, the shifts s_ic are client i's own; labels are uniform.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedax.data.checks import Array, check_count
from fedax.data.federation import Federation
from fedax.data.generators.base import Generator, build, row_keys
from fedax.data.partitions.base import check_number

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class ClusterClients(Generator):
    """Clients with Gaussian clusters.

    Parameters
    ----------
    clients : at least 1; default 100
    rows : training rows a client, at least 1; default 64
    test_rows : at least 0; default 16
    dimension : at least 1; default 20
    classes : at least 2; default 10
    separation : the spread of the centres, at least 0; default 1
    shift : the spread of a client's clusters about the centres, at least 0; default 0.5
    noise : the spread of the rows about their cluster, at least 0; default 1

    >>> import jax
    >>> rows = ClusterClients(dimension=3).client(jax.random.key(0), 999_999, rows=5)
    >>> {name: array.shape for name, array in rows.items()}
    {'x': (5, 3), 'y': (5,)}
    """

    clients: int = 100
    rows: int = 64
    test_rows: int = 16
    dimension: int = 20
    classes: int = 10
    separation: float = 1.0
    shift: float = 0.5
    noise: float = 1.0

    def __post_init__(self) -> None:
        super().__post_init__()
        for field, least in (("rows", 1), ("test_rows", 0), ("dimension", 1), ("classes", 2)):
            check_count(field, getattr(self, field), least)
        for field in ("separation", "shift", "noise"):
            check_number(field, getattr(self, field), 0)

    def sizes(self, seed: int) -> NDArray[np.int64]:
        """`rows` for training and `test_rows` for testing."""
        return np.full((self.clients, 2), [self.rows, self.test_rows])

    def centres(self, key: jax.Array) -> jax.Array:
        """The centres common to all clients: [classes, dimension]."""
        import jax

        drawn = jax.random.normal(jax.random.split(key)[0], (self.classes, self.dimension), np.float32)
        return self.separation * drawn

    def client(self, key: jax.Array, number: int | jax.Array, rows: int) -> dict[str, jax.Array]:
        """A client's first `rows` rows."""
        import jax
        import jax.numpy as jnp

        for_shift, for_rows = jax.random.split(jax.random.fold_in(jax.random.split(key)[1], number))
        shift = jax.random.normal(for_shift, (self.classes, self.dimension), jnp.float32)
        own = self.centres(key) + self.shift * shift

        def row(key: jax.Array) -> tuple[jax.Array, jax.Array]:
            for_label, for_noise = jax.random.split(key)
            label = jax.random.randint(for_label, (), 0, self.classes, jnp.int32)
            return own[label] + self.noise * jax.random.normal(for_noise, (self.dimension,), jnp.float32), label

        x, y = jax.vmap(row)(row_keys(for_rows, rows))
        return {"x": x, "y": y}

    def describe(self, seed: int, arrays: dict[str, Array]) -> dict[str, Any]:
        """The number of classes."""
        return {"dataset": "clusters", "classes": self.classes}


def clusters(*, seed: int = 0, **options: Any) -> Federation:
    """A federation of Gaussian clusters; the options are the fields of `ClusterClients`.

    >>> clusters(clients=3, rows=20, test_rows=5, dimension=4, classes=2)
    Federation(3 clients, 75 rows of x float32[4], y int32[]; rows a client: train 20, validation 0, test 5)
    """
    return build(ClusterClients, options).federation(seed)


#: for experiment files, where a generated dataset has a preset
CLUSTERS: dict[str, Generator] = {"plain": ClusterClients(), "iid": ClusterClients(shift=0.0)}
