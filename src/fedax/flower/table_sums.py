"""A table's preparation over a network, before any training: sites answer with counts and sums of their own rows.

    server    asks what `fedax.data.tables.fitting.fit` asks, and adds up the answers
    site      answers from its own training rows; at the end it is sent the preparation and keeps it as a file

The sites have agreed on the columns before. All of them must answer: a preparation that lacks a site would not suit
that site's rows. Whatever a site sends is checked for its shape and its range before it is added.
"""

from __future__ import annotations

import json
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from fedax.data.tables.applying import parse
from fedax.data.tables.fitting import Answer, Question, answer, fit
from fedax.data.tables.kinds import FORMS, KEPT
from fedax.data.tables.preparation import Preparation
from fedax.data.tables.table import refuse
from fedax.errors import FedaxError, unknown
from fedax.flower.safe_log import log, printable
from fedax.runs.files import read_json, write_json

if TYPE_CHECKING:
    from flwr.app import Context, Message
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp

KINDS = ("number", "boolean", "category", "date")
LONGEST = 200  # characters of a category
MOST = 100_000  # categories of a column that a site may send
MOST_ROWS = 2**40  # of a site, in any of its counts
LARGEST = 1e300  # of a sum: totals over sites stay finite
WIDTHS = {"sums": (3,), "squares": (2,)}
Read = Callable[[Mapping[str, Any]], Any]  # from a node's configuration to its table


def table_sums_app(read: Read) -> ClientApp:
    """A Flower ClientApp of a site with a table: it answers with counts and sums, and keeps the preparation.

    read: a function from the node's configuration to the site's training rows, a pandas table.

    The node's configuration says where the preparation is to be kept:
    `flower-supernode --node-config 'preparation="/data/preparation.json"'`.
    """
    from flwr.app import ConfigRecord, Message, RecordDict
    from flwr.clientapp import ClientApp

    app = ClientApp()

    def reply(message: Message, said: Mapping[str, Any]) -> Message:
        return Message(RecordDict({"said": ConfigRecord({"json": json.dumps(said)})}), reply_to=message)

    def query(message: Message, context: Context) -> Message:
        try:
            return reply(message, _said(read, context.node_config, json.loads(str(message.content["asked"]["json"]))))
        except (FedaxError, OSError) as error:
            log.error(str(error))
            return reply(message, {"refused": str(error)})

    app.query()(query)
    return app


def table_preparation_app(
    columns: Mapping[str, str],
    *,
    label: str,
    sites: int,
    labels: Sequence[Any] | None = None,
    fill: bool = True,
    out: str = "preparation.json",
    timeout: float = 600.0,
) -> ServerApp:
    """A Flower ServerApp that makes a preparation with all sites and writes it, here and at every site.

    columns: the kind of each: "number", "boolean", "category", "date", or "date %d.%m.%Y" for one of another form.
    labels: the classes' values; None for a label that is a number. sites: how many there are.
    fill: whether missing cells are filled, by the median or the most frequent value; else a site with one is refused.
    timeout: seconds to wait for the sites and for each of their answers.
    """
    from flwr.serverapp import ServerApp

    about = agreed_columns(columns, fill)
    app = ServerApp()

    def main(grid: Grid, context: Context) -> None:
        try:
            made = prepare_over(grid, about, label=label, labels=labels, sites=sites, timeout=timeout)
        except FedaxError as error:
            log.error(str(error))
            raise
        write_json(Path(str(context.run_config.get("preparation") or out)), made.as_json())

    app.main()(main)
    return app


def prepare_over(
    grid: Grid,
    columns: Sequence[Mapping[str, Any]],
    *,
    label: str,
    labels: Sequence[Any] | None,
    sites: int,
    timeout: float,
    pause: float = 0.2,
) -> Preparation:
    """The preparation of the sites' tables, as `Preparation.of` would make it of all their rows together."""
    end = time.monotonic() + timeout
    while len(nodes := sorted(grid.get_node_ids())) < sites:
        if time.monotonic() > end:
            raise FedaxError(f"{len(nodes)} of {sites} sites are there after {timeout:g} s: all must be")
        time.sleep(pause)
    plain = [{key: c[key] for key in ("name", "kind", "form") if key in c} for c in columns]

    def ask(question: Question) -> Answer:
        asked = {**question, "table": plain, "fills_missing": all(c["by"] for c in columns)}
        total: Answer = {}
        for node, said in _exchange(grid, nodes, asked, timeout).items():
            for name, value in _checked(question, said, node).items():
                total[name] = total[name] + value if name in total else value
        return total

    task = "regression" if labels is None else "classification"
    made = Preparation(tuple(fit(columns, ask)), label, task, None if labels is None else tuple(labels))  # type: ignore[arg-type]
    _exchange(grid, nodes, {"ask": "keep", "preparation": made.as_json()}, timeout)
    log.info("the preparation of %d columns was made with %d sites", len(columns), len(nodes))
    return made


