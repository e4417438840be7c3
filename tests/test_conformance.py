"""Every method passes the conformance suite, and the suite rejects methods that are broken on purpose."""

from __future__ import annotations

import dataclasses
import io
import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.experimental import io_callback
from rich.console import Console

import fedax
from fedax.algorithms import ALGORITHMS, aggregation
from fedax.algorithms.base import rate
from fedax.algorithms.claims import Optimum, Reduction
from fedax.client.round import Client
from fedax.engine import executors
from fedax.errors import FedaxError
from fedax.testing import Check, Report, check_algorithm, check_target, costs, load_class, make, quadratics, whole_runs
from fedax.testing.driven_run import DrivenRun
from fedax.vectors import each, zeros

CHEAP = ["purity", "shapes", "cost", "identity"]  # nothing compiles whole rounds
VARIANTS = [
    make(cls, **{field.name: value})
    for cls in ALGORITHMS.values()
    for field in dataclasses.fields(cls)
    for value in field.metadata.get("choices", ())
    if value != field.default
]


@pytest.mark.parametrize("name", ALGORITHMS)
def test_a_method_passes(name):
    check_target(name).raise_if_failed()


@pytest.mark.parametrize("algorithm", VARIANTS, ids=repr)
def test_every_choice_keeps_the_contract(algorithm):
    check_algorithm(algorithm, checks=CHEAP).raise_if_failed()


# -- what the papers say that a round costs ------------------------------------------------------------------

#: floats down, up and kept by a client, as the papers have them (a number beside a vector is ours), and gradients a
#: local step: a Hessian-vector product is two
PAPERS = {
    fedax.FedAc(lr=0.1, mu=0.1): ("2 d", "2 d", "0", 1),
    fedax.FedAc(lr=0.1, mu=0.1, augment=True): ("2 d", "2 d", "d", 1),
    fedax.FedADMM(lr=0.1, eta=1.0): ("d", "d", "2 d", 1),
    fedax.FedAvg(lr=0.1): ("d", "d", "0", 1),
    fedax.FedCM(lr=0.1): ("2 d", "d + 1", "0", 1),
    fedax.FedDualAvg(lr=0.1): ("d + 1", "d + 1", "0", 1),
    fedax.FedDualAvg(lr=0.1, average=True): ("d + 1", "K (d + 1)", "0", 1),
    fedax.FedDyn(lr=0.1, alpha=0.1): ("d", "d", "d", 1),
    fedax.FedMiD(lr=0.1): ("d", "d + 1", "0", 1),
    fedax.FedProx(lr=0.1, mu=0.1): ("d", "d", "0", 1),
    fedax.FedSpeed(lr=0.1): ("d", "d", "d", 2),
    fedax.MinibatchSGD(lr=0.1): ("d", "d", "0", 1),
    fedax.SCAFFOLD(lr=0.1): ("2 d", "2 d", "d", 1),
    fedax.APFL(lr=0.1): ("d", "d", "d + 1", 2),
    fedax.Ditto(lr=0.1, lam=0.1): ("d", "d", "d", 2),
    fedax.Ditto(lr=0.1, lam=0.1, personal_steps=3): ("d", "d", "d", 1),
    fedax.FedDeper(lr=0.1, rho=0.1): ("d", "d", "d", 2),
    fedax.LocalOnly(lr=0.1): ("0", "0", "d", 1),
    fedax.PerFedAvg(lr=0.1, alpha=0.1): ("d", "d", "0", 4),
    fedax.PerFedAvg(lr=0.1, alpha=0.1, order="first"): ("d", "d", "0", 2),
    fedax.PFedFBE(lr=0.1, lam=5.0): ("d", "d", "0", 3),
    fedax.PFedFBE(lr=0.1, lam=5.0, hessian="none"): ("d", "d", "0", 1),
    fedax.PFedFBE(lr=0.1, lam=5.0, own="rounds"): ("d", "d", "d", 3),
    fedax.PerFedAvg(lr=0.1, alpha=0.1, order="two-steps"): ("d", "d", "d", 2),
    make(fedax.PFedMe, inner_steps=7): ("d", "d", "d", 7),
    make(fedax.PFedMe, inner_steps=7, own="server"): ("d", "d", "0", 7),
}


