"""Command lines that must be refused: five hundred and more, most of them one field of a good experiment made bad."""

from __future__ import annotations

import json
import os
import zipfile
from collections.abc import Iterator
from pathlib import Path

GOOD = """
rounds = 2
batch_size = 8
[data]
name = "digits"
partition = { name = "IID", clients = 4 }
[model]
name = "mlp"
hidden = [4]
[algorithm]
name = "FedAvg"
lr = 0.1
"""
TABLE = GOOD.replace(
    'name = "digits"\npartition = { name = "IID", clients = 4 }',
    'name = "csv"\npath = "cells.csv"\nlabel = "y"\nclient = "site"',
)
HUGE = "9" * 5000
DEEP = "[" * 5000 + "]" * 5000

NO_COUNT = ("0", "-1", "1.5", "true", '"three"', "[]", "{}", "nan", "inf", "1e400", HUGE, "1979-05-27", '""')
NO_NUMBER = ("true", '"half"', "[]", "{}", "nan", "inf", "-inf", "1979-05-27")
NO_FLAG = ("1", "0", '"yes"', "[]", "{}", "nan", "2.0")
NO_TEXT = ("1", "true", "[]", "{}", "1.5", "1979-05-27", '"no-such-name"', '""')
NO_TABLE = ("1", "true", '"text"', "1.5", "[1]", "1979-05-27")

