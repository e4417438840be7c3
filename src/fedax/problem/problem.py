"""A problem: model + loss + regularizer.

f_i(x) = mean over client i's rows of loss(x, row),      F_i(x) = f_i(x) + psi(x)
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax import notebook
from fedax.data.nested import nested
from fedax.errors import FedaxError, unknown
from fedax.metrics import METRICS, Metric, chosen
from fedax.model_state import joined, parted
from fedax.models.adapters import with_init
from fedax.models.augmentation import AUGMENTATIONS
from fedax.models.forms import Form, draws, form_of, is_flax
from fedax.problem.gradients import Transformation, row_privacy, transformations
from fedax.problem.losses import LOSSES, RowLoss, aligned, classes_last, refuse_pytorchs, row_loss
from fedax.problem.oracle import Batch, BatchOracle
from fedax.problem.trainable import Trainable, check_trainable, constants, filled, on_host, split
from fedax.vectors import Mixture


class Problem:
    """The objective: the mean over rows of a loss, plus an optional regularizer.

    model: a module of Flax Linen, Flax NNX, PyTorch, Equinox or Keras; an object with `init(key, x)` and
        `apply(params, x)`, or the pair of functions. A model that draws or keeps state has `init(key, x) -> params,
        state` and `apply(params, state, x, key, train) -> outputs, state`. It sees `batch["x"]`; the loss compares its
        output with `batch["y"]`.
    loss: "cross_entropy", "next_token", "logistic", "squared", "mse", a function of (outputs, y) that gives one number
        a row, or its name from outside such as "mymodule:my_loss"; or, without a model, a function of (params, batch)
        that gives the mean over the batch's rows.
    init: without a model, a function of a key that gives the first parameters. With a PyTorch module, "reset" draws its
        weights for each seed; default "module", its own weights for every seed.
    regularizer: psi, or None.
    augment: "flip-crop", a function of (key, batch) that changes each minibatch before it is trained on, or None.
    accuracy: a function of (outputs, y), or without a model of (params, batch), that says for each row
        whether it was predicted rightly; classification losses bring their own.
    gradients: optax's gradient transformations that keep no state, between the oracle and the method: objects such as
        optax.clip_by_global_norm(10.0), or tables such as {"name": "add_decayed_weights", "weight_decay": 1e-3}. First
        may be {"name": "dp", "clip": 1.0, "noise": 1.1}: each row's gradient is clipped, and noise is added (DP-SGD).
    metrics: what is measured beside the loss and the accuracy: names of `fedax.evaluation.metrics.METRICS`,
        and `fedax.evaluation.metrics.Metric`s of your own or their names from outside.
    trainable: the leaves that are trained, by a pattern that their paths contain or match ("head", "*Dense_1*"), or by
        a function of a path such as "params.Dense_1.kernel"; None for all, or for those of a PyTorch module that need a
        gradient. The others stay as init made them.

    >>> import jax.numpy as jnp
    >>> mean = Problem(loss=lambda w, batch: jnp.mean((batch["x"] - w) ** 2), init=lambda key: jnp.zeros(()))
    >>> float(mean.loss(jnp.zeros(()), {"x": jnp.array([1.0, 3.0])}))
    5.0

    Of a line's two leaves, the slope alone is trained:

    >>> line = (lambda key, x: {"slope": jnp.ones(()), "start": jnp.ones(())}, lambda p, x: p["start"] + p["slope"] * x)
    >>> tuned = Problem(line, loss="squared", trainable="slope")
    >>> tuned.init(jax.random.key(0), {"x": jnp.zeros(2)})
    {'slope': Array(1., dtype=float32), 'start': None}
    """

    def __init__(
        self,
        model: Any = None,
        *,
        loss: str | Callable[..., Any],
        init: Callable[[jax.Array], Any] | str | None = None,
        regularizer: Any = None,
        augment: str | Callable[[jax.Array, Batch], Batch] | None = None,
        accuracy: Callable[..., Any] | None = None,
        gradients: Sequence[Any] = (),
        metrics: Sequence[str | Metric] = (),
        trainable: Trainable = None,
    ) -> None:
        check_trainable(trainable)
        if isinstance(loss, str):
            row_loss(loss)
            if model is None:
                raise FedaxError(f"loss={loss!r} needs a model; without one, give loss=function(params, batch)")
        elif not callable(loss):
            raise FedaxError(f"loss must be a name or a function, not {loss!r}")
        else:
            refuse_pytorchs(loss)
        if model is None and init is None:
            raise FedaxError("a problem without a model needs init=function(key) for the first parameters")
        first = model if init is None or model is None else with_init(model, init)
        if regularizer is not None and not hasattr(regularizer, "check"):
            raise FedaxError(f"regularizer must be one of fedax.regularizers, or None, not {regularizer!r}")
        if accuracy is not None and not callable(accuracy):
            raise FedaxError(
                f"accuracy must be a function that says for each row whether it was right, not {accuracy!r}"
            )
        if isinstance(augment, str) and augment not in AUGMENTATIONS:
            raise unknown("augmentation", augment, AUGMENTATIONS)
        self.model = model
        self.name = loss if isinstance(loss, str) else getattr(loss, "__name__", "loss")
        #: the name of the loss, None for a function of the user's own
        self.builtin = loss if isinstance(loss, str) and loss in LOSSES else None
        self.regularizer: Any = regularizer
        self.row_privacy, rest = row_privacy(gradients)
        self.gradients: tuple[Transformation, ...] = transformations(rest)
        self.augment = AUGMENTATIONS[augment] if isinstance(augment, str) else augment
        self._init: Any = init if model is None else None
        self._form: Form | None = None if model is None else form_of(first)
        own = getattr(model, "outputs", None)  # another library's model may mean something else by it
        #: the number of the model's outputs for each row, None where it is not known
        self.outputs_per_row: int | None = own if isinstance(own, int) else None
        self.draws = False  #: whether the model draws when it trains; known after init
        by_itself = None if self._form is None else self._form.is_trained
        self.trainable: Trainable = by_itself if trainable is None else trainable
        self._frozen: Any = None  # the leaves that are not trained, in NumPy, as the last init made them
        self.frozen_name = ""  #: a short name for their values
        self._row_loss: RowLoss | None = None
        self._batch_loss: Callable[..., Any] | None = None
        self._right: Callable[..., Any] | None = accuracy
        if model is None:
            self._batch_loss = _unmixed(loss)  # type: ignore[arg-type]
        else:
            if isinstance(loss, str):
                self._row_loss, right = row_loss(loss)
                self._right = accuracy or right
            else:
                self._row_loss = loss
        self.own_loss = None if self.builtin is not None else loss if callable(loss) else self._row_loss
        asked = chosen(metrics, self.builtin, model=model is not None)
        if self._right is None and "accuracy" in metrics:
            raise FedaxError("metrics has 'accuracy': with this loss, say by accuracy= when a row is right")
        measured = [METRICS["loss"], *([METRICS["accuracy"]] if self._right is not None else []), *asked]
        self.metrics = {metric.name: metric for metric in measured}  #: the metrics by name
        self._programs: dict[Any, Any] = {}

    def _repr_html_(self) -> str:
        """Model, loss, regularizer and metrics, for a notebook."""
        rows = [
            ("model", "none" if self.model is None else type(self.model).__name__),
            ("loss", self.name),
            ("regularizer", "none" if self.regularizer is None else self.regularizer),
            ("metrics", ", ".join(self.metrics)),
        ]
        return notebook.table("Problem", rows)

    def program(self, key: Any, build: Callable[[], Any]) -> Any:
        """A compiled program of this problem, built once: another run of the same shape compiles nothing."""
        key = (self.frozen_name, key)
        if key not in self._programs:
            self._programs[key] = build()
        return self._programs[key]

    def init(self, key: jax.Array, batch: Batch) -> Any:
        """The first model: its parameters, None at frozen leaves, with its state if it has any.

        `batch` shows the model the shape of its input. Frozen leaves are kept by the problem: `whole` puts them in.
        """
        params, state = self._first(key, nested(batch))
        if self.trainable is not None:
            params, frozen = split(params, self.trainable)
            self._frozen, self.frozen_name = on_host(frozen)
        if not jax.tree.leaves(params):
            raise FedaxError("the model has no parameters to train")
        for path, leaf in jax.tree_util.tree_flatten_with_path(params)[0]:
            if not jnp.issubdtype(jnp.result_type(leaf), jnp.floating):
                raise FedaxError(f"parameter {jax.tree_util.keystr(path)} is {jnp.result_type(leaf)}, not floating")
        for path, leaf in jax.tree_util.tree_flatten_with_path(state)[0]:
            if not jnp.issubdtype(jnp.result_type(leaf), jnp.number):
                raise FedaxError(f"state {jax.tree_util.keystr(path)} is {jnp.result_type(leaf)}, not a number")
        return jax.tree.map(jnp.asarray, joined(params, state))

    def _first(self, key: jax.Array, batch: Batch) -> tuple[Any, Any]:
        """All first parameters, frozen ones included, and the first state."""
        if self._init is not None:
            params = self._init(key)
            if isinstance(params, Mapping) and "batch_stats" in params:
                raise FedaxError(
                    "init gives batch_stats among the parameters: give the Flax module itself as the model"
                )
            return params, ()
        assert self._form is not None
        if "x" not in batch:
            raise FedaxError(f"a model needs the array 'x'; the federation has {', '.join(batch)}")
        params, state = self._form.init(key, batch["x"])
        self.draws = not self._form.simple and draws(self._form, params, state, batch["x"])
        return params, state

    def parameters(self, key: jax.Array, batch: Batch) -> int:
        """How many parameters a Flax module will have, found without making them; 0 of other models."""
        if self._form is None or not is_flax(getattr(self.model, "model", self.model)) or "x" not in batch:
            return 0
        made = jax.eval_shape(self._form.init, key, nested(batch)["x"])
        return sum(int(np.prod(leaf.shape, dtype=object)) for leaf in jax.tree.leaves(made))

    def own_copy(self) -> Problem:
        """This problem for one run, whose init may freeze other values; compiled programs are shared."""
        return self if self.trainable is None else copy.copy(self)

    def whole(self, model: Any) -> Any:
        """A model with its frozen leaves put in."""
        return model if self._frozen is None else filled(model, constants(self._frozen))

    def outputs(self, model: Any, batch: Batch) -> Any:
        """The model's outputs on a batch, in evaluation: nothing is drawn and the state stays as it is."""
        return self.outputs_and_state(model, batch, None, False)[0]

    def outputs_and_state(self, model: Any, batch: Batch, key: jax.Array | None, train: bool) -> tuple[Any, Any]:
        """The model's outputs on a batch, and its state after it."""
        if self._form is None:
            raise FedaxError("a problem without a model has no outputs")
        params, state = parted(model)
        if isinstance(params, Mixture):
            a = params.weight
            own, state = self.outputs_and_state(joined(params.own, state), batch, key, train)
            shared, state = self.outputs_and_state(joined(params.shared, state), batch, key, train)
            return jax.tree.map(lambda one, other: a * one + (1 - a) * other, own, shared), state
        return self._form.apply(self.whole(params), state, nested(batch)["x"], key, train)

    def mixed(self, own: Any, shared: Any, weight: Any) -> Any:
        """Parameters weight * own + (1 - weight) * shared; the first layer's kernel is left for the model to mix.

        >>> square = Problem(loss=lambda w, batch: jnp.mean((batch["b"] - w) ** 2), init=lambda key: jnp.zeros(()))
        >>> square.mixed(4.0, 2.0, 0.25)
        2.5
        """
        first = getattr(self.model, "first", None)

        def mix(path: Any, a: Any, b: Any) -> Any:
            left = isinstance(first, tuple) and tuple(part.key for part in path) == first
            return Mixture(a, b, weight) if left else weight * a + (1 - weight) * b

        return jax.tree_util.tree_map_with_path(mix, own, shared)

    def rows(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """Loss, accuracy where it applies, and the other metrics that are means over rows, of each row."""
        found = self.records(params, batch)
        return {name: values for name, values in found.items() if self.metrics[name].mean}

    def records(self, params: Any, batch: Batch) -> dict[str, jax.Array]:
        """The record that each metric is computed from, for each row: a number or a few numbers."""
        if self._batch_loss is not None:
            result = {"loss": self.row_losses(params, batch)}
            params, batch = self.whole(params), nested(batch)
            if self._right is not None:
                result["accuracy"] = self._right(params, batch)
            return result | self._asked(params, batch)
        assert self._row_loss is not None
        z, y = self.outputs(params, batch), nested(batch).get("y")
        result = {"loss": self._row_loss(z, y)}
        if self._right is not None:
            result["accuracy"] = self._right(z, y)
        return result | self._asked(*self._compared(z, y))

    def _compared(self, z: Any, y: Any) -> tuple[Any, Any]:
        """Outputs and targets as metrics compare them: position by position."""
        if self.builtin == "cross_entropy":
            return classes_last(z, y), y
        return aligned(z, y) if self.builtin == "next_token" else (z, y)

    def _asked(self, *args: Any) -> dict[str, jax.Array]:
        """The records of the metrics that were asked for, of (outputs, y) or (params, batch)."""
        own = [metric for name, metric in self.metrics.items() if name not in ("loss", "accuracy")]
        return {metric.name: jnp.asarray(metric.rows(*args)) for metric in own}

    def loss(self, params: Any, batch: Batch, weights: jax.Array | None = None) -> jax.Array:
        """The (weighted) mean loss over a batch's rows, without the regularizer.

        Where a batch has the array `weight`, 1 on average over all training rows, each row's loss is multiplied by it.
        """
        if weights is None and self._batch_loss is not None:
            value: jax.Array = self._batch_loss(self.whole(params), nested(batch))
            return value
        return _mean(self._weighted(self.row_losses(params, batch), batch), weights)

    def training_loss(
        self, model: Any, batch: Batch, weights: jax.Array | None = None, key: jax.Array | None = None
    ) -> tuple[jax.Array, Any]:
        """The loss in training, where the model draws with a key, and the model's state after it."""
        if self._form is None or self._form.simple:
            return self.loss(model, batch, weights), parted(model)[1]
        assert self._row_loss is not None
        outputs, state = self.outputs_and_state(model, batch, key, True)
        losses = self._row_loss(outputs, nested(batch).get("y"))
        return _mean(self._weighted(losses, batch), weights), state

    def _weighted(self, losses: jax.Array, batch: Batch) -> jax.Array:
        return losses * batch["weight"] if "weight" in batch else losses

    def on(self, batch: Batch) -> BatchOracle:
        """The problem on some rows: value, gradient and Hessian of the smooth part, with the regularizer beside it.

        >>> import jax.numpy as jnp
        >>> from fedax.vectors import Vector
        >>> mean = Problem(loss=lambda w, batch: jnp.mean((batch["x"] - w) ** 2), init=lambda key: jnp.zeros(()))
        >>> float(mean.on({"x": jnp.array([1.0, 3.0])}).grad(Vector(jnp.zeros(()))).tree)
        -4.0
        """
        return BatchOracle(self, batch, smooth=True)

    def row_losses(self, params: Any, batch: Batch) -> jax.Array:
        if self._row_loss is not None:
            return self._row_loss(self.outputs(params, batch), nested(batch).get("y"))
        assert self._batch_loss is not None
        params = self.whole(params)
        batch_loss, single = self._batch_loss, jax.tree.map(lambda a: a[:, None], nested(batch))
        losses: jax.Array = jax.vmap(lambda row: batch_loss(params, row))(single)
        return losses

    def seen_by_metrics(self, params: Any, batch: Batch) -> tuple[Any, Any]:
        """Outputs and targets as metrics take them; on a problem without a model, parameters and rows."""
        if self._form is None:
            return self.whole(params), nested(batch)
        return self._compared(self.outputs(params, batch), nested(batch).get("y"))


def _mean(losses: jax.Array, weights: jax.Array | None) -> jax.Array:
    return jnp.mean(losses) if weights is None else jnp.sum(weights * losses) / jnp.sum(weights)


def _unmixed(loss: Callable[..., Any]) -> Callable[..., Any]:
    def value(params: Any, batch: Batch) -> Any:
        if isinstance(params, Mixture):
            raise FedaxError("outputs can be mixed only on a problem with a model: this one has a loss of parameters")
        return loss(params, batch)

    return value
