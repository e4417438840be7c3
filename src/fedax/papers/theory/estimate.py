"""The constants of the theorems, estimated on a problem and its federation.

L and mu are extreme eigenvalues of the Hessian, by power iteration on Hessian-vector products (mu on L - H); sigma
comes from gradients of single rows, zeta from clients' full gradients, B and Delta from a minimiser that L-BFGS
finds, or accelerated proximal gradient steps where the regularizer has no gradient. All are taken at four points: the
start, the minimiser, half-way, and 0. The theorems speak of every point, so L, zeta and G are estimates from below.
"""

from __future__ import annotations

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.data import Federation
from fedax.errors import FedaxError
from fedax.papers.theory.pooled import CLIENTS, Pooled
from fedax.problem import Problem
from fedax.vectors import Vector

ROWS, CURVED = 256, 8  # rows of a client whose gradients, clients whose own curvature is looked at
FLOATS = 20_000_000  # of gradients of single rows at a time
Curvatures = dict[str, tuple[float, float]]  # of the mean loss at the points, each with how far off it may be


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A constant: the value that the advice takes, the range it may have, and where the value comes from."""

    value: float
    low: float
    high: float
    how: str


@dataclasses.dataclass(frozen=True)
class Constants:
    """What the theorems ask about a problem, and what was seen of their assumptions."""

    L: Estimate
    mu: Estimate
    sigma: Estimate
    zeta: Estimate
    B: Estimate
    Delta: Estimate
    G: Estimate
    convex: bool  #: no negative curvature was seen
    smooth: bool  #: the regularizer, if there is one, has a gradient
    quadratic: bool  #: the mean loss has one and the same Hessian at the points looked at

    def shown(self) -> dict[str, Estimate]:
        """The estimates by name."""
        return {f.name: v for f in dataclasses.fields(self) if isinstance(v := getattr(self, f.name), Estimate)}


def estimate(problem: Problem, federation: Federation, *, batch_size: int | None = None, seed: int = 0) -> Constants:
    """Estimate the constants for minibatches of a size; None is the full local gradient, with sigma = 0.

    >>> import numpy as np
    >>> bowl = Problem(loss=lambda w, b: jnp.mean(jnp.sum((w - b["x"]) ** 2, -1)) / 2, init=lambda key: jnp.zeros(2))
    >>> rows = [np.array([[3.0, 1.0], [5.0, 1.0]]), np.array([[3.0, -1.0], [5.0, -1.0]])]
    >>> found = estimate(bowl, Federation.from_clients([{"x": x} for x in rows]), batch_size=1)
    >>> [round(e.value, 3) for e in (found.L, found.mu, found.sigma, found.zeta, found.B, found.Delta)]
    [1.0, 1.0, 1.0, 1.0, 4.0, 8.0]
    """
    if batch_size is not None and batch_size < 1:
        raise FedaxError(f"batch_size must be a whole number from 1 on, not {batch_size}")
    pooled = Pooled(problem, federation, seed)
    best, exact = pooled.minimiser()
    points = {"start": pooled.start, "minimiser": best, "half-way": (pooled.start + best) / 2, "0": pooled.start * 0}
    psi = problem.regularizer
    smooth = psi is None or bool(psi.smooth)
    bent = {name: pooled.curvature(x, pooled.everything) for name, x in points.items()}
    L = _smoothness(pooled, points, bent)
    mu, convex = _convexity(pooled, points, bent)
    before, after = pooled.value(pooled.start), pooled.value(best)
    distance = float(jnp.linalg.norm(pooled.start - best))
    reached = "" if exact else ", which was not reached exactly"
    slack = 0.0 if exact else distance
    sigma, G = _noise(pooled, points, batch_size, convex)
    return Constants(
        L=L,
        mu=mu,
        sigma=sigma,
        zeta=_heterogeneity(pooled, points),
        B=Estimate(distance, distance, distance + slack, f"distance from the start to the minimiser{reached}"),
        Delta=Estimate(before - after, before - after, before - min(after, 0.0), f"height above the minimum{reached}"),
        G=G,
        convex=convex,
        smooth=smooth,
        quadratic=pooled.quadratic(points.values()),
    )


def _smoothness(pooled: Pooled, points: dict[str, jax.Array], found: Curvatures) -> Estimate:
    """The largest curvature of the mean loss over the points, and of a few clients' own where that is."""
    where = max(found, key=lambda name: abs(found[name][0]))
    value, error = abs(found[where][0]), found[where][1]
    low, whose, x = min(abs(v) for v, _ in found.values()), "the mean loss", points[where]
    for blocks in pooled.each_client(CURVED):
        own, off = pooled.curvature(x, blocks)
        if abs(own) > value:
            value, error, whose = abs(own), off, "a client's loss"
    return Estimate(value, low, value + error, f"largest curvature, of {whose} at the {where}")