FIELDS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(
        ("rounds", "cohort", "local_steps", "batch_size", "eval_every", "devices", "chunk", "join_steps"), NO_COUNT
    ),
    "data.partition.clients": NO_COUNT,
    "model.outputs": NO_COUNT,
    "local_epochs": (*NO_NUMBER, "0", "-1", "0.0", HUGE),
    "unseen": (*NO_NUMBER, "1", "-0.1", "1.5", HUGE),
    "zero_below": (*NO_NUMBER, "-1", "-1e-9"),
    "checkpoint_every": (*NO_NUMBER, "-1"),
    "algorithm.lr": (
        *NO_NUMBER,
        "1e39",
        "1e-50",
        "[0.1, 0.2]",
        "0",
        "-0.1",
        HUGE,
        '{ kind = "no-such" }',
        '{ kind = "cosine" }',
        '{ name = "x" }',
    ),
    "algorithm.server_lr": (*NO_NUMBER, "0", "-0.1"),
    **dict.fromkeys(("weighted", "personal", "data.lazy"), NO_FLAG),
    **dict.fromkeys(
        ("sampling", "executor", "budget", "data.name", "model.name", "algorithm.name", "problem.loss"), NO_TEXT
    ),
    **dict.fromkeys(("problem.augment", "data.partition.name", "problem.regularizer.name", "model_state"), NO_TEXT),
    "data.test": NO_TEXT,
    "model.init": NO_TEXT,
    "data.partition": (
        "[]",
        '"IID"',
        "{}",
        '{ name = "Dirichlet", alpha = 0, clients = 4 }',
        '{ name = "Dirichlet", alpha = nan, clients = 4 }',
        '{ name = "Dirichlet", alpha = 1, clients = 100000 }',
        '{ name = "IID", clients = 1000000 }',
    ),
    "seeds": ("[]", "[-1]", "[0.5]", "[true]", '["0"]', "0", "[0, 0]", "[4294967296]", f"[{HUGE}]", "{}", DEEP),
    "data.seed": ("-1", "0.5", "true", '"0"', "4294967296", HUGE, "[]"),
    "data.split": (
        "[0, 0.5, 0.5]",
        "[0.5, 0.5]",
        "[1]",
        "[]",
        "[0.5, 0.5, 0.5]",
        "[-0.5, 0.5, 1.0]",
        '["a", "b", "c"]',
        "[nan, 0.5, 0.5]",
        "[inf, 0, 0]",
        "0.5",
        "true",
        "{}",
        "[[0.7, 0.1, 0.2]]",
    ),
    "model.hidden": ("[0]", "[-1]", "[1.5]", '["a"]', "[true]", "4", f"[{HUGE}]", "[1000000000000]", "[[4]]"),
    "eval_on": ("[]", '["tests"]', '"test"', "[1]", "{}", "true", '["test", "test"]'),
    "problem.metrics": ('["no-such"]', "[1]", '"f1"', "{}", '["f1", "f1"]'),
    "problem.trainable": ("1", '""', "[]", '"no-such-leaf"', "true"),
    "problem.gradients": (
        '[{ name = "clip_by_global_norm", max_norm = -1 }]',
        '[{ name = "clip_by_global_norm", max_norm = nan }]',
        '[{ name = ["clip"] }]',
        '[{ name = "dp" }]',
        '[{ name = "dp", clip = 0 }]',
        '[{ name = "dp", clip = 1, noise = -1 }]',
        '[{ name = "dp", clip = 1, delta = 1 }]',
        '[{ name = "dp", clip = 1e-300 }]',
        '[{ name = "dp", clip = 1, noise = inf }]',
        '[{ name = "dp", clip = 1, noise = 1e308 }]',
        '[{ name = "dp", clip = 1, noice = 1 }]',
        '[{ name = "zero_nans" }, { name = "dp", clip = 1 }]',
        '[{ name = "dp", clip = 1 }, { name = "dp", clip = 1 }]',
        "1",
        "[1]",
        '[{ name = "no-such" }]',
        "[{}]",
        '[{ name = "clip", max_delta = "a" }]',
    ),
    "problem.regularizer.strength": ("1",),
    "problem.regularizer": (
        '{ name = "L1", strength = -1 }',
        '{ name = "L1", strength = nan }',
        '{ name = "L1", strength = 1e308 }',
        '{ name = "L1", strength = "1" }',
        '{ name = "L1", strength = 1, on = 5 }',
    ),
    "algorithm": (
        "[]",
        '[{ name = "FedAvg", lr = 0.1 }, 3]',
        '{ name = "__init__" }',
        '{ name = "Algorithm" }',
        '{ name = "Private", clip = 1 }',
        '{ name = "Private", base = "FedAvg", clip = 1 }',
        '{ name = "Private", base = { name = "FedAvg", lr = 0.1 }, clip = 0 }',
        '{ name = "Private", base = { name = "FedAvg", lr = 0.1 }, clip = 1, noise = -1 }',
        '{ name = "Private", base = { name = "FedAvg", lr = 0.1 }, clip = 1, cohorts = "mine" }',
        '{ name = "Private", base = { name = "Private", base = { name = "FedAvg", lr = 0.1 }, clip = 1 }, clip = 1 }',
        '{ name = "Robust", base = { name = "FedAvg", lr = 0.1 }, rule = "mean " }',
        '{ name = "Robust", base = [], rule = "median" }',
        '{ name = "Robust", base = { name = "FedAvg", lr = 0.1 }, rule = "krum", attackers = 1000000000000 }',
    ),
    "state_budget": ('"much"', '"-1GiB"', "-1", "1.5", "true", "[]", '""', '"1 parsec"'),
    "log": ('["no-such"]', '"tensorboard"', "[1]", "true"),
    "name": ('"x\\u0000y"', '"\\u001b[31mred"', f'"{"x" * 300}"', '""', '"---"', "1", "[]", '"   "'),
    **dict.fromkeys(("data", "model", "algorithm", "problem", "sweep", "tune"), NO_TABLE),
    **dict.fromkeys(
        ("rouns", "dat.name", "algorithm.lrr", "model.hiden", "problem.los", "data.partition.client"), ("1",)
    ),
    "attack": (
        '{ kind = "flip" }',
        "{ share = 0.2 }",
        '{ kind = "flp", share = 0.2 }',
        '{ kind = "flip", share = 1 }',
        '{ kind = "flip", share = nan }',
        '{ kind = "flip", share = 0.2, strength = 0 }',
        '{ kind = "relabel", share = 0.2, strength = 2 }',
        '{ kind = ["flip"], share = 0.2 }',
        "1",
    ),
    "availability": (
        "{ share = 0 }",
        "{ share = 2 }",
        "{ share = [0.5] }",
        "{ on = 1 }",
        "{ leave = 0.5 }",
        "{ drop_out = 1 }",
        "{ on = 0, off = 1 }",
        "{ leave = 0.1, come = 1 }",
        "{ share = nan }",
        "{ share = 0.5, on = 1, off = 1 }",
        "{ column = 1 }",
        "{ speed = 0 }",
        '{ column = "a" }',
        "{ shar = 0.5 }",
        "1",
    ),
    "patience": (*NO_COUNT,),
    "stop_by": ('"accuracy"', "1"),
    "": ("1",),
    ".": ("1",),
    "rounds.": ("1",),
    "rounds.more": ("1",),
    "algorithm.7.lr": ("0.1",),
    "a.b.c.d.e.f": ("1",),
    "réunds": ("3",),
    "data..name": ('"x"',),
    "data.partition.labels": ("2",),
}

