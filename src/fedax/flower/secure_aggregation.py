"""Flower's secure aggregation (SecAgg+): the server gets the mean of the uploads and none of them.

Every method here needs only the mean and the size of a cohort, so any method can run this way. Before a round clients
agree on masks that cancel in the sum; a client adds its own to what it uploads, and the server sees sums of at least a
threshold of clients. Flower offers this for its older strategies only: `Mean` runs Flower's own workflow with the
orders of this package in place of a strategy's, and `veil` is Flower's own modifier on the client's side.

What it costs: four exchanges a round in place of one; fixed-point numbers, so every entry must lie within `reach`, and
the mean is that of a plain round up to `precision`; the server can no longer check an upload, so a client checks its
own. What it does not do: Flower 1.41 draws its masks from seeds of 32 bits, and its clients do not sign their keys. It
keeps uploads out of logs, memory dumps and the eyes of operators, and not from a server that sets out to break it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedax.errors import FedaxError
from fedax.flower.safe_log import log
from fedax.flower.secure_checks import Absent, CheckedGrid

if TYPE_CHECKING:
    from flwr.app import Context, Message, RecordDict
    from flwr.serverapp import Grid

Flat = dict[str, np.ndarray[Any, Any]]
FEWEST = 3  # of two clients each could take its own upload from the mean
REACH = 8.0


@dataclasses.dataclass(frozen=True)
class MaskedSum:
    """The outcome of a round: the mean of the uploads, and the plain numbers that its nodes sent beside."""

    mean: Flat
    beside: Mapping[int, Mapping[str, Any]]


@dataclasses.dataclass(frozen=True)
class Mean:
    """The server's side.

    reach: the largest size of an entry of an upload, above 0.
    timeout: seconds that clients have for each of the four exchanges.

    >>> Mean(reach=1.0).precision(3)
    7.450580596923828e-09
    """

    reach: float = REACH
    timeout: float = 600.0

    def __post_init__(self) -> None:
        if isinstance(self.reach, bool) or not isinstance(self.reach, int | float) or not 0 < self.reach < float("inf"):
            raise FedaxError(f"reach is {self.reach!r}: it must be a number above 0")

    def precision(self, cohort: int) -> float:
        """How far an entry of the mean may be from a plain round's: one step of the fixed-point numbers."""
        return 2 * self.reach / _levels(cohort)

    def ask(
        self, grid: Grid, orders: Mapping[int, RecordDict], like: Flat, *, round: int, max_weight: float = 1.0
    ) -> MaskedSum | None:
        """Send each node its order and get the mean of their uploads; None if too few of them were there to the end.

        like: arrays of the names, shapes and dtypes of an upload. max_weight: the largest weight of a client.
        """
        if len(orders) < FEWEST:
            raise FedaxError(
                f"secure aggregation is asked of {len(orders)} clients: it must be {FEWEST} or more a round"
            )
        length = sum(array.size for array in like.values())
        while len(orders) >= FEWEST:
            try:
                found = self._exchange(CheckedGrid(grid, length, round), orders, round, max_weight)
            except Absent as gone:
                absent = ", ".join(map(str, sorted(gone.nodes)))
                log.warning("round %d: its masks are agreed on again, without node %s", round, absent)
                orders = {node: order for node, order in orders.items() if node not in gone.nodes}
                continue
            except Exception as error:  # a site has sent something else inside a mask or a share than it should
                log.warning("round %d: the masks do not come off: %s: %s", round, type(error).__name__, error)
                return None
            return None if found is None else self._whole(*found, like, round, len(orders))
        return None

    def _exchange(
        self, grid: Any, orders: Mapping[int, RecordDict], round: int, max_weight: float
    ) -> tuple[np.ndarray[Any, Any], dict[int, dict[str, Any]]] | None:
        """Flower's four exchanges: the mean as one vector, and what nodes sent beside; None if too few stayed."""
        from flwr.app import ArrayRecord, ConfigRecord, Context, RecordDict
        from flwr.common import parameters_to_ndarrays
        from flwr.server import LegacyContext

        strategy: Any = _Orders(orders)
        records = RecordDict({"config": ConfigRecord({"current_round": round}), "parameters": ArrayRecord()})
        context = Context(run_id=0, node_id=0, node_config={}, state=records, run_config={})
        manager: Any = SimpleNamespace(num_available=lambda: len(orders))
        legacy = LegacyContext(context, strategy=strategy, client_manager=manager)
        _workflow(self, orders, max_weight)(grid, legacy)
        if not strategy.results:
            return None
        vector = parameters_to_ndarrays(strategy.results[0][1].parameters)[0]
        return vector, {proxy.node_id: dict(result.metrics) for proxy, result in strategy.results}

    def _whole(
        self, vector: np.ndarray[Any, Any], beside: Mapping[int, Any], like: Flat, round: int, cohort: int
    ) -> MaskedSum | None:
        """The mean, if its entries are within reach: those of a sum whose masks did not come off are anywhere."""
        largest = float(np.max(np.abs(vector), initial=0.0))
        if not largest <= self.reach + 4 * cohort * self.precision(cohort):
            log.warning("round %d: the mean has an entry of size %g, which no upload may have", round, largest)
            return None
        return MaskedSum(_apart(vector, like), beside)


