"""Clipping of uploads, Gaussian noise on their mean, and an account of what that guarantees.

A client scales what it uploads down to an L2 norm of at most S, all parts as one vector: of SCAFFOLD the model's
change and the control variate's together. The server adds Gaussian noise of standard deviation z S / m to the mean of
m uploads, that is z S to their sum. Every method here uploads changes, zero where there is nothing to learn, so
clipping shortens a client's pull and does not move the model; a method of one's own must do so too. What does not
depend on anybody's rows (the step sizes that a client has travelled, which mirror methods upload beside the change) is
left as it is.

The guarantee is for a client's whole data set, against everybody who sees models and not the noise: the server is
trusted. It is counted in Renyi differential privacy at integer orders alpha, which adds up over rounds, and turned
into (epsilon, delta) by Canonne, Kamath and Steinke (2020), Proposition 12.

- "fixed": cohorts of a fixed size drawn without replacement, which is how they are drawn here; two federations are
  neighbours if one client is replaced by another. Wang, Balle and Kasiviswanathan (2019), Theorem 9; replacing a
  client moves the sum by up to 2 S. A bound that holds, and rather loose.
- "poisson": every client takes part with probability q independently of the others; neighbours differ by one client
  more. The closed form of Mironov, Talwar and Zhang (2019), section 3.3, is exact. It is the figure that is usually
  published, also for cohorts of a fixed size, for which it is not a theorem.

The noise is drawn in double precision and rounded to the parameters' dtype; attacks on the rounding are not defended
against.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping
from typing import Any, Literal

import jax
import numpy as np
from jax.interpreters.partial_eval import dce_jaxpr
from scipy.special import gammaln, logsumexp

from fedax.algorithms.base import Algorithm
from fedax.client.round import Client
from fedax.errors import FedaxError, unknown
from fedax.flower.guard import norm
from fedax.flower.messages import Flat, flatten
from fedax.vectors import Vector

Cohorts = Literal["fixed", "poisson"]
ORDERS: tuple[int, ...] = (*range(2, 65), *range(68, 257, 4), *range(272, 1025, 16))


@dataclasses.dataclass(frozen=True)
class Privacy:
    """What a federation asks of uploads.

    clip: S, the L2 norm that an upload is scaled down to, above 0.
    noise: z, the noise multiplier, from 0 on; 0 for none, and no guarantee.
    delta: of (epsilon, delta), in (0, 1); below one over the number of clients.

    >>> round(Privacy(clip=1.0, noise=4.0).epsilon(rounds=100, rate=0.1, cohorts="poisson"), 2)
    1.08
    """

    clip: float
    noise: float = 0.0
    delta: float = 1e-5

    def __post_init__(self) -> None:
        _number("clip", self.clip, "above 0", lambda value: value > 0)
        _number("noise", self.noise, "from 0 on", lambda value: value >= 0)
        _number("delta", self.delta, "above 0 and below 1", lambda value: 0 < value < 1)

    @classmethod
    def of(cls, config: Mapping[str, Any]) -> Privacy | None:
        """From Flower's run configuration: `clip`, and with it `noise` and `delta`; None without `clip`, or with 0.

        >>> Privacy.of({"clip": 1.0, "noise": 2.0})
        Privacy(clip=1.0, noise=2.0, delta=1e-05)
        """
        found = {name: config[name] for name in ("clip", "noise", "delta") if config.get(name)}
        if "clip" in found:
            return cls(**found)
        if "noise" in found:
            how = "it must be the norm that uploads are clipped to, of which noise is a multiple"
            raise FedaxError(f"clip is missing: {how}")
        return None

    def refuse(self, *, weighted: bool) -> None:
        """Raise a FedaxError where the noise would not cover what one client can do to the mean."""
        if weighted and self.noise:
            raise FedaxError("weighted is true: with noise it must be false, so that every client counts the same")

    def epsilon(self, *, rounds: int, rate: float, cohorts: Cohorts = "fixed") -> float:
        """The epsilon after some rounds, infinite without noise; rate: cohort over the fewest it is drawn from."""
        return epsilon(rounds, rate, self.noise, self.delta, cohorts) if self.noise else math.inf


def clip(upload: Flat, bound: float, public: Collection[str] = ()) -> Flat:
    """The upload, scaled down to an L2 norm of at most `bound`; arrays named in `public` are left as they are.

    >>> clip({"x": np.float32([3.0]), "c": np.float32([4.0])}, 1.0)
    {'x': array([0.6], dtype=float32), 'c': array([0.8], dtype=float32)}
    """
    size = norm({name: array for name, array in upload.items() if name not in public})
    if size <= bound:
        return upload
    return {
        name: array if name in public else (array.astype(np.float64) * (bound / size)).astype(array.dtype)
        for name, array in upload.items()
    }


def noise(
    mean: Flat, bound: float, multiplier: float, cohort: int, key: tuple[int, int], public: Collection[str] = ()
) -> Flat:
    """The mean of `cohort` clipped uploads with Gaussian noise of standard deviation multiplier * bound / cohort.

    key: (secret, round). The secret is the server's own, `secrets.randbits(128)`, never the experiment's seed: every
        client knows that one, and could take the noise off again.

    >>> quiet = noise({"x": np.zeros(100_000, np.float32)}, 2.0, 3.0, 10, (2026, 0))
    >>> round(float(quiet["x"].std()), 2)
    0.6
    """
    generator = np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))
    scale = multiplier * bound / cohort
    noisy = dict(mean)
    for name in sorted(mean.keys() - set(public)):
        array = mean[name]
        noisy[name] = (array.astype(np.float64) + generator.normal(0.0, scale, array.shape)).astype(array.dtype)
    return noisy


def public_parts(client: Client, algorithm: Algorithm, x0: Vector) -> frozenset[str]:
    """The arrays of an upload that no row reaches, by a look at the traced program; in doubt one is private.

    >>> import fedax, jax.numpy as jnp
    >>> from fedax.client.round import Data, Plan
    >>> problem = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2), init=lambda key: jnp.zeros(()))
    >>> plan, place = Plan(1, 1, 2, 3, True, 4, 4, "epochs", False), jnp.zeros(1, jnp.int32)
    >>> client = Client(problem, plan, Data({"x": jnp.ones(4)}, place, place + 4, place + 3), 0, 0, 0, True)
    >>> public_parts(client, fedax.FedDualAvg(lr=0.1), Vector(jnp.zeros(())))  # (the dual's change, the way travelled)
    frozenset({'0.1'})
    """

    def upload(rows: Any) -> Any:
        here = dataclasses.replace(client, data=dataclasses.replace(client.data, arrays=rows))
        return here.work(algorithm, algorithm.broadcast(algorithm.init(x0)), algorithm.client_init(x0))[0]

    traced, shapes = jax.make_jaxpr(upload, return_shape=True)(client.data.arrays)
    names = list(flatten(jax.tree.map(lambda _: np.zeros(()), shapes)))
    alone = ([other == name for other in names] for name in names)
    return frozenset(n for n, asked in zip(names, alone, strict=True) if not any(dce_jaxpr(traced.jaxpr, asked)[1]))


def epsilon(rounds: int, rate: float, multiplier: float, delta: float, cohorts: Cohorts = "fixed") -> float:
    """The least epsilon of (epsilon, delta) after some rounds, over the orders looked at.

    rate: the part of the clients that takes part in a round, in (0, 1]. multiplier: z, above 0.

    >>> epsilon(1, 1.0, 10.0, 1e-5, "poisson") < epsilon(2, 1.0, 10.0, 1e-5, "poisson")
    True
    """
    _number("rounds", rounds, "from 0 on", lambda value: value >= 0)
    _number("rate", rate, "above 0 and at most 1", lambda value: 0 < value <= 1)
    _number("multiplier", multiplier, "above 0", lambda value: value > 0)
    _number("delta", delta, "above 0 and below 1", lambda value: 0 < value < 1)
    if rounds == 0:
        return 0.0
    divergences: dict[str, Callable[[int, float, float], float]] = {"fixed": renyi_fixed, "poisson": renyi_poisson}
    if cohorts not in divergences:
        raise unknown("cohorts", cohorts, divergences)
    divergence = divergences[cohorts]
    found = (
        rounds * divergence(order, rate, multiplier)
        + math.log1p(-1 / order)
        - (math.log(delta) + math.log(order)) / (order - 1)
        for order in ORDERS
    )
    return max(0.0, min(found))


def renyi_poisson(order: int, rate: float, multiplier: float) -> float:
    """The Renyi divergence of one round at an integer order; Mironov, Talwar and Zhang (2019), section 3.3.

    >>> renyi_poisson(8, 1.0, 2.0)  # everybody takes part: alpha / (2 z^2)
    1.0
    """
    if rate == 1.0:
        return order / (2 * multiplier**2)
    k = np.arange(order + 1)
    terms = _binomial(order, k) + (order - k) * math.log1p(-rate) + k * math.log(rate)
    return max(0.0, float(logsumexp(terms + (k * k - k) / (2 * multiplier**2))) / (order - 1))


def renyi_fixed(order: int, rate: float, multiplier: float) -> float:
    """A bound on it for cohorts without replacement; Wang, Balle and Kasiviswanathan (2019), Theorem 9.

    >>> renyi_fixed(8, 1.0, 2.0)  # everybody takes part, and a replaced client moves the sum by 2 S: 2 alpha / z^2
    4.0
    """
    whole = 2 * order / multiplier**2
    if rate == 1.0:
        return whole
    second = 4 / multiplier**2  # the divergence of the whole at order 2
    first = min(math.log(4) + _log_expm1(second), math.log(2) + second)
    terms = [0.0, 2 * math.log(rate) + float(_binomial(order, np.array(2))) + first]
    j = np.arange(3, order + 1)
    terms += list(j * math.log(rate) + _binomial(order, j) + (j - 1) * 2 * j / multiplier**2 + math.log(2))
    return min(whole, float(logsumexp(terms)) / (order - 1))


def _binomial(n: int, k: np.ndarray[Any, Any]) -> Any:
    return gammaln(n + 1) - gammaln(k + 1) - gammaln(n - k + 1)


def _log_expm1(value: float) -> float:
    return value + math.log(-math.expm1(-value))


def _number(name: str, value: Any, allowed: str, good: Callable[[Any], bool]) -> None:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value) or not good(value):
        raise FedaxError(f"{name} is {value!r}: it must be a number {allowed}")
