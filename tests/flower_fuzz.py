"""A federation in which some nodes send anything: valid messages with something changed, or nothing of the kind.

No client computes: honest nodes answer from a template, so that the server alone is exercised.
"""

from __future__ import annotations

import copy
import dataclasses
import itertools
import json
import logging
import random
import struct

import jax.numpy as jnp
import numpy as np
from flwr.app import Array, ArrayRecord, ConfigRecord, Error, Message, MetricRecord, RecordDict
from flwr.serverapp import Grid
from flwr.supercore.task_identity import TaskIdentity

import fedax
from fedax.flower import Setting
from fedax.flower.messages import Order, answer_content, flatten, hello_content
from fedax.flower.rows import own_rows
from fedax.flower.server import serve
from fedax.flower.worker import Worker

WORDS = ["", "\x00", "\x1b[2J", "\n2026 INFO finished", "NaN", "../..", "é" * 50, "x" * 5000, "{}", "[" * 2000, "null"]
NUMBERS = [0, -1, 1, 2**31, 2**62, -(2**62), 10**12, 2_000_000_000]
FLOATS = [0.0, -0.0, 1e308, -1e308, float("nan"), float("inf"), -float("inf"), 1e-320, 0.5]
DTYPES = ["float32", "float64", "int8", "object", "O", "V8", "bfloat16", "complex64", "U5", "datetime64[s]", "no", ""]


