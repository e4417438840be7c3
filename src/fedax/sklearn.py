"""Estimators with scikit-learn's interface: federated classifiers and regressors for arrays.

    minimise over w    sum_i (n_i / n) f_i(w) + psi(w),       f_i the mean loss over client i's rows

by any of Fedax's methods. Features are standardised by sums over the clients, a regression's targets too; coefficients
are in the units of the data. Everything is computed in double precision, and is a function of `random_state`.
"""

from __future__ import annotations

import copy
import functools
from collections.abc import Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, ClassifierMixin, RegressorMixin
from sklearn.utils.class_weight import compute_sample_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import _check_sample_weight, check_is_fitted, validate_data

from fedax.errors import FedaxError
from fedax.extras import needed
from fedax.prediction.forward import outputs, probabilities

Floats = NDArray[np.float64]
LINEAR = ("linear", "logistic")
#: the largest second derivative of a row's loss in its output
CURVATURE = {"logistic": 0.25, "cross_entropy": 0.5, "squared": 1.0}


class _Federated(BaseEstimator):  # type: ignore[misc]
    """What classifiers and regressors share; a subclass says the loss and what the targets are."""

    def __init__(
        self,
        method: Any = "FedAvg",
        model: str = "linear",
        *,
        lr: float | None = None,
        rounds: int = 100,
        cohort: int | None = None,
        local_steps: int = 10,
        batch_size: int | None = None,
        regularizer: Any = None,
        method_options: Mapping[str, Any] | None = None,
        model_options: Mapping[str, Any] | None = None,
        random_state: int = 0,
    ) -> None:
        self.method = method
        self.model = model
        self.lr = lr
        self.rounds = rounds
        self.cohort = cohort
        self.local_steps = local_steps
        self.batch_size = batch_size
        self.regularizer = regularizer
        self.method_options = method_options
        self.model_options = model_options
        self.random_state = random_state

    def _train(self, x: Floats, y: Any, weight: Floats, clients: Any, loss: str, wide: int) -> None:
        """Train on standardised features, and keep the models with what they were standardised by."""
        import jax

        from fedax.engine.loop import Simulation

        self._centre = np.average(x, axis=0, weights=weight)
        spread = np.sqrt(np.average((x - self._centre) ** 2, axis=0, weights=weight))
        self._spread = np.where(spread > 1e-12 * np.maximum(1, np.abs(self._centre)), spread, 1.0)
        scaled = (x - self._centre) / self._spread
        with jax.enable_x64(True):
            federation = _federation(scaled, y, weight, clients)
            problem = _problem(
                self.model, wide, loss, _regularizer(self.regularizer), repr(dict(self.model_options or {}))
            )
            method = self._method(scaled, weight, loss)
            work = {"rounds": self.rounds, "cohort": self.cohort, "local_steps": self.local_steps}
            more = {"batch_size": self.batch_size, "weighted": True, "seed": self.random_state, "eval_on": ["train"]}
            run = Simulation(problem, federation, method, **work, **more)
            if not run.advance(self.rounds):
                raise FedaxError(f"{method!r} met NaN or infinity: a smaller lr usually helps")
            made = run.result
            own = [jax.device_get(made.personal(i)) for i in range(federation.clients)] if made.has_personal else []
            self._params = jax.device_get(made.model)
        own = [one if isinstance(one, Mapping) else dict(vars(one)) for one in own]
        names = federation.names if clients is None else np.unique(np.asarray(clients)).tolist()
        self.personal_ = {name: self._with(params) for name, params in zip(names, own, strict=bool(own))}
        self._describe()

    def _method(self, scaled: Floats, weight: Floats, loss: str) -> Any:
        """The method, at the rate that was asked for; else one over the smoothness of a linear model's loss."""
        from fedax.algorithms import Algorithm, build

        if isinstance(self.method, Algorithm):
            return self.method
        rate = self.lr
        if rate is None and self.model in LINEAR:
            whole = np.concatenate([scaled, np.ones((len(scaled), 1))], axis=1)
            gram = (whole * (weight / weight.sum())[:, None]).T @ whole
            rate = 1 / (CURVATURE[loss] * float(np.linalg.eigvalsh(gram)[-1]) + 1e-12)
        return build(self.method, **{"lr": 0.1 if rate is None else rate, **(self.method_options or {})})

    def _with(self, params: Any) -> _Federated:
        """This estimator with a client's own model."""
        other = copy.copy(self)
        other._params, other.personal_ = params, {}
        other._describe()
        return other

    def _describe(self) -> None:
        """Coefficients in the units of the data, where the model is linear."""
        if self.model not in LINEAR:
            return
        params = self._params
        if set(params) == {"own", "shared", "weight"}:
            a = float(params["weight"])
            pair = [params[key]["params"]["Dense_0"] for key in ("own", "shared")]
            layer = {key: a * pair[0][key] + (1 - a) * pair[1][key] for key in pair[0]}
        else:
            layer = params["params"]["Dense_0"]
        kernel = np.asarray(layer["kernel"], np.float64)
        bias = np.asarray(layer.get("bias", np.zeros(kernel.shape[1])), np.float64)
        coefficients = kernel.T / self._spread
        self._set_coefficients(coefficients, bias - coefficients @ self._centre)

    def _set_coefficients(self, coefficients: Floats, intercepts: Floats) -> None:
        raise NotImplementedError

    def _decide(self, X: Any) -> Floats:
        check_is_fitted(self, "_params")
        x = validate_data(self, X, reset=False, dtype=np.float64)
        made: Floats = outputs(self._params, (x - self._centre) / self._spread)
        return made


