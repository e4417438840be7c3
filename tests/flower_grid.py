"""A grid without a network: nodes are ClientApps in this process, and a test decides what is lost on the way."""

from __future__ import annotations

import copy
import itertools

from flwr.app import Context, Error, Message, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity


class LocalGrid(Grid):
    """Nodes by number. `lose(message, node)` says whether a message is "kept", "lost" on its way, or "unheard": carried
    out, and the answer lost. `tamper(node, reply)` may change an answer."""

    def __init__(self, tmp_path, app, clients, lose=lambda message, node: "kept", run_config=None):
        self.tmp_path, self.app, self.lose, self.run_config = tmp_path, app, lose, run_config or {}
        self.nodes = {}
        self.sent, self.replies = {}, {}
        self._ids = itertools.count(100)
        self.log, self.answered = [], []  # (node, content) of messages, and contents of replies
        self.tamper = lambda node, reply: None
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        for client in range(clients):
            self.join(client)

    def join(self, client, app=None, states="states"):
        """A node for a client comes up; its number."""
        node = next(self._ids)
        config = {"partition-id": client, "states": str(self.tmp_path / states)}
        self.nodes[node] = (app or self.app, Context(1, node, config, RecordDict(), self.run_config))
        return node

    def client_of(self, node):
        return self.nodes[node][1].node_config["partition-id"]

    def get_node_ids(self):
        return list(self.nodes)

    def push_messages(self, messages):
        names = []
        for message in messages:
            name = f"m{next(self._ids)}"
            message.metadata.__dict__["_message_id"] = name
            names.append(name)
            node = message.metadata.dst_node_id
            self.log.append((node, message.content))
            fate = self.lose(message, node)
            if fate == "lost":
                continue
            app, context = self.nodes[node]
            try:
                reply = app(copy.deepcopy(message), context)  # a wire shares no memory
            except Exception as error:  # as a SuperNode does
                reply = Message(Error(code=2, reason=str(error)), reply_to=message)
            if fate == "kept":
                self.tamper(node, reply)
                self.replies[name] = reply
                self.answered += [reply.content] if reply.has_content() else []
        return names

    def pull_messages(self, message_ids):
        return [self.replies.pop(name) for name in list(message_ids) if name in self.replies]

    def set_run(self, run): ...
    @property
    def run(self): ...
    def create_message(self, *args, **kwargs): ...

    def send_and_receive(self, messages, *, timeout=None):
        return self.pull_messages(self.push_messages(messages))