@pytest.mark.parametrize("algorithm", PAPERS, ids=repr)
def test_a_round_costs_what_the_paper_says(algorithm):
    down, up, kept, gradients = PAPERS[algorithm]
    found = costs(algorithm)
    assert (found.down, found.up, found.kept) == (down, up, kept)
    assert found.gradients.startswith(f"{gradients} a local step")


def test_full_gradients_are_counted_apart():
    assert costs(fedax.SCAFFOLD(lr=0.1, option="I")).gradients == "1 a local step, 1 full a round"


# -- methods broken on purpose, each in one respect --------------------------------------------------------


@fedax.algorithm
class Sound(fedax.FedAvg):
    """FedAvg under another name, with a state of its clients' to lose."""

    lr: float = rate()
    server_lr: float = rate(default=1.0)

    def client_init(self, x0):
        return zeros(x0)

    def finish(self, x_i, oracle, x, client, ctx):
        return x_i - x, x_i - x


@fedax.algorithm
class Remembers(fedax.FedAvg):
    seen = []  # noqa: RUF012

    def step(self, x_i, oracle, x, client, ctx):
        self.seen.append(1)
        return x_i - self.lr * len(self.seen) * oracle.grad(x_i)


@fedax.algorithm
class Writes(fedax.FedAvg):
    log = []  # noqa: RUF012

    def update(self, x, delta, ctx):
        self.log.append("updated")
        return x + delta


@fedax.algorithm
class Rolls(fedax.FedAvg):
    def init(self, x0):
        return each(lambda a: a + np.random.uniform(), x0)  # noqa: NPY002


@fedax.algorithm
class Narrows(fedax.FedAvg):
    def step(self, x_i, oracle, x, client, ctx):
        return each(lambda a: a.astype(jnp.float16), x_i - self.lr * oracle.grad(x_i))


@fedax.algorithm
class KeepsSingle(Sound):
    def client_init(self, x0):
        return each(lambda a: jnp.zeros(a.shape, jnp.float32), x0)


@fedax.algorithm
class Reshapes(fedax.FedAvg):
    def model(self, x):
        return x, x


@fedax.algorithm
class Looks(fedax.FedAvg):
    """Takes a second gradient where its functions run on numbers, which a compiled round does not."""

    def step(self, x_i, oracle, x, client, ctx):
        g = oracle.grad(x_i)
        return x_i - self.lr * (g if isinstance(g.tree["w"], jax.core.Tracer) else (g + oracle.grad(x_i)) / 2)


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Ambiguous(fedax.FedAvg):
    """Registered by hand: JAX takes it for any other such class with two numbers."""


@pytest.mark.parametrize(
    ("cls", "check", "detail"),
    [
        (Sound, None, ""),
        (Remembers, "purity", "Remembers.step gives two answers to the same inputs: first "),
        (Writes, "purity", "Writes.log changed while its functions were called: from "),
        (Rolls, "purity", "Rolls.init gives two answers"),
        (Narrows, "shapes", "Narrows.step, float32 model: gives float16"),
        (KeepsSingle, "shapes", "KeepsSingle.client_init gives float32 at "),
        (Reshapes, "shapes", "Reshapes.model, float32 model: gives the tree "),
        (Ambiguous, "identity", "so that either may run the other's program"),
        (Looks, "cost", "minibatch gradients in a local step are 2 when its functions run and 1 when they are traced"),
    ],
)
def test_the_contracts_checks_reject(cls, check, detail):
    report = check_algorithm(cls(lr=0.05), checks=CHEAP)
    assert [c.name for c in report.failed] == ([] if check is None else [check]), str(report)
    assert detail in str([c.detail for c in report.failed])


@fedax.algorithm
class Climbs(fedax.FedAvg):
    def step(self, x_i, oracle, x, client, ctx):
        return x_i + self.lr * oracle.grad(x_i)


@fedax.algorithm
class CompilesItsRate(fedax.FedAvg):
    lr: float = dataclasses.field(default=0.05, metadata={"static": True})


@fedax.algorithm
class Hurries(fedax.FedAvg):
    claims = (Reduction("FedAvg"),)

    def step(self, x_i, oracle, x, client, ctx):
        return x_i - 1.001 * self.lr * oracle.grad(x_i)


@fedax.algorithm
class Borrows(fedax.FedAvg):
    claims = (Reduction("FedWhat"),)


@fedax.algorithm
class Stands(fedax.LocalOnly):
    claims = (Reduction("LocalOnly"),)


@fedax.algorithm
class PromisesAll(fedax.FedAvg):
    claims = (Optimum("full"), Optimum("partial", rounds=300))


