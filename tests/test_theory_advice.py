"""The adviser: estimates against constants known exactly, proposals against the theorems, and the commands."""

from __future__ import annotations

import csv
import math
import os
import re
import tomllib
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.linear_model import Lasso

import fedax
from fedax.bounds import feddeper_theorem_1, proposition_2_1, theorem_3_1
from fedax.bounds.base import LASTING, RARELY
from fedax.cli import invoke
from fedax.cli.theory import to_toml
from fedax.errors import FedaxError
from fedax.evaluation.curvature import largest
from fedax.experiments import read
from fedax.experiments.building import prepare
from fedax.experiments.file_tables import AlgorithmTable
from fedax.papers.reproductions.a9a_table import problem as logistic
from fedax.papers.theory import Constants, Estimate, Work, advise, estimate, lower_bound_instance
from fedax.papers.theory.advice import with_theorem
from fedax.papers.theory.drawings import PICTURES
from fedax.papers.theory.trial import Trial
from fedax.regularizers import L1, SquaredL2
from fedax.vectors import Vector

GRID = Path(__file__).parent.parent / "experiments" / "results" / "fedac-a9a-rates.csv"
FLOWERS = """
rounds = 20
local_steps = 4
batch_size = 5
data = { name = "iris", partition = { name = "ByLabel", clients = 3, labels = 2 } }
model = { name = "logistic" }
problem.regularizer = { name = "SquaredL2", strength = 0.01, on = "all" }
[[algorithm]]
name = "FedAvg"
lr = 9.0
label = "the first"
[[algorithm]]
name = "SCAFFOLD"
lr = 0.25
"""


FLAGS = {"convex": True, "smooth": True, "quadratic": False}


def known(**values):
    """Constants without doubt."""
    given = {"L": 1.0, "mu": 0.01, "sigma": 1.0, "zeta": 0.0, "B": 2.0, "Delta": 1.0, "G": 5.0} | values
    flags = {name: given.pop(name, default) for name, default in FLAGS.items()}
    return Constants(**{k: Estimate(v, v, v, "known") for k, v in given.items()}, **flags)


def quadratics(seed=0, clients=5, rows=6, dimension=4):
    """f(x; row) = (x - b)' A_i (x - b) / 2: every constant from linear algebra."""
    rng = np.random.default_rng(seed)
    made, curvatures = [], []
    for _ in range(clients):
        q, _ = np.linalg.qr(rng.normal(size=(dimension, dimension)))
        A = q @ np.diag(rng.uniform(0.5, 3.0, dimension)) @ q.T
        curvatures.append(A)
        made.append(
            {"A": np.tile(A, (rows, 1, 1)), "b": rng.normal(size=(rows, dimension)) + rng.normal(size=dimension)}
        )

    def loss(x, batch):
        d = x - batch["b"]
        return jnp.mean(jnp.einsum("ni,nij,nj->n", d, batch["A"], d)) / 2

    problem = fedax.Problem(loss=loss, init=lambda key: jnp.zeros(dimension))
    return problem, fedax.Federation.from_clients(made), np.array(curvatures), np.array([m["b"] for m in made])


def test_the_estimates_are_the_constants(x64):
    problem, federation, A, b = quadratics()
    batch = 2
    found = estimate(problem, federation, batch_size=batch)
    best = np.linalg.solve(A.sum(0), np.einsum("nij,nkj->i", A, b) / b.shape[1])
    mean = A.mean(0)
    assert found.convex
    assert found.smooth
    assert found.quadratic
    assert found.L.value == pytest.approx(max(np.linalg.eigvalsh(a).max() for a in A), rel=1e-3)
    least = np.linalg.eigvalsh(mean).min()
    assert found.mu.low <= least * (1 + 1e-9)
    assert found.mu.value == pytest.approx(least, rel=0.02)
    assert found.B.value == pytest.approx(np.linalg.norm(best), rel=1e-4)

    def height(x):
        d = x - b
        return np.einsum("nki,nij,nkj->", d, A, d) / 2 / b[..., 0].size

    assert found.Delta.value == pytest.approx(height(0 * best) - height(best), rel=1e-4)
    noise = np.einsum("nij,nkj->nki", A, b - b.mean(1, keepdims=True))  # a row's gradient minus its client's: any x
    assert found.sigma.value == pytest.approx(math.sqrt((noise**2).sum(2).mean() / batch), rel=1e-4)
    points = (0 * best, best, best / 2)
    apart = max(
        np.linalg.norm(A[i] @ (x - b[i].mean(0)) - np.mean([A[j] @ (x - b[j].mean(0)) for j in range(5)], 0))
        for i in range(5)
        for x in points
    )
    assert found.zeta.value == pytest.approx(apart, rel=1e-4)
    for shown in found.shown().values():
        assert shown.low <= shown.value <= shown.high


