"""The personal methods against their papers' recursions in plain NumPy, and mutants that must leave them."""

from __future__ import annotations

import numpy as np
import pytest

import fedax
from fedax.testing import check_algorithm
from test_mutants import Mutant
from test_mutants import quick as quick  # a fixture


def apfl(task, *, lr, alpha, radius, pull):
    ball = lambda x: x * min(1.0, radius / np.linalg.norm(x))  # noqa: E731
    w, v, a = task.x0, np.tile(task.x0, (task.clients, 1)), np.full(task.clients, alpha)
    for cohort in task.cohorts:
        ends = []
        for i in cohort:
            y = w
            for k in range(task.steps[i]):
                g = task.gradient(i, a[i] * v[i] + (1 - a[i]) * y)
                new = ball(v[i] - lr * a[i] * g)
                if k == 0:
                    a[i] = np.clip(a[i] - lr * ((v[i] - y) @ g + pull * a[i]), 0, 1)
                v[i], y = new, ball(y - lr * task.gradient(i, y))
            ends.append(y)
        w = np.mean(ends, axis=0)
        yield w, a[:, None] * v + (1 - a[:, None]) * w


def ditto(task, *, lr, lam, personal_lr):
    x, v = task.x0, np.tile(task.x0, (task.clients, 1))
    for cohort in task.cohorts:
        ends = []
        for i in cohort:
            y = x
            for _ in range(task.steps[i]):
                y = y - lr * task.gradient(i, y)
                v[i] = v[i] - personal_lr * (task.gradient(i, v[i]) + lam * (v[i] - x))
            ends.append(y)
        x = np.mean(ends, axis=0)
        yield x, v


def pfedme(task, *, lr, lam, inner_lr, inner_steps, beta, own="rounds"):
    def theta(i, w):
        z = w
        for _ in range(inner_steps):
            z = z - inner_lr * (task.gradient(i, z) + lam * (z - w))
        return z

    x, kept = task.x0, np.tile(task.x0, (task.clients, 1))
    for cohort in task.cohorts:
        ends = []
        for i in cohort:
            w = x
            for _ in range(task.steps[i]):
                kept[i] = theta(i, w)
                w = w - lr * lam * (w - kept[i])
            ends.append(w)
        x = (1 - beta) * x + beta * np.mean(ends, axis=0)
        yield x, np.array([theta(i, x) for i in range(task.clients)]) if own == "server" else kept


def perfedavg(task, *, lr, alpha, order="exact"):
    x, kept = task.x0, np.tile(task.x0, (task.clients, 1))
    for cohort in task.cohorts:
        ends = []
        for i in cohort:
            w = x
            for _ in range(task.steps[i]):
                a = w - alpha * task.gradient(i, w)
                g = task.gradient(i, a)
                if order == "two-steps":
                    w = kept[i] = a - lr * g
                    continue
                w = w - lr * (g - (0 if order == "first" else alpha) * task.A[i] @ g)
            ends.append(w)
        x = np.mean(ends, axis=0)
        adapted = np.array([x - alpha * task.gradient(i, x) for i in range(task.clients)])
        yield x, kept if order == "two-steps" else adapted


METHODS = {
    "APFL": (apfl, {"lr": 0.15, "alpha": 0.4, "radius": 3.0, "pull": 0.3}, {"adaptive": True}),
    "Ditto": (ditto, {"lr": 0.1, "lam": 0.6, "personal_lr": 0.2}, {}),
    "PFedMe": (pfedme, {"lr": 0.2, "lam": 1.5, "inner_lr": 0.2, "inner_steps": 3, "beta": 1.3}, {}),
    "PerFedAvg": (perfedavg, {"lr": 0.1, "alpha": 0.3}, {}),
}


def apfl_mutants():
    along, learnt = "return oracle.mixed(v, w, alpha)", "along_alpha + self.pull * alpha"
    g = "g = oracle.grad(self._mixed(v, w, alpha)); "
    yield "the chain rule's alpha forgotten", {along: g + "return g, (v - w) @ g"}
    yield "sign of v - w", {along: g + "return alpha * g, (w - v) @ g"}
    yield (
        "alpha and 1 - alpha swapped",
        {"alpha * v + (1 - alpha) * w\n        return vbar": "(1 - alpha) * v + alpha * w\n        return vbar"},
    )
    yield "pull never applied", {learnt: "along_alpha"}
    yield "sign of pull", {learnt: "along_alpha - self.pull * alpha"}
    yield "alpha learnt in every step", {"learn=ctx.step == 0": "learn=True"}
    yield "alpha not stored", {"where(learn, scalar(learnt, w), alpha)": "alpha"}
    yield "alpha not clipped", {", 0.0, 1.0)": ", -9.0, 9.0)"}
    yield "v not projected", {"new = self._project(v - self.lr * along_v)": "new = v - self.lr * along_v"}
    yield "w not projected", {"self._project(w - self.lr * oracle.grad(w))": "w - self.lr * oracle.grad(w)"}
    yield "v reported without w", {"return self._mixed(v, w, alpha)\n\n    def join": "return v\n\n    def join"}