def preparation_in(path: Any) -> Preparation | None:
    """The preparation that a file holds; None where none is named."""
    if not path:
        return None
    content = read_json(Path(str(path)).expanduser())
    if content is None:
        raise FedaxError(f"preparation is {str(path)!r}: there is no such file")
    return Preparation.from_json(content)


def agreed_columns(kinds: Mapping[str, str], fill: bool) -> list[dict[str, Any]]:
    """Columns as `fit` takes them.

    >>> agreed_columns({"born": "date %d.%m.%Y"}, True)
    [{'name': 'born', 'kind': 'date', 'by': 'median', 'flag': False, 'form': '%d.%m.%Y'}]
    """
    made = []
    for name, said in kinds.items():
        kind, _, form = said.partition(" ")
        if kind not in KINDS:
            raise FedaxError(f"columns.{name}: {unknown('kind', kind, KINDS)}")
        by = None if not fill else "median" if kind in ("number", "date") else "most_frequent"
        column: dict[str, Any] = {"name": name, "kind": kind, "by": by, "flag": False}
        column |= {"form": form or FORMS[0]} if kind == "date" else {}
        column |= {"most": KEPT} if kind == "category" else {}
        made.append(column)
    return made


def _said(read: Read, config: Mapping[str, Any], asked: Mapping[str, Any]) -> dict[str, Any]:
    """What a site says to a question, as JSON has it."""
    if asked["ask"] == "keep":
        Preparation.from_json(asked["preparation"])  # raises if it is none
        write_json(Path(str(config.get("preparation") or "preparation.json")).expanduser(), asked["preparation"])
        return {}
    fill = 0.0 if asked["fills_missing"] else None
    cells, problems = parse([{**column, "fill": fill} for column in asked["table"]], read(config))
    refuse("the site's table", problems)
    said = answer(asked, cells)
    return {name: dict(v) if isinstance(v, Counter) else np.asarray(v).tolist() for name, v in said.items()}


def _exchange(grid: Grid, nodes: Sequence[int], asked: Mapping[str, Any], timeout: float) -> dict[int, dict[str, Any]]:
    """Every site's answer, or one sentence for all that have none."""
    from flwr.app import ConfigRecord, Message, RecordDict

    content = {"json": json.dumps(asked)}
    sent = [Message(RecordDict({"asked": ConfigRecord(dict(content))}), node, "query") for node in nodes]
    found: dict[int, dict[str, Any]] = {}
    wrong = []
    for reply in grid.send_and_receive(sent, timeout=timeout):
        node = reply.metadata.src_node_id
        try:
            if reply.has_error():
                raise ValueError(reply.error.reason or reply.error.code)
            said = json.loads(str(reply.content["said"]["json"]))
            if not isinstance(said, dict):
                raise TypeError("its answer must be a dictionary")
        except Exception as error:  # whatever it sent
            wrong.append(f"node {node} gives no answer: {error}")
            continue
        if "refused" in said:
            wrong.append(f"node {node} refuses: {said['refused']}")
        else:
            found[node] = said
    missing = len(nodes) - len(found) - len(wrong)
    wrong += [f"{missing} of {len(nodes)} sites did not answer in {timeout:g} s"] if missing else []
    if wrong:
        raise FedaxError(printable("; ".join(wrong)))
    return found


def _checked(question: Question, said: Mapping[str, Any], node: int) -> Answer:
    """A site's answer as arrays and Counters; one sentence if it is not what was asked for."""
    kind, names = question["ask"], list(question["columns"])
    if sorted(said) != sorted(names):
        raise FedaxError(f"node {node} answers for other columns than it was asked for")
    made: Answer = {}
    for name in names:
        try:
            made[name] = _counts(said[name]) if kind == "counts" else _numbers(question, name, said[name])
        except Exception as error:  # whatever it sent
            raise FedaxError(
                printable(f"node {node} answers for column {name!r} what cannot be read: {error}")
            ) from None
    return made


def _counts(said: Any) -> Counter[str]:
    if len(said) > MOST or any(len(value) > LONGEST for value in said):
        raise ValueError(f"it must have at most {MOST:,} categories of at most {LONGEST} characters")
    if not all(isinstance(count, int) and 0 <= count < MOST_ROWS for count in said.values()):
        raise ValueError("counts must be whole numbers from 0 on")
    return Counter(said)


def _numbers(question: Question, name: str, said: Any) -> Any:
    values = np.asarray(said, np.int64 if question["ask"] == "bins" else np.float64)
    wanted = WIDTHS.get(question["ask"]) or (len(question["leading"][name]), 256)
    most = MOST_ROWS if question["ask"] == "bins" else LARGEST
    if values.shape != wanted or not (np.abs(values) <= most).all():
        raise ValueError(f"it must be finite numbers of shape {wanted}, at most {most:g}")
    counts = values[:2] if question["ask"] == "sums" else values
    if (counts < 0).any():
        raise ValueError("counts and squares must be from 0 on")
    return values
