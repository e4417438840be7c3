"""The engine: identities of the three first methods, invariances, determinism, bad input."""

from __future__ import annotations

import dataclasses

import jax
import jax.monitoring
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedax
from conftest import LEAST_SQUARES, QUADRATIC, quadratics, regression, vector
from fedax import platforms
from fedax.engine import executors
from fedax.models import model
from fedax.testing import costs

METHODS = [
    fedax.FedAvg(lr=0.05),
    fedax.SCAFFOLD(lr=0.05),
    fedax.SCAFFOLD(lr=0.05, option="I"),
    fedax.APFL(lr=0.05, alpha=0.3),
    fedax.APFL(lr=0.05, alpha=0.3, adaptive=True, radius=5.0),
    fedax.LocalOnly(lr=0.05),
]
ids = [repr(m) for m in METHODS]


def run(algorithm, federation=None, problem=LEAST_SQUARES, **options):
    settings = {"rounds": 4, "local_steps": 3, "batch_size": 4, "eval_every": 4} | options
    return fedax.simulate(problem, regression() if federation is None else federation, algorithm, **settings)


def models(result):
    """The shared model and every personal one."""
    return np.stack([vector(result.model)] + [vector(result.personal(i)) for i in range(result.clients)])


# -- what the methods must be ------------------------------------------------------------------------------


@settings(max_examples=10, deadline=None, derandomize=True)
@given(st.integers(0, 1000))
def test_fedavg_with_one_full_step_is_gradient_descent_on_the_mean_objective(seed):
    with jax.enable_x64(True):
        federation = regression(seed)
        result = run(fedax.FedAvg(lr=0.1), federation, rounds=5, local_steps=1, batch_size=None)
        w = np.zeros(6)
        for _ in range(5):
            grads = []
            for i in range(federation.clients):
                c = federation.client(i)
                grads.append(c["x"].T @ (c["x"] @ w - c["y"]) / len(c["y"]))
            w = w - 0.1 * np.mean(grads, axis=0)
        np.testing.assert_allclose(result.model, w, rtol=1e-12)


def test_weighted_fedavg_with_one_full_step_is_gradient_descent_on_the_pooled_rows(x64):
    federation = regression()
    result = run(fedax.FedAvg(lr=0.1), federation, rounds=5, local_steps=1, batch_size=None, weighted=True)
    x, y = federation.arrays["x"], federation.arrays["y"]
    w = np.zeros(6)
    for _ in range(5):
        w = w - 0.1 * x.T @ (x @ w - y) / len(y)
    np.testing.assert_allclose(result.model, w, rtol=1e-12)


def test_scaffold_reaches_the_optimum_where_fedavg_does_not(x64):
    federation, optimum = quadratics()
    far = run(
        fedax.FedAvg(lr=0.1),
        federation,
        QUADRATIC,
        rounds=600,
        local_steps=10,
        batch_size=None,
        eval_every=600,
    )
    for option in ("I", "II"):
        near = run(
            fedax.SCAFFOLD(lr=0.1, option=option),
            federation,
            QUADRATIC,
            rounds=600,
            local_steps=10,
            batch_size=None,
            eval_every=600,
        )
        assert np.linalg.norm(near.model - optimum) < 1e-8
    assert np.linalg.norm(far.model - optimum) > 1e-2


@pytest.mark.parametrize("cohort", [None, 3])
def test_apfl_is_fedavg_at_alpha_0_and_local_training_at_alpha_1(cohort, x64):
    shared = run(fedax.FedAvg(lr=0.05), cohort=cohort)
    at0 = run(fedax.APFL(lr=0.05, alpha=0.0), cohort=cohort)
    at1 = run(fedax.APFL(lr=0.05, alpha=1.0), cohort=cohort)
    local = run(fedax.LocalOnly(lr=0.05), cohort=cohort)
    np.testing.assert_allclose(at0.model, shared.model, rtol=1e-13)
    for i in range(shared.clients):
        np.testing.assert_allclose(at0.personal(i), shared.model, rtol=1e-13)
        np.testing.assert_allclose(at1.personal(i), local.personal(i), rtol=1e-13)


