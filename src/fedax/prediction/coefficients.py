"""The coefficients of a linear model by name, in the units of the table's columns.

    z = b + sum_j w_j (v_j - mean_j) / scale_j      so      w_j / scale_j  for each unit of column j,
                                                            b - sum_j w_j mean_j / scale_j  the intercept

A category's coefficient compares its value with no value. With two classes the coefficients are log-odds of the second;
with more than two, each class has its own coefficients.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from fedax.data.tables.applying import NUMERIC
from fedax.data.tables.preparation import Preparation
from fedax.errors import FedaxError
from fedax.extras import needed

LINEAR = ("linear", "logistic")
INTERCEPT = "(intercept)"
Array = np.ndarray[Any, Any]


def layer_of(params: Any) -> tuple[Array, Array]:
    """Kernel and bias of a linear model, with one column for each output."""
    tree = params if isinstance(params, Mapping) else vars(params)
    if set(tree) == {"own", "shared", "weight"}:
        share = float(tree["weight"])
        (w, b), (v, c) = layer_of(tree["own"]), layer_of(tree["shared"])
        return share * w + (1 - share) * v, share * b + (1 - share) * c
    layer = tree["params"]["Dense_0"]
    kernel = np.asarray(layer["kernel"], np.float64)
    return kernel, np.asarray(layer.get("bias", np.zeros(kernel.shape[1])), np.float64)


def in_units(preparation: Preparation, params: Any) -> tuple[Array, Array]:
    """Coefficients for one unit of each column, [1 + features, outputs] with the intercepts first, and coefficients for
    one standard deviation."""
    kernel, bias = layer_of(params)
    if preparation.labels is not None and kernel.shape[1] == 2:
        kernel, bias = kernel[:, 1:] - kernel[:, :1], bias[1:] - bias[:1]
    means, scales = [], []
    for column in preparation.columns:
        numeric = column["kind"] in NUMERIC
        width = 1 if numeric else len(column["values"]) + bool(column["other"])
        means += [column["mean"] if numeric else 0.0] + [0.0] * (width - 1 + bool(column["flag"]))
        scales += [column["scale"] if numeric else 1.0] + [1.0] * (width - 1 + bool(column["flag"]))
    raw = kernel / np.array(scales)[:, None]
    intercept = bias - np.array(means) @ raw
    # -0.0 becomes 0.0
    return np.concatenate([intercept[None], raw]) + 0.0, np.concatenate([bias[None], kernel]) + 0.0


def coefficients(
    preparation: Preparation, model: Mapping[str, Any] | None, params: Any | None, personal: Mapping[str, Any]
) -> Any:
    """A pandas table with a row for the intercept and for each feature.

    coefficient: for one unit of the column; standardised: for one standard deviation, to compare features; zero:
    whether it is exactly 0. With more than two classes there is one of each for every class. Where clients have models
    of their own, columns with each client's name hold its coefficients.
    """
    pandas = needed("pandas", "tables", "a table of coefficients")

    if model is None or model["name"] not in LINEAR:
        name = "a model of your own" if model is None else model["name"]
        raise FedaxError(f"coefficients are of linear models, and this is {name}")
    columns: dict[str, Any] = {"feature": [INTERCEPT, *preparation.features]}
    if params is not None:
        raw, scaled = in_units(preparation, params)
        for i in range(raw.shape[1]):
            tail = "" if raw.shape[1] == 1 else f"_{(preparation.labels or range(raw.shape[1]))[i]}"
            columns[f"coefficient{tail}"] = raw[:, i]
            columns[f"standardised{tail}"] = scaled[:, i]
            columns[f"zero{tail}"] = scaled[:, i] == 0
    for client, own in personal.items():
        raw, _ = in_units(preparation, own)
        for i in range(raw.shape[1]):
            tail = "" if raw.shape[1] == 1 else f" {(preparation.labels or range(raw.shape[1]))[i]}"
            columns[f"{client}{tail}"] = raw[:, i]
    return pandas.DataFrame(columns)
