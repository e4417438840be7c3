"""Batches whose x is a dictionary, and targets of any shape."""

from __future__ import annotations

import jax.numpy as jnp
import numpy as np
import pytest
from flax import linen as nn

import fedax
from conftest import vector
from fedax.errors import FedaxError
from fedax.problem.check_data import check_data

OPTIONS = {"rounds": 3, "local_steps": 2, "batch_size": 4}


class Tagger(nn.Module):
    """A class for each position of a masked sequence."""

    @nn.compact
    def __call__(self, x):
        hidden = nn.Embed(7, 4)(x["ids"]) * x["mask"][..., None]
        return nn.Dense(3)(hidden)


def rows(seed, n=10):
    rng = np.random.default_rng(seed)
    ids = rng.integers(0, 7, (n, 5))
    return {"x": {"ids": ids, "mask": (rng.random((n, 5)) > 0.2).astype(np.float32)}, "y": (ids + seed) % 3}


def clients(**options):
    return fedax.Federation.from_clients([rows(i, 8 + 3 * i) for i in range(3)], **options)


def problem(**options):
    return fedax.Problem(Tagger(), loss="cross_entropy", **options)


def test_the_model_gets_the_dictionary():
    expected = None
    for executor in ("batched", "looped", "debug"):
        found = fedax.simulate(problem(), clients(), fedax.FedAvg(lr=0.5), executor=executor, **OPTIONS)
        expected = vector(found.model) if expected is None else expected
        np.testing.assert_allclose(vector(found.model), expected, rtol=1e-4, atol=1e-5)
    assert found.history[-1]["train_loss"] < found.history[0]["train_loss"]
    batch = clients().client(1)
    assert set(batch["x"]) == {"ids", "mask"}
    assert problem().outputs(found.model, batch).shape == (11, 5, 3)


def test_the_numbers_are_those_of_one_array():
    """The same model on ids and mask side by side in one array."""

    class Beside(nn.Module):
        @nn.compact
        def __call__(self, x):
            hidden = nn.Embed(7, 4)(x[:, 0].astype(int)) * x[:, 1][..., None]
            return nn.Dense(3)(hidden)

    given = [rows(i) for i in range(3)]
    beside = [{"x": np.stack([r["x"]["ids"], r["x"]["mask"]], 1).astype(np.float32), "y": r["y"]} for r in given]
    on = fedax.Problem(Beside(), loss="cross_entropy")
    one = fedax.simulate(on, fedax.Federation.from_clients(beside), fedax.FedAvg(lr=0.5), **OPTIONS)
    two = fedax.simulate(problem(), fedax.Federation.from_clients(given), fedax.FedAvg(lr=0.5), **OPTIONS)
    np.testing.assert_array_equal(vector(one.model), vector(two.model))


def test_parts_partitions_and_functions_of_a_batch(tmp_path):
    split = clients(split=(0.6, 0.2, 0.2))
    found = fedax.simulate(problem(), split, fedax.Ditto(lr=0.5, lam=0.1), **OPTIONS, unseen=0.34, out=tmp_path / "run")
    assert np.isfinite(found.history[-1]["personal_test_loss"])
    divided = fedax.data.IID(2).divide(rows(0, 12))
    assert set(divided.arrays) == {"x.ids", "x.mask", "y"}
    flat = fedax.Federation({"x": divided.client(0)["x"]}, *(fedax.data.Rows([0], [n]) for n in (6, 0, 0)))
    assert set(flat.arrays) == {"x.ids", "x.mask"}

    def loss(w, batch):
        return jnp.mean((batch["x"]["mask"] @ w - batch["y"].mean(-1)) ** 2)

    def augment(key, batch):
        return {**batch, "x": {**batch["x"], "mask": batch["x"]["mask"] * 0}}

    without = fedax.Problem(loss=loss, init=lambda key: jnp.zeros(5))
    assert np.abs(fedax.simulate(without, clients(), fedax.FedAvg(lr=0.1), **OPTIONS).model).max() > 1e-3
    blind = fedax.Problem(loss=loss, init=lambda key: jnp.zeros(5), augment=augment)
    assert np.abs(fedax.simulate(blind, clients(), fedax.FedAvg(lr=0.1), **OPTIONS).model).max() == 0


