"""What a method sends, keeps and computes in a client's round: measured on a model of d parameters, in words."""

from __future__ import annotations

import dataclasses

import jax

from fedax.algorithms.base import Algorithm
from fedax.client.cost import Cost, cost
from fedax.client.device_data import Data
from fedax.client.plan import RoundWork, make_plan
from fedax.client.round import Client
from fedax.testing.problems import WIDE, WIDE_DIMENSION, regression
from fedax.vectors import Vector

STEPS = 2  # local steps where nothing else is asked for


@dataclasses.dataclass(frozen=True)
class Costs:
    """One client's round in words: floats in multiples of d, the number of parameters, and of K, the local steps."""

    down: str
    up: str
    kept: str
    gradients: str


def wide_client(algorithm: Algorithm, steps: int = STEPS) -> Client:
    """A client with four rows, minibatches of two, and a model of `WIDE_DIMENSION` parameters."""
    federation = regression(0, sizes=(4, 4), dimension=WIDE_DIMENSION)
    plan, taken = make_plan(federation, RoundWork(rounds=1, local_steps=steps, batch_size=2), cohort=None)
    data = Data.of(federation.arrays, federation.train, taken)
    return Client(WIDE, plan, data, 0, jax.random.key(0), 0, algorithm.composite)


def measured(algorithm: Algorithm, steps: int = STEPS) -> Cost:
    """The cost of one client's round, counted while it is traced."""
    client = wide_client(algorithm, steps)
    x0 = jax.eval_shape(lambda: Vector(WIDE.init(jax.random.key(0), {k: a[:2] for k, a in client.data.arrays.items()})))
    return cost(client, algorithm, x0)


def costs(algorithm: Algorithm) -> Costs:
    """What one client's round sends, keeps and computes.

    >>> import fedax
    >>> costs(fedax.SCAFFOLD(lr=0.1, option="I"))
    Costs(down='2 d', up='2 d', kept='d', gradients='1 a local step, 1 full a round')
    >>> costs(fedax.FedDualAvg(lr=0.1, average=True)).up
    'K (d + 1)'
    """
    few, more = measured(algorithm), measured(algorithm, STEPS + 1)
    step, finish = few.step, few.finish
    others = ((step.full, "full a local step"), (finish.minibatch, "a round"), (finish.full, "full a round"))
    taken = [f"{step.minibatch} a local step", *(f"{count} {where}" for count, where in others if count)]
    return Costs(_words(few.down, more.down), _words(few.up, more.up), _words(few.kept, more.kept), ", ".join(taken))


def _words(few: int, more: int) -> str:
    """Floats after `STEPS` local steps and after one more, as a multiple of d and, where they differ, of K.

    >>> _words(129, 129), _words(64, 64), _words(0, 0), _words(128, 192)
    ('2 d + 1', 'd', '0', 'K d')
    """
    each = more - few
    fixed, growing = _vectors(few - STEPS * each), _vectors(each)
    if not each:
        return fixed
    growing = f"K ({growing})" if "+" in growing else f"K {growing}"
    return growing if fixed == "0" else f"{growing} + {fixed}"


def _vectors(floats: int) -> str:
    whole, rest = divmod(floats, WIDE_DIMENSION)
    named = {0: "", 1: "d"}.get(whole, f"{whole} d")
    return " + ".join([part for part in (named, str(rest) if rest else "") if part]) or "0"
