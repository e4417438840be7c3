"""The mean of the clients' losses as a function of one array: its gradients, curvatures and minimiser."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.flatten_util import ravel_pytree
from scipy.optimize import minimize

from fedax import randomness
from fedax.data import Federation
from fedax.errors import FedaxError
from fedax.evaluation.curvature import largest
from fedax.problem import Problem
from fedax.vectors import Vector

BLOCK, CLIENTS = 1024, 32  # rows at a time; clients that are looked at
POWER, DESCENT = 200, 500  # iterations of the eigenvalues and of the minimiser
SAME = 1e-3  # relative difference of Hessians that is put down to rounding
Array = np.ndarray[Any, np.dtype[Any]]


class Pooled:
    """The mean of the clients' losses as a function of one array, a block of rows at a time."""

    def __init__(self, problem: Problem, federation: Any, seed: int) -> None:
        if not isinstance(federation, Federation):
            kind = type(federation).__name__
            raise FedaxError(f"the constants are estimated on a Federation in memory, not on a {kind}")
        self.problem = problem
        self.federation: Federation = federation
        self.arrays = {name: jnp.asarray(array) for name, array in federation.arrays.items()}
        first = problem.init(randomness.key_for(seed, randomness.INIT), {k: a[:2] for k, a in self.arrays.items()})
        flat, self.restore = ravel_pytree(first)
        self.start: jax.Array = flat
        psi = problem.regularizer
        self.psi = psi if psi is not None and psi.smooth else None  # belongs to the loss
        start, count = federation.train.start, federation.train.count
        weight = np.zeros(federation.rows)
        for first_row, rows in zip(start.tolist(), count.tolist(), strict=True):
            weight[first_row : first_row + rows] += 1 / (rows * len(count))
        self.everything = self.blocks(np.flatnonzero(weight), weight[weight > 0])
        different = np.unique(np.stack([start, count]), axis=1, return_index=True)[1]
        draw = np.random.default_rng(seed)
        self.clients = np.sort(draw.permutation(different)[:CLIENTS])
        self.draw = draw
        self.gradient = jax.jit(self._gradient)
        self.extreme = jax.jit(self._curvature)
        self._value = jax.jit(self._loss)

    def blocks(self, rows: Array, weights: Array, least: int = 1) -> Any:
        """Row numbers and weights as blocks of one size, filled up with weightless rows."""
        size = min(BLOCK, max(len(rows), least))
        missing = -max(len(rows), least) % size + max(least - len(rows), 0)
        index = np.pad(rows, (0, missing), mode="edge").reshape(-1, size)
        return jnp.asarray(index), jnp.asarray(np.pad(weights, (0, missing)).reshape(-1, size), self.start.dtype)

    def each_client(self, most: int = CLIENTS) -> Iterator[Any]:
        """The blocks of each client that is looked at, in one shape; none if all clients are alike."""
        rows = self.federation.train
        longest = int(rows.count[self.clients].max())
        for i in self.clients[:most].tolist() if len(self.clients) > 1 else []:
            own = np.arange(rows.of(i).start, rows.of(i).stop)
            yield self.blocks(own, np.full(len(own), 1 / len(own)), least=longest)

    def _loss(self, x: jax.Array, blocks: Any) -> jax.Array:
        tree = self.restore(x)

        def add(total: Any, block: Any) -> Any:
            index, weights = block
            batch = {name: array[index] for name, array in self.arrays.items()}
            return total + jnp.sum(weights * self.problem.rows(tree, batch)["loss"]), None

        total: jax.Array = jax.lax.scan(jax.checkpoint(add), jnp.zeros((), x.dtype), blocks)[0]
        return total if self.psi is None else total + self.psi.value(Vector(tree))

    def _gradient(self, x: jax.Array, blocks: Any) -> jax.Array:
        slope: jax.Array = jax.grad(self._loss)(x, blocks)
        return slope

    def _curvature(self, x: jax.Array, blocks: Any, shift: Any) -> Any:
        sign = jnp.where(shift > 0, -1.0, 1.0).astype(x.dtype)

        def product(v: Vector) -> Vector:
            return Vector(shift * v.tree + sign * self._hessian(x, v.tree, blocks))

        return largest(product, Vector(x), POWER)

    def _hessian(self, x: jax.Array, v: jax.Array, blocks: Any) -> jax.Array:
        """The Hessian at x times v."""
        bend: jax.Array = jax.jvp(lambda p: self._gradient(p, blocks), (x,), (v,))[1]
        return bend

    def curvature(self, x: jax.Array, blocks: Any, shift: float = 0.0) -> tuple[float, float]:
        """The extreme curvature of some rows' mean loss at x, or that of shift - Hessian; and how far off it may be."""
        value, error = self.extreme(x, blocks, jnp.asarray(shift, x.dtype))
        return float(value), float(error)

    def quadratic(self, points: Iterable[jax.Array]) -> bool:
        """Whether the mean loss has the same Hessian at all these points, seen along one random direction."""
        along = jax.random.normal(jax.random.key(0), self.start.shape, self.start.dtype)
        bend = jax.jit(lambda x: self._hessian(x, along, self.everything))
        first, *others = (np.asarray(bend(x), np.float64) for x in points)
        return all(np.linalg.norm(other - first) <= SAME * np.linalg.norm(first) for other in others)

    def value(self, x: jax.Array) -> float:
        """F + psi."""
        psi = self.problem.regularizer
        extra = 0.0 if psi is None or psi.smooth else float(psi.value(Vector(self.restore(x))))
        return float(self._value(x, self.everything)) + extra

    def minimiser(self) -> tuple[jax.Array, bool]:
        """A minimiser of F + psi, or the best point found, and whether the gradient vanishes there."""
        psi = self.problem.regularizer
        if psi is not None and not psi.smooth:
            return self._proximal(psi)
        both = jax.jit(lambda x: jax.value_and_grad(self._loss)(x, self.everything))

        def fun(x: Array) -> tuple[float, Array]:
            value, slope = both(jnp.asarray(x, self.start.dtype))
            return float(value), np.asarray(slope, np.float64)

        before = np.linalg.norm(fun(np.asarray(self.start))[1])
        options = {"maxiter": DESCENT, "ftol": 0.0, "gtol": 1e-7}
        found = minimize(fun, np.asarray(self.start, np.float64), jac=True, method="L-BFGS-B", options=options).x
        after = np.linalg.norm(fun(found)[1])
        return jnp.asarray(found, self.start.dtype), bool(after <= 1e-3 * before + 1e-6)

    def _proximal(self, psi: Any) -> tuple[jax.Array, bool]:
        """FISTA, restarted whenever the momentum points uphill."""
        step = 1 / self.curvature(self.start, self.everything)[0]

        @jax.jit
        def advance(x: jax.Array, y: jax.Array, t: jax.Array) -> Any:
            moved = psi.prox(Vector(self.restore(y - step * self._gradient(y, self.everything))), step)
            new = ravel_pytree(moved.tree)[0]
            t = jnp.where(jnp.vdot(y - new, new - x) > 0, 1.0, t)
            after = (1 + jnp.sqrt(1 + 4 * t**2)) / 2
            return new, new + (t - 1) / after * (new - x), after, jnp.linalg.norm(new - y)

        x = y = self.start
        t, apart, first = jnp.ones((), x.dtype), jnp.inf, None
        for _ in range(2 * DESCENT):
            x, y, t, apart = advance(x, y, t)
            first = float(apart) if first is None else first
            if apart <= 1e-6 * (first + 1e-12):
                break
        return x, bool(apart <= 1e-3 * (first or 1.0))
