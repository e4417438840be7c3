"""Checks that a problem takes data: rows of the model's shape, labels in its range, loss and metrics of each row."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.data.nested import nested
from fedax.errors import FedaxError
from fedax.metrics import check_outputs
from fedax.model_state import parted
from fedax.own_code import defined, place, words
from fedax.problem.gradients import refuse_stateful
from fedax.problem.losses import LEFT_OUT, classes_last
from fedax.problem.oracle import Batch
from fedax.problem.problem import Problem


def check_data(problem: Problem, params: Any, arrays: Mapping[str, np.ndarray]) -> None:
    """Refuse data that a problem cannot take: shapes, labels outside the model's range."""
    trained, state = parted(params)
    if problem.row_privacy is not None and (problem.draws or jax.tree.leaves(state)):
        what = "keeps state, such as BatchNorm's" if jax.tree.leaves(state) else "draws, such as for dropout"
        raise FedaxError(f"gradients: dp clips the gradient of each row by itself, and the model {what}")
    if problem.regularizer is not None:
        problem.regularizer.check(trained)
    refuse_stateful(problem.gradients, trained)
    sample = {
        k: jax.ShapeDtypeStruct((2, *a.shape[1:]), jax.dtypes.canonicalize_dtype(a.dtype)) for k, a in arrays.items()
    }
    if problem.model is not None:
        if problem.builtin is not None and "y" not in arrays:
            raise FedaxError(f"loss={problem.name!r} needs the array 'y'; the federation has {', '.join(arrays)}")
        try:
            z = jax.eval_shape(lambda p, b: problem.outputs(p, b), params, sample)
            _check_state(problem, params, sample)
        except FedaxError:
            raise
        except (TypeError, ValueError) as error:
            shapes = jax.tree.map(lambda a: a.shape[1:], nested(sample)["x"])
            whose = place(error)
            said = f"{_own_model(problem)}: {_first_line(error)}" if whose is None else f"{whose} raises {words(error)}"
            raise FedaxError(f"the model does not take rows of shape {shapes}: {said}") from error
        if problem.builtin is not None and not _is_of_rows(z):
            has = f"{z.dtype}{list(z.shape)}" if isinstance(z, jax.ShapeDtypeStruct) else type(z).__name__
            raise FedaxError(f"{_own_model(problem)} must give an array of real numbers a row, and of 2 gives {has}")
        _check_labels(problem, z, arrays)
        _check_loss(problem, "one number a row", (2,), lambda p, b: problem.row_losses(p, b), params, sample)
        if isinstance(z, jax.ShapeDtypeStruct):
            check_outputs(problem.metrics.values(), int(np.prod(z.shape[1:])))
    _check_loss(problem, "one number a batch", (), lambda p, b: problem.loss(p, b), params, sample)
    _check_metrics(problem, params, sample)


def _own_model(problem: Problem) -> str:
    """The model's name, and where its function is defined if it is one."""
    model = getattr(problem.model, "model", problem.model)
    apply = model[1] if isinstance(model, tuple) else getattr(model, "apply", None)
    return f"the model {defined(apply) if inspect.isfunction(apply) else type(model).__name__}"


def _check_loss(problem: Problem, what: str, shape: tuple[int, ...], function: Any, params: Any, sample: Batch) -> None:
    """Refuse a loss whose values are not floating-point numbers of the expected shape."""
    own = problem.own_loss
    named = "the loss" if problem.builtin is not None or own is None else f"the loss {defined(own)}"
    try:
        found = jax.eval_shape(function, params, sample)
    except FedaxError:
        raise
    except Exception as error:
        if (whose := place(error)) is not None:
            rows = ", ".join(f"{name} {a.dtype}{list(a.shape[1:])}" for name, a in sorted(sample.items()))
            raise FedaxError(f"the problem does not take rows of {rows}: {whose} raises {words(error)}") from error
        raise FedaxError(f"{named} must give {what}: {_first_line(error)}") from error
    if not isinstance(found, jax.ShapeDtypeStruct):
        raise FedaxError(f"{named} must give {what}, not {type(found).__name__}")
    if found.shape != shape:
        each = f"an array of shape {found.shape[len(shape) :]}{' for each' * bool(shape)}"
        rows = f"{found.shape[0]} of 2 rows" if shape and found.shape[:1] not in ((), shape) else each
        raise FedaxError(f"{named} must give {what}, not {rows if found.shape else 'one for all'}")
    if not jnp.issubdtype(found.dtype, jnp.floating):
        raise FedaxError(f"{named} must give {what}, floating and not {found.dtype}")


