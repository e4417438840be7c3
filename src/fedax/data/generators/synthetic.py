"""synthetic(gamma, beta): classification with a model and inputs of each client's own.

Li et al., "Federated Optimization in Heterogeneous Networks", section 5.1, and APFL, appendix B.1. For client i

    y = argmax(softmax(W_i' x + b_i)),   W_i ~ N(u_i, 1),   b_i ~ N(u_i, 1),   u_i ~ N(0, gamma)
    x ~ N(v_i, Sigma),   v_i ~ N(B_i, 1),   B_i ~ N(0, beta),   Sigma = diag(k^-1.2)

with W_i in R^(60 x 10), u_i and B_i one number a client. Three things that the papers leave to their readers:

- N(0, gamma): the papers' notation makes gamma and beta variances; the code that Li et al. published draws with them
  as standard deviations. They differ at 0.5, not at 0 and 1. `reading` chooses.
- u_i: as one number it is added to every class alike, so that no label depends on gamma at all. APFL prints it as a
  vector; with `mean="class"` it is one number a class, the same in W_i's column and in b_i, and gamma matters.
- synthetic(0, 0) is not i.i.d.: W_i, b_i and v_i are still drawn for each client. `iid=True` is the published i.i.d.
  set: one W and one b for all, and x ~ N(0, Sigma).

The published sizes are floor(exp(N(4, 2^2))) + 50 rows a client, of which the first 90 % are for training.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedax.data.checks import Array, check_count
from fedax.data.federation import Federation
from fedax.data.generators.base import Generator, build, check_choice, row_keys
from fedax.data.partitions.base import check_number
from fedax.errors import FedaxError

if TYPE_CHECKING:
    import jax

_SIZES = 0x512E
_LEAST = 50  # rows of the smallest published client


@dataclass(frozen=True)
class SyntheticClients(Generator):
    """The clients of synthetic(gamma, beta).

    Parameters
    ----------
    gamma, beta : how much models and inputs differ between clients; at least 0
    clients : at least 1; default 100 (the published code: 30)
    rows : "lognormal", or the same number for all, at least 2; default "lognormal"
    max_rows : a limit on lognormal sizes, at least 50; default none
    features, classes : at least 1 and 2; default 60 and 10
    reading : gamma and beta are each a "variance" or a standard "deviation"; default "variance", the papers'
    mean : u_i is one number a "client" or one a "class"; default "client"
    iid : the same model and inputs for all clients; default False
    test_share : the share of a client's rows that is held out; at least 0 and below 1, default 0.1

    >>> import jax
    >>> rows = SyntheticClients(gamma=1, beta=1).client(jax.random.key(0), 123456, rows=5)
    >>> {name: array.shape for name, array in rows.items()}
    {'x': (5, 60), 'y': (5,)}
    """

    clients: int = 100
    gamma: float = 0.0
    beta: float = 0.0
    rows: int | str = "lognormal"
    max_rows: int | None = None
    features: int = 60
    classes: int = 10
    reading: str = "variance"
    mean: str = "client"
    iid: bool = False
    test_share: float = 0.1

    def __post_init__(self) -> None:
        super().__post_init__()
        for field in ("gamma", "beta", "test_share"):
            check_number(field, getattr(self, field), 0)
        if self.test_share >= 1:
            raise FedaxError(f"test_share is {self.test_share!r}: it must be below 1")
        if isinstance(self.rows, str):
            check_choice("rows", self.rows, ("lognormal",))
        else:
            check_count("rows", self.rows, 2)
        if self.max_rows is not None:
            check_count("max_rows", self.max_rows, _LEAST)
        check_count("features", self.features, 1)
        check_count("classes", self.classes, 2)
        check_choice("reading", self.reading, ("variance", "deviation"))
        check_choice("mean", self.mean, ("client", "class"))
        if not isinstance(self.iid, bool):
            raise FedaxError(f"iid is {self.iid!r}: it must be True or False")

    def sizes(self, seed: int) -> NDArray[np.int64]:
        """Rows for training and testing: [clients, 2]; a client's follow from the seed and its number alone."""
        total = np.array([self._size(seed, i) for i in range(self.clients)])
        train = np.maximum(np.floor((1 - self.test_share) * total).astype(np.int64), 1)
        return np.column_stack([train, total - train])

    def _size(self, seed: int, number: int) -> int:
        if not isinstance(self.rows, str):
            return self.rows
        drawn = np.random.default_rng([seed, _SIZES, number]).lognormal(4, 2)
        return min(int(drawn) + _LEAST, self.max_rows or int(drawn) + _LEAST)

    def model(self, key: jax.Array, number: int | jax.Array) -> tuple[jax.Array, jax.Array]:
        """A client's W and b."""
        import jax
        import jax.numpy as jnp

        shared, own, _ = jax.random.split(key, 3)
        for_mean, for_w, for_b = jax.random.split(shared if self.iid else jax.random.fold_in(own, number), 3)
        scale = 0.0 if self.iid else self._scale(self.gamma)
        u = scale * jax.random.normal(for_mean, (self.classes if self.mean == "class" else 1,), jnp.float32)
        w = u + jax.random.normal(for_w, (self.features, self.classes), jnp.float32)
        return w, u + jax.random.normal(for_b, (self.classes,), jnp.float32)

    def client(self, key: jax.Array, number: int | jax.Array, rows: int) -> dict[str, jax.Array]:
        """A client's first `rows` rows."""
        import jax
        import jax.numpy as jnp

        for_centre, for_v, for_rows = jax.random.split(jax.random.fold_in(jax.random.split(key, 3)[2], number), 3)
        centre = self._scale(self.beta) * jax.random.normal(for_centre, (), jnp.float32)
        v = centre + jax.random.normal(for_v, (self.features,), jnp.float32)
        sigma = jnp.arange(1, self.features + 1, dtype=jnp.float32) ** -0.6
        drawn = jax.vmap(lambda k: jax.random.normal(k, (self.features,), jnp.float32))(row_keys(for_rows, rows))
        x = sigma * drawn + (0 if self.iid else v)
        w, b = self.model(key, number)
        return {"x": x, "y": jnp.argmax(x @ w + b, axis=1).astype(jnp.int32)}

    def describe(self, seed: int, arrays: dict[str, Array]) -> dict[str, Any]:
        """The set's usual name, and its number of classes."""
        name = "synthetic iid" if self.iid else f"synthetic({self.gamma:g}, {self.beta:g})"
        return {"dataset": name, "classes": self.classes}

    def _scale(self, parameter: float) -> float:
        return math.sqrt(parameter) if self.reading == "variance" else parameter


def synthetic(gamma: float, beta: float, *, seed: int = 0, **options: Any) -> Federation:
    """The federation synthetic(gamma, beta); the options are the fields of `SyntheticClients`.

    >>> synthetic(1, 1, clients=3, rows=20, features=4, classes=3)
    Federation(3 clients, 60 rows of x float32[4], y int32[]; rows a client: train 18, validation 0, test 2)
    """
    return build(SyntheticClients, {"gamma": gamma, "beta": beta, **options}).federation(seed)


#: the sets of APFL, appendix B.1, and the published i.i.d. one
SYNTHETIC: dict[str, Generator] = {
    "0-0": SyntheticClients(gamma=0.0, beta=0.0),
    "0.5-0.5": SyntheticClients(gamma=0.5, beta=0.5),
    "1-1": SyntheticClients(gamma=1.0, beta=1.0),
    "iid": SyntheticClients(iid=True),
}