#: experiment files that are bad as a whole
FILES: dict[str, bytes] = {
    "empty": b"",
    "not UTF-8": b"rounds = 3\n\xff\xfe",
    "not TOML": b"rounds = 3\nrounds = \n",
    "a key twice": b"rounds = 3\nrounds = 4\n",
    "cut": b'rounds = 3\n[data]\nname = "dig',
    "binary": bytes(range(256)),
    "null bytes": b"rounds = 1\0",
    "JSON": b'{"rounds": 3}',
    "deep lists": f"rounds = {DEEP}\n".encode(),
    "deep tables": ("[" + ".".join(["a"] * 5000) + "]\nb = 1\n").encode(),
    "deep inline tables": ("a = " + "{ a = " * 3000 + "1" + " }" * 3000 + "\n").encode(),
    "many digits": f"rounds = {HUGE}\n".encode(),
    "a long float": f"rounds = 1e{HUGE}\n".encode(),
    "no data": GOOD.replace("[data]", "[dataa]").encode(),
    "no model": GOOD.replace("[model]", "[modell]").encode(),
    "no algorithm": GOOD.partition("[algorithm]")[0].encode(),
    "no rounds": GOOD.replace("rounds = 2", "").encode(),
    "a list for a table": GOOD.replace("[data]", "[[data]]").encode(),
    "UTF-16": GOOD.encode("utf-16"),
    "an unknown date": (GOOD + "\nstarted = 2020-01-01\n").encode(),
    "a table for a name": GOOD.replace("[data]", "[data.data]").encode(),
    "a long key": b"a" * 1_000_000 + b" = 1",
    "many keys": b"".join(b"k%d = 1\n" % i for i in range(5_000)),
    "itself as a method": GOOD.replace('name = "FedAvg"', 'name = "good.toml"').encode(),
    "no methods": ("algorithm = []\n" + GOOD.partition("[algorithm]")[0]).encode(),
    "control characters": b"rounds = 3\n\x1b[31m = 1\n",
}