def test_apfl_follows_equations_5_and_6(x64):
    """One client, full gradients: the recursion written out in NumPy."""
    federation = regression(sizes=(20,))
    c = federation.client(0)
    grad = lambda w: c["x"].T @ (c["x"] @ w - c["y"]) / 20  # noqa: E731
    lr, w, v, alpha = 0.1, np.zeros(6), np.zeros(6), 0.3
    for _ in range(4):
        for k in range(3):
            g = grad(alpha * v + (1 - alpha) * w)
            learnt = np.clip(alpha - lr * (v - w) @ g, 0, 1) if k == 0 else alpha
            w, v, alpha = w - lr * grad(w), v - lr * alpha * g, learnt
    result = run(fedax.APFL(lr=0.1, alpha=0.3, adaptive=True), federation, batch_size=None)
    np.testing.assert_allclose(result.personal(0), alpha * v + (1 - alpha) * w, rtol=1e-12)
    assert alpha != 0.3


def test_apfl_projects_onto_the_ball():
    result = run(fedax.APFL(lr=0.05, radius=0.1), rounds=20)
    assert np.linalg.norm(result.model) <= 0.1 + 1e-6


def test_rates_follow_their_schedule(x64):
    """Gradient descent with a rate that halves each step, against the loop written out."""
    federation = regression(sizes=(20,))
    c = federation.client(0)
    w, t = np.zeros(6), 0
    for _ in range(3):
        for _ in range(2):
            w, t = w - 0.1 * 0.5**t * c["x"].T @ (c["x"] @ w - c["y"]) / 20, t + 1
    rate = fedax.schedules.Exponential(0.1, 0.5, per="step")
    result = run(fedax.FedAvg(lr=rate), federation, rounds=3, local_steps=2, batch_size=None)
    np.testing.assert_allclose(result.model, w, rtol=1e-12)
    w = np.zeros(6)
    for r in range(3):
        for _ in range(2):
            w = w - 0.1 / (1 + r) * c["x"].T @ (c["x"] @ w - c["y"]) / 20
    rate = fedax.schedules.InverseTime(0.1, 1.0, per="round")
    result = run(fedax.FedAvg(lr=rate), federation, rounds=3, local_steps=2, batch_size=None)
    np.testing.assert_allclose(result.model, w, rtol=1e-12)


# -- invariances ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("algorithm", METHODS, ids=ids)
def test_every_executor_and_chunk_gives_the_same(algorithm):
    """Equal steps for the odd methods of the list, unequal ones (two epochs of unequal clients) for the even."""
    unequal = METHODS.index(algorithm) % 2 == 0
    work = {"local_epochs": 2, "local_steps": None} if unequal else {"local_steps": 3}
    options = {"cohort": 5, "rounds": 3} | work
    expected = models(run(algorithm, executor="batched", **options))
    for other in (
        {"executor": "batched", "chunk": 2, "devices": 1},
        {"executor": "looped"},
        {"executor": "debug"},
    ):
        found = models(run(algorithm, **other, **options))
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6, err_msg=str(other))


