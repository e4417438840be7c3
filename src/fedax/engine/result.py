"""The result of a run, and how it is saved and loaded."""

from __future__ import annotations

import functools
import json
import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import jax
import numpy as np
from safetensors.numpy import load_file, save

from fedax import notebook, runtime
from fedax.errors import FedaxError
from fedax.evaluation.protocol import Clients
from fedax.model_state import WithState, parted
from fedax.models.adapters import with_values
from fedax.prediction.coefficients import LINEAR, coefficients
from fedax.prediction.predictor import Predictor
from fedax.problem.trainable import filled
from fedax.report.columns import PARTS, parse
from fedax.runs.files import (
    ASSESSMENT,
    CLIENTS,
    COEFFICIENTS,
    EXPERIMENT,
    HISTORY,
    INFO,
    MODEL,
    PERSONAL,
    PREPARATION,
    STATUS,
    History,
    check_folder,
    read_history,
    read_json,
    write_json,
    write_whole,
)
from fedax.runs.folder import Record, RunFolder
from fedax.runs.lock import locked
from fedax.vectors import Mixture, Vector


class Result:
    """A finished run: `history`, `model`, `personal(client)`, `predict(table)`, `save(path)`."""

    def __init__(
        self,
        history: History,
        model: Any,
        personal: Any | None,
        clients: int,
        info: dict[str, Any],
        by_client: Clients | None = None,
        record: Record | None = None,
        tabular: dict[str, Any] | None = None,
        apply: Any = None,
        assess: Callable[[Result], dict[str, Any]] | None = None,
    ) -> None:
        self.history = history
        self.model = model  #: the shared model's parameters, a tree as the problem's init made it
        self.clients = clients
        self.info = info  #: algorithm, executor, seed and the like
        self.by_client = by_client  #: every client's metrics at the last and the chosen round, or None
        self.record = record  #: the other content of its directory, beside history and models
        self.tabular = tabular  #: for a run on a table: its preparation and its model, as in preparation.json
        self._personal, self._apply, self._assess = personal, apply, assess

    @property
    def has_personal(self) -> bool:
        """Whether clients have models of their own."""
        return self._personal is not None

    def personal(self, client: int) -> Any:
        """A client's own model; the shared one for a method without personal models."""
        if isinstance(client, bool) or not isinstance(client, int | np.integer) or not 0 <= client < self.clients:
            raise FedaxError(f"client must be in [0, {self.clients - 1}], not {client!r}")
        if self._personal is None:
            return self.model
        return filled(jax.tree.map(lambda a: a[client], self._personal), self.model)

    def to_model(self, net: Any) -> Any:
        """A copy of a PyTorch, Flax NNX, Equinox or Keras model with the shared model's parameters and state."""
        return with_values(net, *parted(self.model))

    def personal_to_model(self, client: int, net: Any) -> Any:
        """A copy of a PyTorch, Flax NNX, Equinox or Keras model with a client's own parameters and state."""
        return with_values(net, *parted(self.personal(client)))

    @property
    def predictor(self) -> Predictor:
        """The predictor for rows of a table."""
        if self.tabular is None:
            raise FedaxError("prediction needs a run on a table, as fedax.data.from_table or a CSV file gives")
        own = None if self._personal is None else lambda client: jax.device_get(self.personal(client))
        return Predictor.of(self.tabular, jax.device_get(self.model), own, self._apply)

    def predict(self, table: Any, client: str | Sequence[str] | None = None) -> np.ndarray[Any, Any]:
        """The predicted label or number for each row of a pandas table; a dictionary is one row.

        client: the client whose own model predicts, one name or a name for each row; None for the shared model.

        >>> import fedax, pandas
        >>> table = pandas.DataFrame({"age": [30, 50, 20, 60] * 9, "ill": ["no", "yes"] * 18})
        >>> federation = fedax.data.from_table(table, label="ill", partition=fedax.data.IID(2))
        >>> problem = fedax.Problem(fedax.models.model("logistic", outputs=1), loss="logistic")
        >>> result = fedax.simulate(problem, federation, fedax.FedAvg(lr=1.0), rounds=5)
        >>> result.predict({"age": 58}).tolist(), result.predict_proba({"age": 58}).shape
        (['yes'], (1, 2))
        """
        return self.predictor.predict(table, client)

    def predict_proba(self, table: Any, client: str | Sequence[str] | None = None) -> np.ndarray[Any, Any]:
        """Each class's probability for each row, [rows, classes]; the classes in the order of their sorted labels.

        client: the client whose own model predicts, one name or a name for each row; None for the shared model.
        """
        return self.predictor.predict_proba(table, client)

    def coefficients(self) -> Any:
        """The coefficients of a linear model on a table, as a pandas table: each column's coefficient for one unit, for
        one standard deviation, whether it is zero, and each client's own.

        >>> import fedax, pandas
        >>> table = pandas.DataFrame({"age": [30, 50, 20, 60] * 9, "price": [3.5, 5.5, 2.5, 6.5] * 9})
        >>> federation = fedax.data.from_table(table, label="price", partition=fedax.data.IID(2))
        >>> problem = fedax.Problem(fedax.models.model("linear", outputs=1), loss="squared")
        >>> result = fedax.simulate(problem, federation, fedax.FedAvg(lr=0.5), rounds=30)
        >>> result.coefficients()[["feature", "coefficient"]].round(3).to_dict("list")
        {'feature': ['(intercept)', 'age'], 'coefficient': [0.5, 0.1]}
        """
        predictor = self.predictor
        names = predictor.preparation.clients if predictor.personal is not None else ()
        own = {name: jax.device_get(self.personal(i)) for i, name in enumerate(names)}
        shared = predictor.params if predictor.shared else None
        return coefficients(predictor.preparation, predictor.model, shared, own)

    def to_torch(self, net: Any) -> Any:
        """A copy of a PyTorch module with the shared model's parameters and state."""
        return self.to_model(net)

    def personal_to_torch(self, client: int, net: Any) -> Any:
        """A copy of a PyTorch module with a client's own parameters and state."""
        return self.personal_to_model(client, net)

    def save(self, path: str | os.PathLike[str]) -> Path:
        """Write the run to a directory like the command line's, its report too; `fedax.load` reads it back."""
        from fedax.report import write

        folder = check_folder("path", path)
        with locked(folder):
            record = self.record or self._little()
            writer = RunFolder(folder, record.rounds, record.clients())
            if runtime.is_main_process():
                folder.mkdir(parents=True, exist_ok=True)
            writer.begin(record.experiment, int(self.info.get("rounds", record.rounds)), record.values)
            self.keep(folder)
            writer.clients(record.values, None if self.by_client is None else self.by_client.as_json())
            writer.status(record.status, int(self.info.get("rounds", record.rounds)), record.message)
            if runtime.is_main_process():
                write(folder, [folder])
        return folder

    def _little(self) -> Record:
        """The record of a result that has none, made from its `info`."""
        rounds, name = int(self.info.get("rounds", 0)), str(self.info.get("algorithm", ""))
        method = {"name": name.partition("(")[0], "label": name}
        seed = self.info.get("seed")
        return Record({"source": "python", "rounds": rounds, "seed": seed, "algorithm": method}, rounds)

    def keep(self, folder: Path) -> Path:
        """Write the history and the models alone."""
        if runtime.is_main_process():
            folder.mkdir(parents=True, exist_ok=True)
        structure = _structure(self.model)
        write_whole(folder / MODEL, save(_flat(self.model)))
        if self._personal is not None:
            write_whole(folder / PERSONAL, save(_flat(self._personal)))
        if self.tabular is not None:
            write_json(folder / PREPARATION, self.tabular)
            if (self.tabular.get("model") or {}).get("name") in LINEAR:
                write_whole(
                    folder / COEFFICIENTS, self.coefficients().to_csv(index=False, lineterminator="\n").encode()
                )
        if self._assess is not None and runtime.is_main_process():
            write_json(folder / ASSESSMENT, self._assess(self))
        write_whole(folder / HISTORY, self.history.lines())
        own = structure if self._personal is None else _structure(self._personal)
        info = {"structure": structure, "personal": own, "clients": self.clients, "info": self.info}
        if self.by_client is not None:
            write_whole(folder / CLIENTS, json.dumps(self.by_client.as_json()).encode())
        write_whole(folder / INFO, json.dumps(info, indent=1, default=str).encode())
        return folder

    def __repr__(self) -> str:
        last = self.history[-1] if self.history else {}
        plain = {key: found for key in last if (found := parse(key)) and not found.statistic}
        held_out = next((part for part in PARTS if any(found.part == part for found in plain.values())), "")
        names = ["round", *(key for key, found in plain.items() if found.part == held_out), "train_loss"]
        shown = {key: round(value, 4) for key, value in last.items() if key in names}
        return f"Result({self.info.get('algorithm', '')}, {shown})"

    def plot(self, metric: str | None = None, against: str = "round") -> Any:
        """A plotly figure of a metric over the rounds, as `fedax.plot.compare` draws it."""
        from fedax import plot

        return plot.compare(self, metric=metric, against=against)

    def _repr_html_(self) -> str:
        """The first and the last value of each metric, for a notebook."""
        first, last = (self.history[0], self.history[-1]) if self.history else ({}, {})
        plain = [(key, found) for key in last if (found := parse(key)) and not found.statistic]
        rows = [
            (found.heading, found.shown(first.get(key)), found.shown(last[key]))
            for key, found in sorted(plain, key=lambda one: (one[1].personal, one[1].order))
        ]
        head = ("metric", f"round {first.get('round', 0)}", f"round {last.get('round', 0)}")
        why = str(self.info.get("stopped") or "")
        return notebook.table(f"Result of {self.info.get('algorithm', 'a run')}", rows, head, why)