@pytest.mark.parametrize(
    ("algorithm", "check", "detail"),
    [
        (Rolls(lr=0.05), "determinism", "two runs with seed 0 are not the same: the largest difference is "),
        (Remembers(lr=0.01), "executors", "the executors batched and looped differ by "),
        (CompilesItsRate(), "compilation", "lr = 0.0505 after 0.05 compiled "),
        (Climbs(lr=0.05), "progress", "above the minimum in 64 rounds"),
        (Hurries(lr=0.05), "is FedAvg when always", "is not FedAvg(lr=0.05, server_lr=1.0) in round 1: shared "),
        (Borrows(lr=0.05), "is FedWhat when always", "which is no method of fedax.algorithms"),
        (Stands(lr=0.05), "is LocalOnly when always", "neither moved"),
        (PromisesAll(lr=0.05), Optimum("full").text, "8 of 8 clients, 5 local steps is "),
        (PromisesAll(lr=0.05), Optimum("partial").text, "from the optimum after 300 rounds"),
        (PromisesAll(lr=9.0), Optimum("full").text, "met NaN or infinity in round "),
    ],
    ids=lambda value: value if isinstance(value, str) else repr(value),
)
def test_the_runs_checks_reject(algorithm, check, detail):
    (found,) = check_algorithm(algorithm, checks=[check]).checks
    assert found.status == "failed"
    assert detail in found.detail


# -- aggregation and keys ------------------------------------------------------------------------------------


@fedax.algorithm
class TakesTheFirst(fedax.FedAvg):
    def aggregate(self, uploads, weights):
        return each(lambda u: u[0], uploads)


@fedax.algorithm
class IgnoresWeights(fedax.FedAvg):
    def aggregate(self, uploads, weights):
        return each(lambda u: u.mean(axis=0), uploads)


@fedax.algorithm
class Sums(fedax.FedAvg):
    def aggregate(self, uploads, weights):
        return each(lambda u: jnp.tensordot(weights.astype(u.dtype), u, 1), uploads)


@fedax.algorithm
class Shrinks(fedax.FedAvg):
    def aggregate(self, uploads, weights):
        return 0.9 * aggregation.mean(uploads, weights)


@fedax.algorithm
class GivesAll(fedax.FedAvg):
    def aggregate(self, uploads, weights):
        return uploads


@fedax.algorithm
class Drops(fedax.FedAvg):
    """Sound: local steps on random coordinates, noise at the server, a rule of its own."""

    def step(self, x_i, oracle, x, client, ctx):
        g = each(lambda a: a * jax.random.bernoulli(ctx.key, 0.7, a.shape), oracle.grad(x_i))
        return x_i - self.lr * g

    def update(self, x, delta, ctx):
        return x + each(lambda a: a * (0.5 + jax.random.uniform(ctx.key, a.shape, a.dtype)), delta)

    def aggregate(self, uploads, weights):
        return aggregation.median(uploads, weights)


@fedax.algorithm
class IgnoresTheSeed(Drops):
    def step(self, x_i, oracle, x, client, ctx):
        key = jax.random.fold_in(jax.random.key(0), ctx.round)
        return x_i - self.lr * each(lambda a: a * jax.random.bernoulli(key, 0.7, a.shape), oracle.grad(x_i))


@fedax.algorithm
class SeedlessServer(Drops):
    def update(self, x, delta, ctx):
        key = jax.random.PRNGKey(ctx.round)
        return x + each(lambda a: a * jax.random.uniform(key, a.shape, a.dtype), delta)


@fedax.algorithm
class CoinOfItsOwn(fedax.FedAvg):
    def traffic(self, ctx):
        met = jax.random.bernoulli(ctx.key)
        return met, met


@fedax.algorithm
class CommonCoin(fedax.FedAvg):
    def traffic(self, ctx):
        met = jax.random.bernoulli(ctx.common_key())
        return met, met


COUNTER = itertools.count()


@fedax.algorithm
class Counts(fedax.FedAvg):
    """Takes longer steps the later it is called."""

    def begin(self, x, client, ctx):
        like = jax.ShapeDtypeStruct((), jnp.float32)
        later = io_callback(lambda _: np.float32(next(COUNTER)), like, ctx.client)
        return each(lambda a: a + (1e-3 * later).astype(a.dtype), x)