@pytest.mark.parametrize("steps", [1, 2, 5])
def test_steps_outside_the_loop_give_the_same(steps, monkeypatch):
    method, options = METHODS[1], {"cohort": 5, "rounds": 2, "local_steps": steps, "executor": "looped"}
    expected = models(run(method, **options))
    monkeypatch.setitem(platforms.TABLE, "cpu", dataclasses.replace(platforms.CPU, large=1, heavy=10**9))
    assert executors.choose("looped", 5, 3, 10, 2, None, platforms.current()).peeled
    np.testing.assert_allclose(models(run(method, **options)), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("algorithm", METHODS, ids=ids)
def test_the_same_seed_gives_the_same_bits_and_another_does_not(algorithm):
    first, again, other = (models(run(algorithm, cohort=4, seed=s)) for s in (1, 1, 2))
    assert np.array_equal(first, again)
    assert not np.array_equal(first, other)


@pytest.mark.parametrize("algorithm", METHODS, ids=ids)
def test_client_order_does_not_matter(algorithm, x64):
    """With full gradients and all clients, naming them otherwise changes nothing."""
    order = [3, 0, 5, 1, 4, 2]
    plain = run(algorithm, regression(), batch_size=None)
    turned = run(algorithm, regression().reordered(order), batch_size=None)
    np.testing.assert_allclose(turned.model, plain.model, rtol=1e-12)
    for new, old in enumerate(order):
        np.testing.assert_allclose(turned.personal(new), plain.personal(old), rtol=1e-12)


@pytest.mark.parametrize("algorithm", [m for m in METHODS if costs(m).kept != "0"], ids=repr)
def test_no_clients_rows_reach_another_except_through_the_server(algorithm):
    """After the first round, with nothing back from the server yet, other rows of client 0 change client 0 alone."""
    federation = regression()
    arrays = {k: a.copy() for k, a in federation.arrays.items()}
    arrays["y"][: federation.train.count[0]] += 1.0
    changed = fedax.Federation(arrays, federation.train, federation.validation, federation.test)
    states = []
    for data in (federation, changed):
        simulation = fedax.Simulation(LEAST_SQUARES, data, algorithm, rounds=1, local_steps=3, batch_size=4)
        list(simulation)
        states.append([np.asarray(leaf) for leaf in jax.tree.leaves(simulation.state.clients)])
    for before, after in zip(*states, strict=True):
        assert np.array_equal(before[1:], after[1:])
    assert any(not np.array_equal(before[0], after[0]) for before, after in zip(*states, strict=True))


def test_a_client_that_sits_out_keeps_its_state():
    simulation = fedax.Simulation(
        LEAST_SQUARES, regression(), fedax.SCAFFOLD(lr=0.05), rounds=3, cohort=2, local_steps=2, batch_size=4
    )
    before = np.asarray(simulation.state.clients.tree)
    for row in simulation:
        after = np.asarray(simulation.state.clients.tree)
        took = simulation.prepared.engine.draws.cohorts(row["round"] - 1, row["round"])[0] if row["round"] else []
        for i in range(6):
            assert np.array_equal(before[i], after[i]) != (i in took)
        before = after


def test_another_rate_compiles_nothing():
    compiled = []
    jax.monitoring.register_event_duration_secs_listener(
        lambda name, seconds, **_: compiled.append(name) if name.endswith("backend_compile_duration") else None
    )
    fresh = fedax.Problem(loss=LEAST_SQUARES._batch_loss, init=lambda key: jnp.zeros(6))  # nothing compiled for it yet
    options = {"cohort": 3, "eval_every": 2, "problem": fresh}
    for method in (fedax.FedAvg, fedax.SCAFFOLD, fedax.APFL):
        before = len(compiled)
        run(method(lr=0.05), **options)
        count = len(compiled)
        assert count > before
        run(method(lr=0.01), **options)
        run(method(lr=0.02), **options)
        assert len(compiled) == count, f"{method.__name__} compiled again"


def test_parameters_keep_their_dtype():
    for on, dtype in ((False, np.float32), (True, np.float64)):
        with jax.enable_x64(on):
            result = run(fedax.APFL(lr=0.05, adaptive=True), cohort=3)
            assert result.model.dtype == result.personal(0).dtype == dtype
    with jax.enable_x64(True):
        half = fedax.Problem(loss=LEAST_SQUARES._batch_loss, init=lambda key: jnp.zeros(6, jnp.float32))
        assert run(fedax.SCAFFOLD(lr=0.05), problem=half).model.dtype == np.float32


# -- oracle, data, evaluation --------------------------------------------------------------------------------


def test_oracle_gives_gradients_products_fresh_batches_and_the_full_gradient(x64):
    seen = {}

    @fedax.algorithm
    class Probe(fedax.Algorithm):
        def step(self, x_i, oracle, x, client, ctx):
            seen["grad"], seen["full"] = oracle.grad(x_i), oracle.full.grad(x_i)
            seen["fresh"], seen["again"] = oracle.fresh(1).grad(x_i), oracle.fresh(1).grad(x_i)
            seen["other"], seen["hvp"] = oracle.fresh(2).grad(x_i), oracle.full.hvp(x_i, x_i + one)
            seen["value"] = oracle.full.value(x_i)
            return x_i

        def finish(self, x_i, oracle, x, client, ctx):
            return x_i - x, client

        def update(self, x, delta, ctx):
            return x + delta

    one = fedax.Vector(jnp.ones(6))
    federation = regression(sizes=(2000, 30))
    run(Probe(), federation, rounds=1, local_steps=1, cohort=None, executor="debug")
    c = federation.client(1)  # the last client that ran
    np.testing.assert_allclose(seen["full"].tree, -c["x"].T @ c["y"] / 30, rtol=1e-12)
    np.testing.assert_allclose(seen["hvp"].tree, c["x"].T @ c["x"] @ np.ones(6) / 30, rtol=1e-12)
    np.testing.assert_allclose(seen["value"], np.mean(c["y"] ** 2) / 2, rtol=1e-12)
    assert np.array_equal(seen["fresh"].tree, seen["again"].tree)
    assert not np.allclose(seen["fresh"].tree, seen["grad"].tree)
    assert not np.allclose(seen["fresh"].tree, seen["other"].tree)


def test_the_full_gradient_of_a_large_client_is_taken_in_blocks(x64):
    federation = regression(sizes=(2500, 30, 1024))
    result = run(fedax.FedAvg(lr=0.1), federation, rounds=1, local_steps=1, batch_size=None)
    means = [federation.client(i)["x"].T @ federation.client(i)["y"] / federation.train.count[i] for i in range(3)]
    np.testing.assert_allclose(result.model, 0.1 * np.mean(means, axis=0), rtol=1e-11)


def test_homogeneous_clients_share_all_rows():
    federation = fedax.data.load("breast_cancer", partition=fedax.data.Homogeneous(2000), seed=0)
    problem = fedax.Problem(model("logistic", outputs=1), loss="logistic")
    result = fedax.simulate(
        problem,
        federation,
        fedax.FedAvg(lr=0.1),
        rounds=20,
        cohort=100,
        local_steps=5,
        batch_size=4,
        eval_every=20,
    )
    assert result.history[-1]["test_accuracy"] > 0.9
    assert result.history[-1]["test_accuracy_std"] < 1e-9


def test_evaluation_is_that_of_plain_numpy(digits):
    problem = fedax.Problem(model("mlp", outputs=10, hidden=(8,)), loss="cross_entropy")
    simulation = fedax.Simulation(
        problem,
        digits,
        fedax.APFL(lr=0.1),
        rounds=5,
        local_steps=5,
        batch_size=10,
        eval_every=5,
        eval_on=("test", "validation", "train"),
    )
    row = list(simulation)[-1]
    result = simulation.result

    def accuracy(params, i, part):
        c = digits.client(i, part)
        p = jax.tree.map(np.asarray, params["params"])
        h = np.maximum(np.asarray(c["x"]) @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"], 0)
        z = h @ p["Dense_1"]["kernel"] + p["Dense_1"]["bias"]
        return np.mean(z.argmax(1) == np.asarray(c["y"]))

    for part in ("test", "validation", "train"):
        weights = digits.part(part).count
        for prefix, params in (("", lambda i: result.model), ("personal_", result.personal)):
            each = np.array([accuracy(params(i), i, part) for i in range(10)])
            assert row[f"{prefix}{part}_accuracy"] == pytest.approx(np.average(each, weights=weights), abs=1e-6)
            assert row[f"{prefix}{part}_accuracy_mean"] == pytest.approx(each.mean(), abs=1e-6)
            assert row[f"{prefix}{part}_accuracy_std"] == pytest.approx(each.std(), abs=1e-6)
            assert row[f"{prefix}{part}_accuracy_worst"] == pytest.approx(each.min(), abs=1e-6)


def test_counters_count_what_is_sent_and_computed():
    d, counts = 6, regression().train.count
    plain = run(fedax.FedAvg(lr=0.05)).history[-1]
    assert plain["gradients"] == 4 * 6 * 3 * 4  # rounds, clients, steps, rows
    assert plain["floats_up"] == plain["floats_down"] == 4 * 6 * d
    variates = run(fedax.SCAFFOLD(lr=0.05, option="I")).history[-1]
    assert variates["gradients"] == plain["gradients"] + 4 * counts.sum()
    assert variates["floats_up"] == 2 * plain["floats_up"]
    assert run(fedax.APFL(lr=0.05)).history[-1]["gradients"] == 2 * plain["gradients"]
    alone = run(fedax.LocalOnly(lr=0.05), batch_size=None).history[-1]
    assert alone["gradients"] == 4 * 3 * counts.sum()
    assert alone["floats_up"] == alone["floats_down"] == 0


def test_flax_modules_pairs_and_functions_are_the_same_problem(digits):
    import flax.linen as nn

    def init(key, x):
        return {"w": jnp.zeros((64, 10)), "b": jnp.zeros(10)}

    def apply(p, x):
        return x @ p["w"] + p["b"]

    def loss(p, batch):
        z = apply(p, batch["x"])
        return jnp.mean(jax.nn.logsumexp(z, -1) - jnp.take_along_axis(z, batch["y"][:, None], 1)[:, 0])

    zero = nn.initializers.zeros
    problems = [
        fedax.Problem(nn.Dense(10, kernel_init=zero), loss="cross_entropy"),
        fedax.Problem((init, apply), loss="cross_entropy"),
        fedax.Problem(loss=loss, init=lambda key: init(key, None)),
    ]
    found = [
        run(fedax.FedAvg(lr=0.5), digits, p, local_epochs=1, local_steps=None).history[-1]["test_loss"]
        for p in problems
    ]
    assert found[0] == pytest.approx(found[1], rel=1e-5)
    assert found[0] == pytest.approx(found[2], rel=1e-5)


# -- results -------------------------------------------------------------------------------------------------


def test_save_and_load_give_the_same_result(tmp_path, digits):
    problem = fedax.Problem(model("mlp", outputs=10, hidden=(8,)), loss="cross_entropy")
    result = run(fedax.APFL(lr=0.1), digits, problem, out=tmp_path / "run")
    again = fedax.load(tmp_path / "run")
    assert again.history == result.history
    assert list(again.history.to_pandas()["round"]) == [0, 4]
    assert jax.tree.structure(again.model) == jax.tree.structure(result.model)
    assert np.array_equal(models(again), models(result))
    (tmp_path / "run" / "model.safetensors").write_bytes(b"\x10")
    with pytest.raises(fedax.FedaxError, match="cannot be read"):
        fedax.load(tmp_path / "run")
    with pytest.raises(fedax.FedaxError, match="not a saved run"):
        fedax.load(tmp_path)


def test_stream_yields_as_it_goes():
    rows = fedax.stream(LEAST_SQUARES, regression(), fedax.FedAvg(lr=0.05), rounds=5, eval_every=2)
    assert next(rows)["round"] == 0
    assert [row["round"] for row in rows] == [2, 4, 5]


@pytest.mark.parametrize("executor", ["batched", "looped"])
def test_a_diverging_run_stops_and_keeps_the_last_good_model(executor):
    with pytest.raises(fedax.DivergedError, match=r"FedAvg met NaN or infinity in round \d+") as caught:
        run(fedax.FedAvg(lr=1e6), rounds=200, eval_every=50, executor=executor)
    assert 1 < caught.value.round < 200
    assert np.all(np.isfinite(caught.value.result.model))
    simulation = fedax.Simulation(
        LEAST_SQUARES, regression(), fedax.FedAvg(lr=1e6), rounds=200, local_steps=3, batch_size=4, executor=executor
    )
    assert simulation.advance(caught.value.round - 1)
    assert np.array_equal(simulation.state.server.tree, caught.value.result.model)


def test_the_debug_executor_says_where():
    with pytest.raises(fedax.FedaxError, match=r"FedAvg: client \d+, round \d+, step \d+: NaN or infinity"):
        run(fedax.FedAvg(lr=1e30), executor="debug")


def test_a_loss_that_is_no_number_stops_with_the_model_of_the_last_evaluation():
    """The loss overflows (its square is beyond float32) while the parameters are still finite."""
    climbing = fedax.Problem(loss=lambda w, b: -jnp.exp(jnp.mean(w)) * 1e30, init=lambda key: jnp.zeros(1))
    with pytest.raises(fedax.DivergedError, match="FedAvg gave a loss that is NaN or infinite in round") as caught:
        run(fedax.FedAvg(lr=1e-30), problem=climbing, rounds=100, eval_every=1, batch_size=None, local_steps=1)
    kept = caught.value.result
    assert kept.history[-1]["round"] == caught.value.round - 1
    assert np.isfinite(kept.history[-1]["train_loss"])


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"rounds": 0}, "rounds must be a whole number from 1 to 2147483647, not 0"),
        ({"cohort": 7}, "cohort=7 is larger than the federation of 6 clients"),
        ({"cohort": 0}, "cohort must be"),
        ({"batch_size": -1}, "batch_size must be"),
        ({"eval_every": 0}, "eval_every must be"),
        ({"local_epochs": 1}, "local_steps or local_epochs, not both"),
        ({"local_epochs": -1, "local_steps": None}, "local_epochs must be a number above 0, not -1"),
        ({"sampling": "epoch"}, "did you mean 'epochs'"),
        ({"executor": "loop"}, "did you mean 'looped'"),
        ({"seed": -1}, "seed must be"),
        ({"devices": 1000}, "devices must be in"),
        ({"eval_on": ("test",)}, "no client has test rows"),
        ({"eval_on": ("tset",)}, "tset"),
    ],
)
def test_bad_settings_stop_before_any_work(options, message):
    with pytest.raises(fedax.FedaxError, match=message.replace("(", r"\(")):
        run(fedax.FedAvg(lr=0.1), **options)


