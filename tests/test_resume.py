"""Nothing lost: clients' states in any kind of store, checkpoints, and runs that are killed and go on."""

from __future__ import annotations

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedax
from conftest import LEAST_SQUARES, regression, vector
from fedax.engine.store import FileSlots, MemorySlots, Packing, Store, byte_count
from fedax.errors import FedaxError

METHODS = {
    "FedAvg": fedax.FedAvg(lr=0.01),
    "SCAFFOLD": fedax.SCAFFOLD(lr=0.01),
    "APFL": fedax.APFL(lr=0.01, adaptive=True),
    "FedDualAvg": fedax.FedDualAvg(lr=0.01),
}
SPARSE = fedax.Problem(
    loss=LEAST_SQUARES.loss, init=lambda key: jax.numpy.zeros(6), regularizer=fedax.regularizers.L1(0.01)
)
BUDGETS = {"devices": None, "memory": "700B", "file": "100B"}
OPTIONS = {"cohort": 2, "local_steps": 2, "batch_size": 4, "eval_every": 50}


# -- the store ---------------------------------------------------------------------------------------------


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_a_store_and_all_its_kept_snapshots_hold_what_was_put(tmp_path_factory, data):
    """Against a plain dictionary: any order of writes and snapshots, the last two of which must stay whole."""
    clients = 7
    packing = Packing((np.zeros(2, np.float32), np.float64(3.0)))
    kind = data.draw(st.sampled_from(["memory", "file"]))
    folder = tmp_path_factory.mktemp("store")
    slots = MemorySlots(packing.size) if kind == "memory" else FileSlots(folder / "rows", packing.size)
    store = Store(packing, clients, slots)
    first = (0.0, 0.0, 3.0)
    plain = dict.fromkeys(range(clients), first)
    snapshots: list[tuple[np.ndarray, dict]] = []
    for step in range(data.draw(st.integers(1, 12))):
        if data.draw(st.booleans()):
            who = data.draw(st.lists(st.integers(0, clients - 1), unique=True, min_size=1))
            new = [(step + 0.5, float(i), -float(step)) for i in who]
            store.put(np.array(who), (np.float32([n[:2] for n in new]), np.array([n[2] for n in new])))
            plain |= dict(zip(who, new, strict=True))
        else:
            snapshots = [*snapshots, (store.table.copy(), dict(plain))][-2:]
            store.keep([table for table, _ in snapshots])
        for table, expected in [(store.table, plain), *snapshots]:
            other = Store(packing, clients, slots)
            other.table = table
            a, b = other.take(np.arange(clients))
            assert [(*row, last) for row, last in zip(a.tolist(), b.tolist(), strict=True)] == list(expected.values())


@pytest.mark.parametrize("size", ["much", "-1GiB", "3 parsecs", True, 0])
def test_a_wrong_budget(size):
    with pytest.raises(FedaxError, match="state_budget must be a size such as 2GiB or 500MB"):
        byte_count(size)


def test_a_budget_too_small_for_one_cohort():
    with pytest.raises(FedaxError, match=r"state_budget is 10 B: the states of one cohort of 6 clients need 144 B"):
        fedax.simulate(LEAST_SQUARES, regression(), fedax.SCAFFOLD(lr=0.1), rounds=1, state_budget=10)


@pytest.mark.parametrize("budget", ["memory", "file"])
@pytest.mark.parametrize("name", METHODS)
def test_where_states_are_kept_changes_no_bit(name, budget):
    many = regression(sizes=3 * (9, 12, 15, 8, 20, 11, 7, 14, 10, 13, 12, 9, 8, 16, 11, 10))  # at most half take part
    problem = SPARSE if name == "FedDualAvg" else LEAST_SQUARES
    options = {**OPTIONS, "rounds": 12, "eval_every": 6}
    plain = fedax.simulate(problem, many, METHODS[name], **options)
    other = fedax.simulate(problem, many, METHODS[name], state_budget=BUDGETS[budget], **options)
    np.testing.assert_array_equal(vector(plain.model), vector(other.model))
    for i in range(many.clients):
        np.testing.assert_array_equal(vector(plain.personal(i)), vector(other.personal(i)))
    kinds = {"FedAvg": "devices", "FedDualAvg": "devices"}
    kind = {"memory": "MemorySlots", "file": "FileSlots"}[budget]
    assert other.info["states"] == kinds.get(name, kind)


# -- checkpoints -------------------------------------------------------------------------------------------


def stopped(tmp_path, rounds=30, stop=20, method="SCAFFOLD", **changes):
    """A run that was broken off, with a checkpoint after every few rounds."""
    options = {**OPTIONS, "eval_every": 5, "checkpoint_every": 0.0, **changes}
    run = fedax.engine.Simulation(LEAST_SQUARES, regression(), METHODS[method], rounds=rounds, out=tmp_path, **options)
    for row in run:
        if row["round"] >= stop:
            break
    return run