def test_the_estimates_of_a_lower_bound_instance():
    made = lower_bound_instance(L=2.0, B=4.0, sigma=0.5, clients=4, local_steps=4, rounds=10, zeta=1.5)
    found = estimate(made.problem, made.federation, batch_size=1)
    assert found.L.value == pytest.approx(2.0, rel=1e-3)
    assert found.sigma.value == pytest.approx(0.5, rel=1e-3)
    assert found.zeta.value == pytest.approx(1.5, rel=1e-3)
    assert found.B.value == pytest.approx(np.linalg.norm(made.start), rel=1e-3)
    assert found.convex


def test_a_ridge_penalty_is_a_floor_under_mu_and_belongs_to_l():
    problem, federation, A, _ = quadratics()
    ridge = fedax.Problem(loss=problem._batch_loss, init=problem._init, regularizer=SquaredL2(0.7, on="all"))
    found = estimate(ridge, federation)
    assert found.mu.value == 0.7
    assert found.mu.high == pytest.approx(np.linalg.eigvalsh(A.mean(0)).min() + 0.7, rel=0.02)
    assert found.L.value == pytest.approx(max(np.linalg.eigvalsh(a).max() for a in A) + 0.7, rel=1e-3)
    assert found.sigma.value == 0


def test_the_minimiser_of_a_lasso_is_scikit_learns():
    rng = np.random.default_rng(0)
    x = rng.normal(size=(60, 8))
    y = x @ np.array([2.0, -1, 0, 0, 0, 0, 0, 0]) + 0.1 * rng.normal(size=60)
    problem = fedax.Problem((lambda key, x: jnp.zeros(8), lambda w, x: x @ w), loss="squared", regularizer=L1(0.2))
    found = estimate(problem, fedax.Federation.from_clients([{"x": x, "y": y}]))
    w = Lasso(alpha=0.2, fit_intercept=False, tol=1e-12).fit(x, y).coef_
    assert found.B.value == pytest.approx(np.linalg.norm(w), rel=1e-3)
    assert not found.smooth
    proposed = {p.method: p for p in advise(found, Work(1, 1, 4, 50))}
    assert "FedDualAvg" in proposed
    assert "the regularizer has no gradient" in proposed["FedAvg"].unmet


def test_negative_curvature_is_seen():
    problem = fedax.Problem(loss=lambda x, b: jnp.mean(b["a"] * jnp.cos(x)), init=lambda key: jnp.zeros(()) + 0.3)
    found = estimate(problem, fedax.Federation.from_clients([{"a": np.ones(4)}]), batch_size=1)
    assert not found.convex
    assert found.mu.value == 0
    assert found.L.value == pytest.approx(1, rel=0.01)
    assert not found.quadratic
    ac = {p.method: p for p in advise(found, Work(1, 1, 2, 50))}
    assert "the loss is not convex: negative curvature was seen" in ac["FedAc"].unmet
    assert ac["FedAvg"].bound.theorem == "Theorem 2.22"


def test_slight_negative_curvature_is_seen_beside_a_steep_place():
    # curvature 108 at the start, and -0.05 at 0 alone of the points that are looked at
    problem = fedax.Problem(
        loss=lambda x, b: jnp.mean(b["a"]) * (x[0] ** 4 + 0.05 * jnp.cos(x[1])), init=lambda key: jnp.array([3.0, 2.5])
    )
    found = estimate(problem, fedax.Federation.from_clients([{"a": np.ones(4)}]), batch_size=1)
    assert not found.convex
    assert found.L.value == pytest.approx(108, rel=0.01)