def test_a_theorems_condition_is_said_once_and_only_when_it_fails(caplog):
    run(fedax.FedSpeed(lr=0.5, lam=1.5), local_steps=3)  # K = lam / lr
    assert "Theorem 4.4" not in caplog.text
    for _ in range(2):
        run(fedax.FedSpeed(lr=0.5, lam=1.75), local_steps=3)
    assert caplog.text.count("FedSpeed: 3 local steps are fewer than lam / lr = 3.5, for which Theorem 4.4") == 1


def test_feddeper_says_where_clients_that_sit_out_make_it_blow_up(caplog):
    flat = fedax.Problem(loss=lambda w, rows: 0.0 * jnp.sum(w) + rows["x"].mean(), init=lambda key: jnp.ones(1))
    same = fedax.Federation.from_clients([{"x": np.zeros((1, 1))}] * 10)
    how = {"rounds": 3, "cohort": 1, "local_steps": 4, "personal": False}
    fedax.simulate(flat, same, fedax.FedDeper(lr=0.1, rho=0.0125), **how)  # 4 * 0.0125 * 10 / (1 * 0.5) = 1
    assert "blow up" not in caplog.text
    fedax.simulate(flat, same, fedax.FedDeper(lr=0.1, rho=0.025), **how)
    assert "is 2, and well above 1 the method is likely to blow up: rho below 0.013, fewer steps" in caplog.text