#: tables of a user's own that are bad, for TABLE
CELLS: dict[str, bytes] = {
    "empty": b"",
    "a header alone": b"site,a,y\n",
    "no label": b"site,a\n" + b"s,1\n" * 30,
    "no client": b"a,y\n" + b"1,2\n" * 30,
    "no feature": b"site,y\n" + b"s,1\n" * 30,
    "columns twice": b"site,a,a,y\n" + b"s,1,2,1\n" * 30,
    "ragged": b"site,a,y\n" + b"s,1,1\n" * 10 + b"s,1,1,1,1\n" + b"s,1,0\n" * 10,
    "binary": bytes(range(256)) * 8,
    "no UTF-8": b"site,a,y\n" + b"\xff\xfe,1,0\n" * 30,
    "labels missing": b"site,a,y\n" + b"s,1,\n" * 30,
    "clients missing": b"site,a,y\n" + b",1,1\n" * 30,
    "a constant label": b"site,a,y\n" + b"s,1,1\n" * 30,
    "infinite": b"site,a,y\n" + b"s,inf,1\ns,1,0\n" * 30,
    "null bytes": b"site,a,y\n" + b"s,\x00,1\n" * 30,
    "a quote without end": b'site,a,y\n"s,1,1\n' + b"s,1,0\n" * 30,
    "semicolons": b"site;a;y\n" + b"s;1;1\n" * 30,
    "numbers beyond doubles": b"site,a,y\n" + b"s,1e400,1\nt,1,0\n" * 30,
    "nothing but gaps": b"site,a,y\n" + b"s,,1\nt,,0\n" * 30,
    "names that are empty": b",,\n" + b"s,1,1\n" * 30,
    "200,000 columns": ",".join(f"c{i}" for i in range(200_000)).encode() + b"\n",
    "one row": b"site,a,y\ns,1,1\n",
}


def experiments() -> Iterator[tuple[str, list[str]]]:
    """A field at a time."""
    for field, values in FIELDS.items():
        for value in values:
            yield f"{field} = {value[:40]}", ["run", "good.toml", "--set", f"{field}={value}", "--out", "out"]


#: sizes that no machine has room or time for
TOO_LARGE = {
    "batch_size": ("1000000000", "1000000000000000"),
    "local_steps": ("1000000000", "1000000000000000"),
    "model.outputs": ("100000000000",),
    "model.hidden": ("[1000000000]", "[1000000, 1000000]", "[100000000000000000000]"),
    "rounds": ("1000000000000000000000",),
    "local_epochs": ("1e12", "1e300"),
}
MADE = {
    "data.rows": ("1000000000", "10000000000000"),
    "data.dimension": ("1000000000000",),
    "data.clients": ("1000000000000", "0", "-1", "1.5", '"a"', "true"),
    "data.preset": ('"no-such"', "1", "[]"),
}
LASSO = GOOD.replace(
    'name = "digits"\npartition = { name = "IID", clients = 4 }', 'name = "lasso"\npreset = "thesis-I"'
)
LASSO = LASSO.replace('name = "mlp"\nhidden = [4]', 'name = "linear"')

SVM = {
    "index 1e9": "1 1000000000:1\n0 1:1\n" * 10,
    "index 2e18": "1 2000000000000000000:1\n0 1:1\n" * 10,
    "index 0": "1 0:1\n-1 -1:1\n",
    "words": "one two:three\n",
    "empty": "",
    "not finite": "1 1:inf\n0 1:1\n" * 20,
}

#: archives for data.name = "numpy"
ARCHIVES: dict[str, dict[str, bytes]] = {
    "no arrays": {},
    "garbage": {"x.npy": b"garbage", "y.npy": b"garbage"},
    "a header bomb": {
        "x.npy": b"\x93NUMPY\x01\x00\x76\x00"
        + b"{'descr': '<f4', 'fortran_order': False, 'shape': (1000000000000, 3)}".ljust(117)
        + b"\n",
        "y.npy": b"",
    },
    "an object": {
        "x.npy": b"\x93NUMPY\x01\x00\x76\x00"
        + b"{'descr': '|O', 'fortran_order': False, 'shape': (40,)}".ljust(117)
        + b"\ncos\nsystem\n(S'true'\ntR.",
        "y.npy": b"",
    },
}

