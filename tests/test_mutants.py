"""Methods with one line broken on purpose: for each, the named check of the conformance suite must fail.

A mutant is a method's source with a snippet replaced. Where its claims cannot see the damage, the check is
`reference`, against the recursions below: plain NumPy, one client after another, from the papers' formulas.
"""

from __future__ import annotations

import dataclasses
import inspect
import sys

import jax
import numpy as np
import pytest

import fedax
from fedax.algorithms import ALGORITHMS
from fedax.testing import check_algorithm

# -- the recursions ----------------------------------------------------------------------------------------


def scaffold(task, *, lr, server_lr, option="II"):
    x, c, c_i = task.x0, np.zeros(5), np.zeros((task.clients, 5))
    for cohort in task.cohorts:
        changes, variates = [], []
        for i in cohort:
            y = x
            for _ in range(task.steps[i]):
                y = y - lr * (task.gradient(i, y) - c_i[i] + c)
            new = task.gradient(i, x) if option == "I" else c_i[i] - c + (x - y) / (task.steps[i] * lr)
            changes.append(y - x)
            variates.append(new - c_i[i])
            c_i[i] = new
        x = x + server_lr * np.mean(changes, axis=0)
        c = c + sum(variates) / task.clients
        yield x


def fedprox(task, *, lr, mu, server_lr):
    x = task.x0
    for cohort in task.cohorts:
        ends = []
        for i in cohort:
            z = x
            for _ in range(task.steps[i]):
                z = z - lr * (task.gradient(i, z) + mu * (z - x))
            ends.append(z)
        x = x + server_lr * (np.mean(ends, axis=0) - x)
        yield x


def feddyn(task, *, lr, alpha):
    x, h, h_i = task.x0, np.zeros(5), np.zeros((task.clients, 5))
    for cohort in task.cohorts:
        ends = []
        for i in cohort:
            z = x
            for _ in range(task.steps[i]):
                z = z - lr * (task.gradient(i, z) - h_i[i] + alpha * (z - x))
            h_i[i] = h_i[i] - alpha * (z - x)
            ends.append(z)
        h = h - alpha / task.clients * sum(z - x for z in ends)
        x = np.mean(ends, axis=0) - h / alpha
        yield x


def fedspeed(task, *, lr, lam, rho, alpha, normalize=True, server="all-clients"):
    x, ghat = task.x0, np.zeros((task.clients, 5))
    for cohort in task.cohorts:
        ends = []
        for i in cohort:
            z = x
            for _ in range(task.steps[i]):
                g1 = task.gradient(i, z)
                g2 = task.gradient(i, z + rho * g1 / (np.linalg.norm(g1) if normalize else 1.0))
                z = z - lr * ((1 - alpha) * g1 + alpha * g2 - ghat[i] + (z - x) / lam)
            ghat[i] = ghat[i] - (z - x) / lam
            ends.append(z)
        whose = slice(None) if server == "all-clients" else cohort
        x = np.mean(ends, axis=0) - lam * ghat[whose].mean(axis=0)
        yield x


def feddeper(task, *, lr, rho, lam):
    x, v = task.x0, np.tile(task.x0, (task.clients, 1))
    for cohort in task.cohorts:
        ends = []
        for i in cohort:
            y = x
            for _ in range(task.steps[i]):
                pushed = y - lr * task.gradient(i, y) - rho * (v[i] + y - 2 * x)
                y, v[i] = pushed, v[i] - lr * task.gradient(i, v[i])
            v[i] = (1 - lam) * v[i] + lam * y
            ends.append(y)
        x = np.mean(ends, axis=0)
        yield x, v


def fedac(task, *, lr, mu, variant="I", augment=False):
    x = x_ag = task.x0
    for cohort in task.cohorts:
        ends = []
        for i in cohort:
            k = task.steps[i]
            gamma = np.sqrt(lr / mu) if variant == "vanilla" else max(np.sqrt(lr / (mu * k)), lr)
            alpha = 3 / (2 * gamma * mu) - 1 / 2 if variant == "II" else 1 / (gamma * mu)
            beta = (2 * alpha**2 - 1) / (alpha - 1) if variant == "II" else alpha + 1
            z, z_ag = x, x_ag
            for _ in range(k):
                z_md = z / beta + (1 - 1 / beta) * z_ag
                g = task.gradient(i, z_md) + (mu * (z_md - task.x0) if augment else 0)
                z, z_ag = (1 - 1 / alpha) * z + z_md / alpha - gamma * g, z_md - lr * g
            ends.append((z, z_ag))
        x, x_ag = np.mean(ends, axis=0)
        yield x_ag


