"""Models that draw and models with state: BatchNorm, dropout, and anybody's apply of five arguments."""

from __future__ import annotations

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import fedax
from conftest import vector
from fedax import randomness
from fedax.engine.api import stream
from fedax.errors import FedaxError
from fedax.model_state import WithState, running
from fedax.problem.oracle import BatchOracle
from fedax.vectors import Vector, repeat

OPTIONS = {"rounds": 3, "local_steps": 3, "batch_size": 4}


class Net(nn.Module):
    """Dense, BatchNorm, ReLU, dropout, Dense."""

    rate: float = 0.0

    @nn.compact
    def __call__(self, x, train):
        x = nn.BatchNorm(use_running_average=not train, momentum=0.8)(nn.Dense(5)(x))
        x = nn.Dropout(self.rate, deterministic=not train)(nn.relu(x))
        return nn.Dense(1)(x)


class Dropped(nn.Module):
    """Dropout alone: random, without state."""

    @nn.compact
    def __call__(self, x, deterministic=True):
        return nn.Dense(1)(nn.Dropout(0.5, deterministic=deterministic)(nn.Dense(8)(x)))


def rows(seed, n):
    rng = np.random.default_rng(seed)
    x = (rng.normal(size=(n, 4)) * (1 + seed) + seed).astype(np.float32)
    return {"x": x, "y": (x @ np.float32([1, -1, 0.5, 2]) / (1 + seed)).astype(np.float32)}


def clients(sizes=(12, 20, 9, 16)):
    return fedax.Federation.from_clients([rows(i, n) for i, n in enumerate(sizes)])


def problem(model=None, **options):
    return fedax.Problem(model or Net(), loss="squared", **options)


def run(method=None, on=None, federation=None, **options):
    given = OPTIONS | {"model_state": "average"} | options
    return fedax.simulate(on or problem(), federation or clients(), method or fedax.FedAvg(lr=0.05), **given)


def close(one, other, tolerance=2e-5):
    jax.tree.map(lambda a, b: np.testing.assert_allclose(a, b, rtol=tolerance, atol=tolerance), one, other)


# -- what a run does with state --------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["average", "client"])
@pytest.mark.parametrize("weighted", [False, True])
def test_fedavg_with_batchnorm_is_the_one_written_by_hand(rule, weighted):
    federation, lr, eps, momentum = clients((12, 20)), 0.05, 1e-5, 0.8
    seed, rounds, steps, batch = 3, 3, 4, 5
    found = run(
        federation=federation,
        seed=seed,
        rounds=rounds,
        local_steps=steps,
        batch_size=batch,
        weighted=weighted,
        model_state=rule,
    )

    def forward(p, mean, var, x):
        h = x @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"]
        h = (h - mean) / jnp.sqrt(var + eps) * p["BatchNorm_0"]["scale"] + p["BatchNorm_0"]["bias"]
        return (jnp.maximum(h, 0) @ p["Dense_1"]["kernel"] + p["Dense_1"]["bias"])[:, 0]

    def loss(p, x, y):
        h = x @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"]
        mean = h.mean(0)
        var = (h**2).mean(0) - mean**2
        return jnp.mean((forward(p, mean, var, x) - y) ** 2) / 2, (mean, var)

    first = problem().init(randomness.key_for(seed, randomness.INIT), {"x": jnp.zeros((2, 4))})
    x = first.params["params"]
    shared = (jnp.zeros(5), jnp.ones(5))
    kept = [shared, shared]
    share = np.array([12, 20]) / 32 if weighted else np.array([0.5, 0.5])
    for r in range(rounds):
        ends = []
        for i in range(2):
            data = federation.client(i)
            key = randomness.key_for(jax.random.key(seed), randomness.ROWS, r, i)
            picked = randomness.draw_rows(key, steps, batch, len(data["y"]), "epochs")
            p, (mean, var) = x, shared if rule == "average" else kept[i]
            for k in range(steps):
                g, (m, v) = jax.grad(loss, has_aux=True)(p, data["x"][picked[k]], data["y"][picked[k]])
                p = jax.tree.map(lambda a, b: a - lr * b, p, g)
                mean, var = momentum * mean + (1 - momentum) * m, momentum * var + (1 - momentum) * v
            ends.append((p, (mean, var)))
            kept[i] = (mean, var)
        x, shared = jax.tree.map(lambda a, b: share[0] * a + share[1] * b, *ends)
    close(found.model.params["params"], x, 1e-6)
    for i in range(2):
        mean, var = shared if rule == "average" else kept[i]
        model = found.personal(i)
        close(model.state["batch_stats"]["BatchNorm_0"], {"mean": mean, "var": var}, 2e-6)
        close(problem().outputs(model, federation.client(i))[:, 0], forward(x, mean, var, federation.client(i)["x"]))
    losses = [
        jnp.mean((forward(x, *(shared if rule == "average" else kept[i]), d["x"]) - d["y"]) ** 2) / 2
        for i, d in enumerate(map(federation.client, range(2)))
    ]
    np.testing.assert_allclose(found.history[-1]["train_loss_mean"], np.mean(losses), rtol=1e-5)


