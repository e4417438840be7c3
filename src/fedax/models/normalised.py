"""A model on images whose channels are scaled to mean 0 and deviation 1, on the device, one minibatch at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike

from fedax.models.inputs import as_float


@dataclass(frozen=True)
class Normalised:
    """The model, given (x - mean) / std; bytes (uint8) are divided by 255 first. Its parameters are the model's own.

    Args:
        model: a Flax module, or any object with `init` and `apply`.
        mean: of each channel, the last axis of x.
        std: of each channel, above 0.

    >>> import numpy as np
    >>> from fedax.models import model
    >>> scaled = Normalised(model("linear", outputs=1, use_bias=False), mean=(0.2,), std=(0.4,))
    >>> x = np.full((1, 2, 2, 1), 255, np.uint8)
    >>> params = jax.tree.map(jnp.ones_like, scaled.init(jax.random.key(0), x))
    >>> float(scaled.apply(params, x)[0, 0])  # four pixels of (1 - 0.2) / 0.4
    8.0
    """

    model: Any
    mean: Sequence[float]
    std: Sequence[float]

    @property
    def outputs(self) -> Any:
        """The inner model's attribute of this name, such as the number of outputs of a model of Fedax."""
        return self.model.outputs

    def init(self, key: jax.Array, x: ArrayLike) -> Any:
        """The model's first parameters."""
        return self.model.init(key, self.scaled(x))

    def apply(self, params: Any, x: ArrayLike) -> Any:
        """The model's outputs."""
        return self.model.apply(params, self.scaled(x))

    def scaled(self, x: ArrayLike) -> jax.Array:
        """x scaled for the inner model."""
        numbers = as_float(x)
        mean, std = (jnp.asarray(values, numbers.dtype) for values in (self.mean, self.std))
        return (numbers - mean) / std