#: what a run's directory may hold after a disk, an editor or a stranger was at it
DAMAGED: dict[str, dict[str, str]] = {
    "garbage log": {"metrics.jsonl": "garbage\n"},
    "garbage experiment": {"experiment.json": "garbage"},
    "an experiment that is a list": {"experiment.json": "[]"},
    "an empty log": {"metrics.jsonl": ""},
    "a log of numbers": {"metrics.jsonl": "1\n2\n"},
    "a log of deep lists": {"metrics.jsonl": "[" * 100_000},
    "nothing": {"note.txt": ""},
    "an empty experiment": {"experiment.json": "{}"},
    "a forged status": {"status.json": json.dumps({"status": "finished", "round": 2, "rounds": 2})},
    "a status of another kind": {"status.json": json.dumps({"status": [1], "round": "x"}), "metrics.jsonl": "x"},
    "rows without rounds": {"metrics.jsonl": '{"loss": 1}\n'},
    "rows of words": {"metrics.jsonl": '{"round": "one"}\n'},
    "many digits": {"metrics.jsonl": f'{{"round": {HUGE}}}\n'},
}


def files() -> Iterator[tuple[str, list[str]]]:
    """Whole files: experiments, tables, archives, things that are no files."""
    for name in FILES:
        for command in ("run", "compare", "advise"):
            yield f"{command} of a file: {name}", [command, f"file {name}.toml"]
    for name in CELLS:
        path = f"data.path=cells {name}.csv"
        yield f"cells: {name}", ["run", "table.toml", "--set", path, "--out", "out"]
        if name in ("empty", "a header alone", "columns twice", "200,000 columns", "ragged", "binary", "no UTF-8"):
            yield f"cells shown: {name}", ["data", "info", f"cells {name}.csv"]
    for name in SVM:
        words = ["data.name=libsvm", f"data.path={name}.svm"]
        yield f"LibSVM: {name}", ["run", "good.toml", *(w for s in words for w in ("--set", s)), "--out", "out"]
    for name in ARCHIVES:
        words = [f"data={{ name = 'numpy', path = '{name}.npz', partition = {{ name = 'IID', clients = 2 }} }}"]
        yield f"numpy: {name}", ["run", "good.toml", "--set", *words, "--out", "out"]
    for path in ("fifo", "/dev/zero", "/dev/null", ".", "missing.csv", "fifo/inside", "a\nb", "x" * 300):
        yield f"a path: {path[:20]!r}", ["run", "table.toml", "--set", f'data.path="{path}"', "--out", "out"]
        yield f"an experiment: {path[:20]!r}", ["run", path]
        yield f"a table: {path[:20]!r}", ["data", "info", path]
        yield f"a resume: {path[:20]!r}", ["resume", path]
        yield f"a report: {path[:20]!r}", ["report", path]
    for field, values in (
        ("features", ('["a", "a"]', '["no-such"]', "[]", '["y"]', '["site"]', "1", '"a"', "[1]")),
        ("label", ('"no-such"', "1", '""', '"site"')),
        ("client", ('"no-such"', "1", '"y"', '""')),
        ("categorical", ('["no-such"]', '["y"]', "1", '["a", "a"]')),
        ("task", ('"no-such"', "1")),
        ("partition", ('{ name = "IID", clients = 2 }',)),
        ("scale", ("1", '"no-such"')),
    ):
        for value in values:
            yield f"table {field} = {value}", ["run", "table.toml", "--set", f"data.{field}={value}", "--out", "out"]


def sizes() -> Iterator[tuple[str, list[str]]]:
    """What would take all memory, or for ever."""
    for name, fields in (("good", TOO_LARGE), ("lasso", MADE)):
        for field, values in fields.items():
            for value in values:
                yield f"{name}: {field} = {value}", ["run", f"{name}.toml", "--set", f"{field}={value}", "--out", "out"]