METHODS = [
    (fedax.FedAvg(lr=0.05), "client"),
    (fedax.SCAFFOLD(lr=0.05, option="I"), "average"),
    (fedax.FedSpeed(lr=0.05), "average"),
    (fedax.PFedMe(lr=0.05, lam=2.0, inner_lr=0.1), "client"),
    (fedax.PerFedAvg(lr=0.05, alpha=0.01), "average"),
    (fedax.APFL(lr=0.05), "client"),
    (fedax.FedPD(lr=0.05, eta=1.0, skip=0.3), "average"),
    (fedax.Localised(fedax.FedAvg(lr=0.05), steps=3), "average"),
    (fedax.Robust(fedax.FedAvg(lr=0.05), rule="median"), "average"),
]


@pytest.mark.parametrize(("method", "rule"), METHODS, ids=lambda given: str(given).partition("(")[0])
def test_every_executor_gives_the_same(method, rule):
    net = problem(Net(rate=0.2))
    options = {"model_state": rule, "local_epochs": 1, "local_steps": None, "rounds": 2, "eval_every": 2}
    batched, looped, debug = (run(method, net, executor=name, **options) for name in ("batched", "looped", "debug"))
    for other in (looped, debug):
        close(batched.model, other.model, 1e-4)
        close([batched.personal(i) for i in range(4)], [other.personal(i) for i in range(4)], 1e-4)
        for key, value in batched.history[-1].items():
            if key != "seconds":
                np.testing.assert_allclose(other.history[-1][key], value, rtol=1e-3, atol=1e-5, err_msg=key)
    assert np.isfinite(vector(batched.model)).all()


@pytest.mark.parametrize("rule", ["average", "client"])
def test_state_moves_and_what_is_sent_is_counted(rule):
    found = run(model_state=rule)
    plain = 5 * 4 + 5 + 5 + 5 + 5 + 1  # dense, BatchNorm's scale and shift, dense
    sent = plain + (10 if rule == "average" else 0)
    last = found.history[-1]
    assert last["floats_up"] == last["floats_down"] == 3 * 4 * sent
    states = [vector(found.personal(i).state) for i in range(4)]
    assert all(
        np.abs(state - vector(problem().init(jax.random.key(0), rows(0, 2)).state)).max() > 0.1 for state in states
    )
    apart = max(np.abs(a - b).max() for a in states for b in states)
    assert apart > 0.1 if rule == "client" else apart == 0
    if rule == "client":  # the server never hears of it
        np.testing.assert_array_equal(found.model.state["batch_stats"]["BatchNorm_0"]["mean"], 0)


