"""A round under secure aggregation: the server learns the mean of the uploads, and who is in it."""

from __future__ import annotations

from collections.abc import Mapping

from fedax.flower.messages import Answer, Flat, Order, order_content
from fedax.flower.network import Network
from fedax.flower.safe_log import log
from fedax.flower.secure_aggregation import FEWEST, Mean


def ask_for_mean(
    network: Network, orders: Mapping[int, Order], like: Flat, *, reach: float, timeout: float
) -> dict[int, Answer]:
    """Send each client its order; each client in the mean gets the mean as its answer, so their mean is the same.

    No client is in the mean if too few stayed to the end.
    """
    nodes = {node: client for client in orders if (node := network.node(client)) is not None}
    round = next(iter(orders.values())).round + 1
    if len(nodes) < FEWEST:
        log.warning("round %d: %d clients are here, and secure aggregation needs %d", round, len(nodes), FEWEST)
        return {}
    weights = [network.clients[client].rows[0] for client in nodes.values()] if network.setting.weighted else [1]
    contents = {node: order_content(orders[client]) for node, client in nodes.items()}
    total = Mean(reach, timeout).ask(network.grid, contents, like, round=round, max_weight=float(max(weights)))
    found = {} if total is None else {nodes[node]: Answer(upload=total.mean) for node in total.beside}
    if missing := sorted(orders.keys() - found.keys()):
        log.warning("round %d: not in the mean are the clients %s", round, ", ".join(map(str, missing)))
    return found