def test_a_run_that_blows_up_repeats_what_was_said_before_it():
    bowl = fedax.Problem(loss=lambda w, rows: jnp.mean((w - rows["x"]) ** 2), init=lambda key: jnp.ones(1))
    same = fedax.Federation.from_clients([{"x": np.zeros((1, 1))}] * 10)
    how = {"rounds": 300, "cohort": 1, "local_steps": 4, "personal": False}
    with pytest.raises(fedax.DivergedError, match=r"the last good model is kept; .* likely to blow up: rho"):
        fedax.simulate(bowl, same, fedax.FedDeper(lr=0.01, rho=1.0), **how)


@pytest.mark.parametrize("decay", [0, -1, 2, "fast", None, True, [0.5], float("nan")])
def test_a_decay_that_is_no_share_is_refused(decay):
    with pytest.raises(fedax.FedaxError, match=r"decay must be a number in \(0, 1\]"):
        fedax.schedules.Exponential(0.1, decay)


def test_bad_problems_and_methods_stop_before_any_work(tmp_path, digits):
    with pytest.raises(fedax.FedaxError, match=r"lr must be in \(0, inf\), not -0.1"):
        fedax.FedAvg(lr=-0.1)
    with pytest.raises(fedax.FedaxError, match="option 'III'"):
        fedax.SCAFFOLD(lr=0.1, option="III")
    with pytest.raises(fedax.FedaxError, match=r"alpha must be in \[0, 1\], not 2"):
        fedax.APFL(lr=0.1, alpha=2)
    with pytest.raises(fedax.FedaxError, match="did you mean 'cross_entropy'"):
        fedax.Problem(model("mlp", outputs=10), loss="crossentropy")
    small = fedax.Problem(model("mlp", outputs=5), loss="cross_entropy")
    with pytest.raises(fedax.FedaxError, match="label 9 in 'y' is outside the model's range 0 to 4"):
        run(fedax.FedAvg(lr=0.1), digits, small)
    with pytest.raises(fedax.FedaxError, match="algorithm must be"):
        run("FedAvg")
    (tmp_path / "x").write_text("mine")
    with pytest.raises(fedax.FedaxError, match="already holds something"):
        run(fedax.FedAvg(lr=0.1), out=tmp_path)
    assert [p.name for p in tmp_path.iterdir()] == ["x"]