def again(tmp_path, rounds=30, method="SCAFFOLD", **changes):
    options = {**OPTIONS, "eval_every": 5, "checkpoint_every": 0.0, "resume": True, **changes}
    return fedax.simulate(LEAST_SQUARES, regression(), METHODS[method], rounds=rounds, out=tmp_path, **options)


def same_history(a, b):
    drop = [[{k: v for k, v in row.items() if k != "seconds"} for row in rows] for rows in (a, b)]
    assert drop[0] == drop[1]


def whole_run(rounds=30, method="SCAFFOLD"):
    options = {**OPTIONS, "eval_every": 5}
    return fedax.simulate(LEAST_SQUARES, regression(), METHODS[method], rounds=rounds, **options)


@pytest.mark.parametrize("method", METHODS)
def test_a_run_that_goes_on_is_the_run_never_stopped(tmp_path, method):
    stopped(tmp_path, method=method)
    resumed, never = again(tmp_path, method=method), whole_run(method=method)
    np.testing.assert_array_equal(vector(resumed.model), vector(never.model))
    for i in range(6):
        np.testing.assert_array_equal(vector(resumed.personal(i)), vector(never.personal(i)))
    same_history(resumed.history, never.history)
    if never.by_client is not None:
        assert resumed.by_client.as_json() == never.by_client.as_json()
    assert not (tmp_path / "checkpoints").exists()
    assert [json.loads(line)["round"] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()] == list(
        range(0, 31, 5)
    )


def test_the_last_two_checkpoints_are_kept(tmp_path):
    stopped(tmp_path)
    assert len(list((tmp_path / "checkpoints").glob("*.ckpt"))) == 2


def test_checkpoints_that_take_long_come_less_often(tmp_path, monkeypatch):
    now = [0.0]
    monkeypatch.setattr("fedax.engine.checkpoint.time", types.SimpleNamespace(monotonic=lambda: now[0]))
    run = stopped(tmp_path, stop=0, checkpoint_every=60.0)

    def slow(path, content):
        now[0] += 6.0

    monkeypatch.setattr("fedax.engine.checkpoint.write_whole", slow)
    due = []
    for later in (59.0, 60.0):
        now[0] = later
        due.append(run.checkpoints.due())
    run.checkpoints.save()
    for later in (66.0 + 119.0, 66.0 + 120.0):  # six seconds are a twentieth of 120
        now[0] = later
        due.append(run.checkpoints.due())
    assert due == [False, True, False, True]


