"""A trained model's outputs and what they predict, in NumPy.

    linear, logistic     z = x W + b
    mlp                  layers of it, with max(0, z) between them
    probabilities        1 / (1 + exp(-z)) of one output, exp(z_c) / sum exp(z) of several

This file needs only NumPy, and nothing of Fedax, because an exported model contains a copy of it.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

MODELS = ("linear", "logistic", "mlp")


def outputs(params: Any, x: Any) -> Any:
    """The outputs for some rows, [rows, outputs]; of two models that are mixed, the mixture of their outputs.

    >>> outputs({"params": {"Dense_0": {"kernel": np.array([[2.0]]), "bias": np.array([1.0])}}}, np.array([[3.0]]))
    array([[7.]])
    """
    if set(params) == {"own", "shared", "weight"}:
        share = float(params["weight"])
        return share * outputs(params["own"], x) + (1 - share) * outputs(params["shared"], x)
    layers = params["params"]
    rows = np.asarray(x, np.float64)
    for place in range(len(layers)):
        layer = layers[f"Dense_{place}"]
        rows = np.maximum(rows, 0) if place else rows
        rows = rows @ np.asarray(layer["kernel"], np.float64) + np.asarray(layer.get("bias", 0.0), np.float64)
    return rows


def probabilities(z: Any) -> Any:
    """The classes' probabilities, [rows, classes], of a classifier's outputs; one output tells two classes apart.

    >>> probabilities(np.zeros((1, 1))).tolist(), probabilities(np.zeros((1, 4))).tolist()
    ([[0.5, 0.5]], [[0.25, 0.25, 0.25, 0.25]])
    """
    if z.shape[1] == 1:
        z = np.concatenate([np.zeros_like(z), z], axis=1)
    shifted = np.exp(z - z.max(axis=1, keepdims=True))
    return shifted / shifted.sum(axis=1, keepdims=True)


def tree(structure: Any, leaves: Mapping[str, Any]) -> Any:
    """Parameters from a file's arrays, by the structure that result.json has of them; a mixture is a dictionary.

    >>> tree({"dict": {"w": "w", "b": {"list": ["b.0"]}}}, {"w": 1.0, "b.0": 2.0})
    {'w': 1.0, 'b': [2.0]}
    """
    if structure is None or isinstance(structure, str):
        return None if structure is None else leaves[structure]
    (inside,) = structure.values()
    if isinstance(inside, Mapping):
        return {key: tree(value, leaves) for key, value in inside.items()}
    return [tree(value, leaves) for value in inside]


def of_client(stacked: Any, client: int, shared: Any) -> Any:
    """One client's parameters out of all clients' stacked ones; those that are not trained are the shared model's.

    >>> of_client({"w": np.array([[1.0], [2.0]]), "frozen": None}, 1, {"w": 0.0, "frozen": 3.0})
    {'w': array([2.]), 'frozen': 3.0}
    """
    if stacked is None:
        return shared
    if isinstance(stacked, Mapping):
        mixed = set(stacked) == {"own", "shared", "weight"}
        return {key: of_client(value, client, shared if mixed else shared[key]) for key, value in stacked.items()}
    if isinstance(stacked, list | tuple):
        return [of_client(value, client, shared[i]) for i, value in enumerate(stacked)]
    return np.asarray(stacked)[client]