def test_several_gradients_in_one_step_each_pass_the_state_on():
    """PFedMe's inner loop of n steps at lr -> 0 sees the same minibatch n times."""
    federation = clients((4,))
    still = {"federation": federation, "rounds": 1, "local_steps": 1, "batch_size": 4}
    state = {}
    for steps in (1, 3):
        method = fedax.PFedMe(lr=1e-9, lam=1.0, inner_lr=1e-9, inner_steps=steps)
        state[steps] = run(method, **still).model.state["batch_stats"]["BatchNorm_0"]["mean"]
    np.testing.assert_allclose(state[3], state[1] * (1 - 0.8**3) / (1 - 0.8), rtol=1e-4)
    perturbed = run(fedax.FedSpeed(lr=1e-9, rho=0.0), **still).model.state["batch_stats"]["BatchNorm_0"]["mean"]
    np.testing.assert_allclose(perturbed, state[1] * (1 - 0.8**2) / (1 - 0.8), rtol=1e-4)


def test_newcomers_find_a_state_of_their_own():
    federation = clients((12, 20, 9, 16, 14))
    found = run(federation=federation, model_state="client", unseen=0.2, eval_on=["train"])
    late = int(np.flatnonzero(found.by_client.unseen)[0])
    own = found.personal(late).state["batch_stats"]["BatchNorm_0"]["mean"]
    assert np.abs(own).max() > 0.05
    assert np.isfinite(found.by_client.moments["last"].get("shared", "train", "loss")).all()
    assert np.isfinite(run(federation=federation, unseen=0.2, eval_on=["train"]).history[-1]["train_loss"])


def test_a_regularizer_acts_on_parameters_alone():
    psi = fedax.regularizers.L1(0.01)
    for rule in ("average", "client"):
        for method in (fedax.FedMiD(lr=0.05), fedax.Ditto(lr=0.05, lam=0.1)):
            row = run(method, problem(regularizer=psi), model_state=rule).history[-1]
            assert all(np.isfinite(value) for value in row.values())
    model = run(fedax.FedMiD(lr=0.05), problem(regularizer=psi)).model
    density = np.mean(np.abs(np.concatenate([v.ravel() for k, v in flat(model.params) if "bias" not in k])) > 1e-2)
    assert density == pytest.approx(run(fedax.FedMiD(lr=0.05), problem(regularizer=psi)).history[-1]["density"])


def flat(tree):
    return [(jax.tree_util.keystr(path), np.asarray(leaf)) for path, leaf in jax.tree_util.tree_leaves_with_path(tree)]


# -- saving, resuming, sweeping --------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["average", "client"])
def test_saved_and_loaded(tmp_path, rule):
    found, federation = run(fedax.Ditto(lr=0.05, lam=0.1), model_state=rule), clients()
    again = fedax.load(found.save(tmp_path / "run"))
    jax.tree.map(np.testing.assert_array_equal, found.model, again.model)
    for i in range(4):
        jax.tree.map(np.testing.assert_array_equal, found.personal(i), again.personal(i))
        assert problem().outputs(again.personal(i), federation.client(i)).shape == (len(federation.client(i)["y"]), 1)


@pytest.mark.parametrize("rule", ["average", "client"])
def test_a_resumed_run_goes_on_to_the_same_bits(tmp_path, rule):
    options = OPTIONS | {"rounds": 6, "model_state": rule, "cohort": 3}
    method, net = fedax.SCAFFOLD(lr=0.05), problem(Net(rate=0.3))
    whole = fedax.simulate(net, clients(), method, **options)
    again = {**options, "out": tmp_path / "run", "checkpoint_every": 0}
    rounds = stream(net, clients(), method, **again)
    for row in rounds:
        if row["round"] == 3:
            break
    rounds.close()
    other = {"average": "client", "client": "average"}[rule]
    with pytest.raises(FedaxError, match="model_state was"):
        fedax.simulate(net, clients(), method, **again | {"model_state": other, "resume": True})
    found = fedax.simulate(problem(Net(rate=0.3)), clients(), method, **again, resume=True)
    jax.tree.map(np.testing.assert_array_equal, whole.model, found.model)
    for i in range(4):
        jax.tree.map(np.testing.assert_array_equal, whole.personal(i), found.personal(i))