def test_targets_of_any_shape_with_a_loss_of_one_number_a_row():
    def pairwise(z, y):
        return jnp.mean((z[..., 0] - y) ** 2, axis=-1)

    on = fedax.Problem(Tagger(), loss=pairwise)
    found = fedax.simulate(on, clients(), fedax.SCAFFOLD(lr=0.1), **OPTIONS)
    assert found.history[-1]["train_loss"] < found.history[0]["train_loss"]


def test_what_is_refused():
    missing, wider = rows(1), rows(1)
    del missing["x"]["mask"]
    wider["x"]["ids"] = np.zeros((10, 6), int)

    def refused(message, *given):
        with pytest.raises(FedaxError, match=message):
            fedax.Federation.from_clients(list(given))

    refused(r"client 1 has the arrays \['x.ids', 'y'\] and client 0 has \['x.ids', 'x.mask', 'y'\]", rows(0), missing)
    refused(r"client 1 has array 'x.ids' with rows of shape \(6,\)", rows(0), wider)
    refused("client 0 has array 'x' as an empty dictionary", {"x": {}, "y": [1]})
    refused("client 0 has the key 3 in the dictionary 'x'", {"x": {3: [1]}, "y": [1]})
    plain = fedax.Problem(fedax.models.Linear(outputs=3), loss="cross_entropy")
    with pytest.raises(FedaxError, match="the model cannot be initialised on this federation"):
        fedax.simulate(plain, clients(), fedax.FedAvg(lr=0.1), rounds=1)


def test_a_flower_loader_may_return_dictionaries():
    pytest.importorskip("flwr")
    from fedax.flower.rows import from_loader

    for loaded in (rows(0), {"train": rows(0), "test": rows(1)}):
        assert set(from_loader(loaded).arrays) == {"x.ids", "x.mask", "y"}


def test_the_next_token_and_positions_that_are_left_out():
    """The loss, the accuracy and the perplexity, against NumPy's."""
    rng = np.random.default_rng(0)
    z, y = rng.normal(size=(4, 5, 7)).astype(np.float32), rng.integers(0, 7, (4, 5))
    y[:2, 3:] = -100
    asked = fedax.Problem((lambda key, x: jnp.zeros(()), lambda w, x: x + w), loss="next_token", metrics=["perplexity"])
    batch = {"x": jnp.asarray(z), "y": jnp.asarray(y)}
    check_data(asked, jnp.zeros(()), {"x": z, "y": y})
    records = asked.records(jnp.zeros(()), batch)
    logs = z[:, :-1] - np.log(np.exp(z[:, :-1]).sum(-1, keepdims=True))
    after = y[:, 1:]
    losses = -np.take_along_axis(logs, np.maximum(after, 0)[..., None], -1)[..., 0]
    counted = after != -100
    np.testing.assert_allclose(records["loss"], (losses * counted).sum(1) / counted.sum(1), rtol=1e-5)
    right = (z[:, :-1].argmax(-1) == after) & counted
    np.testing.assert_allclose(records["accuracy"], right.sum(1) / counted.sum(1), rtol=1e-6)
    metric = asked.metrics["perplexity"]
    parts = [metric.statistic_of(np.asarray(records["perplexity"])[rows]) for rows in (slice(1), slice(1, 4))]
    assert metric.merged(parts) == pytest.approx(np.exp(losses[counted].mean()), rel=1e-5)
    with pytest.raises(FedaxError, match="label -1 in 'y' is outside the model's range 0 to 6"):
        check_data(asked, jnp.zeros(()), {"x": z, "y": np.where(y == -100, -1, y)})
    with pytest.raises(FedaxError, match="next_token needs outputs for two positions a row or more"):
        check_data(asked, jnp.zeros(()), {"x": z[:, 0], "y": y[:, 0]})
