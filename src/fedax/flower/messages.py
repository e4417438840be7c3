"""What goes over the wire, and how it is put into Flower's records.

A server greets a node (`query`) and hears which client it is. Then it sends orders: to train, with what the method
broadcasts, to evaluate, with the model, or both in one. The answer brings what the method uploads and the client's
metrics, as means or as statistics that the server merges. Arrays keep their dtype; nothing else of a client leaves
it.

Whoever reads a message trusts nothing in it: every field has a type, a range and a size, and what does not fit raises a
`FedaxError`. Unknown fields are ignored, so that a newer version may send more.
"""

from __future__ import annotations

import dataclasses
import json
import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Annotated, Any

import jax
import jax.numpy as jnp
import numpy as np
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from fedax.errors import FedaxError

if TYPE_CHECKING:
    from flwr.app import Message, RecordDict

Flat = dict[str, np.ndarray[Any, Any]]
Layout = dict[str, tuple[tuple[int, ...], str]]  # of a row: each array's shape and dtype
RAW = "fedax.raw"  # an array's bytes in C order, for any dtype that JAX knows
ABOUT, TRAIN, MODEL, UPLOAD, METRICS = "about", "broadcast", "model", "upload", "metrics"
STATISTICS = "statistics"
LONGEST = 1 << 20  # characters of an introduction
ROW_BYTES = 1 << 28  # of one row of data, at most: the server makes one to trace a round
LARGEST = 1e30  # of a metric or an entry of its statistics: sums of larger ones could overflow
DTYPES = "bool|u?int(8|16|32|64)|float(16|32|64)|bfloat16|complex64"


_Rows = Annotated[int, Field(ge=0, le=2**40)]
_Name = Annotated[str, Field(max_length=200)]
_Shape = Annotated[list[Annotated[int, Field(ge=0, le=ROW_BYTES)]], Field(max_length=32)]
_Dtype = Annotated[str, Field(pattern=f"^({DTYPES})$")]


@dataclasses.dataclass(frozen=True)
class Order:
    """An order: what a client is asked to do in a round.

    run: the training that this belongs to; start: how often its server has been started.
    used: the round after which the client's state is good, 0 for its first state. So a client learns whether its last
        upload was used: if not, it goes on from the state before.
    max_steps: local steps of the busiest client, which the numbers of further minibatches depend on.
    broadcast: what the method sends, to train on; model: the server's side of what is evaluated. None for neither.
    last: training is over, and the client may keep its own model.
    """

    run: str
    start: int
    round: int
    used: int
    max_steps: int
    fingerprint: str
    broadcast: Flat | None = None
    model: Flat | None = None
    last: bool = False


@dataclasses.dataclass(frozen=True)
class Answer:
    """A client's answer: the upload, the metrics by name, or the reason why there is none; `note` is a sentence for the
    log.

    statistics: by name, of the metrics that are no means over rows.
    """

    upload: Flat | None = None
    metrics: Mapping[str, float] = dataclasses.field(default_factory=dict)
    refused: str = ""
    note: str = ""
    statistics: Flat = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Hello:
    """A node's introduction: its client's number, rows of each part, local steps and a row's layout.

    proof: what only the site that first had this number can say in this run; see `fedax.flower.owners`.
    """

    client: int
    rows: tuple[int, int, int]
    steps: int
    layout: Layout
    fingerprint: str
    described: Mapping[str, str]
    proof: str = ""


def flatten(tree: Any) -> Flat:
    """A tree of arrays as a flat dictionary.

    >>> from fedax.vectors import Vector
    >>> sorted(flatten((Vector({"w": jnp.ones(2)}), jnp.float32(0))))
    ['0.0.w', '1']
    """
    leaves = jax.tree_util.tree_flatten_with_path(tree)[0]
    return {_name(path): np.asarray(leaf) for path, leaf in leaves}


def unflatten(flat: Mapping[str, Any], like: Any, what: str = "the message") -> Any:
    """The tree of the same shape as another from a flat dictionary; what does not fit raises.

    >>> unflatten({"a": np.float32([1, 2])}, {"a": jnp.zeros(3)}, "the broadcast")
    Traceback (most recent call last):
    fedax.errors.FedaxError: the broadcast has a as float32[2]: it must be float32[3]
    """
    leaves, tree = jax.tree_util.tree_flatten_with_path(like)
    names = [_name(path) for path, _ in leaves]
    if sorted(names) != sorted(flat):
        raise FedaxError(f"{what} has the arrays {sorted(flat)}: they must be {sorted(names)}")
    for name, (_, leaf) in zip(names, leaves, strict=True):
        given, wanted = flat[name], jnp.asarray(leaf) if not hasattr(leaf, "dtype") else leaf
        if given.shape != wanted.shape or given.dtype != wanted.dtype:
            shown = [f"{a.dtype}{list(a.shape)}" for a in (given, wanted)]
            raise FedaxError(f"{what} has {name} as {shown[0]}: it must be {shown[1]}")
    return jax.tree.unflatten(tree, [jnp.asarray(flat[name]) for name in names])


def _name(path: Any) -> str:
    return jax.tree_util.keystr(path, simple=True, separator=".") or "x"


def order_content(order: Order) -> RecordDict:
    """An order as a message's content."""
    about = {f.name: getattr(order, f.name) for f in dataclasses.fields(order) if f.name not in ("broadcast", "model")}
    return _content(about, {TRAIN: order.broadcast, MODEL: order.model})


