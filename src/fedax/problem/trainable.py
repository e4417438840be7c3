"""Which leaves of a model are trained. The others are constants of the program: nobody sends, stores or counts them.

A tree of parameters has None where a leaf is frozen, and JAX does not count None as a leaf.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.errors import FedaxError
from fedax.model_state import WithState
from fedax.regularizers.base import chosen
from fedax.vectors import Mixture

Trainable = str | Callable[[str], bool] | None


def check_trainable(trainable: Any) -> None:
    """Raise unless `trainable` is a pattern, a function or None."""
    if not (trainable is None or callable(trainable) or (isinstance(trainable, str) and trainable)):
        raise FedaxError(f"trainable must be a path pattern, a function of a path or None, not {trainable!r}")


def split(params: Any, trainable: Trainable) -> tuple[Any, Any]:
    """The trained leaves and the frozen ones, each a tree with None at the others.

    >>> split({"body": 1.0, "head": 2.0}, "head")
    ({'body': None, 'head': 2.0}, {'body': 1.0, 'head': None})
    >>> split({"body": 1.0, "head": 2.0}, "haed")
    Traceback (most recent call last):
    fedax.errors.FedaxError: trainable='haed' selects none of the leaves body, head
    """
    tree: Any
    found, tree = jax.tree_util.tree_flatten_with_path(params)
    paths = [jax.tree_util.keystr(path, simple=True, separator=".") for path, _ in found]
    trained = [_selects(trainable, path) for path in paths]
    if not any(trained):
        shown = f"trainable={trainable!r}" if isinstance(trainable, str) else "the function trainable"
        raise FedaxError(
            f"{shown} selects none of the leaves {', '.join(path or '(one array without a name)' for path in paths)}"
        )
    both = [(leaf, None) if own else (None, leaf) for (_, leaf), own in zip(found, trained, strict=True)]
    return tree.unflatten([own for own, _ in both]), tree.unflatten([other for _, other in both])


def _selects(trainable: Trainable, path: str) -> bool:
    if isinstance(trainable, str):
        return chosen(trainable.replace("/", "."), path)
    return trainable is None or bool(trainable(path))


def filled(model: Any, whole: Any) -> Any:
    """A model whose frozen leaves are those of another.

    >>> filled({"body": None, "head": 3.0}, {"body": 1.0, "head": 2.0})
    {'body': 1.0, 'head': 3.0}
    """
    if isinstance(whole, WithState):
        whole = whole.params
    if isinstance(model, WithState):
        return WithState(filled(model.params, whole), model.state)
    if isinstance(model, Mixture) and not isinstance(whole, Mixture):
        return Mixture(filled(model.own, whole), filled(model.shared, whole), model.weight)
    if all(leaf is not None for leaf in jax.tree.leaves(model, is_leaf=_ends)):
        return model
    return jax.tree.map(lambda own, other: other if own is None else own, model, whole, is_leaf=_ends)


def _ends(part: Any) -> bool:
    return part is None or isinstance(part, Mixture)  # a mixture of two models' kernels is left to the model


def on_host(frozen: Any) -> tuple[Any, str]:
    """Frozen leaves in NumPy, and a short name for their values: programs hold them."""
    kept = jax.tree.map(np.asarray, jax.device_get(frozen))
    digest = hashlib.sha256()
    for leaf in jax.tree.leaves(kept):
        digest.update(str((leaf.shape, leaf.dtype)).encode() + leaf.tobytes())
    return kept, digest.hexdigest()[:16]


def constants(frozen: Any) -> Any:
    """Frozen leaves as a program computes with them."""
    return jax.tree.map(jnp.asarray, frozen)
