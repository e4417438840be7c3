"""One client's side of a run: its rows, its state on disk, its rounds and its metrics. Nothing here knows of Flower."""

from __future__ import annotations

import dataclasses
import functools
import re
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from fedax.algorithms.base import Context
from fedax.algorithms.with_model_state import clients_keep_state
from fedax.client.device_data import Data
from fedax.client.plan import Plan
from fedax.client.public_parts import public_parts
from fedax.client.round import Client
from fedax.data import Federation
from fedax.engine.result import Result, unwrap
from fedax.engine.rounds import finite
from fedax.errors import FedaxError
from fedax.evaluation import Meter
from fedax.flower.agreement import Setting, layout_of, not_taken
from fedax.flower.client_state import ClientState
from fedax.flower.messages import Answer, Flat, Hello, Order, flatten, unflatten
from fedax.flower.owners import prove
from fedax.flower.private_files import close, make_private
from fedax.flower.safe_log import log
from fedax.model_state import joined, parted
from fedax.privacy.clipping import clip
from fedax.problem.check_data import check_data
from fedax.runs.files import History
from fedax.vectors import Vector

RUN = "[A-Za-z0-9][A-Za-z0-9 ._-]{0,127}"  # a name that stays within the folder of states
OWN = "own"  # the directory of the client's own model, when training is over


