"""What a server lets through of an upload, and the sentence for what it does not."""

from __future__ import annotations

import hypothesis
import hypothesis.strategies as st
import ml_dtypes
import numpy as np
import pytest

from fedax.errors import FedaxError
from fedax.flower.guard import Guard
from fedax.privacy.clipping import norm

MODEL = {"0.w": np.zeros((2, 3), np.float32), "1.b": np.zeros(3, np.float32)}


def upload(**changes: np.ndarray) -> dict[str, np.ndarray]:
    return {**{name: np.ones_like(array) for name, array in MODEL.items()}, **changes}


def test_a_good_upload_passes() -> None:
    assert Guard().check(1, MODEL, upload()) is None
    assert Guard(max_norm=3.0).check(1, MODEL, upload()) is None  # nine ones
    assert Guard().check(1, {}, {}) is None  # a method that uploads nothing


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({}, ["none", "0.w, 1.b"]),
        ({"0.w": np.ones((2, 3), np.float32)}, ["the arrays 0.w", "0.w, 1.b"]),
        (upload(extra=np.ones(1)), ["extra"]),
        (upload(**{"0.w": np.ones((3, 2), np.float32)}), ["0.w", "float32[3, 2]", "float32[2, 3]"]),
        (upload(**{"1.b": np.ones(3, np.float64)}), ["1.b", "float64[3]", "float32[3]"]),
        (upload(**{"1.b": np.float32([1, np.nan, 1])}), ["NaN or infinity", "1 of the 3", "1.b"]),
        (upload(**{"1.b": np.float32([-np.inf, np.nan, np.inf])}), ["NaN or infinity", "3 of the 3"]),
    ],
)
def test_a_bad_upload_is_named_with_its_node(wrong: dict[str, np.ndarray], words: list[str]) -> None:
    why = Guard(max_norm=1e30).check(8127, MODEL, wrong)
    assert why is not None
    assert why.startswith("the upload of node 8127 ")
    assert all(word in why for word in words)
    assert "\n" not in why


def test_half_precision_is_checked_without_overflow() -> None:
    for dtype in (np.float16, ml_dtypes.bfloat16):
        large = {"w": np.full(4, 3e4, dtype)}  # its squares are infinite in half precision
        assert norm(large) == pytest.approx(2 * float(large["w"][0].astype(np.float64)))
        assert Guard(max_norm=7e4).check(1, large, large) is None
        assert Guard(max_norm=5e4).check(1, large, large) is not None
        assert Guard().check(1, large, {"w": np.array([1, 2, np.nan, 3], dtype)}) is not None


@hypothesis.given(st.floats(0.1, 1e6), st.floats(1.001, 1e3))
def test_the_bound_is_on_all_arrays_as_one_vector(bound: float, beyond: float) -> None:
    whole = {"w": np.ones((2, 3)), "b": np.ones(3)}
    at = {name: array * (bound / 3.0) for name, array in whole.items()}  # nine ones have norm 3
    guard = Guard(max_norm=bound * (1 + 1e-9))
    assert guard.check(1, at, at) is None
    assert guard.check(1, at, {name: array * beyond for name, array in at.items()}) is not None


@pytest.mark.parametrize("bound", [0, -1.0, float("nan"), True, "2"])
def test_a_bound_that_is_none_is_refused(bound: object) -> None:
    with pytest.raises(FedaxError, match="max_norm is"):
        Guard(max_norm=bound)  # type: ignore[arg-type]
