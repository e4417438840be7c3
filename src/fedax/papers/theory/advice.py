"""Step sizes and local steps for each method that has a theorem, with the bound and what does not hold of it.

A method's `theorem` gives the rates. The local steps follow one rule for all methods: at the same number K R of local
steps in all, K is the largest power of 2 for which the bound is at most twice the bound with K = 1, and for which the
terms that come from averaging rarely are at most the other terms. Terms that no amount of work removes are left out.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any

from fedax.algorithms import ALGORITHMS, Algorithm, method_class
from fedax.bounds import Bound, Given, Theorem
from fedax.bounds.base import LASTING, RARELY
from fedax.errors import FedaxError, unknown
from fedax.papers.theory.estimate import Constants

WORSE = 2.0  # how much of the bound is given for fewer rounds


@dataclasses.dataclass(frozen=True)
class Work:
    """What a run does: n clients of which m take part, K local steps, R rounds."""

    n: int
    m: int
    K: int
    R: int

    def with_steps(self, steps: int) -> Work:
        """Another number of local steps a round, and the most rounds that take no more local steps in all.

        >>> Work(n=8, m=8, K=5, R=40).with_steps(16)
        Work(n=8, m=8, K=16, R=12)
        """
        return dataclasses.replace(self, K=steps, R=max(1, self.K * self.R // steps))


@dataclasses.dataclass(frozen=True)
class Proposal:
    """A method's hyper-parameters by a theorem; `local_steps` is the most that its bound allows at the same work."""

    method: str
    settings: dict[str, Any]
    bound: Bound
    local_steps: int
    unmet: tuple[str, ...]


def has_theorem(method: type[Algorithm]) -> bool:
    """Whether a method states a theorem; one that derives from it is another method, and has none.

    >>> has_theorem(ALGORITHMS["FedAvg"]), has_theorem(ALGORITHMS["FedAvgM"])
    (True, False)
    """
    return "theorem" in vars(method)


def with_theorem() -> list[str]:
    """The methods of Fedax that have a theorem."""
    return [name for name, method in ALGORITHMS.items() if has_theorem(method)]


def advise(constants: Constants, work: Work, methods: Sequence[str | Algorithm] | None = None) -> list[Proposal]:
    """Proposals for the methods named, or for every method that has a theorem.

    methods: names, those of your own as "mymodule:MyMethod" or "file.py:MyMethod", for a method with its default
        choices; or methods as they are made, each with choices of its own, such as FedAc's variant.

    A theorem whose assumptions these constants contradict is used all the same, and the proposal says so. A method
    is refused where a constant that its theorem divides by is 0, by a sentence that names it.

    >>> from fedax.papers.theory import Constants, Estimate
    >>> sure = lambda value: Estimate(value, value, value, "known")
    >>> L, mu, sigma, zeta, B, Delta, G = map(sure, (1.0, 0.01, 1.0, 0.0, 2.0, 1.0, 5.0))
    >>> known = Constants(L, mu, sigma, zeta, B, Delta, G, convex=True, smooth=True, quadratic=False)
    >>> found = advise(known, Work(n=64, m=64, K=8, R=100), ["FedAc"])[0]
    >>> found.bound.theorem, sorted(found.settings), found.unmet
    ('Theorem 3.1(a)', ['lr', 'mu'], ())
    """
    return [_proposal(method, constants, work) for method in (with_theorem() if methods is None else methods)]


def choices_of(method: Algorithm) -> dict[str, Any]:
    """A method's choices and flags that are not the defaults.

    >>> choices_of(ALGORITHMS["FedAc"](lr=0.1, mu=0.5, variant="II"))
    {'variant': 'II'}
    """
    kept = {}
    for field in dataclasses.fields(method):  # type: ignore[arg-type]
        value = getattr(method, field.name)
        if isinstance(value, str | bool) and value != field.default:
            kept[field.name] = value
    return kept


def _proposal(asked: str | Algorithm, constants: Constants, work: Work) -> Proposal:
    method = method_class(asked) if isinstance(asked, str) else type(asked)
    choices = {} if isinstance(asked, str) else choices_of(asked)
    name = ", ".join([method.__name__, *(f"{field} {_word(value)}" for field, value in choices.items())])
    if not has_theorem(method):
        raise FedaxError(f"{name} has no theorem: {', '.join(with_theorem())} have one")
    try:
        found = _applied(method, choices, constants, work)
    except FedaxError as error:
        raise FedaxError(f"{name}: {error}") from None
    most = _most_steps(method, choices, constants, work)
    return Proposal(name, dict(found.settings), found.bound, most, _unmet(found, constants, work))


def _word(value: str | bool) -> str:
    return value if isinstance(value, str) else str(value).lower()


def _applied(method: type[Algorithm], choices: Mapping[str, Any], constants: Constants, work: Work) -> Theorem:
    values: dict[str, Any] = {name: estimate.value for name, estimate in constants.shown().items()}
    seen = {"convex": constants.convex, "smooth": constants.smooth, "quadratic": constants.quadratic}
    given = Given(**values, highest=constants.Delta.high, **seen, **vars(work), choices=choices)
    try:
        found = method.theorem(given)
    except FedaxError:
        raise
    except (ArithmeticError, TypeError, ValueError) as error:
        raise FedaxError(f"its theorem() fails with {type(error).__name__}: {error}") from error
    if not isinstance(found, Theorem):
        raise FedaxError(f"its theorem() must give a fedax.bounds.Theorem, not {found!r}")
    fields = [field.name for field in dataclasses.fields(method)]  # type: ignore[arg-type]
    for name in found.settings:
        if name not in fields:
            raise unknown("hyper-parameter in the settings of its theorem()", name, fields)
    return found


def _most_steps(method: type[Algorithm], choices: Mapping[str, Any], constants: Constants, work: Work) -> int:
    most, first, steps = 1, None, 1
    while steps <= work.K * work.R:
        terms = _applied(method, choices, constants, work.with_steps(steps)).bound.terms
        total = sum(value for name, value in terms.items() if name not in LASTING)
        rarely = sum(value for name, value in terms.items() if name in RARELY)
        first = total if first is None else first
        most = steps if total <= WORSE * first and rarely <= total / 2 else most
        steps *= 2
    return most


def _unmet(found: Theorem, constants: Constants, work: Work) -> tuple[str, ...]:
    """What the theorem assumes and these estimates contradict, or do not show."""
    needs, said = found.bound.needs, []
    sigma, zeta = constants.sigma.value, constants.zeta.value
    if "convex" in needs and not constants.convex:
        said.append("the loss is not convex: negative curvature was seen")
    if "alike" in needs and zeta > 0:
        said.append(f"clients differ (zeta = {zeta:.3g}): the theorem is for clients alike")
    if "everyone" in needs and work.m < work.n:
        said.append(f"{work.m} of {work.n} clients take part: the theorem is for all of them")
    if "full gradients" in needs and sigma > 0:
        said.append(f"gradients are of minibatches (sigma = {sigma:.3g}): the theorem is for full ones")
    if "smooth" in needs and not constants.smooth:
        said.append("the regularizer has no gradient")
    return (*said, found.remark) if found.remark else tuple(said)
