"""What a theorem's bound is made of, what a method's theorem is given and answers, and checks of its constants.

The names are the thesis': L smoothness, mu strong convexity, Q third-order smoothness, sigma^2 variance of a stochastic
gradient, zeta largest distance between a client's gradient and the mean one, B = ||x0 - x*||, G largest stochastic
gradient, Delta = F(x0) - inf F; M clients, K local steps, R rounds, lr the client's rate.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
from collections.abc import Callable, Mapping
from typing import Any, Literal, TypeVar

from fedax.errors import FedaxError

T = TypeVar("T")
#: What a theorem may need and an estimate can contradict: a convex loss, clients with the same distribution, every
#: client in every round, gradients of all of a client's rows, a regularizer with a gradient.
Need = Literal["convex", "alike", "everyone", "full gradients", "smooth"]
RARELY = (  #: names of terms that are there because clients do not average after every step
    "noise between averagings",
    "movement between averagings",
    "heterogeneity",
    "heterogeneity and noise between averagings",
    "higher orders",
    "drift",
)
LASTING = ("residual", "minibatch bias")  #: names of terms that no amount of work removes


@dataclasses.dataclass(frozen=True)
class Bound:
    """An upper bound as the sum of named terms, at a rate.

    A term that comes of averaging rarely has a name of `RARELY`; one that no amount of work removes, of `LASTING`.

    >>> found = Bound("Theorem 0", "E F - F*", {"start": 2.0, "noise": 1.0}, lr=0.1, assumptions=("F is convex",))
    >>> found.total, found.dominant
    (3.0, 'start')
    """

    theorem: str
    bounds: str  #: the quantity on the left
    terms: dict[str, float]
    lr: float
    assumptions: tuple[str, ...]
    needs: tuple[Need, ...] = ()  #: those of the assumptions that are compared with what was seen of a problem

    @property
    def total(self) -> float:
        """The right-hand side."""
        return sum(self.terms.values())

    @property
    def dominant(self) -> str:
        """The largest term."""
        return max(self.terms, key=lambda name: self.terms[name])


@dataclasses.dataclass(frozen=True)
class Given:
    """What a theorem is given: the problem's constants and the run's numbers, under this module's names."""

    L: float
    mu: float
    sigma: float
    zeta: float
    B: float
    Delta: float
    G: float
    highest: float  #: the largest that Delta may be, for a client's own loss
    convex: bool  #: no negative curvature was seen
    smooth: bool  #: the regularizer, if there is one, has a gradient
    quadratic: bool  #: the mean loss has one and the same Hessian wherever it was looked at
    n: int  #: clients
    m: int  #: clients that take part in a round
    K: int  #: local steps a round
    R: int  #: rounds
    choices: Mapping[str, Any] = dataclasses.field(default_factory=dict)  #: the method's; empty for its defaults

    def into(self, bound: Callable[..., T], *positional: Any, **others: Any) -> T:
        """A bound at these constants: it gets those that it names, M being the cohort m, and the others given here.

        >>> given = Given(2.0, 0.1, 1.0, 0.0, 1.0, 1.0, 1.0, 1.0, True, True, False, n=8, m=4, K=5, R=10)
        >>> given.into(lambda *, L, M, K, lr=None: (L, M, K, lr), K=1)
        (2.0, 4, 1, None)
        """
        known = {"M": self.m, **vars(self)}
        named = {name: known[name] for name in inspect.signature(bound).parameters if name in known}
        return bound(*positional, **(named | others))


@dataclasses.dataclass(frozen=True)
class Theorem:
    """A method's theorem, applied: its bound, the hyper-parameters that it asks for, and a remark.

    remark: what was not looked at, and what was taken instead; a sentence, or empty.
    """

    bound: Bound
    settings: Mapping[str, Any]
    remark: str = ""


def positive(**given: float) -> None:
    """Refuse what is not above 0 and finite.

    >>> positive(L=0)
    Traceback (most recent call last):
    fedax.errors.FedaxError: L must be above 0 and finite, not 0
    """
    for name, value in given.items():
        if not 0 < value < math.inf:
            raise FedaxError(f"{name} must be above 0 and finite, not {value}")


def not_negative(**given: float) -> None:
    """Refuse what is below 0 or infinite."""
    for name, value in given.items():
        if not 0 <= value < math.inf:
            raise FedaxError(f"{name} must be in [0, inf), not {value}")


def counts(**given: float) -> None:
    """Refuse what is less than 1; infinity is a limit that bounds may be asked for."""
    for name, value in given.items():
        if not value >= 1:
            raise FedaxError(f"{name} must be at least 1, not {value}")


def strong_convexity(mu: float, L: float, theorem: str) -> None:
    """Refuse a problem that is not strongly convex, for a theorem that needs it.

    >>> strong_convexity(0.0, 1.0, "Theorem 3.1")
    Traceback (most recent call last):
    fedax.errors.FedaxError: mu is 0.0: Theorem 3.1 needs a strongly convex problem, with mu above 0
    """
    if not mu > 0:
        raise FedaxError(f"mu is {mu}: {theorem} needs a strongly convex problem, with mu above 0")
    if mu > L:
        raise FedaxError(f"mu must be at most L = {L}, not {mu}")


def rate(lr: float | None, default: float, limit: float, words: str) -> float:
    """The rate asked for, else the theorem's own; refused above the theorem's limit.

    >>> rate(0.6, 0.1, 0.5, "1/(2L)")
    Traceback (most recent call last):
    fedax.errors.FedaxError: lr must be in (0, 0.5], that is at most 1/(2L), not 0.6
    """
    if lr is None:
        return min(default, limit)
    if not 0 < lr <= limit * (1 + 1e-9):
        raise FedaxError(f"lr must be in (0, {limit:.6g}], that is at most {words}, not {lr}")
    return lr


def over(a: float, b: float) -> float:
    """a / b, infinity for b = 0: a step-size limit that a vanishing constant lifts.

    >>> over(1.0, 0.0), over(1.0, 2.0)
    (inf, 0.5)
    """
    return math.inf if b == 0 else a / b
