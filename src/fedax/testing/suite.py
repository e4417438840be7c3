"""The conformance suite: everything a method promises by following the contract, and everything it claims."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable

import jax

from fedax.algorithms.base import Algorithm
from fedax.errors import FedaxError, unknown
from fedax.own_code import place, words
from fedax.runtime import configure
from fedax.testing import aggregation_checks, claim_checks, contract_checks, key_checks, whole_runs
from fedax.testing.driven_run import Subject
from fedax.testing.findings import Broken, Check, Report, Skipped

Body = Callable[[Subject], str]
CHECKS: dict[str, Body] = {
    "purity": contract_checks.purity,
    "shapes": contract_checks.shapes,
    "cost": contract_checks.cost,
    "identity": contract_checks.identity,
    "determinism": whole_runs.determinism,
    "client order": whole_runs.client_order,
    "executors": whole_runs.executors,
    "aggregation": aggregation_checks.aggregation,
    "keys": key_checks.keys,
    "sitting out": whole_runs.sitting_out,
    "unequal steps": whole_runs.unequal_steps,
    "compilation": whole_runs.compilation,
    "save and load": whole_runs.save_and_load,
    "progress": claim_checks.progress,
}
CLAIMS, REFERENCE = "claims", "reference"
#: What usually mends a check that failed.
REMEDIES = {
    "purity": "return new values and keep nothing on the method; what a round needs is in the states",
    "shapes": "let every function return the shapes and dtypes that init, client_init and begin made",
    "cost": "count only the gradients that the oracle is asked for",
    "identity": "let the fields alone decide what the method does, so that two of the same fields are equal",
    "determinism": "draw from ctx.key alone, never from NumPy's or Python's generators",
    "client order": "let a client's work depend on its number and the round, not on who ran before it",
    "executors": 'executor="debug" runs the clients one by one in Python; look for what clients share',
    "aggregation": "let the rule weigh clients by their weights, and by nothing else",
    "keys": "draw from ctx.key or ctx.common_key(), which know the run's seed",
    "sitting out": "change a client's state in finish alone",
    "unequal steps": "use ctx.steps, the client's own number of steps",
    "compilation": "declare hyper-parameters by rate() and number(): another value is then data",
    "save and load": "keep only arrays in the states",
    "progress": "try a smaller rate; then look at the sign of the update",
}


def check_algorithm(
    algorithm: Algorithm,
    *,
    seed: int = 0,
    checks: Iterable[str] | None = None,
    reference: claim_checks.Reference | None = None,
) -> Report:
    """Check that a method keeps the contract and is what it claims to be.

    algorithm: the method, with hyper-parameters that suit quadratics of curvature 0.5 to 2 (a rate of 0.05, say).
    seed: of the random problems.
    checks: names of checks to run: purity, shapes, cost, identity, determinism, client order,
        executors, aggregation, keys, sitting out, unequal steps, compilation, save and load, progress, claims
        (all of them, or one by its text), reference; None for all.
    reference: another implementation, in plain NumPy for one: a function of a `Task` that gives, after each
        round, the shared model or the pair of it and all personal models.

    A check that breaks off with an error has failed, and points to the first one with the same error. All run in double
    precision; `shapes` looks at single too.

    >>> import fedax
    >>> report = check_algorithm(fedax.FedProx(lr=0.05, mu=0.1), checks=["cost"])
    >>> print(report)
    FedProx(lr=0.05, mu=0.1, server_lr=1.0, norm='squared'): 1 passed
    passed   cost  down d, up d, a client keeps 0; gradients: 1 a local step
    """
    configure()
    if not isinstance(algorithm, Algorithm):
        raise FedaxError(f"algorithm must be a fedax.Algorithm such as FedAvg(lr=0.1), not {algorithm!r}")
    claimed = {c.text: functools.partial(claim_checks.claim, claimed=c) for c in algorithm.claims}
    bodies: dict[str, Body] = {**CHECKS, **claimed}
    if reference is not None:
        bodies[REFERENCE] = functools.partial(claim_checks.reference, follow=reference)
    subject = Subject(algorithm, seed)
    wanted = list(bodies) if checks is None else _named(checks, bodies, list(claimed))
    errors: dict[str, str] = {}
    with jax.enable_x64(True):
        return Report(repr(algorithm), [_run(name, bodies[name], subject, errors) for name in wanted])


def _named(checks: Iterable[str], bodies: dict[str, Body], claimed: list[str]) -> list[str]:
    wanted: list[str] = []
    for name in checks:
        if name != CLAIMS and name not in bodies:
            raise unknown("check", name, [*CHECKS, CLAIMS, *claimed, *(n for n in bodies if n == REFERENCE)])
        wanted += claimed if name == CLAIMS else [name]
    return wanted


def _run(name: str, body: Body, subject: Subject, errors: dict[str, str]) -> Check:
    """Run one check. errors: by its sentence, the check that broke off with it first; later ones point there."""
    try:
        return Check(name, "passed", body(subject))
    except Skipped as reason:
        return Check(name, "skipped", str(reason))
    except Broken as broken:
        detail = str(broken)
        return Check(name, "failed", f"{detail}. To mend it: {REMEDIES[name]}." if name in REMEDIES else detail)
    except Exception as error:
        whose = place(error)
        said = words(error).removeprefix("FedaxError: ")
        detail = said if isinstance(error, FedaxError) else f"{whose or subject.name} raises {said}"
        first = errors.setdefault(detail, name)
        if first != name:
            return Check(name, "failed", f"breaks off with the same error as {first}")
        return Check(name, "failed", f"{detail}. To mend it: begin with this error, before which no check can run.")