@pytest.mark.parametrize(
    ("cls", "check", "detail"),
    [
        (TakesTheFirst, "aggregation", "TakesTheFirst.aggregate depends on the order of the clients: "),
        (TakesTheFirst, "client order", "clients run in the opposite order moves server and states by "),
        (IgnoresWeights, "aggregation", "IgnoresWeights.aggregate counts places of weight 0, where there is no client"),
        (Sums, "aggregation", "Sums.aggregate depends on the scale of the weights: "),
        (Shrinks, "aggregation", "Shrinks.aggregate does not give the upload that all clients agree on: "),
        (GivesAll, "aggregation", "GivesAll.aggregate ("),
        (
            IgnoresTheSeed,
            "keys",
            "IgnoresTheSeed.step draws numbers that do not depend on the run's seed: take the key ",
        ),
        (
            SeedlessServer,
            "keys",
            "SeedlessServer.update draws numbers that do not depend on the run's seed",
        ),
        (
            CoinOfItsOwn,
            "keys",
            "whether a round communicates must be the same for all, so draw it from ctx.common_key()",
        ),
        (Counts, "client order", "must depend on its number and the round (ctx.key), not on who ran before"),
    ],
)
def test_wrong_aggregations_and_keys_are_rejected(cls, check, detail):
    (found,) = check_algorithm(cls(lr=0.05), checks=[check]).checks
    assert found.status == "failed", found
    assert detail in found.detail


def test_a_method_that_draws_passes_and_the_report_says_whose_draws_they_are():
    report = check_algorithm(Drops(lr=0.05))
    report.raise_if_failed()
    said = {check.name: check.detail for check in report.checks}
    assert said["keys"] == "step 1 of each client's own, update 1 common to all"
    assert said["aggregation"] == "any order, any scale, no place without a client; weighs clients"
    assert "its draws go by the clients' numbers" in said["client order"]
    (found,) = check_algorithm(CommonCoin(lr=0.05), checks=["keys"]).checks
    assert (found.status, found.detail) == ("passed", "one answer of traffic for all clients")


@pytest.mark.parametrize("rule", list(aggregation.RULES))
def test_every_rule_is_an_aggregation(rule):
    method = fedax.Robust(fedax.FedAvg(lr=0.05), rule=rule)
    check_algorithm(method, checks=["aggregation", "client order", "executors"]).raise_if_failed()


def test_a_mean_without_weights_is_noticed(monkeypatch):
    @fedax.algorithm
    class Unweighed(Sound):  # not compiled yet
        pass

    monkeypatch.setattr(executors, "_weigh", lambda weight, tree: jax.tree.map(lambda u: u * (weight > 0), tree))
    (found,) = check_algorithm(Unweighed(lr=0.05), checks=["aggregation"]).checks
    assert found.status == "failed"
    assert "of the weighted mean of the uploads" in found.detail


@fedax.algorithm
class JoinsAsAnother(Sound):
    def join(self, server, client, oracle, steps):
        return client, client


def test_the_state_of_a_client_that_joins_keeps_its_shape():
    (found,) = check_algorithm(JoinsAsAnother(lr=0.05), checks=["shapes"]).checks
    assert found.status == "failed"
    assert "JoinsAsAnother.join, float32 model: gives the tree " in found.detail


# A method cannot reach the other clients, so for these the machinery around it is broken instead.


def fails(check):
    (found,) = check_algorithm(Sound(lr=0.05), checks=[check]).checks
    return found.status == "failed"


def test_sitting_out_is_checked(monkeypatch):
    assert not fails("sitting out")
    cohort = DrivenRun.cohort
    monkeypatch.setattr(DrivenRun, "cohort", lambda self, r: [i for i in range(6) if i not in cohort(self, r)])
    assert fails("sitting out")


def test_client_order_is_checked(monkeypatch):
    assert not fails("client order")
    monkeypatch.setattr(fedax.Federation, "reordered", lambda self, order: self)
    assert fails("client order")


def test_a_stored_state_without_the_clients_is_noticed(monkeypatch):
    stored = whole_runs._stored
    assert not fails("save and load")
    lost = lambda s: dataclasses.replace(stored(s), server=zeros(s.server))  # noqa: E731
    monkeypatch.setattr(whole_runs, "_stored", lost)
    assert fails("save and load")