def read_order(message: Message) -> Order:
    """The order in a message."""
    about, known = _about(message), {field.name for field in dataclasses.fields(Order)}
    fields = {name: value for name, value in about.items() if name in known}
    return Order(**fields, broadcast=_arrays(message, TRAIN), model=_arrays(message, MODEL))


def answer_content(answer: Answer) -> RecordDict:
    """An answer as a reply's content."""
    from flwr.app import MetricRecord

    content = _content(
        {"refused": answer.refused, "note": answer.note}, {UPLOAD: answer.upload, STATISTICS: answer.statistics or None}
    )
    content[METRICS] = MetricRecord(dict(answer.metrics))
    return content


def read_answer(message: Message) -> Answer:
    """The answer in a reply; one with an error of Flower's own is a refusal."""
    if message.has_error():
        return Answer(refused=f"no answer: {message.error.reason or message.error.code}")
    about = _about(message)
    words = {name: about.get(name, "") for name in ("refused", "note")}
    for name, value in words.items():
        if not isinstance(value, str):
            raise FedaxError(f"{name} is a {type(value).__name__}: it must be text")
    metrics = {name: float(value) for name, value in _record(message, METRICS).items() if _is_number(value)}
    statistics = {name: array for name, array in (_arrays(message, STATISTICS) or {}).items() if _is_sound(array)}
    return Answer(_arrays(message, UPLOAD), metrics, **words, statistics=statistics)


def _is_number(value: Any) -> bool:
    """Whether a metric is one number, and one that can be averaged."""
    return isinstance(value, int | float) and not isinstance(value, bool) and abs(value) <= LARGEST


def _is_sound(array: np.ndarray[Any, Any]) -> bool:
    """Whether an array can be merged with others of its kind."""
    return array.dtype.kind in "iuf" and bool(np.all(np.abs(array.astype(np.float64)) <= LARGEST))


def greeting(run: str) -> RecordDict:
    """The content of a server's question who a node is."""
    return _content({"run": run}, {})


def read_greeting(message: Message) -> str:
    """The name of the run that a server greets for."""
    return str(_about(message).get("run", ""))


def hello_content(hello: Hello) -> RecordDict:
    """A node's introduction as a reply's content."""
    return _content({"hello": json.dumps(dataclasses.asdict(hello))}, {})


class _Introduction(BaseModel):
    """The fields of an introduction, as far as they can be checked without knowing the experiment."""

    model_config = ConfigDict(strict=True, extra="ignore")

    client: Annotated[int, Field(ge=0, le=2**31)]
    rows: tuple[_Rows, _Rows, _Rows]
    steps: Annotated[int, Field(ge=1, le=2**31)]
    layout: Annotated[dict[_Name, tuple[_Shape, _Dtype]], Field(max_length=1000)]
    fingerprint: Annotated[str, Field(max_length=100)]
    described: dict[str, str]
    proof: Annotated[str, Field(max_length=100)] = ""


def read_hello(message: Message) -> Hello:
    """The introduction in a reply; a refusal raises its sentence."""
    if message.has_error():
        raise FedaxError(f"no answer: {message.error.reason or message.error.code}")
    about = _about(message)
    if about.get("refused"):
        raise FedaxError(str(about["refused"]))
    text = about.get("hello")
    if not isinstance(text, str) or len(text) > LONGEST:
        raise FedaxError(f"its introduction must be text of at most {LONGEST} characters")
    try:
        read = _Introduction.model_validate_json(text)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(map(str, first["loc"])) or "the whole"
        raise FedaxError(f"its introduction cannot be read: {where}: {first['msg']}") from None
    layout = {name: (tuple(shape), dtype) for name, (shape, dtype) in read.layout.items()}
    size = sum(math.prod(shape) * jnp.dtype(dtype).itemsize for shape, dtype in layout.values())
    if size > ROW_BYTES:
        raise FedaxError(f"a row of its data takes {size} bytes: it must be at most {ROW_BYTES}")
    return Hello(read.client, read.rows, read.steps, layout, read.fingerprint, read.described, read.proof)


def _content(about: Mapping[str, Any], arrays: Mapping[str, Flat | None]) -> RecordDict:
    from flwr.app import Array, ArrayRecord, ConfigRecord, RecordDict

    content = RecordDict({ABOUT: ConfigRecord(dict(about))})
    for key, flat in arrays.items():
        if flat is not None:
            packed = {
                name: Array(str(a.dtype), tuple(a.shape), RAW, np.ascontiguousarray(a).tobytes())
                for name, a in flat.items()
            }
            content[key] = ArrayRecord(packed)
    return content


def _about(message: Message) -> dict[str, Any]:
    return dict(_record(message, ABOUT))


def _record(message: Message, key: str) -> Mapping[str, Any]:
    """A record of a message; one that is missing raises."""
    if key not in message.content:
        raise FedaxError(f"{key} is missing")
    record: Mapping[str, Any] = message.content[key]
    return record


def _arrays(message: Message, key: str) -> Flat | None:
    if key not in message.content:
        return None
    flat = {}
    for name, array in message.content[key].items():
        try:
            if re.fullmatch(DTYPES, array.dtype) is None:
                raise ValueError(f"its dtype is {array.dtype}, which is none of JAX's")
            flat[name] = np.frombuffer(array.data, jnp.dtype(array.dtype)).reshape(array.shape)
        except (TypeError, ValueError, AttributeError) as error:
            raise FedaxError(f"the array {name} cannot be read: {error}") from error
    return flat
