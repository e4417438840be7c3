"""A run's rounds over a network, with the method's own server step.

The server asks the clients that the simulation would draw, as far as they are connected. The clients that answer in
time are the round's cohort: `update` gets their mean and their number. If too few answer, the same round goes on with
the missing clients; the server's state has not changed in between, so the earlier answers still count. The checkpoint
of a round is on disk before anybody is told that the round was used.
"""

from __future__ import annotations

import dataclasses
import time
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from fedax.algorithms.base import Context as Moment
from fedax.algorithms.with_model_state import bare
from fedax.client.round import cast_like
from fedax.data.tables.preparation import Preparation
from fedax.engine.early_stopping import stopped
from fedax.engine.record import described_table
from fedax.engine.result import Result, unwrap
from fedax.engine.rounds import finite
from fedax.errors import DivergedError, FedaxError
from fedax.flower.aggregate import aggregated
from fedax.flower.agreement import Setting
from fedax.flower.cohorts import Cohorts
from fedax.flower.evaluation import RoundCosts, evaluation
from fedax.flower.guard import RECENT, Guard
from fedax.flower.messages import Answer, Order, flatten
from fedax.flower.network import Network
from fedax.flower.quorum import Quorum
from fedax.flower.safe_log import log
from fedax.flower.secure_round import ask_for_mean
from fedax.flower.server_folder import ServerFolder
from fedax.privacy.clipping import norm
from fedax.runs.files import History
from fedax.vectors import zeros

ATTEMPTS = 10  # at one round, before the run gives up