class FederatedClassifier(ClassifierMixin, _Federated):  # type: ignore[misc]
    """A federated classifier: logistic regression for two classes, softmax for more, or a network.

    method: a name as `fedax list algorithms` shows it, or a method such as fedax.Ditto(lr=0.1, lam=1.0).
    model: "linear" or "mlp".
    lr: the clients' rate; by default one over the smoothness of a linear model's loss, and 0.1 for a network.
    rounds, cohort, local_steps, batch_size: as of `fedax.simulate`; all clients and all of their rows by default.
    regularizer: psi, such as fedax.regularizers.L1(0.01), on standardised features; or a table {"name": "L1", ...}.
    method_options: further ones of the method by name, such as {"lam": 0.1}; model_options: such as {"hidden": [50]}.
    class_weight: None, "balanced", or a dictionary from classes to weights.
    random_state: the seed.

    `fit(X, y, clients=...)` takes whose each row is; without it there is one client. `personal_` has, for a personal
    method, each client's own estimator. `classes_`; `coef_` and `intercept_` of a linear model.

    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = FederatedClassifier(rounds=20).fit(X, ["no", "no", "yes", "yes"], clients=["a", "b", "a", "b"])
    >>> model.predict([[2.9]]).tolist(), model.predict_proba([[1.5]]).round(2).tolist()
    (['yes'], [[0.5, 0.5]])
    """

    def __init__(
        self,
        method: Any = "FedAvg",
        model: str = "linear",
        *,
        lr: float | None = None,
        rounds: int = 100,
        cohort: int | None = None,
        local_steps: int = 10,
        batch_size: int | None = None,
        regularizer: Any = None,
        method_options: Mapping[str, Any] | None = None,
        model_options: Mapping[str, Any] | None = None,
        class_weight: Any = None,
        random_state: int = 0,
    ) -> None:
        super().__init__(
            method,
            model,
            lr=lr,
            rounds=rounds,
            cohort=cohort,
            local_steps=local_steps,
            batch_size=batch_size,
            regularizer=regularizer,
            method_options=method_options,
            model_options=model_options,
            random_state=random_state,
        )
        self.class_weight = class_weight

    def fit(self, X: Any, y: Any, clients: Any = None, sample_weight: Any = None) -> FederatedClassifier:
        """Train on rows X with labels y; `clients` says whose each row is."""
        X, y = validate_data(self, X, y, dtype=np.float64)
        check_classification_targets(y)
        self.classes_, code = np.unique(y, return_inverse=True)
        if len(self.classes_) < 2:
            raise FedaxError(f"y has one class alone, {self.classes_[0]!r}: a classifier needs two or more classes")
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        if self.class_weight is not None:
            weight = weight * compute_sample_weight(self.class_weight, y)
        _check_weight(weight)
        two = len(self.classes_) == 2
        loss, wide = ("logistic", 1) if two else ("cross_entropy", len(self.classes_))
        self._train(X, code.astype(np.int32), weight, clients, loss, wide)
        return self

    def decision_function(self, X: Any) -> Floats:
        """The log-odds of the second class; of more than two, an output for each."""
        z = self._decide(X)
        return z[:, 0] if z.shape[1] == 1 else z

    def predict_proba(self, X: Any) -> Floats:
        """Each class's probability, in the order of `classes_`."""
        made: Floats = probabilities(self._decide(X))
        return made

    def predict(self, X: Any) -> Any:
        """The most probable class of each row."""
        chosen = self.predict_proba(X).argmax(axis=1)
        return self.classes_[chosen]

    def _set_coefficients(self, coefficients: Floats, intercepts: Floats) -> None:
        self.coef_, self.intercept_ = coefficients, intercepts