def ditto_mutants():
    pull = "+ self.lam * (v - x)"
    yield "sign of the pull", {pull: "- self.lam * (v - x)"}
    yield "pull never applied", {pull: ""}
    yield "pull doubled", {pull: "+ 2 * self.lam * (v - x)"}
    yield "pulled towards x_i", {"self.pulled(v, x, oracle) if": "self.pulled(v, x_i, oracle) if"}
    yield "the shared rate", {"self.lr if self.personal_lr is None else self.personal_lr": "self.lr"}
    yield "v starts at x in each round", {"return x, v\n": "return x, x\n"}
    yield "v uploaded", {"return x_i - x, v if": "return v - x, v if"}
    yield "the shared model reported as personal", {"        return v\n": "        return x\n"}


def pfedme_mutants():
    pull, outer = "+ self.lam * (theta - w)", "self.lam * (w - theta))"
    here = 'theta if self.own == "rounds" else own'
    yield "sign of the pull", {pull: "- self.lam * (theta - w)"}
    yield "pull never applied", {pull: ""}
    yield "lam forgotten in w's step", {outer: "w - theta)"}
    yield "sign of w's step", {outer: "self.lam * (theta - w))"}
    yield "theta for w", {f"w - self.lr * ({outer}": "theta"}
    yield "w kept for theta", {here: here.replace("theta", "w")}
    yield "theta not kept", {here: "own"}
    yield "beta forgotten", {"x + self.beta * delta": "x + delta"}
    yield "one inner step", {"repeat(self.inner_steps,": "repeat(1,"}
    yield (
        "the shared model reported as personal",
        {'client if self.own == "rounds" else self.theta(x, oracle.full)': "x"},
        {"own": "server"},
    )


def perfedavg_mutants():
    curved = "g - self.alpha * self._curvature(w, g, oracle.fresh(2))"
    yield "sign of the Hessian", {curved: curved.replace("g -", "g +")}
    yield "Hessian never applied", {curved: "g"}
    yield "alpha forgotten", {curved: curved.replace("self.alpha * ", "")}
    yield "Hessian at the adapted point's gradient", {"self._curvature(w, g,": "self._curvature(w, oracle.grad(w),"}
    yield "gradient at w", {"g = oracle.grad(a)": "g = oracle.grad(w)"}
    yield "adapted uphill", {"return w - self.alpha * oracle.grad(w)": "return w + self.alpha * oracle.grad(w)"}
    yield "half the difference", {"(2 * self.delta)": "self.delta"}, {"order": "hessian-free"}
    yield (
        "Hessian kept",
        {'if self.order == "first":\n            return': "if False:\n            return"},
        {"order": "first"},
    )
    yield "the shared model reported as personal", {"client if self.keeps else self.adapted(w, oracle.full)": "w"}
    two = {"order": "two-steps"}
    yield "the second step from w", {"return a - self.lr * g": "return w - self.lr * g"}, two
    yield "own model not kept", {"w if self.keeps else client": "client"}, two


MUTANTS = [
    (Mutant(method, what, "reference", snippets), (more or [{}])[0])
    for method, mutants in {
        "APFL": apfl_mutants,
        "Ditto": ditto_mutants,
        "PFedMe": pfedme_mutants,
        "PerFedAvg": perfedavg_mutants,
    }.items()
    for what, snippets, *more in mutants()
]
VARIANTS = [
    *((name, {}) for name in METHODS),
    *(("PerFedAvg", {"order": order}) for order in ("first", "hessian-free", "two-steps")),
    ("PFedMe", {"own": "server"}),
]


def examine(cls, method, more):
    """What the recursion in NumPy says of a class."""
    follow, numbers, choices = METHODS[method]
    told = numbers | {k: v for k, v in more.items() if v in ("first", "two-steps", "server")}
    (check,) = check_algorithm(
        cls(**numbers, **choices, **more), checks=["reference"], reference=lambda task: follow(task, **told)
    ).checks
    return check


@pytest.mark.parametrize(("method", "more"), VARIANTS, ids=str)
def test_a_method_follows_its_papers_recursion(method, more):
    check = examine(getattr(fedax, method), method, more)
    assert check.status == "passed", check.detail


@pytest.mark.parametrize(("mutant", "more"), MUTANTS, ids=str)
def test_a_mutant_leaves_it(mutant, more):
    check = examine(mutant.build(), mutant.method, more)
    assert check.status == "failed"
    assert "Error" not in check.detail, f"broken, but not in the way that was meant: {check.detail}"
