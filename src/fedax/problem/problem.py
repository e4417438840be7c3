"""A problem: model + loss + regularizer.

f_i(x) = mean over client i's rows of loss(x, row),      F_i(x) = f_i(x) + psi(x)
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.errors import FedaxError, unknown
from fedax.metrics import METRICS, Metric, check_outputs, chosen
from fedax.models.augmentation import AUGMENTATIONS
from fedax.problem.gradients import Transformation, refuse_stateful, transformations
from fedax.problem.losses import LOSSES, RowLoss, row_loss
from fedax.problem.oracle import Batch, BatchOracle
from fedax.vectors import Mixture


class Problem:
    """What is minimised: mean over rows of a loss, plus an optional regularizer.

    model: a Flax module, an object with `init(key, x)` and `apply(params, x)`, or the pair of functions.
        It sees `batch["x"]`; the loss compares its output with `batch["y"]`.
    loss: "cross_entropy", "logistic", "squared", "mse", a function of (outputs, y) that gives one number a row, or its
        name from outside such as "mymodule:my_loss"; or, without a model, a function of (params, batch) that gives the
        mean over the batch's rows.
    init: without a model, a function of a key that gives the first parameters.
    regularizer: psi, or None.
    augment: "flip-crop", a function of (key, batch) that changes each minibatch before it is trained on, or None.
    accuracy: a function of (outputs, y), or without a model of (params, batch), that says for each row
        whether it was predicted rightly; classification losses bring their own.
    gradients: optax's gradient transformations that keep no state, between the oracle and the method: objects such as
        optax.clip_by_global_norm(10.0), or tables such as {"name": "add_decayed_weights", "weight_decay": 1e-3}.
    metrics: what is measured beside the loss and the accuracy: names of `fedax.evaluation.metrics.METRICS`,
        and `fedax.evaluation.metrics.Metric`s of your own or their names from outside.

    >>> import jax.numpy as jnp
    >>> mean = Problem(loss=lambda w, batch: jnp.mean((batch["x"] - w) ** 2), init=lambda key: jnp.zeros(()))
    >>> float(mean.loss(jnp.zeros(()), {"x": jnp.array([1.0, 3.0])}))
    5.0
    """

    def __init__(
        self,
        model: Any = None,
        *,
        loss: str | Callable[..., Any],
        init: Callable[[jax.Array], Any] | None = None,
        regularizer: Any = None,
        augment: str | Callable[[jax.Array, Batch], Batch] | None = None,
        accuracy: Callable[..., Any] | None = None,
        gradients: Sequence[Any] = (),
        metrics: Sequence[str | Metric] = (),
    ) -> None:
        if isinstance(loss, str):
            row_loss(loss)
            if model is None:
                raise FedaxError(f"loss={loss!r} needs a model; without one, give loss=function(params, batch)")
        elif not callable(loss):
            raise FedaxError(f"loss must be a name or a function, not {loss!r}")
        if model is None and init is None:
            raise FedaxError("a problem without a model needs init=function(key) for the first parameters")
        if model is not None and init is not None:
            raise FedaxError("give either a model or init=, not both")
        if isinstance(augment, str) and augment not in AUGMENTATIONS:
            raise unknown("augmentation", augment, AUGMENTATIONS)
        self.model = model
        self.name = loss if isinstance(loss, str) else getattr(loss, "__name__", "loss")
        #: the loss by its name, None for one's own
        self.builtin = loss if isinstance(loss, str) and loss in LOSSES else None
        self.regularizer = regularizer
        self.gradients: tuple[Transformation, ...] = transformations(gradients)
        self.augment = AUGMENTATIONS[augment] if isinstance(augment, str) else augment
        self._init = init
        self._apply: Callable[..., Any] | None = None
        self._model_init: Callable[..., Any] | None = None
        self._row_loss: RowLoss | None = None
        self._batch_loss: Callable[..., Any] | None = None
        self._right: Callable[..., Any] | None = accuracy
        if model is None:
            self._batch_loss = _unmixed(loss)  # type: ignore[arg-type]
        else:
            self._model_init, self._apply = _pair(model)
            if isinstance(loss, str):
                self._row_loss, right = row_loss(loss)
                self._right = accuracy or right
            else:
                self._row_loss = loss
        asked = chosen(metrics, self.builtin, model=model is not None)
        if self._right is None and "accuracy" in metrics:
            raise FedaxError("metrics has 'accuracy': with this loss, say by accuracy= when a row is right")
        own = [METRICS["loss"], *([METRICS["accuracy"]] if self._right is not None else []), *asked]
        self.metrics = {metric.name: metric for metric in own}  #: what is measured, by name
        self._programs: dict[Any, Any] = {}

    def program(self, key: Any, build: Callable[[], Any]) -> Any:
        """A compiled program of this problem, built once: another run of the same shape compiles nothing."""
        if key not in self._programs:
            self._programs[key] = build()
        return self._programs[key]

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """The first parameters; `batch` shows the model the shape of its input."""
        if self._init is not None:
            params = self._init(key)
        else:
            assert self._model_init is not None
            if "x" not in batch:
                raise FedaxError(f"a model needs the array 'x'; the federation has {', '.join(batch)}")
            params = self._model_init(key, batch["x"])
        if self.model is not None and isinstance(params, Mapping) and "params" in params and len(params) > 1:
            others = ", ".join(name for name in params if name != "params")
            raise FedaxError(
                f"the model keeps {others} beside its params: a model with state is not taken, so use group "
                "or layer normalisation instead"
            )
        for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
            if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
                raise FedaxError(f"parameter {jax.tree_util.keystr(path)} is {jnp.result_type(leaf)}, not floating")
        return jax.tree.map(jnp.asarray, params)

    def outputs(self, params: Any, batch: Batch) -> Any:
        """The model's outputs on a batch."""
        if self._apply is None:
            raise FedaxError("a problem without a model has no outputs")
        if isinstance(params, Mixture):
            a = params.weight
            pair = (self.outputs(params.own, batch), self.outputs(params.shared, batch))
            return jax.tree.map(lambda own, shared: a * own + (1 - a) * shared, *pair)
        return self._apply(params, batch["x"])

    def mixed(self, own: Any, shared: Any, weight: Any) -> Any:
        """Parameters weight * own + (1 - weight) * shared; the kernel that sees the data is left to the model to mix.

        >>> square = Problem(loss=lambda w, batch: jnp.mean((batch["b"] - w) ** 2), init=lambda key: jnp.zeros(()))
        >>> square.mixed(4.0, 2.0, 0.25)
        2.5
        """
        first = getattr(self.model, "first", None)

        def mix(path: Any, a: Any, b: Any) -> Any:
            left = first is not None and tuple(part.key for part in path) == first
            return Mixture(a, b, weight) if left else weight * a + (1 - weight) * b

        return jax.tree_util.tree_map_with_path(mix, own, shared)

    def rows(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Loss, accuracy where it applies, and the other metrics that are means over rows, of each row."""
        found = self.records(params, batch)
        return {name: values for name, values in found.items() if self.metrics[name].mean}

    def records(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """What each metric is computed from, for each row: a number or a short record."""
        if self._batch_loss is not None:
            result = {"loss": self._row_losses(params, batch)}
            if self._right is not None:
                result["accuracy"] = self._right(params, batch)
            return result | self._asked(params, batch)
        assert self._row_loss is not None
        z, y = self.outputs(params, batch), batch.get("y")
        result = {"loss": self._row_loss(z, y)}
        if self._right is not None:
            result["accuracy"] = self._right(z, y)
        return result | self._asked(z, y)

    def _asked(self, *args: Any) -> dict[str, jax.Array]:
        """The records of the metrics that were asked for, of (outputs, y) or (params, batch)."""
        own = [metric for name, metric in self.metrics.items() if name not in ("loss", "accuracy")]
        return {metric.name: jnp.asarray(metric.rows(*args)) for metric in own}

    def loss(self, params: Any, batch: Batch, weights: jax.Array | None = None) -> jax.Array:
        """The (weighted) mean loss over a batch's rows, without the regularizer.

        Where a batch has the array `weight`, 1 on average over all training rows, each row's loss is multiplied by it.
        """
        if weights is None and self._batch_loss is not None:
            value: jax.Array = self._batch_loss(params, batch)
            return value
        losses = self._row_losses(params, batch)
        if "weight" in batch:
            losses = losses * batch["weight"]
        return jnp.mean(losses) if weights is None else jnp.sum(weights * losses) / jnp.sum(weights)

    def on(self, batch: Batch) -> BatchOracle:
        """The problem on some rows: value, gradient and Hessian of the smooth part, with the regularizer beside it.

        >>> import jax.numpy as jnp
        >>> from fedax.vectors import Vector
        >>> mean = Problem(loss=lambda w, batch: jnp.mean((batch["x"] - w) ** 2), init=lambda key: jnp.zeros(()))
        >>> float(mean.on({"x": jnp.array([1.0, 3.0])}).grad(Vector(jnp.zeros(()))).tree)
        -4.0
        """
        return BatchOracle(self, batch, smooth=True)

    def _row_losses(self, params: Any, batch: Batch) -> jax.Array:
        if self._row_loss is not None:
            return self._row_loss(self.outputs(params, batch), batch.get("y"))
        assert self._batch_loss is not None
        batch_loss, single = self._batch_loss, jax.tree.map(lambda a: a[:, None], dict(batch))
        losses: jax.Array = jax.vmap(lambda row: batch_loss(params, row))(single)
        return losses

    def check(self, params: Any, arrays: Mapping[str, np.ndarray]) -> None:
        """Refuse data that this problem cannot take: shapes, labels outside the model's range."""
        if self.regularizer is not None:
            self.regularizer.check(params)
        refuse_stateful(self.gradients, params)
        sample = {
            k: jax.ShapeDtypeStruct((2, *a.shape[1:]), jax.dtypes.canonicalize_dtype(a.dtype))
            for k, a in arrays.items()
        }
        if self._apply is not None:
            if self.builtin is not None and "y" not in arrays:
                raise FedaxError(f"loss={self.name!r} needs the array 'y'; the federation has {', '.join(arrays)}")
            try:
                z = jax.eval_shape(lambda p, b: self.outputs(p, b), params, sample)
            except (TypeError, ValueError) as error:
                shape = arrays["x"].shape[1:]
                raise FedaxError(f"the model does not take rows of shape {shape}: {_first_line(error)}") from error
            self._check_labels(z, arrays)
            losses = jax.eval_shape(lambda p, b: self._row_losses(p, b), params, sample)
            if losses.shape != (2,):
                raise FedaxError(
                    f"the loss must give one number a row, not an array of shape {losses.shape[1:]} for each"
                )
            check_outputs(self.metrics.values(), int(np.prod(z.shape[1:])))
        value = jax.eval_shape(lambda p, b: self.loss(p, b), params, sample)
        if value.shape != ():
            raise FedaxError(f"the loss must be one number a batch, not an array of shape {value.shape}")
        self._check_metrics(params, sample)

    def _check_metrics(self, params: Any, sample: Batch) -> None:
        """Refuse metrics that fail on these rows, or give something else than a number or a record a row."""
        asked = [metric for name, metric in self.metrics.items() if name not in ("loss", "accuracy")]
        for metric in asked:
            try:
                args = (lambda p, b: (p, b)) if self._apply is None else lambda p, b: (self.outputs(p, b), b.get("y"))
                found = jax.eval_shape(lambda p, b, m=metric, a=args: jnp.asarray(m.rows(*a(p, b))), params, sample)
            except (TypeError, ValueError, AttributeError, IndexError) as error:
                raise FedaxError(f"metric {metric.name!r} cannot take these rows: {_first_line(error)}") from error
            if found.ndim not in ((1,) if metric.mean else (1, 2)) or found.shape[0] != 2:
                what = "one number" if metric.mean else "one number or one record"
                raise FedaxError(f"metric {metric.name!r} must give {what} a row: of 2 rows it gives {found.shape}")

    def _check_labels(self, z: Any, arrays: Mapping[str, np.ndarray]) -> None:
        if self.builtin == "cross_entropy":
            y, classes = arrays["y"], z.shape[-1]
            if z.shape[1:-1] != y.shape[1:]:
                raise FedaxError(
                    f"cross_entropy needs a label for each of a row's positions, of shape {z.shape[1:-1]} as the "
                    f"model's outputs are, not {y.shape[1:]}"
                )
            if not np.issubdtype(y.dtype, np.integer):
                raise FedaxError(f"cross_entropy needs integer labels in 'y', not {y.dtype}")
            if y.size and (y.min() < 0 or y.max() >= classes):
                worst = int(y.max() if y.max() >= classes else y.min())
                raise FedaxError(f"label {worst} in 'y' is outside the model's range 0 to {classes - 1}")
        outputs = int(np.prod(z.shape[1:]))
        if self.builtin in ("squared", "mse") and outputs != (values := int(np.prod(arrays["y"].shape[1:]))):
            raise FedaxError(
                f"loss={self.name!r} needs as many outputs as values in a row of 'y', {values}, not {outputs}"
            )
        if self.builtin == "logistic" and outputs != 1:
            raise FedaxError(f"loss='logistic' needs a model with one output, not {outputs}")


def _first_line(error: BaseException) -> str:
    return (str(error).strip().splitlines() or [type(error).__name__])[0]


def _unmixed(loss: Callable[..., Any]) -> Callable[..., Any]:
    def value(params: Any, batch: Batch) -> Any:
        if isinstance(params, Mixture):
            raise FedaxError("outputs can be mixed only on a problem with a model: this one has a loss of parameters")
        return loss(params, batch)

    return value


def _pair(model: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    if isinstance(model, tuple) and len(model) == 2 and all(callable(part) for part in model):
        return model
    if hasattr(model, "init") and hasattr(model, "apply"):
        return model.init, model.apply
    raise FedaxError(f"model must have init(key, x) and apply(params, x), or be that pair; got {type(model).__name__}")