def test_states_beside_the_devices_and_sweeps():
    method, net = fedax.SCAFFOLD(lr=0.05), problem(Net(rate=0.2))
    expected = run(method, net, model_state="client", cohort=2)
    stored = run(method, net, model_state="client", cohort=2, state_budget=500, executor="looped")
    assert stored.info["states"] != "devices"
    close(stored.model, expected.model, 1e-4)
    close(stored.personal(2), expected.personal(2), 1e-4)
    for mode in ("batched", "sequence"):
        lanes = fedax.sweep(
            net, clients(), [method, fedax.SCAFFOLD(lr=0.02)], mode=mode, model_state="client", cohort=2, **OPTIONS
        )
        close(lanes[0].model, expected.model, 1e-4)
        assert lanes[0].info["algorithm"] == repr(method)


def test_an_experiment_file_says_what_clients_do(tmp_path):
    (tmp_path / "nets.py").write_text(
        "from flax import linen as nn\n"
        "class Net(nn.Module):\n"
        "    outputs: int\n"
        "    @nn.compact\n"
        "    def __call__(self, x, train: bool):\n"
        "        return nn.Dense(self.outputs)(nn.BatchNorm(use_running_average=not train)(x))\n"
    )
    table = {
        "rounds": 2,
        "batch_size": 4,
        "model_state": "average",
        "data": {"name": "iris"},
        "model": {"name": f"{tmp_path / 'nets.py'}:Net"},
        "algorithm": {"name": "FedAvg", "lr": 0.1},
    }
    experiment = fedax.experiments.parse(table)
    on, federation = fedax.experiments.prepare(experiment)
    options = fedax.experiments.building.options(experiment, 0)
    found = fedax.simulate(on, federation, fedax.FedAvg(lr=0.1), **options)
    assert isinstance(found.model, WithState)
    with pytest.raises(FedaxError, match="model_state"):
        fedax.experiments.parse(table | {"model_state": "averaged"})


# -- draws -----------------------------------------------------------------------------------------------------


def test_dropout_needs_no_rule_and_is_off_in_evaluation():
    options = {"method": fedax.FedAvg(lr=0.002), "on": problem(Dropped()), "model_state": None}
    one, again, other = run(**options), run(**options), run(**options, seed=1)
    np.testing.assert_array_equal(vector(one.model), vector(again.model))
    assert np.abs(vector(one.model) - vector(other.model)).max() > 1e-3
    assert not isinstance(one.model, WithState)
    p, x = one.model["params"], rows(0, 12)["x"]
    plain = (x @ p["Dense_1"]["kernel"] + p["Dense_1"]["bias"]) @ p["Dense_0"]["kernel"] + p["Dense_0"]["bias"]
    np.testing.assert_allclose(problem(Dropped()).outputs(one.model, {"x": x}), plain, rtol=1e-4, atol=1e-5)
    without = run(
        fedax.FedAvg(lr=0.002), on=problem((lambda key, x: Dropped().init(key, x), Dropped().apply)), model_state=None
    )
    assert np.abs(vector(one.model) - vector(without.model)).max() > 1e-3


