"""Predict rows of a table: with the shared model, or with a client's own."""

from __future__ import annotations

import dataclasses
import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np

from fedax.data.checks import Array
from fedax.data.tables.preparation import Preparation
from fedax.errors import FedaxError, unknown
from fedax.extras import needed
from fedax.models.registry import MODELS, model
from fedax.outside import is_outside
from fedax.prediction.forward import MODELS as PLAIN
from fedax.prediction.forward import of_client, outputs, probabilities, tree
from fedax.runs.files import INFO, MODEL, PERSONAL, PREPARATION, read_json

log = logging.getLogger("fedax")
Clients = str | int | Sequence[str] | None


def described_model(module: Any, name: str | None = None) -> dict[str, Any] | None:
    """A model by name with its options, as files store it; None for a model without a name.

    name: a name from outside, such as "mymodule:Net", if the model has one.

    >>> from fedax.models import model
    >>> described_model(model("mlp", outputs=2, hidden=[8]))
    {'name': 'mlp', 'outputs': 2, 'hidden': [8], 'kernel_init': 'lecun'}
    """
    if is_outside(name):
        return {"name": name, "outputs": getattr(module, "outputs", None)}
    target = f"{type(module).__module__}:{type(module).__name__}"
    for known, entry in MODELS.items():
        if entry.target == target:
            options = {key: getattr(module, key) for key in entry.options}
            plain = {key: list(v) if isinstance(v, tuple) else v for key, v in options.items()}
            return {"name": known, "outputs": module.outputs, **plain}
    return None