# -- how a round went --------------------------------------------------------------------------------------


@pytest.mark.parametrize("executor", ["batched", "looped", "debug"])
def test_drift_and_diversity_are_those_of_the_clients_changes(executor, x64):
    """With full gradients a FedAvg client's change is -lr K grad f_i(x) on a linear problem with K = 1."""
    federation = regression()
    result = run(
        fedax.FedAvg(lr=0.1), federation, rounds=1, local_steps=1, batch_size=None, executor=executor, eval_every=1
    )
    sent = []
    for i in range(federation.clients):
        c = federation.client(i)
        sent.append(0.1 * c["x"].T @ c["y"] / len(c["y"]))  # at x = 0
    sent = np.array(sent)
    square = np.mean(np.sum(sent**2, axis=1))
    row = result.history[-1]
    assert row["drift"] == pytest.approx(np.sqrt(square), rel=1e-5)
    assert row["diversity"] == pytest.approx(square / np.sum(sent.mean(0) ** 2), rel=1e-5)
    assert row["residual"] == 0
    assert "drift" not in result.history[0]


@pytest.mark.parametrize("executor", ["batched", "looped", "debug"])
def test_the_residual_is_how_far_clients_states_moved(executor):
    states = []
    for rounds in (2, 3):
        simulation = fedax.engine.Simulation(
            LEAST_SQUARES, regression(), fedax.SCAFFOLD(lr=0.05), rounds=rounds, local_steps=2, executor=executor
        )
        rows = list(simulation)
        states.append(np.stack([np.asarray(leaf) for leaf in jax.tree.leaves(simulation.state.clients)]))
    moved = np.sqrt(np.mean(np.sum((states[1] - states[0])[0] ** 2, axis=1)))
    assert rows[-1]["residual"] == pytest.approx(moved, rel=1e-4)


