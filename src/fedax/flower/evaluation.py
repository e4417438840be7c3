"""What a run over a network measures: rows of its history from clients' metrics, and what it costs."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.client.cost import cost
from fedax.client.device_data import Data
from fedax.client.public_parts import public_parts
from fedax.client.round import Client
from fedax.data import Federation
from fedax.evaluation import Measurement, summary
from fedax.evaluation.structure import structure, truth_of, value_at
from fedax.flower.agreement import Setting
from fedax.flower.messages import Answer, Hello
from fedax.metrics import Metric
from fedax.model_state import parted
from fedax.vectors import Vector

PARTS = ("train", "validation", "test")


def evaluation(
    setting: Setting, clients: Mapping[int, Hello], answers: Mapping[int, Answer], model: Any
) -> tuple[dict[str, float], dict[str, Any]]:
    """A row of the history, over the clients that answered, and each client's own values."""
    row: dict[str, float] = {}
    values: dict[str, dict[str, list[float | None]]] = {}
    known = setting.problem.metrics
    names = sorted({name for answer in answers.values() for name in answer.metrics})
    for name in names:
        part, _, metric = name.rpartition(".")
        if part.removeprefix("personal_") not in PARTS:
            continue
        place = PARTS.index(part.removeprefix("personal_"))
        sent = {c: answers[c].metrics.get(name, np.nan) for c in sorted(answers) if clients[c].rows[place] > 0}
        who = [client for client, value in sent.items() if np.isfinite(value)]
        if not who:
            continue
        found = np.array([sent[client] for client in who])
        rows = np.array([clients[client].rows[place] for client in who], np.float64)
        if not (asked := known.get(metric)) or not asked.mean:
            continue
        row |= summary(f"{part}_", {metric: Measurement(found, rows)}, known)
        values.setdefault(part, {})[metric] = _everyone(setting, who, found)
    for part, metric, who, measured in _merged(setting, clients, answers):
        row |= summary(f"{part}_", {metric: measured}, known)
        values.setdefault(part, {})[metric] = _everyone(setting, who, measured.values)
    psi = setting.problem.regularizer
    if row and psi is not None and setting.algorithm.shared:
        params = parted(model)[0]
        value = value_at(setting.problem, params)
        row |= {f"{part}_objective": row[f"{part}_loss"] + value for part in PARTS if f"{part}_loss" in row}
        if not psi.smooth:
            info = {} if setting.federation is None else setting.federation.info
            row |= structure(psi, jax.device_get(params), truth_of(info), setting.zero_below)
    return row, values


def _merged(
    setting: Setting, clients: Mapping[int, Hello], answers: Mapping[int, Answer]
) -> Iterator[tuple[str, str, list[int], Measurement]]:
    """The metrics that are statistics, each with its part and its clients.

    A client whose statistic has another shape than most clients' is left out.
    """
    for name in sorted({name for answer in answers.values() for name in answer.statistics}):
        part, _, wanted = name.rpartition(".")
        metric = setting.problem.metrics.get(wanted)
        if part.removeprefix("personal_") not in PARTS or metric is None or metric.mean:
            continue
        place = PARTS.index(part.removeprefix("personal_"))
        sent = {
            client: answers[client].statistics[name] for client in sorted(answers) if name in answers[client].statistics
        }
        usual = Counter(statistic.shape for statistic in sent.values()).most_common(1)[0][0]
        alike = {c: s for c, s in sent.items() if s.shape == usual and clients[c].rows[place] > 0}
        finished = {client: _finished(metric, statistic) for client, statistic in alike.items()}
        good = {client: value for client, value in finished.items() if value is not None}
        if good:
            rows = np.array([clients[client].rows[place] for client in good], np.float64)
            merged = metric.merged([alike[client] for client in good])
            yield part, wanted, list(good), Measurement(np.array(list(good.values())), rows, merged)


def _finished(metric: Metric, statistic: np.ndarray[Any, Any]) -> float | None:
    """The value of a site's statistic; None where the metric cannot finish it."""
    try:
        with np.errstate(all="ignore"):
            return float(metric.finished(statistic))
    except Exception:  # whatever it sent
        return None


def _everyone(setting: Setting, who: Sequence[int], found: Any) -> list[float | None]:
    """The values of some clients among all, None for those without."""
    every: list[float | None] = [None] * (setting.clients or 0)
    for client, value in zip(who, found.tolist(), strict=True):
        every[client] = value if np.isfinite(value) else None
    return every


class RoundCosts:
    """The shape of an upload, and what rounds have cost: traced on made-up rows, because the server has none."""

    def __init__(self, setting: Setting, x0: Vector, hello: Hello) -> None:
        self.setting = setting
        algorithm = setting.algorithm
        arrays = {name: np.zeros((1, *shape), dtype) for name, (shape, dtype) in hello.layout.items()}
        alone = setting.plan(Federation.from_clients([arrays]))
        plan = dataclasses.replace(alone, max_steps=hello.steps)
        one, zero = jnp.ones(1, jnp.int32), jnp.zeros(1, jnp.int32)
        seed = jax.random.key(setting.seed)
        client = Client(
            setting.problem,
            plan,
            Data(jax.tree.map(jnp.asarray, arrays), zero, one, one),
            0,
            seed,
            0,
            algorithm.composite,
        )

        def upload(x: Any) -> Any:
            return client.work(algorithm, algorithm.broadcast(algorithm.init(x)), algorithm.client_init(x))[0]

        self.upload = jax.eval_shape(upload, x0)  #: shapes and dtypes of what goes up
        self.public = frozenset() if setting.privacy is None else public_parts(client, algorithm, x0)
        self._cost = cost(client, algorithm, x0)
        self.counters = [0, 0, 0]  #: gradients, floats up, floats down

    @property
    def row(self) -> dict[str, int]:
        """The counters by name."""
        return dict(zip(("gradients", "floats_up", "floats_down"), self.counters, strict=True))

    def count(self, who: Sequence[Hello]) -> None:
        """Add what these clients did in a round."""
        for hello in who:
            spent = self._cost.gradients(hello.rows[0], hello.steps, self.setting.batch_size)
            self.counters = [
                self.counters[0] + int(spent),
                self.counters[1] + self._cost.up,
                self.counters[2] + self._cost.down,
            ]
