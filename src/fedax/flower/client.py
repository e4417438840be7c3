"""The ClientApp: a node's messages to the `Worker` of the client that sits there."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from fedax.errors import FedaxError
from fedax.experiments import Experiment
from fedax.flower.agreement import Setting, setting_of
from fedax.flower.messages import Answer, answer_content, hello_content, read_greeting, read_order
from fedax.flower.rows import Loader, own_rows
from fedax.flower.safe_log import log
from fedax.flower.secure_aggregation import content, veil
from fedax.flower.worker import Worker

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp

STATES = "~/.fedax/states"
KEPT = 8  # the most clients that a process keeps, each with its rows


def client_app(
    experiment: Setting | Experiment | str | os.PathLike[str],
    *,
    data: Loader | None = None,
    clients: int | None = None,
) -> ClientApp:
    """A Flower ClientApp that runs the experiment's method on one client's rows.

    data: a function from the node's configuration to the client's arrays; without one the client takes its rows from
        the experiment's own federation.
    clients: with `data`, how many clients there are in all.

    The node's configuration says which client it is and where its state is kept:
    `flower-supernode --node-config 'partition-id=0 states="/var/lib/fedax"'`.
    """
    from flwr.app import Message
    from flwr.clientapp import ClientApp

    if data is not None and clients is None and not isinstance(experiment, Setting):
        raise FedaxError("clients is missing: with data=, it must be the number of clients in all")

    kept: dict[str, Worker] = {}  # the last ones, for a process that carries out several messages

    def make(config: Mapping[str, Any], run: Mapping[str, Any]) -> Worker:
        number = config.get("partition-id")
        if isinstance(number, bool) or not isinstance(number, int):
            raise FedaxError(f"partition-id is {number!r}: --node-config must say which client this is, from 0 on")
        setting = setting_of(experiment, run, clients=clients)
        own = own_rows(setting, number, data, config)
        return Worker(setting, number, own, Path(str(config.get("states", STATES))).expanduser())

    def here(context: Context) -> Worker:
        key = repr((sorted(context.node_config.items()), sorted(context.run_config.items())))
        if key not in kept:
            made = make(context.node_config, context.run_config)
            if len(kept) == KEPT:
                kept.pop(next(iter(kept)))
            kept[key] = made
        return kept[key]

    app = ClientApp()

    def query(message: Message, context: Context) -> Message:
        try:
            return Message(hello_content(here(context).hello(read_greeting(message))), reply_to=message)
        except (FedaxError, OSError) as error:
            return refuse(error, message)

    def carry_out(message: Message, context: Context) -> Message:
        try:
            order, worker = read_order(message), here(context)
            if worker.setting.secure is not None and order.broadcast is not None:
                raise FedaxError("this client uploads under secure aggregation only, and was asked for a plain upload")
            answer = worker.carry_out(order)
        except (FedaxError, OSError) as error:
            return refuse(error, message)
        return Message(answer_content(answer), reply_to=message)

    def refuse(error: Exception, message: Message) -> Message:
        log.error(str(error))
        return Message(answer_content(Answer(refused=str(error))), reply_to=message)

    app.query()(query)

    def train(message: Message, context: Context) -> Message:
        if "secaggplus_configs" in message.content:
            return veil(message, context, masked)
        return carry_out(message, context)

    def masked(message: Message, context: Context) -> Message:
        worker, order = here(context), read_order(message)
        answer, asked = worker.carry_out(order), worker.setting
        assert answer.upload is not None
        assert asked.secure is not None
        weight = worker.rows if asked.weighted else 1
        return Message(content(answer.upload, {}, reach=asked.secure, weight=weight), reply_to=message)

    app.train()(train)
    app.evaluate()(carry_out)
    return app