def load(path: str | os.PathLike[str]) -> Result:
    """Read a run that `Result.save` or the command line wrote."""
    folder = check_folder("path", path)
    try:
        about = json.loads((folder / INFO).read_text())
        model = _unflat(about["structure"], load_file(folder / MODEL))
        personal = None
        if (folder / PERSONAL).exists():
            personal = _unflat(about.get("personal", about["structure"]), load_file(folder / PERSONAL))
        history = read_history(folder / HISTORY)
        by_client = Clients.from_json(json.loads(path.read_text())) if (path := folder / CLIENTS).exists() else None
    except FileNotFoundError as error:
        raise FedaxError(f"{folder} is not a saved run: {Path(error.filename).name} is missing") from error
    except Exception as error:
        raise FedaxError(f"{folder} cannot be read: {error}") from error
    tabular, assessed = (read_json(folder / name) for name in (PREPARATION, ASSESSMENT))
    kept = (about["clients"], about["info"], by_client, _recorded(folder), tabular)
    return Result(history, model, personal, *kept, assess=None if assessed is None else lambda _: assessed)


def _recorded(folder: Path) -> Record | None:
    """The content of a directory beside history and models; None if there is none."""
    experiment = read_json(folder / EXPERIMENT)
    if experiment is None:
        return None
    state, clients = read_json(folder / STATUS) or {}, read_json(folder / CLIENTS) or {}
    values = clients.pop("values", {})
    rounds = int(state.get("rounds") or experiment.get("rounds") or 0)
    status, message = state.get("status", "finished"), str(state.get("message") or "")
    return Record(experiment, rounds, functools.partial(dict, clients), values, status, message)


