"""A sweep is the same as its runs one by one."""

from __future__ import annotations

import numpy as np
import pytest

import fedax
from conftest import LEAST_SQUARES, regression, vector

OPTIONS = {"rounds": 5, "cohort": 3, "local_steps": 3, "batch_size": 4, "eval_every": 2}


@pytest.mark.parametrize("method", [fedax.SCAFFOLD(lr=0.1), fedax.APFL(lr=0.1, adaptive=True)], ids=repr)
def test_a_sweep_is_its_runs_one_by_one(method):
    settings = fedax.grid(method, {"lr": [0.01, 0.05, 0.1]})
    together = fedax.sweep(LEAST_SQUARES, regression(), settings, **OPTIONS)
    for algorithm, found in zip(settings, together, strict=True):
        alone = fedax.simulate(LEAST_SQUARES, regression(), algorithm, **OPTIONS)
        np.testing.assert_allclose(vector(found.model), vector(alone.model), rtol=1e-5, atol=1e-7)
        np.testing.assert_allclose(found.personal(2), alone.personal(2), rtol=1e-5, atol=1e-7)
        assert [row["round"] for row in found.history] == [0, 2, 4, 5]
        for mine, theirs in zip(found.history, alone.history, strict=True):
            assert mine["gradients"] == theirs["gradients"]
            assert mine["train_loss"] == pytest.approx(theirs["train_loss"], rel=1e-4)


def test_a_setting_that_diverges_stops_alone():
    settings = fedax.grid(fedax.FedAvg(lr=0.1), {"lr": [0.05, 1e6, 0.1]})
    found = fedax.sweep(LEAST_SQUARES, regression(), settings, **OPTIONS | {"rounds": 60, "eval_every": 10})
    assert [("diverged" in r.info) for r in found] == [False, True, False]
    assert found[0].history[-1]["round"] == found[2].history[-1]["round"] == 60
    assert found[1].history[-1]["round"] < 60
    alone = fedax.simulate(LEAST_SQUARES, regression(), settings[2], **OPTIONS | {"rounds": 60, "eval_every": 10})
    np.testing.assert_allclose(found[2].model, alone.model, rtol=1e-4, atol=1e-6)


def test_progress_and_bad_input():
    seen = []
    settings = fedax.grid(fedax.FedAvg(lr=0.1), {"lr": [0.1, 0.2], "server_lr": [0.5, 1.0]})
    fedax.sweep(LEAST_SQUARES, regression(), settings, on_progress=seen.append, **OPTIONS)
    assert seen[-1] == 4 * 5
    with pytest.raises(fedax.FedaxError, match="no field 'rate' to sweep over"):
        fedax.grid(fedax.FedAvg(lr=0.1), {"rate": [1.0]})
    with pytest.raises(fedax.FedaxError, match="differ in numbers alone, not 2 kinds"):
        fedax.sweep(LEAST_SQUARES, regression(), [fedax.SCAFFOLD(0.1), fedax.SCAFFOLD(0.1, option="I")], **OPTIONS)
    with pytest.raises(fedax.FedaxError, match="executor='debug' is for single runs"):
        fedax.sweep(LEAST_SQUARES, regression(), settings, executor="debug", **OPTIONS)