def runs() -> Iterator[tuple[str, list[str]]]:
    """Directories that are no runs, or no longer."""
    for name in DAMAGED:
        home = f"run {name}"
        yield f"resume: {name}", ["resume", home]
        yield f"export: {name}", ["export", home, "--to", "table.csv"]
        yield f"export a model: {name}", ["export", home, "--model", "exported"]
        yield f"predict: {name}", ["predict", home, "cells.csv"]
        yield f"figures: {name}", ["figures", home]


def commands() -> Iterator[tuple[str, list[str]]]:
    """Words that no command takes."""
    for words in (
        ["no-such"],
        ["run"],
        ["run", "good.toml", "--no-such"],
        ["run", "good.toml", "extra"],
        ["compare"],
        ["resume"],
        ["sweep", "good.toml"],
        ["sweep"],
        ["sweep", "good.toml", "--set", "sweep.rounds=0"],
        ["list", "no-such"],
        ["list", "no_such_module:Thing"],
        ["list", "exits.py:Thing"],
        ["list", "raises.py:Thing"],
        ["check"],
        ["check", "no-such"],
        ["check", "no_such_module:Thing"],
        ["check", "exits.py:Thing"],
        ["check", "raises.py:Thing"],
        ["check", "exits.py"],
        ["check", "late_exit.py:Thing"],
        ["check", "FedAvg", "--set", "lr=-1"],
        ["check", "FedAvg", "--set", "lr"],
        ["check", "late_exit.py:Method", "--set", "lr=0.1"],
        ["check", "FedAvg", "--set", "no_such=1"],
        ["check", "math:pi"],
        ["check", ":"],
        ["check", "a:"],
        ["check", ":b"],
        ["check", "math:no_such"],
        ["check", "x" * 300 + ".py:Thing"],
        ["report"],
        ["report", "nowhere"],
        ["report", "run garbage log", "--out", "run garbage log/metrics.jsonl"],
        ["export", "nowhere", "--to", "t.csv"],
        ["export", "nowhere"],
        ["export", "nowhere", "--to", "t.pdf"],
        ["figures"],
        ["figures", "nowhere"],
        ["predict"],
        ["predict", "nowhere"],
        ["predict", "nowhere", "cells.csv"],
        ["data"],
        ["data", "no-such"],
        ["data", "preview", "no-such"],
        ["data", "info"],
        ["data", "info", "nowhere.csv"],
        ["data", "preview"],
        ["data", "fetch", "no-such"],
        ["advise"],
        ["advise", ""],
        ["recommend", "good.toml", "--budget", ""],
        ["advise", "nowhere.toml"],
        ["theory"],
        ["theory", "no-such"],
        ["reproduce", "no-such"],
        ["reproduce", "--out", "nowhere"],
        ["run", "good.toml", "--state-budget", "much"],
        ["run", "good.toml", "--state-budget", "-1GiB"],
        ["run", "good.toml", "--processes", "0"],
        ["run", "good.toml", "--processes", "-3"],
        ["run", "good.toml", "--processes", "x"],
        ["run", "good.toml", "--processes", "100000"],
        ["resume", "run garbage log", "--processes", "2000000000"],
        ["run", "good.toml", "--log", "no-such"],
        ["run", "good.toml", "--seed", "x"],
        ["run", "good.toml", "--seed", "-1"],
        ["run", "good.toml", "--seed", "4294967296"],
        ["run", "good.toml", "--out", "good.toml"],
        ["run", "good.toml", "--out", "/dev/null"],
        ["run", "good.toml", "--out", "good.toml/inside"],
        ["run", "good.toml", "--out", "/proc/no-such"],
        ["compare", "good.toml", "--seeds", "a"],
        ["compare", "good.toml", "--seeds", "0,0"],
        ["compare", "good.toml", "--seeds", "-1"],
        ["compare", "good.toml", "--seeds", ""],
        ["compare", "good.toml", "--only", "no-such"],
        ["run", "good.toml", "--out", "x\x00y"],
        ["resume", "\x00"],
        ["run", "good.toml", "good.toml"],
        ["run", "good.toml", "--out", "x" * 300],
        ["run", "good.toml", "--out", "fifo"],
        ["run", "good.toml", "--out", "loop"],
        ["run", "good.toml", "--out", "loop/inside"],
        ["run", "good.toml", "--set", "join_steps=2"],
        ["run", "good.toml", "--set", "rounds==3"],
        ["run", "good.toml", "--set", "rounds"],
        ["run", "good.toml", "--set", "=3"],
        ["run", "good.toml", "--set", "rounds=٣"],
        ["run", "good.toml", "--set", "problem.loss=os:getcwd"],
        ["run", "good.toml", "--set", "model.name=os:getcwd"],
        ["run", "good.toml", "--set", "data.name=json:loads"],
        ["check", "builtins:object"],
        ["check", "os:system"],
        ["check", "fifo:Thing"],
        ["compare", "good.toml", "--seeds", "1..1000000000"],
        ["recommend", "nowhere.toml"],
        ["recommend", "cells.csv", "--label", "no"],
        ["run", "good.toml", "--set", "data.name=no_such:make"],
        ["run", "good.toml", "--set", "data.name=raises.py:make"],
        ["run", "good.toml", "--set", "model.name=exits.py:make"],
        ["run", "good.toml", "--set", "problem.loss=raises.py:loss"],
        ["run", "good.toml", "--set", "algorithm.name=raises.py:Method"],
        ["run", "good.toml", "--set", "data.name=late_exit.py:make"],
        ["run", "good.toml", "--set", "model.name=late_exit.py:make"],
        ["run", "good.toml", "--set", "problem.loss=late_exit.py:loss"],
        ["run", "good.toml", "--set", "problem.metrics=['late_exit.py:loss']"],
        ["run", "good.toml", "--set", "problem.loss=wrong.py:raises"],
        ["run", "good.toml", "--set", "problem.loss=wrong.py:scalar"],
        ["run", "good.toml", "--set", "problem.loss=wrong.py:text"],
        ["run", "good.toml", "--set", "problem.loss=wrong.py:nothing"],
        ["run", "good.toml", "--set", "model.name=wrong.py:raising_model"],
        ["run", "good.toml", "--set", "model.name=wrong.py:text_model"],
        ["run", "good.toml", "--set", "algorithm.name=wrong.py:Raises"],
        ["run", "good.toml", "--set", "algorithm.name=wrong.py:Shapes"],
    ):
        yield " ".join(words)[:60], words
    for host in ("a\nb", "x" * 300, "", " ", "a b", "a\tb", "\x1b[31m", "-a", "a..b", "http://a", "999.999.999.999"):
        yield f"keys for the host {host[:20]!r}", ["flower", "keys", "keys", "--host", host]
    for days in ("99999999", "0", "-1", "x", HUGE, "1.5"):
        yield f"keys for {days[:20]} days", ["flower", "keys", "keys", "--days", days]
    for nodes in ("1000000000", "0", "-1", "x", HUGE, "2.5"):
        yield f"keys of {nodes[:20]} nodes", ["flower", "keys", "keys", "--nodes", nodes]
    for address in (
        "nonsense",
        "127.0.0.1:99999",
        "127.0.0.1:0",
        ":",
        "127.0.0.1:",
        "127.0.0.1:x",
        ":8101",
        "a b:1",
        "127.0.0.1:-1",
        "::1:8101",
        "[::1:8101",
        "http://localhost:1",
        "",
    ):
        yield f"a worker for {address!r}", ["flower", "worker", address]
        yield f"a check of {address!r}", ["flower", "check", "nowhere", "--superlink", address]
    for words in (
        ["new"],
        ["new", "app"],
        ["new", "app", "--from", "nowhere.toml"],
        ["new", "good.toml", "--from", "good.toml"],
        ["check", "nowhere"],
        ["check", "good.toml"],
        ["keys"],
        ["keys", "good.toml"],
        ["keys", "nowhere", "--renew"],
        ["keys", "keys", "--host", "1.2.3"],
        ["keys", "keys", "--host", "*"],
        ["keys", "fifo"],
        ["keys", "loop"],
        ["keys", "cells.csv", "--renew"],
        ["new", "x" * 300, "--from", "good.toml"],
        ["new", "app", "--from", "fifo"],
        ["new", "app", "--from", "file binary.toml"],
        ["worker", "localhost:8101:1"],
        ["worker", "localhost:8101", "--root-certificates", "nowhere"],
        ["worker", "localhost:8101", "--root-certificates", "good.toml"],
        ["worker", "localhost:8101", "--root-certificates", "fifo"],
    ):
        yield f"flower {' '.join(words)}", ["flower", *words]


