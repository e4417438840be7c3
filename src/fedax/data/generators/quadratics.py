"""Heterogeneous quadratics with chosen constants and a known optimum.

Client i minimises f_i(x) = 1/2 (x - c_i)' A_i (x - c_i), and a row r of its data

    f_ir(x) = 1/2 (x - b_ir)' A_i (x - b_ir),   so that   grad f_ir(x) = grad f_i(x) + e_ir

- the eigenvalues of every A_i lie in [mu, L], and both ends are among them;
- x* minimises the clients' mean, and each ||grad f_i(x*)|| is zeta;
- the noise e_ir of a row's gradient has mean 0 over the client's rows and the length sigma, at every x: one row
  drawn at random has the variance sigma^2, a batch of B drawn with replacement sigma^2 / B.

All of it holds to rounding, not in expectation: the gradients at x* and the noises are balanced sets of vectors.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from fedax.data.checks import Array, check_count
from fedax.data.federation import Federation
from fedax.data.generators.base import Generator, build
from fedax.data.partitions.base import check_number
from fedax.errors import FedaxError

if TYPE_CHECKING:
    import jax


@dataclass(frozen=True)
class QuadraticClients(Generator):
    """Clients with quadratics of chosen constants; a row holds `A` [dimension, dimension] and `b` [dimension].

    Parameters
    ----------
    clients : at least 1, and at least 2 where zeta is above 0; default 10
    dimension : at least 1; in dimension 1, L is mu, and noise or heterogeneity need even numbers; default 10
    L, mu : smoothness and strong convexity of every client; L at least mu, mu above 0; default 1 and 0.1
    zeta : the heterogeneity at the optimum, sqrt(mean ||grad f_i(x*)||^2); at least 0, default 1
    sigma : the standard deviation of a row's gradient; at least 0, default 0
    rows : rows a client, at least 1, and at least 2 where sigma is above 0; default 1

    >>> import jax
    >>> row = QuadraticClients(dimension=3).client(jax.random.key(0), 7, rows=1)
    >>> {name: array.shape for name, array in row.items()}
    {'A': (1, 3, 3), 'b': (1, 3)}
    """

    clients: int = 10
    dimension: int = 10
    L: float = 1.0
    mu: float = 0.1
    zeta: float = 1.0
    sigma: float = 0.0
    rows: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        check_count("dimension", self.dimension, 1)
        check_count("rows", self.rows, 1)
        for field in ("mu", "L", "zeta", "sigma"):
            check_number(field, getattr(self, field), 0)
        if self.mu <= 0 or self.mu > self.L or (self.dimension == 1 and self.mu < self.L):
            allowed = "equal to L, as dimension is 1" if self.dimension == 1 else f"above 0 and at most L, {self.L}"
            raise FedaxError(f"mu is {self.mu}: it must be {allowed}")
        self._check_balance("clients", "zeta")
        self._check_balance("rows", "sigma")

    def _check_balance(self, count: str, size: str) -> None:
        number = getattr(self, count)
        if getattr(self, size) and (number == 1 or (self.dimension == 1 and number % 2)):
            allowed = "an even number" if self.dimension == 1 else "at least 2"
            raise FedaxError(f"{count} is {number}: it must be {allowed}, as {size} is {getattr(self, size)}")

    def sizes(self, seed: int) -> NDArray[np.int64]:
        """`rows` for training, none for testing."""
        return np.full((self.clients, 2), [self.rows, 0])

    def optimum(self, key: jax.Array) -> jax.Array:
        """x*, a draw from N(0, I)."""
        import jax

        return jax.random.normal(jax.random.split(key, 3)[0], (self.dimension,), np.float32)

    def client(self, key: jax.Array, number: int | jax.Array, rows: int) -> dict[str, jax.Array]:
        """A client's A and b, row by row."""
        import jax
        import jax.numpy as jnp

        _, own, between = jax.random.split(key, 3)
        for_basis, for_values, for_noise = jax.random.split(jax.random.fold_in(own, number), 3)
        d, precise = self.dimension, jnp.result_type(float)
        q = jnp.linalg.qr(jax.random.normal(for_basis, (d, d), jnp.float32).astype(precise))[0]
        between_ends = jax.random.uniform(for_values, (d,), jnp.float32).astype(precise)
        values = self.mu + (self.L - self.mu) * between_ends.at[0].set(1.0).at[-1].set(0.0 if d > 1 else 1.0)
        gradient = self.zeta * balanced(between, number, self.clients, d)
        noise = self.sigma * jax.vmap(lambda r: balanced(for_noise, r, self.rows, d))(jnp.arange(rows))
        # b = x* - A^-1 (g + e) has A (x* - b) = g + e.
        b = self.optimum(key) - ((gradient + noise) @ q / values) @ q.T
        return {"A": jnp.broadcast_to((q * values) @ q.T, (rows, d, d)), "b": b}

    def describe(self, seed: int, arrays: dict[str, Array]) -> dict[str, Any]:
        """The constants, the optimum, and the mean loss there."""
        import jax

        x = np.asarray(self.optimum(jax.random.key(np.uint32(seed))))
        away = (x - arrays["b"]).astype(np.float64)
        least = float(np.einsum("ni,nij,nj->n", away, arrays["A"].astype(np.float64), away).mean() / 2)
        constants = {name: getattr(self, name) for name in ("L", "mu", "zeta", "sigma")}
        return {"dataset": "quadratics", "classes": None, "constants": constants, "optimum": x, "minimum": least}


def quadratics(*, seed: int = 0, **options: Any) -> Federation:
    """A federation of quadratics; the options are the fields of `QuadraticClients`.

    `info` holds `constants`, `optimum` and `minimum`.

    >>> federation = quadratics(clients=4, dimension=3, L=2.0, mu=0.5, zeta=0.3, sigma=1.0, rows=6)
    >>> federation
    Federation(4 clients, 24 rows of A float32[3, 3], b float32[3]; rows a client: train 6, validation 0, test 0)
    >>> gradients = [(f["A"] @ (federation.info["optimum"] - f["b"])[..., None]).mean(axis=0)
    ...              for f in map(federation.client, range(4))]
    >>> bool(np.linalg.norm(sum(gradients)) < 1e-5), round(float(np.linalg.norm(gradients[2])), 4)
    (True, 0.3)
    """
    return build(QuadraticClients, options).federation(seed)


def balanced(key: jax.Array, number: int | jax.Array, of: int, dimension: int) -> jax.Array:
    """The vector `number` of `of` random unit vectors whose sum is 0.

    They come as pairs u, -u; where `of` is odd, the last three are at 120 degrees to each other.

    >>> import jax
    >>> vectors = [balanced(jax.random.key(1), i, 5, 3) for i in range(5)]
    >>> bool(abs(sum(vectors)).max() < 1e-6)
    True
    """
    import jax
    import jax.numpy as jnp

    group = jnp.minimum(number // 2, max(of // 2 - 1, 0))
    place = number - 2 * group
    drawn = jax.random.normal(jax.random.fold_in(key, group), (2, dimension), jnp.float32)
    u, v = drawn.astype(jnp.result_type(float))
    u = u / jnp.linalg.norm(u)
    pair = jnp.where(place == 0, u, -u)
    if of % 2 == 0 or dimension == 1:
        return pair
    v = v - (u @ v) * u
    v = v / jnp.linalg.norm(v)
    angle = 2 * jnp.pi / 3 * place
    return jnp.where(group == of // 2 - 1, jnp.cos(angle) * u + jnp.sin(angle) * v, pair)