def masks(**options):
    """What a model draws in every step of every client: its gradient with respect to a weight a draw."""

    def init(key, x):
        return {"w": jnp.zeros((6,))}, ()

    def apply(params, state, x, key, train):
        drawn = jax.random.uniform(key) if train else 0.0
        return jnp.broadcast_to(params["w"][:1] * drawn, (len(x), 1)), state

    @fedax.algorithm
    class Note(fedax.Algorithm):
        def client_init(self, x0):
            return jnp.zeros((2, 3))

        def begin(self, x, client, ctx):
            return jnp.zeros((2, 3))

        def step(self, noted, oracle, x, client, ctx):
            first = oracle.grad(x).tree["w"][0]
            second = oracle.fresh(1).grad(x).tree["w"][0]
            return noted.at[:, ctx.step].set(jnp.stack([first, second]))

        def finish(self, noted, oracle, x, client, ctx):
            return x - x, noted

        def update(self, x, delta, ctx):
            return x

        def personal(self, x, client, oracle):
            return Vector({"w": client.ravel()})

        personalised = True

    on = fedax.Problem((init, apply), loss=lambda z, y: z[:, 0])
    federation = fedax.Federation.from_clients([{"x": np.ones((4, 1), np.float32), "y": np.ones(4)}] * 3)
    found = fedax.simulate(on, federation, Note(), rounds=1, local_steps=3, batch_size=2, **options)
    seen = [np.asarray(found.personal(i)["w"]) for i in range(3)]
    return np.stack(seen)


def test_draws_differ_between_calls_steps_clients_and_seeds_and_are_made_again():
    drawn = masks()
    assert len(np.unique(drawn)) == 3 * 3 * 2
    for executor in ("looped", "debug"):
        np.testing.assert_array_equal(masks(executor=executor), drawn)
    assert not np.isin(masks(seed=1), drawn).any()
    key = randomness.key_for(jax.random.key(0), randomness.MODEL, 0, 2, 1)
    assert drawn[2].reshape(2, 3)[1, 1] == jax.random.uniform(jax.random.fold_in(key, 1))


def test_inner_loops_draw_again():
    def draw(now):
        return jax.random.uniform(now.next_key())

    with running((), jax.random.key(0)) as now:
        looped = repeat(3, lambda n, noted: noted.at[n].set(draw(now)), jnp.zeros(3))
        after = draw(now)
    expected = [jax.random.uniform(jax.random.fold_in(jax.random.key(0), n)) for n in range(4)]
    np.testing.assert_array_equal([*looped, after], expected)


# -- the full form ---------------------------------------------------------------------------------------------


def counting():
    """A model that counts its training calls, in whole numbers."""

    def init(key, x):
        return {"w": jnp.ones((4, 1))}, {"calls": jnp.zeros((), jnp.int32)}

    def apply(params, state, x, key, train):
        return x @ params["w"], {"calls": state["calls"] + train}

    return init, apply


def test_anybody_s_model_of_the_full_form():
    for rule in ("average", "client"):
        found = run(on=problem(counting()), model_state=rule)
        assert int(found.personal(1).state["calls"]) == 9  # 3 rounds of 3 steps
    full = run(fedax.SCAFFOLD(lr=0.01, option="I"), problem(counting()))
    assert int(full.model.state["calls"]) == 9  # the full local gradient is taken in evaluation


def test_a_mode_without_state_or_draws_is_a_plain_model():
    class Scaled(nn.Module):
        @nn.compact
        def __call__(self, x, train: bool = False):
            return nn.Dense(1)(x * (2.0 if train else 1.0))

    found = run(on=problem(Scaled()), model_state=None)
    assert not isinstance(found.model, WithState)
    model = problem(Scaled()).init(jax.random.key(0), rows(0, 2))
    assert BatchOracle(problem(Scaled()), rows(0, 2), train=True).value(Vector(model)) != problem(Scaled()).loss(
        model, rows(0, 2)
    )


def test_normalised_images_may_have_batchnorm():
    class Images(nn.Module):
        outputs: int = 3

        @nn.compact
        def __call__(self, x, train):
            return nn.Dense(3)(nn.BatchNorm(use_running_average=not train)(x.reshape(len(x), -1)))

    rng = np.random.default_rng(0)
    some = [{"x": rng.integers(0, 255, (8, 2, 2, 1)).astype(np.uint8), "y": rng.integers(0, 3, 8)} for _ in range(2)]
    scaled = fedax.models.Normalised(Images(), mean=(0.5,), std=(0.2,))
    on = fedax.Problem(scaled, loss="cross_entropy")
    found = run(on=on, federation=fedax.Federation.from_clients(some))
    assert np.abs(found.model.state["batch_stats"]["BatchNorm_0"]["mean"]).max() > 0.01