def veil(message: Message, context: Context, call_next: Callable[..., Message]) -> Message:
    """Flower's modifier for a client that trains under secure aggregation only: `app.train(mods=[veil])`."""
    from flwr.client.mod import secaggplus_mod

    if "secaggplus_configs" not in message.content:
        raise FedaxError("this client uploads under secure aggregation only, and the server asked for a plain upload")
    return secaggplus_mod(message, context, call_next)


def content(upload: Flat, beside: Mapping[str, Any], *, reach: float = REACH, weight: int = 1) -> RecordDict:
    """A client's reply to an order, for `veil` to mask; the numbers and words in `beside` are not masked."""
    from flwr.common import Code, FitRes, Status, ndarrays_to_parameters
    from flwr.compat.common.recorddict_compat import fitres_to_recorddict

    vector = _joined(upload)
    largest = float(np.max(np.abs(vector), initial=0.0))
    if not largest <= reach:
        raise FedaxError(f"the upload has an entry of size {largest:.6g}: secure aggregation carries up to {reach:g}")
    result = FitRes(Status(Code.OK, ""), ndarrays_to_parameters([vector]), weight, dict(beside))
    return fitres_to_recorddict(result, keep_input=False)


class _Orders:
    """Takes the place of a strategy in Flower's workflow: whom to ask, and their answers."""

    def __init__(self, orders: Mapping[int, RecordDict]) -> None:
        self.nodes, self.results = list(orders), []  # type: ignore[var-annotated]

    def configure_fit(self, *_: Any) -> Any:
        from flwr.common import FitIns, Parameters

        return [(SimpleNamespace(node_id=node), FitIns(Parameters([], ""), {})) for node in self.nodes]

    def aggregate_fit(self, _: int, results: Any, __: Any) -> Any:
        self.results = list(results)
        return None, {}


def _workflow(asked: Mean, orders: Mapping[int, RecordDict], max_weight: float) -> Any:
    """Flower's workflow, which takes the orders from here once it has greeted the nodes."""
    from flwr.server.workflow import SecAggPlusWorkflow

    workflow: Any = SecAggPlusWorkflow(
        num_shares=1.0,
        reconstruction_threshold=max(FEWEST, len(orders) // 2 + 1),
        max_weight=max_weight,
        clipping_range=float(asked.reach),
        quantization_range=_levels(len(orders)),
        timeout=asked.timeout,
    )
    greet = workflow.setup_stage

    def setup_stage(grid: Grid, context: Any, state: Any) -> Any:
        good = greet(grid, context, state)
        state.nid_to_fitins = dict(orders)
        return good

    workflow.setup_stage = setup_stage
    return workflow


def _levels(cohort: int) -> int:
    """The levels of the fixed-point numbers: as many as keep the sum over a cohort within 30 bits."""
    return 1 << (30 - cohort.bit_length())


def _joined(upload: Flat) -> np.ndarray[Any, Any]:
    parts = [upload[name].astype(np.float64).ravel() for name in sorted(upload)]
    return np.concatenate(parts) if parts else np.zeros(0)


def _apart(vector: np.ndarray[Any, Any], like: Flat) -> Flat:
    found, start = {}, 0
    for name in sorted(like):
        array = like[name]
        found[name] = vector[start : start + array.size].reshape(array.shape).astype(array.dtype)
        start += array.size
    return found