OUTSIDE = {
    "exits.py": "import sys\nsys.exit(0)\n",
    "raises.py": "1 / 0\n",
    "late_exit.py": """
import sys
from fedax.algorithms.base import Algorithm, algorithm, rate
def Thing(*a, **k): sys.exit(0)
def make(*a, **k): sys.exit(0)
def loss(z, y): sys.exit(0)
@algorithm
class Method(Algorithm):
    lr: float = rate()
    def step(self, x_i, oracle, x, client, ctx): sys.exit(0)
""",
    "wrong.py": """
import jax.numpy as jnp
from fedax.algorithms.base import Algorithm, algorithm, rate
def raises(z, y):
    raise RuntimeError("mine")
def scalar(z, y):
    return jnp.mean(z)
def text(z, y):
    return "loss"
def nothing(z, y):
    return None
def raising_model():
    def init(key, x): return jnp.zeros((64, 10))
    def apply(params, x): raise KeyError("weights")
    return init, apply
def text_model():
    return (lambda key, x: jnp.zeros(3)), (lambda params, x: "outputs")
@algorithm
class Raises(Algorithm):
    lr: float = rate()
    def step(self, x_i, oracle, x, client, ctx):
        raise LookupError("mine")
    def finish(self, x_i, oracle, x, client, ctx): return x_i - x, client
    def update(self, x, delta, ctx): return x + delta
@algorithm
class Shapes(Algorithm):
    lr: float = rate()
    def step(self, x_i, oracle, x, client, ctx): return jnp.zeros(3)
    def finish(self, x_i, oracle, x, client, ctx): return x_i - x, client
    def update(self, x, delta, ctx): return x + delta
""",
}