# -- refusals --------------------------------------------------------------------------------------------------


def test_what_is_refused_before_any_work():
    def refused(message, **options):
        with pytest.raises(FedaxError, match=message):
            run(**options)

    refused(r"the model has state \(batch_stats\): model_state must say", model_state=None)
    refused("unknown model_state 'mean'", model_state="mean")
    refused("batch_size is missing: the model has state", batch_size=None)
    refused("batch_size is missing: the model draws", on=problem(Dropped()), model_state=None, batch_size=None)
    refused("the model has no state, so it must be left out", on=problem(Dropped()))
    plain = (lambda key, x: {"w": jnp.ones((4, 1))}, lambda p, x: x @ p["w"])
    refused("the model has no state, so it must be left out", on=problem(plain))
    hidden = (lambda key, x: Net().init(key, x, train=False), lambda p, x: Net().apply(p, x, train=False))
    refused("would train them by gradient", on=problem(hidden), model_state=None)
    init, apply = counting()
    refused(r"the pair \(params, state\)", on=problem((lambda key, x: {"w": 1.0}, apply)))
    refused("a state like the one", on=problem((init, lambda p, s, x, key, train: (x @ p["w"], {"calls": 1.0}))))

    class Always(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(1)(nn.Dropout(0.5, deterministic=False)(x))

    refused("the model Always draws in evaluation too", on=problem(Always()), model_state=None)

    class Moving(nn.Module):
        @nn.compact
        def __call__(self, x):
            return nn.Dense(1)(nn.BatchNorm(use_running_average=False)(x))

    refused("the model Moving changes its state in evaluation too", on=problem(Moving()))
    bad = fedax.Problem(loss=lambda p, b: 0.0, init=lambda key: {"params": 1.0, "batch_stats": 2.0})
    refused("init gives batch_stats", on=bad, model_state=None)


# -- over a network --------------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["average", "client"])
def test_a_run_over_flower_is_the_simulated_one(tmp_path, rule):
    pytest.importorskip("flwr")
    from fedax.flower import Setting, client_app
    from fedax.flower.server import serve
    from flower_grid import LocalGrid

    net = problem(Net(rate=0.2), trainable=lambda path: "Dense_0" not in path)
    federation = clients((12, 12, 12))
    work = OPTIONS | {"model_state": rule, "seed": 2, "eval_every": 3, "eval_on": ("train",)}
    asked = Setting(net, fedax.SCAFFOLD(lr=0.05), federation=federation, **work)
    grid = LocalGrid(tmp_path, client_app(asked), 3)
    ours = serve(grid, asked, tmp_path / "run", {"round-timeout": 0.01}, pause=0.0)
    theirs = fedax.simulate(net, federation, fedax.SCAFFOLD(lr=0.05), **work)
    close(ours.model, theirs.model)
    for key in ("train_loss", "train_loss_worst", "floats_up", "floats_down"):
        assert ours.history[-1][key] == pytest.approx(theirs.history[-1][key], rel=1e-4), key
    if rule == "client":
        own = [fedax.load(path) for path in sorted(tmp_path.glob("states/*/client-*/own"))]
        assert len(own) == 3
        for i, kept in enumerate(own):
            close(kept.model, theirs.personal(i))


def test_flower_refuses_a_state_without_a_rule():
    pytest.importorskip("flwr")
    from fedax.flower import Setting

    asked = Setting(problem(), fedax.FedAvg(lr=0.05), federation=clients(), **OPTIONS)
    with pytest.raises(FedaxError, match="model_state must say"):
        asked.first_parameters({})
