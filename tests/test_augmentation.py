"""Augmentation: what becomes of an image, and of a run whose minibatches are changed."""

from __future__ import annotations

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedax
from conftest import vector
from fedax.experiments import parse
from fedax.models import model
from fedax.models.augmentation import AUGMENTATIONS, PADDING, flip_crop

SHAPES = {"grey": (8, 8), "wide": (6, 9), "colour": (5, 5, 3)}


def possibilities(image):
    """Every crop of the padded image and of its mirror image, by slicing: 81 places, 2 sides."""
    around = [(PADDING, PADDING)] * 2 + [(0, 0)] * (image.ndim - 2)
    height, width = image.shape[:2]
    return {
        (mirrored, down, across): np.pad(side, around)[down : down + height, across : across + width]
        for mirrored, side in ((False, image), (True, np.flip(image, axis=1)))
        for down in range(2 * PADDING + 1)
        for across in range(2 * PADDING + 1)
    }


@pytest.mark.parametrize("dtype", ["float32", "uint8"])
@pytest.mark.parametrize("shape", SHAPES)
def test_each_image_becomes_one_of_162_and_each_of_them_occurs(shape, dtype):
    shape = SHAPES[shape]
    image = 1 + np.arange(np.prod(shape)).reshape(shape).astype(dtype)  # no two places alike, none like the padding
    allowed = {place: crop.tobytes() for place, crop in possibilities(image).items()}
    assert len(set(allowed.values())) == 162
    rows = 4000  # a possibility is missed with probability 162 (1 - 1/162)^4000 < 3e-9
    batch = {"x": jnp.asarray(np.broadcast_to(image, (rows, *shape))), "y": jnp.arange(rows)}
    made = jax.jit(flip_crop)(jax.random.key(3), batch)
    assert made["x"].shape == batch["x"].shape
    assert made["x"].dtype == image.dtype
    np.testing.assert_array_equal(made["y"], np.arange(rows))
    found = [crop.tobytes() for crop in np.asarray(made["x"])]
    assert set(found) == set(allowed.values())


def test_larger_images_are_padded_by_an_eighth():
    image = jnp.ones((400, 64, 20))
    made = np.asarray(flip_crop(jax.random.key(0), {"x": image[:, :, :, None]})["x"])[..., 0]
    empty = (made == 0).all(axis=2).sum(axis=1)  # rows of the picture that lie outside of the image
    assert set(empty) == set(range(9))


def test_rows_are_drawn_one_by_one_and_stay_in_their_places():
    images = np.random.default_rng(0).normal(size=(50, 7, 7)).astype(np.float32)
    made = np.asarray(flip_crop(jax.random.key(0), {"x": jnp.asarray(images)})["x"])
    places = []
    for image, crop in zip(images, made, strict=True):
        (place,) = [place for place, allowed in possibilities(image).items() if np.array_equal(allowed, crop)]
        places.append(place)
    assert len(set(places)) > 25
    assert {mirrored for mirrored, _, _ in places} == {True, False}


def test_every_name_is_a_function_of_key_and_batch():
    batch = {"x": jnp.ones((2, 4, 4)), "y": jnp.array([0, 1])}
    for augment in AUGMENTATIONS.values():
        assert set(augment(jax.random.key(0), batch)) == {"x", "y"}


# -- runs --------------------------------------------------------------------------------------------------

OPTIONS = {"rounds": 6, "cohort": 3, "local_steps": 2, "batch_size": 4, "eval_every": 3}


def images(clients=4):
    rng = np.random.default_rng(1)
    made = [{"x": rng.normal(size=(12, 6, 6)).astype(np.float32), "y": np.arange(12) % 3} for _ in range(clients)]
    return fedax.Federation.from_clients(made)


@functools.cache  # its compiled programs are kept with it
def problem(augment=flip_crop):
    return fedax.Problem(model("mlp", outputs=3, hidden=[5]), loss="cross_entropy", augment=augment)


def test_a_run_is_the_same_again_and_another_without_augmentation():
    one, two = (fedax.simulate(problem(), images(), fedax.FedAvg(lr=0.1), **OPTIONS) for _ in range(2))
    plain = fedax.simulate(problem(None), images(), fedax.FedAvg(lr=0.1), **OPTIONS)
    np.testing.assert_array_equal(vector(one.model), vector(two.model))
    assert np.abs(vector(one.model) - vector(plain.model)).max() > 1e-3


@pytest.mark.parametrize("executor", ["looped", "debug"])
@pytest.mark.parametrize("method", [fedax.FedAvg(lr=0.1), fedax.SCAFFOLD(lr=0.1, option="I")])
def test_augmentation_does_not_depend_on_the_executor(method, executor):
    batched = fedax.simulate(problem(), images(), method, executor="batched", **OPTIONS)
    other = fedax.simulate(problem(), images(), method, executor=executor, **OPTIONS)
    np.testing.assert_allclose(vector(batched.model), vector(other.model), rtol=0, atol=1e-5)


def test_what_is_evaluated_is_not_augmented():
    """The losses of the history, and of each client, are those of the kept models on the images as they are."""
    result = fedax.simulate(problem(), images(), fedax.FedAvg(lr=0.1), eval_on=["train"], **OPTIONS)
    losses = [float(problem(None).loss(result.model, images().client(i))) for i in range(4)]
    assert result.history[-1]["train_loss"] == pytest.approx(np.mean(losses), rel=1e-5)


def test_full_local_gradients_are_of_the_images_as_they_are():
    options = {**OPTIONS, "batch_size": None}
    pair = [fedax.simulate(problem(a), images(), fedax.FedAvg(lr=0.1), **options) for a in (flip_crop, None)]
    np.testing.assert_array_equal(*(vector(result.model) for result in pair))


@pytest.mark.parametrize(("said", "meant"), [("none", None), ("flip-crop", "flip-crop")])
def test_an_experiment_names_its_augmentation(said, meant):
    table = {"rounds": 1, "batch_size": 5, "data": {"name": "digits"}, "model": {"name": "logistic"}}
    made = parse({**table, "problem": {"augment": said}, "algorithm": {"name": "FedAvg", "lr": 0.1}})
    assert made.problem.augment == meant
