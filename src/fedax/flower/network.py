"""Who is connected, and how orders reach clients and answers come back.

Flower knows nodes; a node that is restarted is another node. So each new node is greeted and says which client it is,
and an order is for a client: if its node falls and another comes up for it while a round is under way, the order is
sent there as well.

Whatever a node sends, the server goes on: a message that cannot be read or does not fit is one line in the log, with
the node's number, and the node is left out.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from fedax.errors import FedaxError
from fedax.flower.agreement import Setting, show
from fedax.flower.hello_checks import refusal
from fedax.flower.messages import Answer, Hello, Order, greeting, order_content, read_answer, read_hello
from fedax.flower.owners import Owners
from fedax.flower.safe_log import log

if TYPE_CHECKING:
    from flwr.app import Message
    from flwr.serverapp import Grid

MAX_ROWS = 1_000_000  # that a client may claim to have in each part
PAUSE = 0.2  # seconds between two looks at the network
AGAIN = 20.0  # seconds until a node that failed to answer a greeting is greeted again
GRACE = 10.0  # seconds that an order outlives its round: that it is late is for the server to say, not for Flower
SILENCE = 30.0  # seconds between two lines about waiting
Check = Callable[[int, Answer], str | None]  # node, answer -> why it is not used


class Network:
    """A federation as the server sees it."""

    def __init__(
        self,
        grid: Grid,
        setting: Setting,
        *,
        run: str = "",
        owners: Owners | None = None,
        max_rows: int = MAX_ROWS,
        pause: float = PAUSE,
        seen: Callable[[], None] = lambda: None,
    ) -> None:
        """run: its name; max_rows: see `fedax.flower.hello_checks`; seen: called when the SuperLink has answered."""
        self._seen = seen
        self.grid, self.setting, self.run, self.max_rows, self.pause = grid, setting, run, max_rows, pause
        self.owners = owners or Owners()  #: of the clients' numbers
        self.clients: dict[int, Hello] = {}  #: everybody who has ever introduced themselves, by number
        self._node: dict[int, int] = {}  # of each client that is connected
        self._greeted: dict[str, int] = {}  # greetings under way: message -> node
        self._known: set[int] = set()
        self._later: dict[int, float] = {}
        self._agreed: Any = None  # what all clients' rows are like, once the run has begun

    @property
    def connected(self) -> set[int]:
        """The clients that are connected now and fit together."""
        usual = self._usual()
        return {client for client in self._node if self._like(client) == usual}

    def settle(self) -> Hello:
        """Fix the introduction that all clients must match from now on: one that agrees with most clients'."""
        self._agreed = self._usual()
        for client in self._node.keys() - self.connected:
            log.warning("client %d (node %d) is left out: %s", client, self._node[client], self._apart(client))
        return self.clients[min(self.connected)]

    def _usual(self) -> Any:
        if self._agreed is not None:
            return self._agreed
        return next(iter(Counter(self._like(client) for client in self._node).most_common(1)), (None,))[0]

    def _like(self, client: int) -> Any:
        """What all clients must have in common: a row's layout and, for some methods, the local steps."""
        hello = self.clients[client]
        return tuple(sorted(hello.layout.items())), hello.steps if self.setting.algorithm.lockstep else None

    def _apart(self, client: int) -> str | None:
        """How a client differs from the others, or None."""
        usual, (layout, steps) = self._usual(), self._like(client)
        if layout != usual[0]:
            return f"its rows are {show(dict(layout))} and those of the others {show(dict(usual[0]))}"
        if steps != usual[1]:
            needs = f"{type(self.setting.algorithm).__name__} needs as many of all"
            return f"it takes {steps} local steps a round and the others {usual[1]}: {needs}"
        return None

    def look(self) -> None:
        """Note which nodes have connected and which are gone."""
        keys = {node.node_id: bytes(node.public_key) for node in self.grid.get_nodes()}
        self._seen()
        nodes = set(keys)
        for client, node in list(self._node.items()):
            if node not in nodes:
                log.info("client %d (node %d) is gone", client, node)
                del self._node[client]
        self._known &= nodes
        now = time.monotonic()
        new = [node for node in nodes - self._known if self._later.get(node, 0.0) <= now]
        if new:
            self._known.update(new)
            sent = self.push({node: ("query", greeting(self.run)) for node in new})
            self._greeted.update(sent)
        self._greeted = {id: node for id, node in self._greeted.items() if node in nodes}
        for reply, node in self.pull(self._greeted):
            self._meet(node, keys[node], reply)

    def _meet(self, node: int, key: bytes, reply: Message) -> None:
        try:
            hello = read_hello(reply)
        except Exception as error:  # whatever it sent
            log.warning("node %d is left out: %s", node, _said(error))
            self._known.discard(node)
            self._later[node] = time.monotonic() + AGAIN
            return
        why = refusal(self.setting, hello, self.max_rows)
        why = why or self.owners.refusal(hello.client, key, hello.proof)
        if why:
            log.warning("node %d (client %d) is refused: %s", node, hello.client, why)
            return
        before = self._node.get(hello.client)
        log.info("client %d is node %d%s", hello.client, node, "" if before is None else f", no longer node {before}")
        self._node[hello.client], self.clients[hello.client] = node, hello
        if self._agreed is not None and (apart := self._apart(hello.client)):
            log.warning("client %d (node %d) is left out: %s", hello.client, node, apart)

    def wait(self, enough: int) -> set[int]:
        """The connected clients, once there are enough of them."""
        spoke = time.monotonic()
        while True:
            self.look()
            if len(here := self.connected) >= enough:
                return here
            if time.monotonic() - spoke > SILENCE:
                log.info("waiting for clients: %d of %d are connected", len(here), enough)
                spoke = time.monotonic()
            time.sleep(self.pause)

    def node(self, client: int) -> int | None:
        """The node of a client that is connected, or None."""
        return self._node.get(client)

    def ask(self, orders: Mapping[int, Order], limit: float, check: Check) -> dict[int, Answer]:
        """Send each client its order; the good answers that come within `limit` seconds."""
        exchange, end = _Exchange(self, orders, check), time.monotonic() + limit
        while True:
            self.look()
            exchange.send(max(0.0, end - time.monotonic()) + GRACE)
            exchange.receive()
            if not exchange.left:
                return exchange.answers
            if time.monotonic() >= end:
                for client in sorted(exchange.left):
                    log.warning("round %d: client %d did not answer in %g s", orders[client].round + 1, client, limit)
                return exchange.answers
            time.sleep(self.pause)

    def push(self, contents: Mapping[int, tuple[str, Any]], ttl: float | None = None) -> dict[str, int]:
        """Send each node a message of a type; the messages' ids. One that Flower does not take is never answered."""
        from flwr.app import Message

        sent = {}
        for node, (kind, content) in contents.items():
            for name in self.grid.push_messages([Message(content, node, kind, ttl=ttl)]):
                if name:
                    sent[name] = node
        return sent

    def pull(self, waiting: dict[str, int]) -> list[tuple[Message, int]]:
        """The replies that are there, with their nodes; they are no longer waited for."""
        if not waiting:
            return []
        replies = list(self.grid.pull_messages(list(waiting)))
        asked = ((reply, reply.metadata.reply_to_message_id) for reply in replies)
        return [(reply, waiting.pop(name)) for reply, name in asked if name in waiting]