class Server:
    """One run: the method's server state, the last round of each client that is in it, and the history."""

    def __init__(
        self,
        network: Network,
        setting: Setting,
        folder: ServerFolder,
        quorum: Quorum,
        guard: Guard,
        preparation: Preparation | None = None,
    ) -> None:
        self.network, self.setting, self.folder, self.quorum, self.guard = network, setting, folder, quorum, guard
        self.preparation = preparation
        log.info("%s: run %s, start %d, in %s", setting.fingerprint, folder.run, folder.start, folder.path.resolve())
        network.wait(quorum.min_clients)
        hello = network.settle()
        self.x0 = setting.first_parameters(hello.layout)
        self.server: Any = setting.algorithm.init(self.x0)
        self.costs = RoundCosts(setting, self.x0, hello)
        self.cohorts = Cohorts(setting, lambda: folder.secret)
        self.expected = flatten(zeros(self.costs.upload))
        assert setting.clients is not None
        self.used = np.zeros(setting.clients, np.int64)  # the last round of each client that is in the server's state
        self.round, self.seconds, self.max_steps = 0, 0.0, 1
        self.fewest = setting.clients  # that a cohort was drawn from
        self.uploads = np.zeros(setting.clients, np.int64)  # of each client that are in the server's state
        self.released = 0  # noisy means
        self.norms: list[float] = []  # of the last uploads that were used
        self.history = History()
        self.diagnostics: list[float] | None = None
        self._resume()
        folder.describe(network.clients)
        folder.status("running", self.round)

    def _resume(self) -> None:
        found = self.folder.load(self.server)
        if found is None:
            return
        server, self.used, about = found
        self.server = jax.tree.map(jnp.asarray, server)
        self.round, self.seconds, self.max_steps = about["round"], about["seconds"], about["max_steps"]
        self.history, self.diagnostics = History(about["history"]), about["diagnostics"]
        self.costs.counters, self.fewest = about["counters"], about["fewest"]
        self.norms = about["norms"]
        # A round whose checkpoint was damaged is done again: its noisy mean has been seen, with whomever it had.
        self.uploads = np.asarray(about["uploads"], np.int64) + self.folder.lost
        self.released = about["released"] + self.folder.lost
        log.info("the run goes on after round %d", self.round)

    def run(self) -> Result:
        """All rounds that are left, and the last evaluation."""
        setting, self._began = self.setting, time.monotonic() - self.seconds
        while self.round < setting.rounds:
            answers = self._answers()
            if self.stopped:  # by the model before this round, which its answers are not used for
                break
            if answers:
                self._update(answers)
            else:
                self.round += 1  # nobody was there
            self.seconds = time.monotonic() - self._began
            self._checkpoint()
            self.folder.status("running", self.round)
        why = self.stopped if self.round < setting.rounds else ""
        if self._due() or why:
            self._ask([], last=True)
        result = self.result
        self.folder.finish(result)
        self.folder.status("finished", self.round, why)
        promised = "".join(f", {name} {value:.4g}" for name, value in self._promise().items())
        log.info("finished after round %d%s%s", self.round, promised, f": {why}" if why else "")
        return result

    @property
    def result(self) -> Result:
        """The shared model and the history so far."""
        model = self.setting.problem.whole(unwrap(jax.device_get(self.setting.algorithm.model(self.server))))
        model = jax.tree.map(jnp.asarray, model)
        info = {"algorithm": repr(self.setting.algorithm), "rounds": self.round, "seed": self.setting.seed}
        info |= {"executor": "flower", **self._promise()}
        if self.round < self.setting.rounds and (why := self.stopped):
            info["stopped"] = why
        tabular = described_table(
            self.setting.problem, self.setting.algorithm, self.setting.federation, self.preparation
        )
        return Result(self.history, model, None, self.setting.clients or 0, info, tabular=tabular)

    def _answers(self) -> dict[int, Answer]:
        """The answers of a round, as many as it needs."""
        setting, quorum = self.setting, self.quorum
        answers: dict[int, Answer] = {}
        for attempt in range(ATTEMPTS):
            if setting.secure is not None:
                answers = {}  # a mean cannot be added to
            present = self.network.wait(quorum.min_clients) | answers.keys()
            pool = self.cohorts.pool(self.round, present)
            self.fewest = min(self.fewest, max(1, len(pool)))
            drawn = self.cohorts.draw(self.round, pool)
            cohort, needed_answers = self.cohorts.staying(self.round, drawn, quorum.min_answers)
            answers |= self._ask([client for client in cohort if client not in answers])
            if len(answers) >= needed_answers:  # of more than a cohort, from two attempts, those drawn last
                used = sorted(answers, key=lambda client: client not in drawn)[: setting.cohort]
                return {client: answers[client] for client in sorted(used)}
            needed = f"{len(answers)} of the {needed_answers} answers that it needs"
            log.warning("round %d has %s after attempt %d: it goes on", self.round + 1, needed, attempt + 1)
        raise FedaxError(
            f"round {self.round + 1} had {needed} after {ATTEMPTS} attempts: start the server again to go on"
        )

    @property
    def stopped(self) -> str:
        """Why the run ends before its last round; nothing if it does not."""
        setting = self.setting
        return "" if setting.patience is None else stopped(self.history, setting.judged, setting.patience)

    def _due(self) -> bool:
        """Whether this round's model is yet to be evaluated."""
        done = self.history[-1]["round"] if self.history else -1
        return self.round != done and (self.round % self.setting.eval_every == 0 or self.round == self.setting.rounds)

    def _ask(self, cohort: list[int], *, last: bool = False) -> dict[int, Answer]:
        """Let the cohort train and, if an evaluation is due, all clients evaluate; returns the answers with uploads."""
        algorithm, network = self.setting.algorithm, self.network
        self.max_steps = max([self.max_steps, *(network.clients[client].steps for client in network.connected)])
        due = last or self._due()
        model = flatten(self.server if algorithm.personalised else algorithm.model(self.server)) if due else None
        broadcast = flatten(algorithm.broadcast(self.server)) if cohort else None
        orders = {
            client: Order(
                run=self.folder.run,
                start=self.folder.start,
                round=self.round,
                used=int(self.used[client]),
                max_steps=self.max_steps,
                fingerprint=self.setting.fingerprint,
                broadcast=broadcast if client in cohort else None,
                model=model,
                last=last,
            )
            for client in (network.connected.union(cohort) if due else cohort)
        }
        answers = self._exchange(orders, cohort)
        if self._due():
            self._record(answers)
        trained = self._within({client: answer for client, answer in answers.items() if answer.upload is not None})
        self.costs.count([network.clients[client] for client in trained])
        return trained

    def _exchange(self, orders: dict[int, Order], cohort: list[int]) -> dict[int, Answer]:
        """The answers to these orders; under secure aggregation metrics and uploads come one after the other."""
        limit, reach = self.quorum.round_timeout, self.setting.secure
        if reach is None:
            return self.network.ask(orders, limit, self._check)
        seen = {c: dataclasses.replace(order, broadcast=None) for c, order in orders.items() if order.model is not None}
        answers = self.network.ask(seen, limit, self._check)
        if not cohort:
            return answers
        sealed = {client: dataclasses.replace(orders[client], model=None) for client in cohort}
        means = ask_for_mean(self.network, sealed, self.expected, reach=reach, timeout=limit)
        none = Answer()
        both = {
            client: dataclasses.replace(mean, metrics=seen.metrics, statistics=seen.statistics)
            for client, mean in means.items()
            for seen in (answers.get(client, none),)
        }
        return {**answers, **both}

    def _check(self, node: int, answer: Answer) -> str | None:
        """Why an answer must not be used, or None."""
        return None if answer.upload is None else self.guard.check(node, self.expected, answer.upload)

    def _within(self, answers: dict[int, Answer]) -> dict[int, Answer]:
        """The answers whose uploads are not far larger than most; clipped uploads are bounded already."""
        if self.setting.privacy is not None or self.setting.secure is not None:
            return answers
        sizes = {client: norm(answer.upload) for client, answer in answers.items() if answer.upload is not None}
        most = self.guard.bound(self.norms, list(sizes.values()))
        for client in sorted(client for client, size in sizes.items() if size > most):
            much = f"the norm of its upload is {sizes.pop(client):.6g}: at most {most:.6g} is allowed"
            where = f"round {self.round + 1}: client {client} (node {self.network.node(client)})"
            log.warning("%s is left out: %s, %g times the median", where, much, self.guard.norm_factor)
        self.norms = [*self.norms, *sizes.values()][-RECENT:]
        return {client: answers[client] for client in sizes}

    def _record(self, answers: Mapping[int, Answer]) -> None:
        row, values = evaluation(
            self.setting, self.network.clients, answers, unwrap(self.setting.algorithm.model(self.server))
        )
        if not row:
            log.warning("round %d: nobody answered, so it is not evaluated", self.round)
            return
        seen = {} if self.diagnostics is None else {"drift": self.diagnostics[0], "diversity": self.diagnostics[1]}
        now = {"seconds": round(time.monotonic() - self._began, 3)}
        self.history.append({"round": self.round, **row, **seen, **self._spent(), **self.costs.row, **now})
        self.folder.evaluated(self.history, values)

    def _update(self, answers: Mapping[int, Answer]) -> None:
        """The method's server step on the mean of what came."""
        setting, algorithm = self.setting, self.setting.algorithm
        mean, self.diagnostics = aggregated(setting, self.costs, self.network.clients, answers)
        psi = setting.problem.regularizer
        ctx = Moment(self.round, 0, self.max_steps, len(answers), setting.clients, psi, seed=setting.seed)
        updated = cast_like(algorithm.at(ctx).update(self.server, mean, ctx), self.server)
        if not finite(updated):
            self.folder.finish(self.result)
            why = (
                f"{type(bare(algorithm)).__name__} met NaN or infinity in round {self.round + 1}: "
                "the last good model is kept"
            )
            self.folder.status("diverged", self.round, why)
            raise DivergedError(why, round=self.round + 1, result=self.result)
        self.server, self.round = updated, self.round + 1
        self.used[list(answers)] = self.round
        self.uploads[list(answers)] += 1
        self.released += 1
        hidden = setting.privacy is not None and setting.privacy.cohorts == "secret"
        named = "" if hidden else f", clients {', '.join(map(str, answers))}"
        log.info("round %d: %d answers%s", self.round, len(answers), named)

    def _spent(self) -> dict[str, float]:
        """The epsilon so far, where there is noise."""
        asked, cohort = self.setting.privacy, self.setting.cohort
        if asked is None or not asked.noise:
            return {}
        assert cohort is not None
        most = int(self.uploads.max())
        spent = asked.guarantee.epsilon(uploads=most, rounds=self.released, cohort=cohort, clients=self.fewest)
        return {"epsilon": spent}

    def _promise(self) -> dict[str, float]:
        """The guarantee of clipping and noise so far."""
        spent, asked = self._spent(), self.setting.privacy
        return spent if asked is None or not spent else {**spent, "delta": asked.delta}

    def _checkpoint(self) -> None:
        about = {
            "round": self.round,
            "seconds": self.seconds,
            "max_steps": self.max_steps,
            "fewest": self.fewest,
            "norms": self.norms,
            "uploads": self.uploads.tolist(),
            "released": self.released,
            "history": list(self.history),
            "diagnostics": self.diagnostics,
            "counters": self.costs.counters,
        }
        self.folder.save(self.server, self.used, about)