class FederatedRegressor(RegressorMixin, _Federated):  # type: ignore[misc]
    """Federated regression by the squared loss: linear, or a network; parameters as of `FederatedClassifier`.

    `personal_` has, for a personal method, each client's own estimator; `coef_` and `intercept_` of a linear model.

    >>> import numpy as np
    >>> X = np.array([[0.0], [1.0], [2.0], [3.0]])
    >>> model = FederatedRegressor(rounds=20).fit(X, 2 * X[:, 0] + 1, clients=["a", "b", "a", "b"])
    >>> model.predict([[10.0]]).round(3).tolist(), model.coef_.round(3).tolist()
    ([21.0], [2.0])
    """

    def fit(self, X: Any, y: Any, clients: Any = None, sample_weight: Any = None) -> FederatedRegressor:
        """Train on rows X with targets y; `clients` says whose each row is."""
        X, y = validate_data(self, X, y, dtype=np.float64, y_numeric=True)
        weight = _check_sample_weight(sample_weight, X, ensure_non_negative=True)
        _check_weight(weight)
        self._level = float(np.average(y, weights=weight))
        scale = float(np.sqrt(np.average((y - self._level) ** 2, weights=weight)))
        self._scale = scale if scale > 0 else 1.0
        self._train(X, (np.asarray(y, np.float64) - self._level) / self._scale, weight, clients, "squared", 1)
        return self

    def predict(self, X: Any) -> Floats:
        """The predicted number of each row."""
        z = self._decide(X)[:, 0]
        return self._level + self._scale * z

    def _set_coefficients(self, coefficients: Floats, intercepts: Floats) -> None:
        self.coef_ = self._scale * coefficients[0]
        self.intercept_ = float(self._level + self._scale * intercepts[0])


def _check_weight(weight: Floats) -> None:
    if not (weight > 0).any():
        raise FedaxError("sample_weight is zero for all rows: some rows must count")


def _federation(x: Floats, y: Any, weight: Floats, clients: Any) -> Any:
    pandas = needed("pandas", "tables", "a column of clients")

    from fedax.data.federation import arrange

    arrays = {"x": x, "y": y}
    if not np.all(weight == weight[0]):
        arrays["weight"] = weight / weight.mean()
    if clients is None:
        return arrange(arrays, [np.arange(len(x))], split=None, seed=0)
    whose = np.asarray(clients)
    if whose.shape != (len(x),):
        raise FedaxError(f"clients has the shape {whose.shape} for {len(x)} rows: it must say one client a row")
    gone = pandas.isna(whose)
    if gone.any():
        some = f"{int(gone.sum()):,} of {len(x):,} rows (first row {int(gone.argmax()) + 1})"
        raise FedaxError(f"clients is missing in {some}: every row needs its client")
    try:
        values, code = np.unique(whose, return_inverse=True)
    except TypeError:
        raise FedaxError("clients has names of several types: they must be all words or all numbers") from None
    blocks = [np.flatnonzero(code == number) for number in range(len(values))]
    return arrange(arrays, blocks, split=None, seed=0, names=tuple(map(str, values)))


def _regularizer(asked: Any) -> Any:
    if not isinstance(asked, Mapping):
        return asked
    from fedax.regularizers import regularizer

    return regularizer(asked["name"], **{key: value for key, value in asked.items() if key != "name"})


@functools.lru_cache(maxsize=16)
def _problem(model: str, outputs: int, loss: str, psi: Any, options: str) -> Any:
    """A problem keeps its compiled programs: another fit of the same shape compiles nothing."""
    import ast

    from fedax.models import model as named
    from fedax.problem import Problem

    return Problem(named(model, outputs=outputs, **ast.literal_eval(options)), loss=loss, regularizer=psi)
