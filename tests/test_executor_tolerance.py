"""Executors and numbers of devices agree up to rounding, by the tolerance that docs/architecture.md states."""

from __future__ import annotations

from typing import Any

import jax
import numpy as np
import pytest

import fedax
from conftest import LEAST_SQUARES, regression, vector

TOLERANCE = 1e-5  # of the difference's norm, relative to the model's, as docs/architecture.md says
HOW: dict[str, Any] = {"rounds": 50, "cohort": 4, "local_steps": 4, "batch_size": 5, "seed": 3, "eval_every": 50}
METHODS = [fedax.FedAvg(lr=0.05), fedax.SCAFFOLD(lr=0.05), fedax.APFL(lr=0.05, alpha=0.5)]


@pytest.mark.parametrize("method", METHODS, ids=lambda m: type(m).__name__)
def test_one_device_and_the_debug_executor_agree_with_the_rest(method: Any) -> None:
    def run(**more: Any) -> Any:
        return fedax.simulate(LEAST_SQUARES, regression(), method, **HOW, **more)

    several = run(executor="batched")
    others = [run(executor="batched", devices=1), run(executor="looped"), run(executor="debug")]
    for other in others:
        assert distance(other.model, several.model) < TOLERANCE
        for i in range(several.clients if several.has_personal else 0):
            assert distance(other.personal(i), several.personal(i)) < TOLERANCE
        loss = [result.history[-1]["train_loss"] for result in (other, several)]
        assert loss[0] == pytest.approx(loss[1], rel=TOLERANCE)
    again = run(executor="batched")
    np.testing.assert_array_equal(vector(again.model), vector(several.model))  # the same way, the same bits


def distance(a: Any, b: Any) -> float:
    a, b = (np.concatenate([np.ravel(leaf) for leaf in jax.tree.leaves(tree)]).astype(np.float64) for tree in (a, b))
    return float(np.linalg.norm(a - b) / np.linalg.norm(b))