# -- the methods, with parameters at which nothing cancels -------------------------------------------------

METHODS = {
    "SCAFFOLD": (scaffold, {"lr": 0.08, "server_lr": 0.9}),
    "FedProx": (fedprox, {"lr": 0.1, "mu": 0.6, "server_lr": 0.8}),
    "FedDyn": (feddyn, {"lr": 0.1, "alpha": 0.4}),
    "FedSpeed": (fedspeed, {"lr": 0.1, "lam": 2.5, "rho": 0.3, "alpha": 0.7}),
    "FedDeper": (feddeper, {"lr": 0.1, "rho": 0.15, "lam": 0.7}),
    "FedAc": (fedac, {"lr": 0.1, "mu": 0.3}),
}
REFERENCE = "reference"
FULL, PARTIAL = {"participation": "full", "local_steps": 5}, {"participation": "partial"}


@dataclasses.dataclass(frozen=True)
class Mutant:
    """A method, what is broken, the check that must notice, the replaced snippets, further parameters.

    The check is a name, or what a claim of the method says of itself.
    """

    method: str
    what: str
    wanted: str | dict[str, object]
    snippets: dict[str, str]
    more: dict[str, object] = dataclasses.field(default_factory=dict)

    def __str__(self):
        return f"{self.method}: {self.what}"

    @property
    def settings(self):
        return METHODS[self.method][1] | self.more

    @property
    def check(self):
        """The name of the check."""
        if isinstance(self.wanted, str):
            return self.wanted
        claims = ALGORITHMS[self.method].claims
        found = [c.text for c in claims if self.wanted.items() <= (vars(c) | dict(c.when)).items()]
        assert len(found) == 1, f"{len(found)} claims of {self.method} say {self.wanted}"
        return found[0]

    def build(self):
        """The broken class, made from the method's source."""
        module = sys.modules[ALGORITHMS[self.method].__module__]
        source = inspect.getsource(module)
        for old, new in self.snippets.items():
            assert source.count(old) == 1, f"{old!r} is {source.count(old)} times in {module.__name__}"
            source = source.replace(old, new)
        names = {"__name__": module.__name__}
        exec(compile(source, f"<{self}>", "exec"), names)
        return names[self.method]


def scaffold_mutants():
    step, variate = "oracle.grad(y) + (c - c_i))", "c_i - c + (x - y) / travelled"
    share = "c + (ctx.cohort / ctx.clients) * delta_c"
    yield "both variates' signs", FULL, {step: "oracle.grad(y) + c_i - c)"}
    yield "sign of c_i", FULL, {step: "oracle.grad(y) + c_i + c)"}
    yield "sign of c", FULL, {step: "oracle.grad(y) - c_i - c)"}
    yield "variates never applied", FULL, {step: "oracle.grad(y))"}
    yield "c never applied", FULL, {step: "oracle.grad(y) - c_i)"}
    yield "c_i never applied", FULL, {step: "oracle.grad(y) + c)"}
    yield "c_i not stored", FULL, {"new - c_i), new": "new - c_i), c_i"}
    yield "c not stored", FULL, {share: "c"}
    yield "K forgotten", FULL, {variate: "c_i - c + (x - y) / self.lr"}
    yield "c added in option II", FULL, {variate: "c_i + c + (x - y) / travelled"}
    yield "sign of x - y in option II", FULL, {variate: "c_i - c + (y - x) / travelled"}
    yield "the server's K in place of the client's", REFERENCE, {variate: "c_i - c + (x - y) / (5 * self.lr)"}
    # without m/n, c is n/m times the mean of c_i: at rest both are 0, so that the optimum is still reached
    yield "m/n forgotten", REFERENCE, {share: "c + delta_c"}
    yield "m/n upside down", REFERENCE, {share: "c + (ctx.clients / ctx.cohort) * delta_c"}
    yield "c_i+ sent without its c_i", PARTIAL, {"(y - x, new - c_i)": "(y - x, new)"}
    yield "server rate forgotten", REFERENCE, {"x + self.server_lr * delta": "x + delta"}
    at = {"oracle.full.grad(x)": "oracle.full.grad(y)"}
    yield "option I at the local model", REFERENCE, at, {"option": "I"}