def _convexity(pooled: Pooled, points: dict[str, jax.Array], bent: Curvatures) -> tuple[Estimate, bool]:
    """The least curvature; a ridge penalty on every parameter is a floor under that of a convex loss.

    What power iteration gives is v'Hv of a unit vector v: if that is negative the loss is not convex, however far the
    iteration still is from the least eigenvalue.
    """
    found = []
    for name, x in points.items():
        L = abs(bent[name][0])
        shifted, error = pooled.curvature(x, pooled.everything, shift=L)
        found.append((L - shifted, error, 1e-5 * L))
    seen, error, rounding = min(found)
    convex = all(least > -off for least, _, off in found)
    floor = 0.0
    if pooled.psi is not None:
        ones = jnp.ones_like(pooled.start)
        pull = jax.jvp(jax.grad(lambda p: pooled.psi.value(Vector(pooled.restore(p)))), (pooled.start,), (ones,))[1]  # type: ignore[union-attr]
        floor = float(f"{float(jnp.min(pull)):.6g}")  # the strength, without its rounding to single precision
    if floor > 0 and convex:
        return Estimate(floor, floor, max(seen, floor), "the ridge penalty's strength"), True
    certain = seen - error if convex and seen > rounding else 0.0
    how = "least curvature seen of the mean loss" if convex else "none: negative curvature was seen"
    return Estimate(max(certain, 0.0), max(certain, 0.0), max(seen, 0.0), how), convex


def _noise(
    pooled: Pooled, points: dict[str, jax.Array], batch_size: int | None, convex: bool
) -> tuple[Estimate, Estimate]:
    """sigma with its range over the points, and G.

    On a convex problem sigma is that at the minimiser, where a run ends; elsewhere the largest, since a model that
    fits every row has none at its minimum.
    """

    def row_gradient(x: jax.Array, row: Any) -> jax.Array:
        single = jax.tree.map(lambda a: a[None], row)
        slope: jax.Array = jax.grad(lambda p: pooled.problem.loss(pooled.restore(p), single))(x)
        return slope

    slopes = jax.jit(jax.vmap(row_gradient, in_axes=(None, 0)))
    most = min(ROWS * CLIENTS, FLOATS // pooled.start.size) // len(pooled.clients)
    squares: dict[str, list[float]] = {name: [] for name in points}
    errors: dict[str, list[float]] = {name: [] for name in points}
    longest = 0.0
    for i in pooled.clients.tolist():
        rows = pooled.federation.train.of(i)
        count = rows.stop - rows.start
        all_of_them = count <= max(most, 2)
        chosen = np.arange(rows.start, rows.stop) if all_of_them else pooled.draw.integers(rows.start, rows.stop, most)
        batch = {name: array[chosen] for name, array in pooled.arrays.items()}
        for name, x in points.items():
            each = np.asarray(slopes(x, batch), np.float64)
            apart = ((each - each.mean(0)) ** 2).sum(1)
            squares[name].append(float(apart.mean()))
            errors[name].append(0.0 if all_of_them else float(apart.std() / len(chosen) ** 0.5))
            longest = max(longest, float((each**2).sum(1).max() ** 0.5))
    G = Estimate(longest, longest, longest, "longest gradient of a row that was seen")
    if batch_size is None:
        return Estimate(0.0, 0.0, 0.0, "full local gradients have no noise"), G
    roots = {name: (float(np.mean(found)) / batch_size) ** 0.5 for name, found in squares.items()}
    where = "minimiser" if convex else max(roots, key=lambda name: roots[name])
    value = roots[where]
    error = float(np.linalg.norm(errors[where])) / len(pooled.clients) / batch_size
    half = error / value if value else 0.0  # two deviations: the root's is that of the square over 2 sigma
    low, high = min([*roots.values(), value - half]), max([*roots.values(), value + half])
    return Estimate(value, max(low, 0.0), high, f"root mean square over clients, at the {where}"), G


def _heterogeneity(pooled: Pooled, points: dict[str, jax.Array]) -> Estimate:
    found: dict[str, float] = {}
    for name, x in points.items():
        mean = pooled.gradient(x, pooled.everything)
        apart = [float(jnp.linalg.norm(pooled.gradient(x, own) - mean)) for own in pooled.each_client()]
        found[name] = max(apart, default=0.0)
    where = max(found, key=lambda name: found[name])
    seen = f"farthest of {len(pooled.clients)} clients, at the {where}"
    return Estimate(
        found[where], min(found.values()), found[where], seen if len(pooled.clients) > 1 else "all clients alike"
    )