def test_power_iteration_gives_the_largest_in_size():
    value, error = largest(lambda v: Vector(jnp.array([1.0, -4.0, 2.0]) * v.tree), Vector(jnp.zeros(3)), 200)
    assert value == pytest.approx(-4, rel=1e-3)
    assert error < 1e-2


def test_power_iteration_on_a_tree_is_that_on_its_vector():
    rng = np.random.default_rng(0)
    half = rng.normal(size=(5, 5))
    A = half @ half.T

    def product(v):
        w = A @ jnp.concatenate([v.tree["a"], v.tree["b"].ravel()])
        return Vector({"a": w[:3], "b": w[3:].reshape(2, 1)})

    value, error = largest(product, Vector({"a": jnp.zeros(3), "b": jnp.zeros((2, 1))}), 200)
    assert value == pytest.approx(np.linalg.eigvalsh(A).max(), rel=1e-3)
    assert error < 0.01 * value


def test_proposals_are_the_theorems_own():
    constants, work = known(zeta=0.5), Work(n=8, m=8, K=5, R=40)
    found = {p.method: p for p in advise(constants, work)}
    expected = proposition_2_1(L=1.0, B=2.0, sigma=1.0, zeta=0.5, M=8, K=5, R=40)
    assert found["FedAvg"].settings == {"lr": expected.lr}
    assert found["FedAvg"].bound == expected
    assert found["FedAvg"].unmet == ()
    ac = theorem_3_1(L=1.0, mu=0.01, sigma=1.0, potential=1.02, M=8, K=5, R=40)
    assert found["FedAc"].settings == {"lr": ac.lr, "mu": 0.01}
    assert found["FedAc"].unmet == ("clients differ (zeta = 0.5): the theorem is for clients alike",)
    for proposal in found.values():
        fedax.algorithms.build(proposal.method, **{k: v for k, v in proposal.settings.items() if k != "lr"}, lr=0.1)
        assert proposal.bound.dominant in proposal.bound.terms
        assert proposal.local_steps >= 1


THEOREMS = {  # of FedAvg, FedAc, APFL and FedDualAvg
    "strongly convex": ({}, "Proposition 2.1", "Theorem 3.1(a)", "APFL, Theorem 2", "Theorem 4.4"),
    "convex": ({"mu": 0.0}, "Proposition 2.1", "Theorem B.21", "APFL, Theorem 3", "Theorem 4.4"),
    "quadratic": ({"quadratic": True}, "Proposition 2.1", "Theorem 3.1(a)", "APFL, Theorem 2", "Theorem 4.7"),
    "not convex": ({"mu": 0.0, "convex": False}, "Theorem 2.22", "Theorem B.21", "APFL, Theorem 3", "Theorem 4.4"),
    "full gradients": ({"sigma": 0.0}, "Proposition 2.1", "Theorem 3.1(a)", "APFL, Theorem 2", "Theorem 4.4"),
    "lasso": ({"smooth": False, "mu": 0.0}, "Proposition 2.1", "Theorem B.21", "APFL, Theorem 3", "Theorem 4.4"),
}


@pytest.mark.parametrize("case", THEOREMS)
def test_every_method_with_a_theorem_has_a_proposal(case):
    values, avg, ac, apfl, dual = THEOREMS[case]
    found = advise(known(zeta=0.5, **values), Work(n=8, m=4, K=5, R=40))
    named = {"FedAvg": avg, "FedAc": ac, "FedDeper": "FedDeper, Theorem 1", "FedSpeed": "FedSpeed, Theorem 4.4"}
    named |= {"APFL": apfl, "FedDualAvg": dual, "FedMiD": "Theorem 4.3", "PFedFBE": "pFedFBE, Theorem 1"}
    assert {p.method: p.bound.theorem for p in found} == named
    if case == "strongly convex":
        assert {*RARELY, *LASTING} <= {name for p in found for name in p.bound.terms}  # the bounds' own names
    for p in found:
        table = AlgorithmTable(name=p.method, **p.settings)  # an experiment file takes it
        assert type(table.build()).__name__ == p.method
        assert 0 < p.bound.total < math.inf, p.method
        assert p.local_steps & (p.local_steps - 1) == 0, p.method
        of_all = any("4 of 8 clients take part" in words for words in p.unmet)
        assert of_all != (p.bound.theorem in ("FedDeper, Theorem 1", "APFL, Theorem 2", "pFedFBE, Theorem 1")), p.method
        if case == "not convex":
            assert ("not convex" in " ".join(p.unmet)) == (p.method in ("FedAc", "FedDualAvg", "FedMiD")), p.method
        if case == "lasso":
            no_gradient = "the regularizer has no gradient" in p.unmet
            assert no_gradient != (p.method in ("FedDualAvg", "FedMiD", "PFedFBE")), p.method