def fedprox_mutants():
    term, squared = "+ self.mu * (x_i - x)", "((x_i - x) @ (x_i - x))"
    yield "sign of the term", REFERENCE, {term: "- self.mu * (x_i - x)"}
    yield "term never applied", REFERENCE, {term: ""}
    yield "gradient of the term without its half", REFERENCE, {term: "+ 2 * self.mu * (x_i - x)"}
    yield "mu forgotten", {"mu": 0.0}, {term: "+ (x_i - x)"}
    yield "norm not squared", REFERENCE, {term: f"+ self.mu * (x_i - x) / ({squared} + 1e-30) ** 0.5"}
    yield "pulled towards 0", {"local_steps": 1}, {term: "+ self.mu * x_i"}
    yield "term outside the rate", REFERENCE, {term: "+ self.mu * (x_i - x) / self.lr"}
    yield "server rate forgotten", REFERENCE, {"x + self.server_lr * delta": "x + delta"}


def feddyn_mutants():
    step = "oracle.grad(x_i) - h_i + self.alpha * (x_i - x)"
    kept, server = "h_i - self.alpha * (x_i - x)", "h - self.alpha * (ctx.cohort / ctx.clients) * delta"
    yield "sign of h_i", FULL, {step: "oracle.grad(x_i) + h_i + self.alpha * (x_i - x)"}
    yield "h_i never applied", FULL, {step: "oracle.grad(x_i) + self.alpha * (x_i - x)"}
    yield "sign of the term", REFERENCE, {step: "oracle.grad(x_i) - h_i - self.alpha * (x_i - x)"}
    yield "alpha forgotten in the term", REFERENCE, {step: "oracle.grad(x_i) - h_i + (x_i - x)"}
    yield "term never applied", REFERENCE, {step: "oracle.grad(x_i) - h_i"}
    yield "h_i not stored", FULL, {f"x_i - x, {kept}": "x_i - x, h_i"}
    yield "sign of h_i's change", FULL, {f"x_i - x, {kept}": "x_i - x, h_i + self.alpha * (x_i - x)"}
    yield "alpha forgotten in h_i", REFERENCE, {f"x_i - x, {kept}": "x_i - x, h_i - (x_i - x)"}
    yield "sign of h", FULL, {server: "h + self.alpha * (ctx.cohort / ctx.clients) * delta"}
    yield "m/n forgotten in h", REFERENCE, {server: "h - self.alpha * delta"}
    yield "alpha forgotten in h", REFERENCE, {server: "h - (ctx.cohort / ctx.clients) * delta"}
    yield "h not stored", FULL, {"h / self.alpha, h\n": "h / self.alpha, server[1]\n"}
    yield "h never applied", FULL, {"x + delta - h / self.alpha": "x + delta"}
    yield "sign of h in x", FULL, {"x + delta - h / self.alpha": "x + delta + h / self.alpha"}
    yield "alpha forgotten in x", REFERENCE, {"x + delta - h / self.alpha": "x + delta - h"}