def _check_state(problem: Problem, model: Any, sample: Batch) -> None:
    """Refuse a model whose state comes back from training in another shape."""
    new = jax.eval_shape(lambda m, b, k: problem.outputs_and_state(m, b, k, True), model, sample, jax.random.key(0))[1]
    old, new = (jax.tree.map(lambda a: (a.shape, str(a.dtype)), s) for s in (parted(model)[1], new))
    if old != new:
        raise FedaxError(f"apply must return a state like the one that it was given, {old}, not {new}")


def _check_metrics(problem: Problem, params: Any, sample: Batch) -> None:
    """Refuse metrics that fail on these rows, or give something else than a number or a record a row."""
    asked = [metric for name, metric in problem.metrics.items() if name not in ("loss", "accuracy")]
    for metric in asked:
        try:
            args = problem.seen_by_metrics
            found = jax.eval_shape(lambda p, b, m=metric, a=args: jnp.asarray(m.rows(*a(p, b))), params, sample)
        except (TypeError, ValueError, AttributeError, IndexError) as error:
            raise FedaxError(f"metric {metric.name!r} cannot take these rows: {_first_line(error)}") from error
        if found.ndim not in ((1,) if metric.mean else (1, 2)) or found.shape[0] != 2:
            what = "one number" if metric.mean else "one number or one record"
            raise FedaxError(f"metric {metric.name!r} must give {what} a row: of 2 rows it gives {found.shape}")


def _check_labels(problem: Problem, z: Any, arrays: Mapping[str, np.ndarray]) -> None:
    if problem.builtin in ("cross_entropy", "next_token"):
        y = arrays["y"]
        if problem.builtin == "cross_entropy":
            z = jax.eval_shape(classes_last, z, jax.ShapeDtypeStruct((2, *y.shape[1:]), jnp.int32))
        classes = z.shape[-1]
        if problem.builtin == "next_token" and (z.ndim != 3 or y.shape[1:] < (2,)):
            raise FedaxError(
                f"next_token needs outputs for two positions a row or more, not of shape {z.shape[1:]} for each"
            )
        if z.shape[1:-1] != y.shape[1:]:
            raise FedaxError(
                f"{problem.builtin} needs a label for each of a row's positions, of shape {z.shape[1:-1]} as the "
                f"model's outputs are, not {y.shape[1:]}"
            )
        if not np.issubdtype(y.dtype, np.integer):
            raise FedaxError(f"{problem.builtin} needs integer labels in 'y', not {y.dtype}")
        counted = y[y != LEFT_OUT] if y.ndim > 1 else y
        if counted.size and (counted.min() < 0 or counted.max() >= classes):
            worst = int(counted.max() if counted.max() >= classes else counted.min())
            raise FedaxError(f"label {worst} in 'y' is outside the model's range 0 to {classes - 1}")
    outputs = int(np.prod(z.shape[1:]))
    if problem.builtin in ("squared", "mse") and outputs != (values := int(np.prod(arrays["y"].shape[1:]))):
        raise FedaxError(
            f"loss={problem.name!r} needs as many outputs as values in a row of 'y', {values}, not {outputs}"
        )
    if problem.builtin == "logistic" and outputs != 1:
        raise FedaxError(f"loss='logistic' needs a model with one output, not {outputs}")
    if problem.builtin == "logistic" and not (signs := np.isin(arrays["y"], (-1, 0, 1))).all():
        other = arrays["y"][~signs].flat[0]
        raise FedaxError(f"loss='logistic' needs labels 0 and 1, or -1 and +1, and 'y' has {other:g}")


def _is_of_rows(outputs: Any) -> bool:
    """Whether a model's outputs of two rows are real numbers for each."""
    array = isinstance(outputs, jax.ShapeDtypeStruct) and outputs.shape[:1] == (2,)
    return array and bool(jnp.issubdtype(outputs.dtype, jnp.floating))


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]
