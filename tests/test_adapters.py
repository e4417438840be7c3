"""Models of Flax NNX, Equinox and Keras: each gives what its own library gives, and comes back in its own structure."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

import fedax
from fedax.errors import FedaxError
from fedax.model_state import parted
from fedax.models.adapters import as_model, library_of

KEY = jax.random.key(0)
OPTIONS = {"rounds": 3, "cohort": 2, "local_steps": 3, "batch_size": 6, "model_state": "average"}


class NNXNet(nnx.Module):
    """Dense, BatchNorm, dropout, dense; a variable that nothing changes."""

    def __init__(self, rate=0.5, seed=0):
        rngs = nnx.Rngs(seed)
        self.layers = nnx.List([nnx.Linear(3, 4, rngs=rngs)])
        self.norm = nnx.BatchNorm(4, momentum=0.8, rngs=rngs)
        self.drop = nnx.Dropout(rate, rngs=rngs)
        self.head = nnx.Linear(4, 2, rngs=rngs)
        self.scale = nnx.Variable(jnp.float32(2.0))

    def __call__(self, x):
        for layer in self.layers:
            x = layer(x)
        return self.head(self.drop(nnx.relu(self.norm(x)))) * self.scale


def nnx_net(rate=0.5):
    return NNXNet(rate)


def nnx_call(net, x, train):
    made = nnx.clone(net)
    made.train() if train else made.eval()
    return made(x), {"norm.mean": made.norm.mean[...], "norm.var": made.norm.var[...]}


def equinox_net(rate=0.5, mode="batch"):
    eqx = pytest.importorskip("equinox", reason="Equinox is not installed")

    class Net(eqx.Module):
        first: eqx.nn.Linear
        norm: eqx.nn.BatchNorm
        drop: eqx.nn.Dropout
        head: eqx.nn.Linear
        scale: float

        def __init__(self, key):
            one, two = jax.random.split(key)
            self.first, self.head = eqx.nn.Linear(3, 4, key=one), eqx.nn.Linear(4, 2, key=two)
            self.norm = eqx.nn.BatchNorm(4, "rows", momentum=0.8, mode=mode)
            self.drop, self.scale = eqx.nn.Dropout(rate), 2.0

        def __call__(self, x, state, *, key=None):
            x, state = self.norm(self.first(x), state)
            return self.head(self.drop(jax.nn.relu(x), key=key)) * self.scale, state

    return eqx.nn.make_with_state(Net)(KEY)


def equinox_call(pair, x, train):
    import equinox as eqx

    net = eqx.nn.inference_mode(pair[0], value=not train)
    state = jax.tree.map(jnp.array, pair[1])
    keys = jax.random.split(KEY, len(x))
    mapped = jax.vmap(lambda x, s, key: net(x, s, key=key), (0, None, 0), (0, None), axis_name="rows")
    outputs, state = mapped(x, state, keys)
    leaves = jax.tree.leaves(state)
    return outputs, dict(zip(("0", "1.0", "1.1"), leaves, strict=True))


def keras_library():
    os.environ.setdefault("KERAS_BACKEND", "jax")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        keras = pytest.importorskip("keras", reason="Keras is not installed")
    if keras.backend.backend() != "jax":
        pytest.skip("Keras runs on another backend")
    return keras


def keras_net(rate=0.5):
    keras = keras_library()
    layers = keras.layers
    return keras.Sequential(
        [
            keras.Input((3,)),
            layers.Dense(4, name="first"),
            layers.BatchNormalization(momentum=0.8, name="norm"),
            layers.Dropout(rate),
            layers.Dense(3, name="fixed", trainable=False),
            layers.Dense(2, name="head"),
        ],
        name="net",
    )


def keras_call(net, x, train):
    values = [v.value for v in net.trainable_variables], [v.value for v in net.non_trainable_variables]
    outputs, after = net.stateless_call(*values, x, training=train)
    named = {v.path.replace("/", "."): a for v, a in zip(net.non_trainable_variables, after, strict=True)}
    return outputs, {name: a for name, a in named.items() if "moving" in name}


LIBRARIES = {"nnx": (nnx_net, nnx_call), "equinox": (equinox_net, equinox_call), "keras": (keras_net, keras_call)}


@pytest.fixture(params=LIBRARIES)
def library(request):
    return request.param, *LIBRARIES[request.param]


def rows(n=6, seed=0):
    return np.random.default_rng(seed).normal(size=(n, 3)).astype(np.float32)


def clients():
    made = [{"x": rows(18, i), "y": (rows(18, i)[:, 0] > 0).astype(np.int32)} for i in range(3)]
    return fedax.Federation.from_clients(made)


def test_the_library_is_found(library):
    name, make, _ = library
    assert library_of(make()) == name


@pytest.mark.parametrize("train", [False, True])
def test_outputs_and_state_are_the_librarys(library, train):
    _, make, call = library
    net, x = make(0.0), rows()
    model = as_model(net)
    params, state = model.init(KEY, x)
    outputs, after = model.apply(params, state, x, KEY if train else None, train)
    expected, left = call(net, x, train)
    np.testing.assert_allclose(outputs, expected, atol=1e-6)
    assert set(left) == set(after) == set(state)
    for key, value in left.items():
        np.testing.assert_allclose(after[key], value, atol=1e-6, err_msg=key)
    changed = any(not np.array_equal(after[key], state[key]) for key in state)
    assert changed == train


def test_dropout_draws_from_the_key_alone(library):
    _, make, _ = library
    model, x = as_model(make()), rows()
    params, state = model.init(KEY, x)
    one, again, two = (model.apply(params, state, x, jax.random.key(i), True)[0] for i in (1, 1, 2))
    np.testing.assert_array_equal(one, again)
    assert not np.allclose(one, two)
    drawn = jax.vmap(lambda key: model.apply(params, state, x, key, True)[0])(jax.random.split(KEY, 3))
    assert not np.allclose(drawn[0], drawn[1])
    problem = fedax.Problem(make(), loss="cross_entropy")
    problem.init(KEY, {"x": x})
    assert problem.draws
    still = fedax.Problem(make(0.0), loss="cross_entropy")
    still.init(KEY, {"x": x})
    assert not still.draws


def test_a_run_and_back(library, tmp_path):
    _, make, call = library
    net, x = make(), rows()
    before = np.asarray(call(net, x, False)[0])
    problem = fedax.Problem(net, loss="cross_entropy")
    result = fedax.simulate(problem, clients(), fedax.Ditto(lr=0.1, lam=0.1), out=tmp_path / "run", **OPTIONS)
    assert result.history[-1]["train_loss"] < result.history[0]["train_loss"]
    expected = problem.outputs(result.model, {"x": x})
    np.testing.assert_allclose(call(result.to_model(net), x, False)[0], expected, atol=1e-5)
    np.testing.assert_array_equal(call(net, x, False)[0], before)  # the model that was given is only read
    saved = fedax.load(tmp_path / "run")
    np.testing.assert_allclose(call(saved.to_model(net), x, False)[0], expected, atol=1e-6)
    own = result.personal_to_model(1, net)
    np.testing.assert_allclose(call(own, x, False)[0], problem.outputs(result.personal(1), {"x": x}), atol=1e-5)


def test_frozen_parts_and_patterns(library):
    _, make, _ = library
    problem = fedax.Problem(make(), loss="cross_entropy", trainable="*head*")
    result = fedax.simulate(problem, clients(), fedax.FedAvg(lr=0.1), **OPTIONS)
    first, last = parted(fedax.Problem(make(), loss="cross_entropy").init(KEY, {"x": rows()}))[0], result.model.params
    if library[0] == "keras":  # its initial weights are drawn from another generator
        return
    for name, value in first.items():
        assert np.array_equal(value, last[name]) == ("head" not in name), name


def test_parameters_of_another_architecture(library):
    _, make, _ = library
    model = as_model(make())
    params, state = model.init(KEY, rows())
    name = next(iter(params))
    with pytest.raises(FedaxError, match=r"has shape \(9,\) and in .*: the parameters are those of another"):
        model.restored({**params, name: jnp.zeros(9)}, state)
    with pytest.raises(FedaxError, match="'other' is not in"):
        model.restored({**params, "other": jnp.zeros(9)}, state)


def test_constants_are_neither_trained_nor_state():
    params, state = as_model(NNXNet()).init(KEY, rows())
    assert set(state) == {"norm.mean", "norm.var"}
    assert "scale" not in params


def test_shared_parameters_of_nnx_are_one():
    class Tied(nnx.Module):
        def __init__(self):
            self.one = nnx.Linear(3, 3, rngs=nnx.Rngs(0))
            self.two = self.one

        def __call__(self, x):
            return self.two(self.one(x))

    net, x = Tied(), rows()
    model = as_model(net)
    params, state = model.init(KEY, x)
    assert set(params) == {"one.kernel", "one.bias"}
    moved = {name: value + 1 for name, value in params.items()}
    back = model.restored(moved, state)
    assert back.one is back.two
    np.testing.assert_allclose(back(x), model.apply(moved, state, x, None, False)[0], rtol=1e-6)


def test_an_nnx_call_that_is_told_its_mode():
    class Told(nnx.Module):
        def __init__(self):
            self.layer, self.drop = nnx.Linear(3, 2, rngs=nnx.Rngs(0)), nnx.Dropout(0.5, rngs=nnx.Rngs(1))

        def __call__(self, x, *, deterministic):
            return self.drop(self.layer(x), deterministic=deterministic)

    model, x = as_model(Told()), rows()
    params, state = model.init(KEY, x)
    calm = model.apply(params, state, x, None, False)[0]
    assert not np.allclose(model.apply(params, state, x, KEY, True)[0], calm)


def test_bytes_are_scaled():
    x = np.array([[0, 255, 51]], np.uint8)
    model = as_model(nnx.Linear(3, 2, rngs=nnx.Rngs(0)))
    params, state = model.init(KEY, x)
    found = model.apply(params, state, x, None, False)[0]
    np.testing.assert_allclose(found, model.apply(params, state, np.float32(x / 255), None, False)[0], rtol=1e-6)


def test_an_equinox_layer_that_takes_a_key_and_draws_nothing():
    eqx = pytest.importorskip("equinox", reason="Equinox is not installed")
    problem = fedax.Problem(eqx.nn.MLP(3, 2, 4, 1, key=KEY), loss="cross_entropy")
    found = fedax.simulate(problem, clients(), fedax.FedAvg(lr=0.1), rounds=2, local_steps=2)  # full gradients
    assert not problem.draws
    assert np.isfinite(found.history[-1]["train_loss"])


class AlwaysDrawn(nnx.Module):
    def __init__(self):
        self.layer, self.rngs = nnx.Linear(3, 2, rngs=nnx.Rngs(0)), nnx.Rngs(1)

    def __call__(self, x):
        return self.layer(x) + jax.random.normal(self.rngs(), (2,))


def test_refusals():
    with pytest.raises(FedaxError, match="the model AlwaysDrawn draws in evaluation too"):
        fedax.simulate(
            fedax.Problem(AlwaysDrawn(), loss="cross_entropy"), clients(), fedax.FedAvg(lr=0.1), rounds=1, batch_size=2
        )
    with pytest.raises(FedaxError, match=r"Dropout has no nnx.Param: nothing would be trained"):
        fedax.Problem(nnx.Dropout(0.5), loss="cross_entropy")
    made = fedax.Federation.from_clients([{"x": np.zeros((8, 4), np.float32), "y": np.zeros(8, np.int32)}])
    problem = fedax.Problem(NNXNet(), loss="cross_entropy")
    with pytest.raises(FedaxError, match=r"the model cannot be initialised on this federation: .*dot_general"):
        fedax.simulate(problem, made, fedax.FedAvg(lr=0.1), **{**OPTIONS, "cohort": 1})


def test_refusals_of_equinox_and_keras():
    eqx = pytest.importorskip("equinox", reason="Equinox is not installed")
    with pytest.raises(FedaxError, match=r"the call of Net takes a state: give the pair \(module, state\)"):
        fedax.Problem(equinox_net()[0], loss="cross_entropy")
    with pytest.raises(FedaxError, match=r"BatchNorm in Net has mode='ema': take BatchNorm\(\.\.\., mode='batch'\)"):
        fedax.Problem(equinox_net(mode="ema"), loss="cross_entropy")
    with pytest.raises(FedaxError, match="Identity has no array of floating-point numbers"):
        fedax.Problem(eqx.nn.Identity(), loss="cross_entropy")
    keras = keras_library()
    with pytest.raises(FedaxError, match=r"Sequential has no weights yet: call it on a batch first"):
        fedax.Problem(keras.Sequential([keras.layers.Dense(2)]), loss="cross_entropy")


def test_models_by_their_names_from_outside(tmp_path):
    path = tmp_path / "mine.py"
    path.write_text(
        "from flax import nnx\n"
        "def make(outputs, width=4):\n"
        "    rngs = nnx.Rngs(0)\n"
        "    return nnx.Sequential(nnx.Linear(3, width, rngs=rngs), nnx.relu, nnx.Linear(width, outputs, rngs=rngs))\n"
    )
    net = fedax.models.model(f"{path}:make", outputs=2, width=5)
    params, _ = as_model(net).init(KEY, rows())
    assert params["layers.0.kernel"].shape == (3, 5)


def test_no_library_is_imported_to_find_out():
    names = "'flax.nnx', 'equinox', 'keras', 'torch'"
    code = f"import sys, fedax; fedax.Problem((print, print), loss='mse'); assert not {{{names}}} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
