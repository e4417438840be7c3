"""Problem(trainable=): the other leaves are constants of the program."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import fedax
from conftest import regression, vector
from fedax import randomness
from fedax.engine.api import stream
from fedax.errors import FedaxError

OPTIONS = {"rounds": 3, "local_steps": 3, "batch_size": 4, "cohort": 4}
HEAD = 5 + 1


class Net(nn.Module):
    """A body and a head."""

    @nn.compact
    def __call__(self, x):
        return nn.Dense(1, name="head")(nn.relu(nn.Dense(5, name="body")(x)))


def problem(trainable="head", **options):
    return fedax.Problem(Net(), loss="squared", trainable=trainable, **options)


def run(method=None, on=None, **options):
    return fedax.simulate(on or problem(), regression(), method or fedax.FedAvg(lr=0.05), **OPTIONS | options)


def first(seed=0):
    return problem(None).init(randomness.key_for(seed, randomness.INIT), {"x": jnp.zeros((2, 6))})


@pytest.mark.parametrize(
    "method",
    [fedax.FedAvg(lr=0.05), fedax.SCAFFOLD(lr=0.05), fedax.Ditto(lr=0.05, lam=0.1), fedax.APFL(lr=0.05)],
    ids=lambda method: type(method).__name__,
)
def test_frozen_leaves_stay_and_are_not_counted(method):
    for executor in ("batched", "debug"):
        found, whole = run(method, executor=executor), run(method, problem(None), executor=executor)
        for model in (found.model, *(found.personal(i) for i in range(6))):
            parts = [model] if isinstance(model, dict) else [model.own, model.shared]
            for part in parts:
                np.testing.assert_array_equal(vector(part["params"]["body"]), vector(first()["params"]["body"]))
        assert np.abs(vector(found.model["params"]["head"]) - vector(first()["params"]["head"])).max() > 1e-3
        last, other = found.history[-1], whole.history[-1]
        assert last["floats_up"] * (6 * 5 + 5 + HEAD) == other["floats_up"] * HEAD
        assert last["floats_down"] * (6 * 5 + 5 + HEAD) == other["floats_down"] * HEAD


def test_training_the_head_is_regression_on_the_body_s_features():
    body = first()["params"]["body"]

    def features(x):
        return np.asarray(nn.relu(x @ body["kernel"] + body["bias"]))

    some = regression()
    featured = fedax.Federation.from_clients(
        [{"x": features(some.client(i)["x"].astype(np.float32)), "y": some.client(i)["y"]} for i in range(6)]
    )
    start = first()["params"]["head"]
    head = fedax.Problem((lambda key, x: start, lambda p, x: x @ p["kernel"] + p["bias"]), loss="squared")
    expected = fedax.simulate(head, featured, fedax.SCAFFOLD(lr=0.05), **OPTIONS)
    found = run(fedax.SCAFFOLD(lr=0.05))
    np.testing.assert_allclose(vector(found.model["params"]["head"]), vector(expected.model), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found.history[-1]["train_loss"], expected.history[-1]["train_loss"], rtol=1e-4)


def test_runs_with_other_seeds_share_a_problem_and_not_what_is_frozen():
    on = problem()
    together = [run(on=on, seed=seed) for seed in (0, 1, 0)]
    for seed, found in zip((0, 1, 0), together, strict=True):
        alone = run(on=problem(), seed=seed)
        jax.tree.map(np.testing.assert_array_equal, found.model, alone.model)
        np.testing.assert_array_equal(vector(found.model["params"]["body"]), vector(first(seed)["params"]["body"]))


def test_clients_keep_no_frozen_leaves():
    run_of = fedax.engine.Simulation(problem(), regression(), fedax.SCAFFOLD(lr=0.05), **OPTIONS)
    assert sum(leaf[0].size for leaf in jax.tree.leaves(run_of.state.clients)) == HEAD
    assert sum(leaf.size for leaf in jax.tree.leaves(run_of.state.server)) == 2 * HEAD


def test_saved_loaded_and_predicted(tmp_path):
    found = run(fedax.Ditto(lr=0.05, lam=0.1))
    again = fedax.load(found.save(tmp_path / "run"))
    batch = {"x": regression().client(0)["x"].astype(np.float32)}
    for one, other in ((found.model, again.model), (found.personal(3), again.personal(3))):
        jax.tree.map(np.testing.assert_array_equal, one, other)
        expected = Net().apply(other, batch["x"])
        for on in (problem(), problem(None)):
            np.testing.assert_allclose(on.outputs(other, batch), expected, rtol=1e-6)
    alone = run(fedax.LocalOnly(lr=0.05))
    np.testing.assert_array_equal(vector(alone.personal(2)["params"]["body"]), vector(first()["params"]["body"]))


def test_a_resumed_run_goes_on_to_the_same_bits(tmp_path):
    options = OPTIONS | {"rounds": 6}
    whole = run(fedax.SCAFFOLD(lr=0.05), rounds=6)
    again = {**options, "out": tmp_path / "run", "checkpoint_every": 0}
    rounds = stream(problem(), regression(), fedax.SCAFFOLD(lr=0.05), **again)
    for row in rounds:
        if row["round"] == 3:
            break
    rounds.close()
    with pytest.raises(FedaxError, match="under another experiment"):
        fedax.simulate(problem("body"), regression(), fedax.SCAFFOLD(lr=0.05), **again, resume=True)
    found = fedax.simulate(problem(), regression(), fedax.SCAFFOLD(lr=0.05), **again, resume=True)
    jax.tree.map(np.testing.assert_array_equal, whole.model, found.model)


def test_a_regularizer_acts_on_what_is_trained():
    psi = fedax.regularizers.L1(0.05)
    found = run(fedax.FedMiD(lr=0.05), problem("head", regularizer=psi))
    kernel = np.asarray(found.model["params"]["head"]["kernel"])
    assert found.history[-1]["density"] == pytest.approx(np.mean(np.abs(kernel) > 1e-2))
    with pytest.raises(FedaxError, match="selects none of the leaves"):
        run(fedax.FedMiD(lr=0.05), problem("head", regularizer=fedax.regularizers.L1(0.05, on="body")))


def test_a_loss_without_a_model_has_trainable_leaves_too():
    def loss(w, batch):
        return jnp.mean((batch["x"] @ w["slope"] + w["start"] - batch["y"]) ** 2)

    on = fedax.Problem(loss=loss, init=lambda key: {"slope": jnp.zeros(6), "start": jnp.ones(())}, trainable="slope")
    model = run(on=on).model
    assert float(model["start"]) == 1.0
    assert np.abs(model["slope"]).max() > 1e-3


def test_patterns_and_functions():
    for trainable, leaves in (("*kernel", 2), ("params/head", 2), (lambda path: path.endswith("head.bias"), 1)):
        params = problem(trainable).init(jax.random.key(0), {"x": jnp.zeros((2, 6))})
        assert len(jax.tree.leaves(params)) == leaves
    with pytest.raises(FedaxError, match=r"trainable='haed' selects none of the leaves params\.body\.bias"):
        run(on=problem("haed"))
    with pytest.raises(FedaxError, match="the function trainable selects none"):
        run(on=problem(lambda path: False))
    with pytest.raises(FedaxError, match="trainable must be a path pattern, a function of a path or None, not 3"):
        problem(3)


def test_frozen_leaves_may_be_whole_numbers():
    def init(key, x):
        return {"w": jnp.zeros((6, 1)), "order": jnp.arange(5, -1, -1)}

    on = fedax.Problem((init, lambda p, x: x[:, p["order"]] @ p["w"]), loss="squared", trainable="w")
    assert run(on=on).model["order"].dtype == np.int32


def test_batchnorm_with_a_frozen_body():
    class Normed(nn.Module):
        @nn.compact
        def __call__(self, x, train):
            return nn.Dense(1, name="head")(nn.BatchNorm(use_running_average=not train)(nn.Dense(5, name="body")(x)))

    for rule in ("average", "client"):
        on = fedax.Problem(Normed(), loss="squared", trainable="head")
        found = run(fedax.Ditto(lr=0.05, lam=0.1), on, model_state=rule)
        assert found.history[-1]["floats_up"] == 3 * 4 * (HEAD + (10 if rule == "average" else 0))
        assert set(found.personal(1).params["params"]) == {"head", "body", "BatchNorm_0"}
        assert np.abs(found.personal(1).state["batch_stats"]["BatchNorm_0"]["mean"]).max() > 1e-3


def test_an_experiment_file_names_what_is_trained():
    table = {
        "rounds": 2,
        "data": {"name": "iris"},
        "model": {"name": "mlp", "hidden": [4]},
        "problem": {"trainable": "Dense_1"},
        "algorithm": {"name": "FedAvg", "lr": 0.1},
    }
    on, federation = fedax.experiments.prepare(fedax.experiments.parse(table))
    found = fedax.simulate(on, federation, fedax.FedAvg(lr=0.1), rounds=1)
    assert found.history[-1]["floats_up"] == 10 * (4 * 3 + 3)
