"""Generated federations: a client's rows are a pure function of (key, client number).

`client` is JAX code that may be compiled and batched over client numbers, so that a client out of a million costs
nothing until it is needed; `federation` makes all of them at once.
"""

from __future__ import annotations

import functools
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from fedax.data.checks import Array, check_count
from fedax.data.federation import Federation, Rows
from fedax.errors import FedaxError, unknown
from fedax.memory import check_memory
from fedax.runtime import configure

if TYPE_CHECKING:
    import jax

G = TypeVar("G", bound="Generator")


@dataclass(frozen=True)
class Generator(ABC):
    """Clients that are functions of their numbers; subclasses define `sizes` and `client`.

    >>> @dataclass(frozen=True)
    ... class Constant(Generator):
    ...     def sizes(self, seed):
    ...         return np.full((self.clients, 2), [3, 1])
    ...     def client(self, key, number, rows):
    ...         import jax.numpy as jnp
    ...         return {"x": jnp.full(rows, number)}
    >>> Constant(clients=4).federation().client(2)["x"].tolist()
    [2, 2, 2]
    """

    clients: int

    def __post_init__(self) -> None:
        check_count("clients", self.clients, 1)

    @abstractmethod
    def sizes(self, seed: int) -> NDArray[np.int64]:
        """The numbers of each client's rows for training and for testing: [clients, 2]."""

    @abstractmethod
    def client(self, key: jax.Array, number: int | jax.Array, rows: int) -> dict[str, jax.Array]:
        """The first `rows` rows of a client, those for training before those for testing."""

    def describe(self, seed: int, arrays: dict[str, Array]) -> dict[str, Any]:
        """The entries of the federation's `info` beside its origin."""
        return {}

    def federation(self, seed: int = 0, first: int | None = None) -> Federation:
        """The clients in memory: all, or the first few of them."""
        import jax

        configure()  # before JAX's first use, which fixes the number of its devices

        if check_count("seed", seed, 0) >= 2**32:
            raise FedaxError(f"seed is {seed}: it must be below 2**32")
        key = jax.random.key(np.uint32(seed))
        check_memory(f"clients={self.clients:,}: a list of them", 16 * min(self.clients, first or self.clients))
        train, test = self.sizes(seed)[:first].T
        size = train + test
        # Clients of like size are made together: few programs to compile, and at most twice the rows.
        room = np.where(size == size.max(), size, 2 ** np.ceil(np.log2(np.maximum(size, 1))).astype(np.int64))
        room = np.minimum(room, size.max())
        _check_memory(self, key, size)
        made: dict[int, dict[str, Array]] = {}
        for rows in np.unique(room).tolist():
            numbers = np.flatnonzero(room == rows)
            batch = _program(self, rows)(key, numbers.astype(np.uint32))
            host = {name: np.asarray(array) for name, array in batch.items()}
            for place, i in enumerate(numbers.tolist()):
                made[i] = {name: array[place, : size[i]] for name, array in host.items()}
        flat = {name: np.concatenate([made[i][name] for i in range(len(size))]) for name in made[0]}
        start = np.cumsum(size) - size
        nothing = Rows(start, np.zeros_like(size))
        info = {"partition": repr(self), "seed": seed, **self.describe(seed, flat)}
        return Federation(flat, Rows(start, train), nothing, Rows(start + train, test), info=info)


def _check_memory(generator: Generator, key: jax.Array, size: NDArray[np.int64]) -> None:
    """Raise if the clients' rows take more memory than there is."""
    import jax

    try:
        one = jax.eval_shape(lambda key: generator.client(key, 0, 1), key)
    except (TypeError, OverflowError) as error:  # JAX refuses shapes of more than 2**63 numbers, each with its word
        raise FedaxError(f"{generator!r} has rows that are too large: {error}") from None
    row = sum(int(np.prod(leaf.shape[1:], dtype=object)) * leaf.dtype.itemsize for leaf in one.values())
    check_memory(f"{generator!r}", 2 * row * int(size.sum(dtype=object)))


@functools.lru_cache(maxsize=32)
def _program(generator: Generator, rows: int) -> Any:
    """The compiled function that makes the first rows of several clients."""
    import jax

    return jax.jit(jax.vmap(lambda key, number: generator.client(key, number, rows), in_axes=(None, 0)))


def build(kind: type[G], options: Mapping[str, Any]) -> G:
    """The generator with these options; a wrong name raises.

    >>> from fedax.data.generators.clusters import ClusterClients
    >>> build(ClusterClients, {"row": 3})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
    fedax.errors.FedaxError: unknown option 'row': did you mean 'rows'? Allowed: ...
    """
    known = [f.name for f in fields(kind)]
    for name in options:
        if name not in known:
            raise unknown("option", name, known)
    return kind(**options)


def from_preset(presets: Mapping[str, Generator], preset: str, seed: int = 0, **changes: Any) -> Federation:
    """The federation of a named generator with some of its options changed.

    >>> from fedax.data.generators.clusters import CLUSTERS
    >>> from_preset(CLUSTERS, "plain", clients=3, rows=2, test_rows=1).train.count
    array([2, 2, 2])
    """
    if preset not in presets:
        raise unknown("preset", preset, presets)
    chosen = presets[preset]
    return build(type(chosen), {**{f.name: getattr(chosen, f.name) for f in fields(chosen)}, **changes}).federation(
        seed
    )


def row_keys(key: jax.Array, rows: int) -> jax.Array:
    """A key for each row; the keys of the first rows do not depend on the number of rows.

    >>> import jax
    >>> more, fewer = (row_keys(jax.random.key(0), rows) for rows in (5, 3))
    >>> bool((more[:3] == fewer).all())
    True
    """
    import jax
    import jax.numpy as jnp

    keys: jax.Array = jax.vmap(lambda row: jax.random.fold_in(key, row))(jnp.arange(rows))
    return keys


def check_choice(field: str, value: object, allowed: tuple[str, ...]) -> None:
    """One of a few words.

    >>> check_choice("reading", "variance", ("variance", "deviation"))
    """
    if value not in allowed:
        raise FedaxError(f"{field} is {value!r}: it must be {' or '.join(map(repr, allowed))}")