def prepare(home: Path) -> None:
    """Write what the command lines name into a directory."""
    (home / "good.toml").write_text(GOOD)
    (home / "table.toml").write_text(TABLE)
    (home / "lasso.toml").write_text(LASSO)
    rows = [f"s{n % 3},{n % 7},{n % 5},{n % 2}" for n in range(60)]
    (home / "cells.csv").write_text("\n".join(["site,a,b,y", *rows]) + "\n")
    for name, content in FILES.items():
        (home / f"file {name}.toml").write_bytes(content)
    for name, content in CELLS.items():
        (home / f"cells {name}.csv").write_bytes(content)
    for name, text in SVM.items():
        (home / f"{name}.svm").write_text(text)
    for name, members in ARCHIVES.items():
        with zipfile.ZipFile(home / f"{name}.npz", "w") as archive:
            for member, content in members.items():
                archive.writestr(member, content)
    for name, text in OUTSIDE.items():
        (home / name).write_text(text)
    os.mkfifo(home / "fifo")
    (home / "loop").symlink_to("loop")
    for name, inside in DAMAGED.items():
        for file, text in inside.items():
            (home / f"run {name}").mkdir(exist_ok=True)
            (home / f"run {name}" / file).write_text(text)


def every() -> dict[str, list[str]]:
    """All of them, by name."""
    return {name: words for part in (experiments, files, sizes, runs, commands) for name, words in part()}