def fedspeed_mutants():
    feddyn, server_line = {"to": "FedDyn", "rho": 0.0}, {"server": "all-clients"}
    full, printed = FULL | server_line | {"lam": 1.0}, FULL | {"server": "cohort"}
    step = "quasi - ghat_i + (x_i - x) / self.lam"
    kept, server = "ghat_i = ghat_i - (x_i - x) / self.lam", "(ctx.cohort / ctx.clients) * delta / self.lam"
    size = "self.rho / maximum(norm(g1), TINY) if"
    yield "sign of ghat_i", feddyn, {step: "quasi + ghat_i + (x_i - x) / self.lam"}
    yield "ghat_i never applied", full, {step: "quasi + (x_i - x) / self.lam"}
    yield "sign of the term", feddyn, {step: "quasi - ghat_i - (x_i - x) / self.lam"}
    yield "lam for 1 / lam in the step", feddyn, {step: "quasi - ghat_i + (x_i - x) * self.lam"}
    yield "term never applied", feddyn, {step: "quasi - ghat_i"}
    yield "ghat_i not stored", full, {kept: "pass"}
    yield "sign of ghat_i's change", full, {kept: kept.replace("i - (", "i + (")}
    yield "lam for 1 / lam in ghat_i", feddyn, {kept: kept.replace("/", "*")}
    yield "m/n forgotten in ghat", REFERENCE, {server: "delta / self.lam"}
    yield "lam forgotten in ghat", feddyn, {server: "(ctx.cohort / ctx.clients) * delta"}
    yield "sign of ghat", full, {"ghat = ghat - (": "ghat = ghat + ("}
    yield "ghat not stored", full, {"self.lam * ghat, ghat\n": "self.lam * ghat, server[1]\n"}
    yield "ghat never applied", full, {"x + delta - self.lam * ghat": "x + delta"}
    yield "lam forgotten in x", feddyn, {"x + delta - self.lam * ghat": "x + delta - ghat"}
    yield "sign of the perturbation", REFERENCE, {"x_i + rho * g1": "x_i - rho * g1"}
    yield "perturbation never applied", REFERENCE, {"x_i + rho * g1": "x_i"}
    yield "perturbation not normalised", REFERENCE, {size: "self.rho if"}
    yield "perturbation always normalised", REFERENCE, {"if self.normalize": "if True"}, {"normalize": False}
    swapped = {"(1 - self.alpha) * g1 + self.alpha * g2": "self.alpha * g1 + (1 - self.alpha) * g2"}
    yield "g1 and g2 swapped", {"to": "FedDyn", "alpha": 0.0}, swapped
    yield "sign of lam ghat_i as printed", printed, {"x_i - self.lam * ghat_i - x": "x_i + self.lam * ghat_i - x"}
    late = {"x_i - self.lam * ghat_i - x": "x_i - ghat_i - x"}
    yield "lam forgotten as printed", REFERENCE, late, {"server": "cohort"}


def feddeper_mutants():
    push, own, kept = (
        "- self.rho * (v + y - 2 * x)",
        "v - self.lr * oracle.grad(v)",
        "(1 - self.lam) * v + self.lam * y",
    )
    first = {"y, v = local\n        pushed": f"y, v = local\n        v = {own}\n        pushed"}
    yield "line 8 before line 7", REFERENCE, {f"return pushed, {own}": "return pushed, v"} | first
    yield "sign of rho", REFERENCE, {push: "+ self.rho * (v + y - 2 * x)"}
    yield "term never applied", REFERENCE, {push: ""}
    yield "rho within the rate", REFERENCE, {push: "- self.lr * self.rho * (v + y - 2 * x)"}
    yield "rho forgotten", {"rho": 0.0}, {push: "- (v + y - 2 * x)"}
    yield "x for 2 x", {"lam": 1.0}, {push: "- self.rho * (v + y - x)"}
    yield "sign of y in the term", REFERENCE, {push: "- self.rho * (v - y)"}
    yield "v never trained", REFERENCE, {own: "v"}
    yield "v trained at y", REFERENCE, {own: "v - self.lr * oracle.grad(y)"}
    yield "lam swapped", REFERENCE, {kept: "self.lam * v + (1 - self.lam) * y"}
    yield "v not stored", REFERENCE, {kept: "client"}
    yield "v not mixed", REFERENCE, {kept: "v"}
    yield "v starts at x in each round", REFERENCE, {"return x, v\n": "return x, x\n"}
    yield "v uploaded", {"rho": 0.0}, {"return y - x,": "return v - x,"}
    yield "the shared model reported as personal", REFERENCE, {"        return v\n": "        return x\n"}