class Fuzzer:
    """Changes messages; a seed makes the same ones again."""

    def __init__(self, seed: int) -> None:
        self.draw = random.Random(seed)

    def value(self):
        """Anything that a record of Flower can hold."""
        kinds = [
            WORDS,
            NUMBERS,
            FLOATS,
            [True, False],
            [b"", b"\x00\xff" * 20],
            [[1, 2], [0.5, float("nan")], ["a"], []],
        ]
        return self.draw.choice(self.draw.choice(kinds))

    def json_value(self, depth: int = 2):
        """Anything that JSON can hold."""
        pick = self.draw.randrange(7 if depth else 5)
        if pick < 5:
            return self.draw.choice([self.draw.choice(WORDS), self.draw.choice(NUMBERS), 0.5, None, True])
        many = range(self.draw.randrange(4))
        if pick == 5:
            return [self.json_value(depth - 1) for _ in many]
        return {self.draw.choice(WORDS): self.json_value(depth - 1) for _ in many}

    def hello(self, content: RecordDict) -> RecordDict:
        """An introduction with one to three things changed."""
        if self.draw.random() < 0.2:
            return self.records(content)
        table = json.loads(content["about"]["hello"])
        for _ in range(self.draw.randrange(1, 4)):
            field = self.draw.choice([*table, "unknown"])
            if self.draw.random() < 0.25:
                table.pop(field, None)
            else:
                table[field] = self.json_value()
        text = json.dumps(table)
        if self.draw.random() < 0.2:
            at = self.draw.randrange(len(text))
            text = text[:at] + self.draw.choice(WORDS) + text[at + self.draw.randrange(5) :]
        return RecordDict({"about": ConfigRecord({"hello": text})})

    def answer(self, content: RecordDict) -> RecordDict:
        """An answer with an array, a metric or a record changed."""
        change = self.draw.choice([self.arrays, self.arrays, self.metrics, self.records, self.about])
        return change(content)

    def arrays(self, content: RecordDict) -> RecordDict:
        key = self.draw.choice(["upload", "statistics"])
        record = dict(content[key].items()) if key in content else {}
        name = self.draw.choice([*record, "unknown", "train.auc", "train.calibration_error"])
        size = self.draw.choice([0, 1, 4, 24, 400])
        floats = [self.draw.choice([*FLOATS, 1.0, 2.0]) for _ in range(size // 4)]
        with np.errstate(all="ignore"):
            data = self.draw.choice([self.draw.randbytes(size), np.array(floats, np.float32).tobytes()])
        shape = self.draw.choice([(size // 4,), (size // 8,), (-1,), (2, -1), (10**9,), (), (0,), (3, 2), (6,)])
        array = Array(self.draw.choice(DTYPES), shape, self.draw.choice(["fedax.raw", "numpy.ndarray", ""]), data)
        if self.draw.random() < 0.2:
            record.pop(name, None)
        else:
            record[name] = array
        content[key] = ArrayRecord(record)
        return content

    def metrics(self, content: RecordDict) -> RecordDict:
        names = ["train.loss", "train.auc", "personal_train.loss", "loss", ".", "train.", *WORDS[1:4]]
        values = [*FLOATS, *NUMBERS, [1.0, 2.0], []]
        content["metrics"] = MetricRecord({self.draw.choice(names): self.draw.choice(values) for _ in range(3)})
        return content

    def about(self, content: RecordDict) -> RecordDict:
        fields = ["refused", "note", "unknown", "hello", "upload", "metrics"]
        content["about"] = ConfigRecord({self.draw.choice(fields): self.value() for _ in range(self.draw.randrange(3))})
        return content

    def records(self, content: RecordDict) -> RecordDict:
        made = [ConfigRecord({"a": self.value()}), MetricRecord({"a": 1.0}), ArrayRecord({}), ConfigRecord({})]
        key = self.draw.choice(["about", "metrics", "upload", "statistics", "unknown"])
        if self.draw.random() < 0.3 and key in content:
            del content[key]
        else:
            content[key] = self.draw.choice(made)
        return content


class FuzzedGrid(Grid):
    """Honest nodes; hostile ones that answer orders with anything; in each round new ones that greet with anything."""

    def __init__(self, hellos, answer, hostile, seed):
        TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
        self.fuzzer, self.answer, self.hostile, self.fuzzed = Fuzzer(seed), answer, hostile, 0
        self.hellos = {1000 + client: hello for client, hello in enumerate(hellos)}
        self.liars: list[int] = []
        self.replies, self._ids = {}, itertools.count(10**6)

    def get_node_ids(self):
        return [*self.hellos, *self.liars]

    def push_messages(self, messages):
        names = []
        for message in messages:
            name, node = f"m{next(self._ids)}", message.metadata.dst_node_id
            message.metadata.__dict__["_message_id"] = name
            self.replies[name] = self._reply(message, node)
            names.append(name)
        return names

    def _reply(self, message, node):
        if message.metadata.message_type == "query":
            liar = dataclasses.replace(self.hellos[1000], proof=f"liar {node}")
            content = hello_content(self.hellos.get(node, liar))
            return self._sent(
                self.fuzzer.hello(content) if node in self.liars else content, message, node in self.liars
            )
        if node == 1000:  # a round begins: other liars come
            self.liars = [next(self._ids) for _ in range(self.hostile)]
        trains = "broadcast" in message.content
        content = answer_content(dataclasses.replace(self.answer, upload=self.answer.upload if trains else None))
        bad = node - 1000 >= len(self.hellos) - self.hostile
        return self._sent(self.fuzzer.answer(content) if bad else content, message, bad)

    def _sent(self, content, message, bad):
        self.fuzzed += bad
        if bad and self.fuzzer.draw.random() < 0.02:
            return Message(Error(code=self.fuzzer.draw.randrange(9), reason="\x1b[2J\n"), reply_to=message)
        reply = Message(copy.copy(content), reply_to=message)
        if bad and self.fuzzer.draw.random() < 0.02:
            reply.metadata.__dict__["_reply_to_message_id"] = struct.pack("d", self.fuzzed).hex()
        return reply

    def pull_messages(self, message_ids):
        return [self.replies.pop(name) for name in list(message_ids) if name in self.replies]

    def set_run(self, run): ...
    @property
    def run(self): ...
    def create_message(self, *args, **kwargs): ...
    def send_and_receive(self, messages, *, timeout=None): ...


def fuzzed_federation(folder, *, rounds: int, honest: int, hostile: int, seed: int) -> dict:
    """Run a server among fuzzed messages; how many there were, how it ended, and what it left out."""
    draw = np.random.default_rng(0)
    rows = {"x": draw.normal(size=(8, 3)).astype(np.float32), "y": np.arange(8) % 2}
    model = (lambda key, x: jnp.ones((3, 1)) / 9, lambda w, x: x @ w)
    problem = fedax.Problem(model, loss="logistic", metrics=["auc", "calibration_error"])
    asked = Setting(problem, fedax.FedAvg(lr=0.05), clients=honest + hostile, rounds=rounds, eval_on=("train",))
    worker = Worker(asked, 0, own_rows(asked, 0, lambda config: rows, {}), folder / "states")
    first = flatten(asked.algorithm.init(worker.x0))
    order = Order("template", 1, 0, 0, 1, asked.fingerprint, broadcast=first, model=first)
    hellos = [
        dataclasses.replace(worker.hello(), client=client, proof=f"p{client}") for client in range(honest + hostile)
    ]
    grid = FuzzedGrid(hellos, worker.carry_out(order), hostile, seed)
    logger, before = logging.getLogger("flwr"), logging.getLogger("flwr").level
    logger.setLevel(logging.CRITICAL)  # the run's own log has it
    try:
        serve(grid, asked, folder / "run", {"round-timeout": 0.001, "min-clients": honest}, pause=0.0)
    finally:
        logger.setLevel(before)
    text = (folder / "run" / "network.log").read_text()
    return {
        "fuzzed": grid.fuzzed,
        "rounds": rounds,
        "status": json.loads((folder / "run" / "status.json").read_text())["status"],
        "left_out": text.count(" is left out") + text.count(" is refused"),
        "log_is_printable": all(c.isprintable() or c == "\n" for c in text),
    }