class Worker:
    """A client of a run, with its own rows.

    folder: where clients' states are kept; this one's are in <run>/client-<number> there.
    """

    def __init__(self, setting: Setting, number: int, own: Federation, folder: Path) -> None:
        assert setting.clients is not None
        if not 0 <= number < setting.clients:
            raise FedaxError(f"partition-id is {number}: it must be from 0 to {setting.clients - 1}")
        self.setting, self.number, self.own, self.folder = setting, number, own, folder
        self.plan = setting.plan(own, number)
        self.steps = self.plan.max_steps
        self.rows = int(own.train.count[0])
        self.layout = layout_of(own.arrays)
        self.x0 = setting.first_parameters(self.layout)
        try:
            check_data(setting.problem, self.x0.tree, own.arrays)
        except (TypeError, ValueError) as error:
            raise not_taken(self.layout, error) from error
        # Randomness and rows are both found by the client's number, so each client is given the place of this one.
        every = np.zeros(setting.clients, np.int32)
        places = _Places(every, every + self.rows)
        self.data = Data.of(own.arrays, places, every + self.steps)

    def hello(self, run: str = "") -> Hello:
        """This client's introduction to the server of a run."""
        counts = tuple(int(self.own.part(part).count[0]) for part in ("train", "validation", "test"))
        setting = self.setting
        proof = prove(self.folder, self.number, run) if run else ""
        return Hello(self.number, counts, self.steps, self.layout, setting.fingerprint, setting.described, proof)  # type: ignore[arg-type]

    def carry_out(self, order: Order) -> Answer:
        """Train, evaluate, or both; a round's new state is on disk before its upload is handed out."""
        if order.fingerprint != self.setting.fingerprint:
            both = f"the server's is {order.fingerprint} and this client's {self.setting.fingerprint}"
            raise FedaxError(f"client {self.number} has another experiment or version than the server: {both}")
        if re.fullmatch(RUN, order.run) is None:
            raise FedaxError(f"the order's run is {order.run!r}: it must be letters, digits, spaces, dots and dashes")
        first = self.setting.algorithm.client_init(self.x0)
        state = ClientState(self.folder / order.run / f"client-{self.number}", first)
        if (order.start, order.round) < state.seen:
            return Answer(refused=f"the order of round {order.round + 1} came after that of round {state.seen[1] + 1}")
        note, before = state.damaged, state.at(order.used)
        if before is None:
            before = state.first
            note = f"client {self.number} lost its state of round {order.used} and starts from its first one; {note}"
            log.warning(note)
        note = state.note(note.rstrip("; "), version=order.round + 1, used=order.used)
        found = {} if order.model is None else self._evaluate(order, order.model, before, state.folder)
        metrics = {name: value for name, value in found.items() if isinstance(value, float)}
        statistics = {name: value for name, value in found.items() if not isinstance(value, float)}
        upload = None if order.broadcast is None else self._train(order, order.broadcast, before, state)
        return Answer(upload, metrics, note=note, statistics=statistics)

    def _with(self, max_steps: int) -> Plan:
        """The plan where the busiest client takes `max_steps` local steps."""
        return dataclasses.replace(self.plan, max_steps=max_steps, equal_steps=max_steps == self.steps)

    def _train(self, order: Order, broadcast: Flat, before: Any, state: ClientState) -> Flat:
        setting, plan = self.setting, self._with(order.max_steps)

        def build() -> Any:
            def work(algorithm: Any, message: Any, before: Any, round: Any, seed: Any, number: Any, data: Data) -> Any:
                client = Client(setting.problem, plan, data, number, seed, round, algorithm.composite)
                upload, new = client.work(algorithm, message, before)
                return upload, new, finite((upload, new))

            return jax.jit(work)

        algorithm = setting.algorithm
        like = jax.eval_shape(lambda x: algorithm.broadcast(algorithm.init(x)), self.x0)
        message = unflatten(broadcast, like, "the broadcast")
        program = setting.problem.program(("network", plan), build)
        seed, number = jax.random.key(setting.seed), np.int32(self.number)
        upload, new, good = program(algorithm, message, before, np.int32(order.round), seed, number, self.data)
        if not bool(good):
            raise FedaxError(
                f"client {self.number} met NaN or infinity in round {order.round + 1}: a smaller lr may help"
            )
        flat = flatten(jax.device_get(upload))
        if setting.privacy is not None:
            flat = clip(flat, setting.privacy.clip, self._public)
        state.add(jax.device_get(new), version=order.round + 1, base=order.used, seen=(order.start, order.round))
        return flat

    @functools.cached_property
    def _public(self) -> frozenset[str]:
        """The arrays of an upload that do not depend on anybody's rows."""
        algorithm, seed = self.setting.algorithm, jax.random.key(self.setting.seed)
        client = Client(self.setting.problem, self.plan, self.data, self.number, seed, 0, algorithm.composite)
        return public_parts(client, algorithm, self.x0)

    @functools.cached_property
    def _meters(self) -> dict[str, Meter]:
        one = dataclasses.replace(self.plan, clients=1, cohort=1)
        mesh = Mesh(np.array(jax.devices()[:1]), ("clients",))
        parts = {part: self.own.part(part) for part in self.setting.eval_on}
        return {
            part: Meter(self.setting.problem, one, mesh, rows.start, rows.count, 1)
            for part, rows in parts.items()
            if rows.count[0]
        }

    def _evaluate(self, order: Order, sent: Flat, before: Any, folder: Path) -> dict[str, Any]:
        """Metrics of the shared model, and of the client's own, on this client's rows: means over them, and the
        statistics of the metrics that are no means."""
        algorithm, x0 = self.setting.algorithm, self.x0
        found: dict[str, Any] = {}
        if algorithm.personalised:
            server = unflatten(sent, jax.eval_shape(algorithm.init, x0), "the server's state")
            model = algorithm.model(server)
            if self.setting.personal or order.last:
                own = unwrap(self._own_model(order, server, before))
                found |= self._measure("personal_", own) if self.setting.personal else {}
                if order.last:
                    self._save_own(own, order, folder)
        else:
            model = unflatten(sent, jax.eval_shape(lambda x: algorithm.model(algorithm.init(x)), x0), "the model")
        if clients_keep_state(algorithm):
            model = joined(parted(unwrap(model))[0], jax.tree.map(jnp.asarray, before[1]))
            if order.last and not algorithm.personalised:
                self._save_own(model, order, folder)
        return found | (self._measure("", unwrap(model)) if algorithm.shared else {})

    def _save_own(self, own: Any, order: Order, folder: Path) -> None:
        """Write this client's own model when training is over."""
        whole = jax.device_get(self.setting.problem.whole(own))
        make_private(folder)
        Result(History(), whole, None, 1, {"round": order.round}).save(folder / OWN)
        close(folder)

    def _measure(self, prefix: str, params: Any) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for part, meter in self._meters.items():
            for name, measured in meter.shared(params, self.data, statistics=True).items():
                mean = self.setting.problem.metrics[name].mean
                found[f"{prefix}{part}.{name}"] = float(measured.values[0]) if mean else measured.statistics[0]
        return found

    def _own_model(self, order: Order, server: Any, before: Any) -> Vector:
        setting, plan = self.setting, self._with(order.max_steps)

        def build() -> Any:
            def own(algorithm: Any, server: Any, before: Any, seed: Any, number: Any, data: Data) -> Any:
                client = Client(setting.problem, plan, data, number, seed, 0, algorithm.composite)
                return algorithm.personal(server, before, client.full())

            return jax.jit(own)

        now = setting.algorithm.at(Context(round=order.round, steps=order.max_steps))
        program = setting.problem.program(("network own", plan), build)
        seed, number = jax.random.key(setting.seed), np.int32(self.number)
        model: Vector = program(now, server, jax.tree.map(jnp.asarray, before), seed, number, self.data)
        return model


@dataclasses.dataclass(frozen=True)
class _Places:
    start: Any
    count: Any