def fedac_mutants():
    md, x = "by_beta * x + (1 - by_beta) * x_ag", "(1 - by_alpha) * x + by_alpha * x_md - gamma * g"
    both = "server[0] + upload[0], server[1] + upload[1]"
    two = {"variant": "II"}
    yield "x reported for x_ag", REFERENCE, {"x_ag: Vector = server[1]": "x_ag: Vector = server[0]"}
    yield "x and x_ag swapped at the start of a step", REFERENCE, {"x, x_ag = local": "x_ag, x = local"}
    yield "beta the wrong way round", REFERENCE, {md: "(1 - by_beta) * x + by_beta * x_ag"}
    yield "beta forgotten, x", REFERENCE, {md: "x"}
    yield "beta forgotten, x_ag", REFERENCE, {md: "x_ag"}
    yield "alpha the wrong way round", REFERENCE, {x: "by_alpha * x + (1 - by_alpha) * x_md - gamma * g"}
    yield "alpha forgotten, x", REFERENCE, {x: "x - gamma * g"}
    yield "alpha forgotten, x_md", REFERENCE, {x: "x_md - gamma * g"}
    yield "lr for gamma", REFERENCE, {x: x.replace("gamma", "self.lr")}
    yield "gamma for lr", REFERENCE, {"x_md - self.lr * g": "x_md - gamma * g"}
    yield "x_ag from x_ag", REFERENCE, {"x_md - self.lr * g": "x_ag - self.lr * g"}
    yield "K forgotten in gamma", REFERENCE, {"self.coefficients(ctx.steps)": "self.coefficients(1)"}
    floor = {"import Vector, maximum, sqrt\n": "import Vector, sqrt\nmaximum = lambda a, b: a\n"}
    yield "gamma may fall below lr", {"to": "FedAvg"}, floor
    yield "mu forgotten in alpha", REFERENCE, {"share = gamma * self.mu": "share = gamma"}
    yield "beta = alpha", REFERENCE, {"share / (1 + share)": "share"}
    yield "only x_ag averaged", REFERENCE, {both: "server[0], server[1] + upload[1]"}
    yield "only x averaged", REFERENCE, {both: "server[0] + upload[0], server[1]"}
    yield "II: beta without its -1", REFERENCE, {"2 * alpha**2 - 1)": "2 * alpha**2)"}, two
    yield "II: alpha without its -1/2", REFERENCE, {"1.5 / share - 0.5": "1.5 / share"}, two
    yield "II: parameters of I", REFERENCE, {'if self.variant == "II"': "if False"}, two
    slow = {"variant": "vanilla"}
    yield "vanilla: gamma of I", REFERENCE, {'if self.variant == "vanilla"': "if False"}, slow
    pulled = {"g + self.mu * (x_md - x0)": "g - self.mu * (x_md - x0)"}
    yield "augment: sign of the term", REFERENCE, pulled, {"augment": True}
    yield "augment: term at x", REFERENCE, {"self.mu * (x_md - x0)": "self.mu * (x - x0)"}, {"augment": True}


MUTANTS = [
    Mutant(method, *fields)
    for method, mutants in {
        "SCAFFOLD": scaffold_mutants,
        "FedProx": fedprox_mutants,
        "FedDyn": feddyn_mutants,
        "FedSpeed": fedspeed_mutants,
        "FedDeper": feddeper_mutants,
        "FedAc": fedac_mutants,
    }.items()
    for fields in mutants()
]
SOUND = {(m.method, str(m.wanted), str(m.more)): m for m in MUTANTS}


@pytest.fixture(autouse=True, scope="module")
def quick():
    """Each program is compiled for a few milliseconds of work: leave out most of the optimisation."""
    before = jax.config.read("jax_disable_most_optimizations")
    jax.config.update("jax_disable_most_optimizations", True)
    yield
    jax.config.update("jax_disable_most_optimizations", before)


def examine(cls, mutant):
    """What the one check that must notice says."""
    follow = METHODS[mutant.method][0]
    reference = lambda task: follow(task, **mutant.settings)  # noqa: E731
    algorithm = cls(**mutant.settings)
    (check,) = check_algorithm(algorithm, checks=[mutant.check], reference=reference).checks
    return check


@pytest.mark.parametrize("mutant", SOUND.values(), ids=lambda m: f"{m.method}: {m.wanted} {m.more or ''}")
def test_the_method_itself_passes(mutant):
    check = examine(getattr(fedax, mutant.method), mutant)
    assert check.status == "passed", check.detail


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_mutant_is_rejected(mutant):
    check = examine(mutant.build(), mutant)
    assert check.status == "failed"
    assert "Error" not in check.detail, f"broken, but not in the way that was meant: {check.detail}"