def test_steps_that_depend_on_other_clients_are_noticed(monkeypatch):
    @fedax.algorithm
    class Fresh(Sound):  # not compiled yet
        pass

    monkeypatch.setattr(Client, "steps", property(lambda self: jnp.max(self.data.steps[:2])))
    (found,) = check_algorithm(Fresh(lr=0.05), checks=["unequal steps"]).checks
    assert found.status == "failed"
    assert "when the others take 1 step each" in found.detail


# -- the report and its ways in ----------------------------------------------------------------------------


@fedax.algorithm
class Crashes(fedax.FedAvg):
    def step(self, x_i, oracle, x, client, ctx):
        raise RuntimeError("boom\nand more")


def test_a_crash_is_a_failed_check_and_no_end():
    report = check_algorithm(Crashes(lr=0.05), checks=CHEAP)
    assert [c.status for c in report.checks] == ["failed"] * 3 + ["passed"]
    first, *others = report.failed
    assert "Crashes.step (" in first.detail
    assert "raises RuntimeError: boom. To mend it: begin with this error" in first.detail
    assert {c.detail for c in others} == {f"breaks off with the same error as {first.name}"}


def test_a_report_reads_like_a_table():
    detail = "a long story [with brackets] " * 8
    report = Report("Mine(lr=0.1)", [Check("purity", "passed"), Check("sizes", "failed", detail)])
    assert not report.passed
    assert str(report).splitlines()[0] == "Mine(lr=0.1): 1 passed, 1 failed"
    assert all(len(line) <= 110 for line in str(report).splitlines())
    console = Console(width=100, file=io.StringIO())
    console.print(report.table())
    text = console.file.getvalue()
    assert "purity" in text
    assert "[with brackets]" in text
    with pytest.raises(AssertionError, match="failed   sizes  a long story"):
        report.raise_if_failed()
    Report("Mine(lr=0.1)", [Check("purity", "passed"), Check("order", "skipped")]).raise_if_failed()


def test_a_check_that_does_not_exist_is_refused():
    with pytest.raises(FedaxError, match="unknown check 'puriti': did you mean 'purity'"):
        check_algorithm(fedax.FedAvg(lr=0.05), checks=["puriti"])
    with pytest.raises(FedaxError, match=r"algorithm must be a fedax.Algorithm"):
        check_algorithm("FedAvg")


SOURCE = """
import fedax
from fedax.algorithms.base import integer, number, rate

@fedax.algorithm
class Mine(fedax.Algorithm):
    lr: float = rate()
    weight: float = number("(2, 3]")
    inner: int = integer("[1, inf)")

@fedax.algorithm
class Undeclared(fedax.Algorithm):
    lr: float

class Plain(fedax.FedAvg):
    pass

other = 1
"""


def test_a_target_is_found_from_the_current_directory(tmp_path, monkeypatch):
    (tmp_path / "their_methods.py").write_text(SOURCE)
    (tmp_path / "their_broken.py").write_text("import nowhere_at_all")
    monkeypatch.chdir(tmp_path)
    cls = load_class("their_methods:Mine")
    assert repr(make(cls)) == "Mine(lr=0.05, weight=2.5, inner=1)"
    for target, message in {
        "their_methods:Mien": "unknown method of their_methods 'Mien': did you mean 'Mine'",
        "their_methods:other": "their_methods:other is no method",
        "their_broken:Mine": "cannot be imported: ModuleNotFoundError: No module named 'nowhere_at_all'",
        "nowhere_at_all:Mine": "the module 'nowhere_at_all' cannot be imported",
        "Mine": "a method is named as module:Class",
    }.items():
        with pytest.raises(FedaxError, match=message):
            load_class(target)
    with pytest.raises(FedaxError, match="Undeclared needs lr, which has neither a default nor an interval"):
        check_target("their_methods:Undeclared")
    with pytest.raises(FedaxError, match=r"lr must be in \(0, inf\), not -1"):
        check_target("their_methods:Mine", lr=-1)


def test_quadratics_have_their_optimum():
    federation, optimum = quadratics(seed=7, clients=4, dimension=3)
    a, b = federation.arrays["A"], federation.arrays["b"]
    assert np.linalg.norm(sum(a[i] @ (optimum - b[i]) for i in range(4))) < 1e-12
    assert np.linalg.norm(a[0] @ (optimum - b[0])) > 0.1
    same, optimum = quadratics(seed=7, alike=True)
    assert np.ptp(same.arrays["A"], axis=0).max() == 0
    np.testing.assert_allclose(optimum, same.arrays["b"][3], rtol=1e-12)