class _Exchange:
    """Orders on their way, and what has come back so far."""

    def __init__(self, network: Network, orders: Mapping[int, Order], check: Check) -> None:
        self.network, self.orders, self.check = network, orders, check
        self.answers: dict[int, Answer] = {}
        self.left = set(orders)  #: clients that may still answer
        self._sent: dict[int, set[int]] = {client: set() for client in orders}  # the nodes that have their orders
        self._waiting: dict[str, int] = {}  # message -> node
        self._whose: dict[str, int] = {}  # message -> client

    def send(self, ttl: float) -> None:
        """Send each client that has not answered its order, to the node where the client is now."""
        for client in sorted(self.left):
            node, order = self.network.node(client), self.orders[client]
            if node is None or node in self._sent[client]:
                continue
            if self._sent[client]:
                log.info("round %d: client %d is back, its order is sent again", order.round + 1, client)
            self._sent[client].add(node)
            kind = "evaluate" if order.broadcast is None else "train"
            pushed = self.network.push({node: (kind, order_content(order))}, ttl)
            self._waiting |= pushed
            self._whose |= dict.fromkeys(pushed, client)

    def receive(self) -> None:
        """Take the replies that are there."""
        for reply, node in self.network.pull(self._waiting):
            client = self._whose[reply.metadata.reply_to_message_id]
            if client not in self.left or (reply.has_error() and self.network.node(client) not in (None, node)):
                continue  # answered by another node, or about to be
            answer = _read(reply)
            where = f"round {self.orders[client].round + 1}: client {client} (node {node})"
            if answer.note:
                log.warning("%s: %s", where, answer.note)
            why = answer.refused or self._checked(node, answer)
            if not why and (answer.upload is None) != (self.orders[client].broadcast is None):
                why = "its answer is not to what was asked"
            if why:
                log.warning("%s is left out: %s", where, why)
            else:
                self.answers[client] = answer
            self.left.discard(client)

    def _checked(self, node: int, answer: Answer) -> str | None:
        try:
            return self.check(node, answer)
        except Exception as error:  # whatever it sent
            return f"its answer cannot be checked: {_said(error)}"


def _read(reply: Message) -> Answer:
    """A reply's answer; one that cannot be read is refused."""
    try:
        return read_answer(reply)
    except Exception as error:  # whatever it sent
        return Answer(refused=f"its answer cannot be read: {_said(error)}")


def _said(error: Exception) -> str:
    return str(error) if isinstance(error, FedaxError) else f"{type(error).__name__}: {error}"