@pytest.mark.parametrize("damage", ["cut", "flipped", "empty"])
def test_a_damaged_checkpoint_falls_back_to_the_one_before(tmp_path, caplog, damage):
    stopped(tmp_path)
    newest = sorted((tmp_path / "checkpoints").glob("*.ckpt"))[-1]
    raw = bytearray(newest.read_bytes())
    raw[len(raw) // 2] ^= 1
    newest.write_bytes({"cut": newest.read_bytes()[:100], "flipped": bytes(raw), "empty": b""}[damage])
    resumed = again(tmp_path)
    assert f"{newest.name} is damaged and left out" in caplog.text
    np.testing.assert_array_equal(vector(resumed.model), vector(whole_run().model))


@pytest.mark.parametrize("whose", ["nobody's", "another experiment's"])
def test_states_that_are_not_the_runs_start_it_over(tmp_path, caplog, whose):
    stopped(tmp_path / "run")
    states = tmp_path / "run" / "checkpoints" / "states.bin"
    if whose == "nobody's":
        states.write_bytes(b"\x07" * states.stat().st_size)
    else:
        stopped(tmp_path / "other", seed=1)
        states.write_bytes((tmp_path / "other" / "checkpoints" / "states.bin").read_bytes())
    resumed = again(tmp_path / "run")
    assert "clients' states are not those of this checkpoint" in caplog.text
    np.testing.assert_array_equal(vector(resumed.model), vector(whole_run().model))


@pytest.mark.parametrize(
    ("changes", "what"),
    [
        ({"seed": 1}, "seed was 0 and is 1"),
        ({"batch_size": 5}, "schedule was"),
        ({"method": "FedAvg"}, "algorithm was"),
    ],
)
def test_another_experiment_is_refused(tmp_path, changes, what):
    stopped(tmp_path)
    with pytest.raises(FedaxError, match=f"the run cannot go on under another experiment: .*{what}"):
        again(tmp_path, **changes)
    assert len(list((tmp_path / "checkpoints").glob("*.ckpt"))) == 2


def test_another_version_of_the_method_is_refused(tmp_path, monkeypatch):
    stopped(tmp_path)
    monkeypatch.setattr("inspect.getsource", lambda method: "another")
    with pytest.raises(FedaxError, match="version of the method was"):
        again(tmp_path)


def test_a_full_disk_stops_with_one_sentence_and_keeps_the_last_checkpoint(tmp_path, monkeypatch):
    run = stopped(tmp_path, stop=10)
    kept = sorted((tmp_path / "checkpoints").glob("*.ckpt"))

    def full(path, content):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("fedax.engine.checkpoint.write_whole", full)
    with pytest.raises(FedaxError, match=r"checkpoint of round \d+ cannot be written: no space left on device; the la"):
        for _ in run:
            pass
    assert sorted((tmp_path / "checkpoints").glob("*.ckpt")) == kept
    monkeypatch.undo()
    np.testing.assert_array_equal(vector(again(tmp_path).model), vector(whole_run().model))


RUN_OUT_OF_ROOM = """
import resource, sys
import numpy as np
import test_resume
from fedax.errors import FedaxError
from fedax.engine.store import FileSlots

run = test_resume.stopped({out!r}, stop=10, **{changes!r})
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    for _ in run:
        pass
except FedaxError as error:
    print(error)
try:
    FileSlots(test_resume.Path({out!r}, "rows"), 60).write(np.arange(2), np.zeros((2, 60), np.uint8))
except FedaxError as error:
    print(error)
"""


@pytest.mark.skipif(not hasattr(os, "posix_fallocate"), reason="the system has no limit on files' sizes")
def test_a_disk_that_takes_no_more_bytes(tmp_path):
    """Really: the system lets no file of the process grow beyond 100 bytes, from round 10 on."""
    code = RUN_OUT_OF_ROOM.format(out=str(tmp_path / "run"), changes={"state_budget": BUDGETS["file"]})
    shell = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
    said = subprocess.run([sys.executable, "-c", code], env=shell, capture_output=True, text=True, check=False)
    first, second = said.stdout.splitlines()
    assert re.fullmatch(r"(the checkpoint of round \d+|clients' states) cannot be written.*: file too large.*", first)
    assert second == f"clients' states cannot be written to {tmp_path / 'run' / 'rows'}: file too large"
    resumed = again(tmp_path / "run", state_budget=BUDGETS["file"])
    np.testing.assert_array_equal(vector(resumed.model), vector(whole_run().model))


# -- runs that are killed ----------------------------------------------------------------------------------

KILLS = {"devices": 3, "file": 2}  # of each of the four methods: twenty in all
WORKER = """
import test_resume
from fedax.engine import rounds
rounds.SEGMENT = 8  # a checkpoint after every eight rounds, which is most of what the process does
test_resume.long_run({name!r}, {kind!r}, {out!r}, resume=True)
"""


LENGTH = {"devices": 4000, "file": 1500}  # rounds: those through a file are slower


def long_run(name, kind, out, **options):
    problem = SPARSE if name == "FedDualAvg" else LEAST_SQUARES
    every = {"checkpoint_every": 0.0} if out else {}
    budget = {"state_budget": BUDGETS[kind]} if kind != "devices" else {}
    many = regression(sizes=(9, 12, 15, 8, 20, 11, 7, 14, 10, 13, 12, 9, 8, 16, 11, 10))
    run = {**OPTIONS, "rounds": LENGTH[kind], "eval_every": 500, "out": out, **every, **budget, **options}
    return fedax.simulate(problem, many, METHODS[name], **run)


@pytest.fixture(scope="module")
def shell(tmp_path_factory):
    """The environment of processes that will be killed; what one compiled serves the next."""
    cache = tmp_path_factory.mktemp("cache")
    tests = str(Path(__file__).parent)
    return {**os.environ, "PYTHONPATH": tests, "FEDAX_CACHE": str(cache), "FEDAX_COMPILE_CACHE": "1"}


@pytest.mark.parametrize("kind", KILLS)
@pytest.mark.parametrize("name", METHODS)
def test_a_run_killed_at_random_moments_goes_on_to_the_same_bits(tmp_path, shell, name, kind):
    out = tmp_path / "run"
    code = WORKER.format(name=name, kind=kind, out=str(out))
    draw = random.Random(f"{name} {kind}")
    for _ in range(KILLS[kind]):
        process = subprocess.Popen([sys.executable, "-c", code], env=shell, stderr=subprocess.DEVNULL)
        before = _newest(out)
        while process.poll() is None and _newest(out) == before:
            time.sleep(0.005)
        time.sleep(draw.uniform(0, 0.2))
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL, "the run ended before it could be killed"
    resumed = long_run(name, kind, out, resume=True)
    never = long_run(name, "devices", None, rounds=LENGTH[kind])
    np.testing.assert_array_equal(vector(resumed.model), vector(never.model))
    for i in range(never.clients):
        np.testing.assert_array_equal(vector(resumed.personal(i)), vector(never.personal(i)))
    same_history(resumed.history, never.history)


def _newest(out):
    return max((p.name for p in (out / "checkpoints").glob("*.ckpt")), default="")