_KINDS: dict[str, Any] = {"mixture": Mixture, "with_state": WithState}


def _flat(tree: Any) -> dict[str, np.ndarray[Any, Any]]:
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {_name(path): np.asarray(leaf, order="C") for path, leaf in leaves}


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".") or "x"


def _structure(tree: Any, path: tuple[Any, ...] = ()) -> Any:
    """The tree's shape as JSON: containers with the names of their leaves."""
    if isinstance(tree, dict):
        return {"dict": {k: _structure(v, (*path, jax.tree_util.DictKey(k))) for k, v in tree.items()}}
    if isinstance(tree, list | tuple) and not hasattr(tree, "_fields"):
        kind = "list" if isinstance(tree, list) else "tuple"
        return {kind: [_structure(v, (*path, jax.tree_util.SequenceKey(i))) for i, v in enumerate(tree)]}
    for kind, cls in _KINDS.items():
        if isinstance(tree, cls):
            return {kind: {k: _structure(v, (*path, jax.tree_util.GetAttrKey(k))) for k, v in vars(tree).items()}}
    if tree is None:  # a leaf that is not trained: clients' own models take it from the shared model
        return None
    if jax.tree_util.all_leaves([tree]):
        return _name(path)
    raise FedaxError(f"parameters of type {type(tree).__name__} cannot be saved: use dicts, lists, tuples and arrays")


def _unflat(structure: Any, leaves: dict[str, Any]) -> Any:
    if structure is None:
        return None
    if isinstance(structure, str):
        return jax.numpy.asarray(leaves[structure])
    if "dict" in structure:
        return {k: _unflat(v, leaves) for k, v in structure["dict"].items()}
    for kind, cls in _KINDS.items():
        if kind in structure:
            return cls(**{k: _unflat(v, leaves) for k, v in structure[kind].items()})
    if "list" in structure:
        return [_unflat(v, leaves) for v in structure["list"]]
    return tuple(_unflat(v, leaves) for v in structure["tuple"])


def unwrap(x: Any) -> Any:
    """A plain parameter tree from a vector."""
    return x.tree if isinstance(x, Vector) else x