def test_a_constant_that_is_0_is_named():
    at_the_minimum = known(B=0.0, Delta=0.0)
    for method, name in (("FedAvg", "B"), ("FedDualAvg", "B"), ("FedMiD", "B"), ("FedDeper", "Delta")):
        with pytest.raises(FedaxError, match=f"^{method}: {name} must be above 0 and finite, not 0.0$"):
            advise(at_the_minimum, Work(2, 2, 2, 10), [method])
    for method in with_theorem():
        with pytest.raises(FedaxError, match=f"^{method}: L must be above 0 and finite, not 0.0$"):
            advise(known(L=0.0, mu=0.0), Work(2, 2, 2, 10), [method])


def test_without_strong_convexity_fedac_is_anchored():
    found = advise(known(mu=0.0), Work(n=8, m=8, K=5, R=40), ["FedAc"])[0]
    assert found.settings["augment"] is True
    assert found.bound.theorem == "Theorem B.21"


def test_the_most_local_steps_keep_the_bound_within_twice():
    constants, work = known(sigma=0.02), Work(n=64, m=64, K=4, R=256)
    found = advise(constants, work, ["FedAvg"])[0]

    def allowed(steps):
        bound = proposition_2_1(L=1.0, B=2.0, sigma=0.02, M=64, K=steps, R=1024 // steps)  # the same 1024 in all
        rarely = bound.terms["noise between averagings"]
        return bound.total <= 2 * bound_of_one and rarely <= bound.terms["distance to go"] + bound.terms["noise"]

    bound_of_one = proposition_2_1(L=1.0, B=2.0, sigma=0.02, M=64, K=1, R=1024).total
    assert 4 < found.local_steps < 1024
    assert allowed(found.local_steps)
    assert not allowed(2 * found.local_steps)
    with_difference = advise(known(sigma=0.02, zeta=3.0), work, ["FedAvg"])[0]
    assert with_difference.local_steps < found.local_steps


def test_terms_that_no_work_removes_do_not_excuse_drift():
    # most of APFL's and pFedFBE's bounds stays whatever K is: that must not make one round of all steps the advice
    work = Work(n=8, m=8, K=8, R=64)
    for p in advise(known(mu=0.0, zeta=3.0, B=50.0), work, ["APFL", "PFedFBE"]):
        assert p.local_steps <= 8, p.method
        assert max(p.bound.terms.values()) > p.bound.total / 2


def test_a_partial_cohort_is_said():
    found = advise(known(), Work(n=8, m=2, K=5, R=40), ["FedAvg"])[0]
    assert found.unmet == ("2 of 8 clients take part: the theorem is for all of them",)


def test_bad_input_is_one_sentence():
    with pytest.raises(FedaxError, match=r"^SCAFFOLD has no theorem: FedAc, "):
        advise(known(), Work(1, 1, 1, 1), ["SCAFFOLD"])
    problem, federation, *_ = quadratics()
    with pytest.raises(FedaxError, match="a Federation in memory, not on a list"):
        estimate(problem, [])
    with pytest.raises(FedaxError, match="batch_size must be a whole number from 1 on, not 0"):
        estimate(problem, federation, batch_size=0)


def test_advise_prints_and_applies(tmp_path, capsys):
    file = tmp_path / "flowers.toml"
    file.write_text(FLOWERS)
    assert invoke(["advise", str(file), "--apply"]) == 0
    shown = capsys.readouterr().out
    for words in ("sigma", "Proposition 2.1", "local steps*", "flowers-advised.toml", "APFL, Theorem 2", "Theorem 4.3"):
        assert words in shown
    before, after = read(file), read(tmp_path / "flowers-advised.toml")
    first, second = after.algorithm
    assert 0 < first.options["lr"] < 1
    assert second.options == before.algorithm[1].options  # no theorem here, and so left as it was
    assert first.label == "the first"
    apart = ("algorithm", "local_steps", "rounds", "eval_every")
    changed = {name: getattr(before, name) for name in apart}
    assert after.model_copy(update=changed) == before
    assert invoke(["advise", str(file), "--apply"]) == 2
    assert "already exists: choose another with --out" in capsys.readouterr().err
    assert invoke(["advise", str(file), "--out", "x.toml"]) == 2
    assert "it goes with --apply" in capsys.readouterr().err


@pytest.fixture
def theorem_is_taken(monkeypatch):
    """No short run: the theorem's settings are as good as any."""
    as_good = Trial(rounds=10, by_theorem=1.0, by_found=1.0, factor=1.0, found=9.0, theorem=True)
    monkeypatch.setattr(fedax.papers.theory.trial, "trial", lambda *args, **options: as_good)


def test_a_rate_that_training_rows_prefer_is_taken_and_applied(tmp_path, capsys, monkeypatch):
    """A theorem with L = 1,000 asks for steps that hardly move; the labels of test rows have no part in it."""
    monkeypatch.setattr(fedax.papers.theory, "estimate", lambda *args, **options: known(L=1000.0))
    file = tmp_path / "slow.toml"
    file.write_text(FLOWERS.replace("lr = 9.0", 'lr = { kind = "exponential", initial = 0.3, decay = 0.99 }'))
    assert invoke(["advise", str(file), "--apply"]) == 0
    shown = capsys.readouterr().out
    found = float(re.search(r"FedAvg: lr = (\S+) is taken: after 10 rounds, training loss", shown).group(1))
    assert "so short a run as 10 rounds favours large rates" in shown
    assert "local_steps = 4, rounds = 20, as they were" in shown
    lr = read(tmp_path / "slow-advised.toml").algorithm[0].options["lr"]
    assert lr == {"kind": "exponential", "initial": found, "decay": 0.99}
    assert "# FedAvg: a short run on training rows" in (tmp_path / "slow-advised.toml").read_text()


def test_the_theorem_of_a_variant_is_asked_and_not_that_of_the_default(tmp_path, capsys, monkeypatch, theorem_is_taken):
    monkeypatch.setattr(fedax.papers.theory, "estimate", lambda *args, **options: known())
    file = tmp_path / "variant.toml"
    file.write_text(FLOWERS.replace('name = "FedAvg"', 'name = "FedAc"\nmu = 0.1\nvariant = "II"'))
    assert invoke(["advise", str(file), "--apply"]) == 0
    assert "FedAc, variant II" in capsys.readouterr().out
    assert "# FedAc, variant II: Theorem 3.1(b)" in (tmp_path / "variant-advised.toml").read_text()


def test_what_apply_writes_is_the_theorems_for_the_local_steps_it_writes(
    tmp_path, capsys, monkeypatch, theorem_is_taken
):
    monkeypatch.setattr(fedax.papers.theory, "estimate", lambda *args, **options: known(sigma=0.02))
    file, out = tmp_path / "two.toml", tmp_path / "better.toml"
    deper = '\n[[algorithm]]\nname = "FedDeper"\nlr = 0.1\nrho = 0.1\n'
    sweep = "[sweep]\nlr = [0.1, 0.2]\n"
    file.write_text(FLOWERS.replace("local_steps = 4", "local_epochs = 2.0\neval_every = 20") + deper + sweep)
    assert invoke(["advise", str(file), "--apply", "--out", str(out)]) == 0
    K = math.ceil(2 * prepare(read(file))[1].train.count.mean() / 5)
    work = Work(n=3, m=3, K=K, R=20)
    avg, other = advise(known(sigma=0.02), work, ["FedAvg", "FedDeper"])
    assert avg.local_steps > other.local_steps
    shown, each = capsys.readouterr().out, f"(FedAvg {avg.local_steps}, FedDeper {other.local_steps})"
    assert f"methods: {other.local_steps}, the smallest of the proposals {each}" in shown
    assert "[sweep] goes over lr: its values take the place of the proposals" in shown
    assert "no proposal" not in shown
    after = read(out)
    assert after.local_epochs is None
    assert (after.local_steps, after.rounds) == (other.local_steps, 20 * K // other.local_steps)
    common = {"L": 1.0, "sigma": 0.02, "K": after.local_steps, "R": after.rounds}
    assert after.algorithm[0].options["lr"] == proposition_2_1(**common, B=2.0, M=3).lr
    assert after.algorithm[2].options["lr"] == feddeper_theorem_1(**common, Delta=1.0, n=3, m=3).lr


def test_a_method_without_a_proposal_says_why(tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(fedax.papers.theory, "estimate", lambda *args, **options: known(B=0.0, Delta=0.0))
    file = tmp_path / "one.toml"
    file.write_text(FLOWERS)
    assert invoke(["advise", str(file)]) == 0
    assert "no proposal for FedAvg: B must be above 0 and finite, not 0.0\n" in capsys.readouterr().out
    assert invoke(["advise", str(file), "--apply"]) == 2
    assert "there is nothing to apply" in capsys.readouterr().err
    assert not (tmp_path / "one-advised.toml").exists()


def test_a_method_without_a_theorem_has_nothing_to_apply(tmp_path, capsys):
    file = tmp_path / "one.toml"
    file.write_text(FLOWERS.replace('name = "FedAvg"', 'name = "FedDyn"\nalpha = 0.1'))
    assert invoke(["advise", str(file), "--apply"]) == 2
    assert "has a theorem to apply: FedAc, FedAvg, FedDualAvg" in capsys.readouterr().err
    assert not (tmp_path / "one-advised.toml").exists()


MINE = """
import fedax
from fedax.algorithms.base import number, rate
from fedax.bounds import Bound, Theorem

@fedax.algorithm
class Mine(fedax.FedAvg):
    lr: float = rate()
    server_lr: float = rate(default=1.0)
    weight: float = number("[0, inf)", default=1.0)

    @classmethod
    def theorem(cls, given):
        lr = 1 / (3 * given.L * given.K)
        terms = {"distance to go": given.B**2 / (lr * given.K * given.R), "drift": (lr * given.K * given.zeta) ** 2}
        bound = Bound("My Theorem 7", "E F - F*", terms, lr, ("F is convex",), needs=("everyone",))
        return Theorem(bound, {"lr": lr, "weight": given.mu}, "mu is a guess")

class Derived(Mine):
    pass

@fedax.algorithm
class Divides(fedax.FedAvg):
    @classmethod
    def theorem(cls, given):
        return 1 / (given.mu * 0)

@fedax.algorithm
class Misnames(fedax.FedAvg):
    @classmethod
    def theorem(cls, given):
        return Theorem(Bound("", "", {}, 1.0, ()), {"rate": 1.0})

@fedax.algorithm
class Silent(fedax.FedAvg):
    @classmethod
    def theorem(cls, given):
        return 0.1
"""


def test_a_theorem_of_your_own_is_advised_and_applied(tmp_path, capsys, monkeypatch, theorem_is_taken):
    monkeypatch.setattr(fedax.papers.theory, "estimate", lambda *args, **options: known(zeta=0.5))
    (tmp_path / "methods.py").write_text(MINE)
    file = tmp_path / "own.toml"
    file.write_text(FLOWERS.replace('name = "FedAvg"', 'name = "methods.py:Mine"'))
    assert invoke(["advise", str(file), "--apply"]) == 0
    shown = capsys.readouterr().out
    for words in ("My Theorem 7", "Mine: mu is a guess", "Proposition 2.1"):
        assert words in shown
    after = read(tmp_path / "own-advised.toml")
    first = after.algorithm[0]
    assert first.options == {"lr": 1 / (3 * after.local_steps), "weight": 0.01}
    assert "# Mine: My Theorem 7" in (tmp_path / "own-advised.toml").read_text()
    (tmp_path / "elsewhere").mkdir()
    other = tmp_path / "elsewhere" / "own.toml"
    assert invoke(["advise", str(file), "--apply", "--out", str(other)]) == 0
    assert read(other).algorithm[0].options == first.options
    here = f"{tmp_path / 'methods.py'}:"
    (found,) = advise(known(), Work(n=8, m=2, K=5, R=40), [f"{here}Mine"])
    assert found.unmet == ("2 of 8 clients take part: the theorem is for all of them", "mu is a guess")
    for name, sentence in {
        "Derived": "^Derived has no theorem: ",
        "Divides": r"^Divides: its theorem\(\) fails with ZeroDivisionError: ",
        "Misnames": r"^Misnames: unknown hyper-parameter in the settings of its theorem\(\) 'rate'",
        "Silent": r"^Silent: its theorem\(\) must give a fedax.bounds.Theorem, not 0.1$",
    }.items():
        with pytest.raises(FedaxError, match=sentence):
            advise(known(), Work(8, 8, 5, 40), [f"{here}{name}"])


def test_toml_comes_back_as_it_was():
    table = {
        "rounds": 3,
        "on": True,
        "x": [1, 2.5, "a\\b\n"],
        "deep": {"er": {"name": "ü", "odd key": 1e-30}},
        "algorithm": [{"name": "A", "lr": {"kind": "inverse-time", "initial": 0.1}}, {"name": "B"}],
    }
    assert tomllib.loads(to_toml(table)) == table


def test_theory_draws_a_picture(tmp_path, capsys):
    path = tmp_path / "bounds.svg"
    assert invoke(["theory", "bounds", "--out", str(path)]) == 0
    assert "FedAc, A3.2" in capsys.readouterr().out
    assert path.read_text().lstrip().startswith("<?xml")
    assert invoke(["theory", "biass", "--out", str(path)]) == 2
    assert "did you mean 'bias'" in capsys.readouterr().err
    assert invoke(["theory", "bounds", "--out", str(tmp_path / "bounds.gif")]) == 2
    assert "must end in .svg, .png or .pdf" in capsys.readouterr().err


@pytest.mark.skipif(
    not (Path(os.environ.get("FEDAX_DATA", "/nowhere")) / "a9a").is_dir(), reason="a9a is not below FEDAX_DATA"
)
def test_on_a9a_fedacs_proposal_is_within_a_factor_of_10_of_the_best_of_the_grid():
    problem = logistic(strength=1e-3)
    federation = fedax.data.load("a9a", partition=fedax.data.Homogeneous(16), split=None)
    constants = estimate(problem, federation, batch_size=1)
    cells: dict[tuple[int, int], dict[float, list[float]]] = {}
    for row in csv.DictReader(GRID.read_text().splitlines()):
        if row["method"] == "FedAc-I":
            cell = cells.setdefault((int(row["clients"]), int(row["steps"])), {})
            cell.setdefault(float(row["lr"]), []).append(float(row["best"]))
    assert len(cells) == 12
    for (M, K), cell in cells.items():
        lr = advise(constants, Work(n=M, m=M, K=K, R=4096 // K), ["FedAc"])[0].settings["lr"]
        means = {rate: np.mean(values) for rate, values in cell.items()}
        best = min(means, key=means.get)
        assert best / 10 < lr < 10 * best, (M, K)
        near = min(means, key=lambda rate: abs(math.log(rate / lr)))
        assert means[near] < 10 * means[best], (M, K)


def test_the_documentations_pictures_and_snippets(capsys):
    docs = Path(__file__).parent.parent / "docs"
    text = (docs / "theory.md").read_text()
    commands = re.findall(r"`fedax theory (\w+) --out docs/(theory/[\w.]+)`", text)
    assert [name for name, _ in commands] == list(PICTURES)
    assert re.findall(r"!\[[^]]+\]\(([^)]+)\)", text) == [file for _, file in commands]
    assert all((docs / file).is_file() for _, file in commands)
    with jax.enable_x64(True):
        for block in re.findall(r"```python\n(.*?)```", text, re.DOTALL):
            exec(block.replace('jax.config.update("jax_enable_x64", True)', ""), {})
    assert len(capsys.readouterr().out.splitlines()) == 2