def test_clients_that_agree_have_diversity_one():
    same = fedax.Federation.from_clients([{"x": np.ones((4, 6)), "y": np.ones(4)}] * 3)
    result = run(fedax.FedAvg(lr=0.01), same, rounds=2, local_steps=2, batch_size=None)
    assert result.history[-1]["diversity"] == pytest.approx(1, rel=1e-5)


def test_clients_of_unequal_size_are_batched_only_where_waiting_costs_little():
    """One client of 9 takes all the steps; with its share of the rows larger, the others would wait longer."""

    def chosen(largest, features):
        sizes = np.array([20] * 8 + [largest])
        rows, none = fedax.data.Rows(np.cumsum(sizes) - sizes, sizes), fedax.data.Rows(0 * sizes, 0 * sizes)
        arrays = {"x": np.zeros((sizes.sum(), features), np.float32), "y": np.zeros(sizes.sum(), np.int32)}
        problem = fedax.Problem(model("logistic", outputs=3), loss="cross_entropy")
        options = {"rounds": 1, "local_epochs": 1, "batch_size": 20}
        federation = fedax.Federation(arrays, rows, none, none)
        return fedax.Simulation(problem, federation, fedax.FedAvg(lr=0.1), **options).prepared.executor.name

    assert [chosen(20, 4_000), chosen(4000, 4_000), chosen(4000, 40), chosen(20, 40_000)] == [
        "batched",
        "looped",
        "batched",
        "looped",
    ]


def test_an_augmentation_has_a_name():
    images = fedax.Problem(model("logistic", outputs=3), loss="cross_entropy", augment="flip-crop")
    assert images.augment(jax.random.key(0), {"x": jnp.zeros((2, 8, 8, 3))})["x"].shape == (2, 8, 8, 3)
    with pytest.raises(fedax.FedaxError, match="unknown augmentation 'flip': did you mean 'flip-crop'"):
        fedax.Problem(model("logistic", outputs=3), loss="cross_entropy", augment="flip")


def test_what_is_no_federation_is_named():
    with pytest.raises(fedax.FedaxError, match=r"federation must be a fedax\.Federation, .* not 3"):
        fedax.Simulation(LEAST_SQUARES, 3, fedax.FedAvg(lr=0.1), rounds=1)