@dataclasses.dataclass(frozen=True, eq=False)
class Predictor:
    """Predicts rows by a preparation, the parameters of the shared model and, if there are any, clients' own.

    model: by name, as `described_model` gives it. personal: a function from a client's number to its own parameters.
    shared: whether there is a shared model. apply: a function of (parameters, inputs), for models without a name.
    """

    preparation: Preparation
    model: Mapping[str, Any] | None
    params: Any
    personal: Callable[[int], Any] | None = None
    shared: bool = True
    apply: Callable[[Any, Any], Any] | None = None

    @classmethod
    def load(cls, folder: Path) -> Predictor:
        """The predictor that a run's directory holds."""
        from safetensors.numpy import load_file

        content, about = read_json(folder / PREPARATION), read_json(folder / INFO)
        if content is None:
            raise FedaxError(f"{folder} has no {PREPARATION}: prediction needs a run on a table")
        if about is None or not (folder / MODEL).is_file():
            raise FedaxError(f"{folder} has no model: the run has not come to its end")
        try:
            params, personal = tree(about["structure"], load_file(folder / MODEL)), None
            if (folder / PERSONAL).is_file():
                stacked = tree(about.get("personal", about["structure"]), load_file(folder / PERSONAL))
                personal = functools.partial(of_client, stacked, shared=params)
            return cls.of(content, params, personal)
        except Exception as error:  # files that somebody or something has changed
            raise FedaxError(f"{folder} cannot be read: {error}") from error

    @classmethod
    def of(cls, content: Mapping[str, Any], params: Any, personal: Any, apply: Any = None) -> Predictor:
        """A predictor from the content of preparation.json, parameters, and a function that gives a client's own."""
        made = Preparation.from_json(content)
        return cls(made, content.get("model"), params, personal, content.get("shared", True), apply)

    def predict(self, table: Any, client: Clients = None) -> Array:
        """The predicted label of each row, or the predicted number."""
        return self._labels(self._outputs(table, client))

    def predict_proba(self, table: Any, client: Clients = None) -> Array:
        """Each class's probability, [rows, classes], in the order of `preparation.labels`."""
        if self.preparation.task == "regression":
            raise FedaxError(f"{self.preparation.label!r} is a number: predict gives it, and it has no probabilities")
        made: Array = probabilities(self._outputs(table, client))
        return made

    def predictions(self, table: Any, client: Clients = None, *, owner: str = "the table") -> Any:
        """A table with the prediction of each row and, for classes, a column probability_<label> of each.

        Columns that identify rows, such as a patient's number, come first. owner: the name of the table in errors.
        """
        pandas = needed("pandas", "tables", "prediction")

        frame = as_frame(table)
        ids = [name for name, why in self.preparation.left_out.items() if "tells rows apart" in why]
        shown = {name: frame[name].to_numpy() for name in ids if name in frame.columns}
        z = self._outputs(frame, client, owner)
        proba = probabilities(z) if self.preparation.labels is not None else z
        columns = {f"probability_{label}": proba[:, i] for i, label in enumerate(self.preparation.labels or ())}
        return pandas.DataFrame({**shown, "prediction": self._labels(z), **columns})

    def own(self, table: Any) -> list[str]:
        """The client of each row, by the table's client column."""
        from fedax.data.tables.applying import texts

        name, frame = self.preparation.client, as_frame(table)
        if name is None:
            raise FedaxError("the run was on a table without a client column: give the client's name instead")
        if name not in frame.columns:
            raise FedaxError(f"the table has no client column {name!r}: give the client's name instead")
        return [str(value) for value in texts(frame[name])[0]]

    def _labels(self, z: Array) -> Array:
        """The predictions for some outputs: labels or numbers."""
        labels = self.preparation.labels
        found: Array = z[:, 0] if labels is None else np.array(labels)[probabilities(z).argmax(axis=1)]
        return found

    def _outputs(self, table: Any, client: Clients, owner: str = "the table") -> Array:
        frame = as_frame(table)
        if client is None:
            x = self.preparation.transform(frame, owner)
            if not self.shared:
                raise FedaxError("there is no shared model: client must say whose own model predicts")
            return self._run(self.params, x)
        given = [cast("str", client)] * len(frame) if np.isscalar(client) else cast("Sequence[str]", client)
        names = [str(name) for name in given]
        known = {name: i for i, name in enumerate(self.preparation.clients)}
        wrong = [name for name in dict.fromkeys(names) if name not in known]
        also = []
        if len(names) != len(frame):
            also.append(f"client has {len(names)} names for {len(frame)} rows: it must be one name, or one a row")
        if wrong:
            more = f" ({len(wrong)} clients are)" if len(wrong) > 1 else ""
            also.append(f"{unknown('client', wrong[0], known)}{more}")
        x = self.preparation.transform(frame, owner, also)
        if self.personal is None:
            log.warning("this run's clients have no models of their own: the shared model predicts")
            return self._run(self.params, x)
        made: Array | None = None
        numbers = np.array([known[name] for name in names])
        for number in np.unique(numbers):
            rows = np.flatnonzero(numbers == number)
            part = self._run(self.personal(int(number)), x[rows])
            made = np.zeros((len(x), part.shape[1])) if made is None else made
            made[rows] = part
        assert made is not None
        return made

    def _run(self, params: Any, x: Array) -> Array:
        if self.model is not None and self.model["name"] in PLAIN:
            found: Array = outputs(params if isinstance(params, Mapping) else vars(params), x)
            return found
        found = np.asarray((self.apply or self._named())(params, x), np.float64)
        return found.reshape(len(x), -1)

    def _named(self) -> Callable[[Any, Any], Any]:
        """The outputs of a model that is stored by name."""
        if self.model is None:
            raise FedaxError("the run's model is of your own class: predict with the result of `simulate` itself")
        from fedax.problem import Problem

        options = {key: value for key, value in self.model.items() if key not in ("name", "outputs")}
        problem = Problem(model(self.model["name"], outputs=self.model["outputs"], **options), loss="squared")
        return lambda params, x: problem.outputs(params, {"x": x})


def as_frame(table: Any) -> Any:
    """A pandas table; a dictionary is one row, or columns.

    >>> as_frame({"age": 30, "blood": "A"}).shape
    (1, 2)
    """
    pandas = needed("pandas", "tables", "prediction")

    if isinstance(table, pandas.DataFrame):
        return table
    if isinstance(table, pandas.Series):
        return table.to_frame().T.infer_objects()
    if isinstance(table, Mapping):
        several = any(isinstance(value, list | tuple | np.ndarray | pandas.Series) for value in table.values())
        return pandas.DataFrame(dict(table)) if several else pandas.DataFrame([dict(table)])
    raise FedaxError(f"table is a {type(table).__name__}: it must be a pandas table, or a dictionary for one row")
