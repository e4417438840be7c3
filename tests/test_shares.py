"""Clients divided over processes: who holds what, and the same models as with one process that holds all.

The processes are played by this one, which has devices of several: the programs are those of a real run, and
`test_distributed.py` has real processes.
"""

from __future__ import annotations

import jax
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jax.sharding import Mesh

import fedax
from conftest import LEAST_SQUARES, regression
from fedax.client import shares
from fedax.client.device_data import DividedRows, Holding
from fedax.data import SyntheticClients
from fedax.data.federation import Rows
from fedax.data.generators.lazy import Lazy

WORK = {"rounds": 5, "cohort": 3, "local_steps": 2, "batch_size": 4, "eval_every": 2}
GENERATED = Lazy(SyntheticClients(clients=50, rows=20, features=5, classes=3, test_share=0.2), shown=5)
LOGISTIC = fedax.Problem(fedax.models.model("logistic", outputs=3), loss="cross_entropy")
SPARSE = fedax.Problem(
    loss=LEAST_SQUARES.loss, init=lambda key: np.zeros(6, np.float32), regularizer=fedax.regularizers.L1(0.01)
)


class Played:
    """A mesh of processes and devices, as far as the arrangement of places looks at it."""

    def __init__(self, processes: int, devices: int) -> None:
        self.shape = {shares.PROCESSES: processes, "clients": devices}
        self.axis_names = tuple(self.shape)
        self.devices = np.zeros((processes, devices))


@given(st.integers(2, 5), st.integers(1, 3), st.integers(5, 40), st.data())
def test_every_client_has_one_place_and_it_is_on_its_own_process(processes, devices, clients, data):
    cohort = data.draw(st.integers(1, clients))
    cohorts = np.stack([np.random.default_rng(seed).permutation(clients)[:cohort] for seed in range(3)])
    each = -(-shares.busiest(processes, cohorts) // devices) * devices
    made = shares.arranged(Played(processes, devices), cohorts, processes * each)
    owner = np.repeat(np.arange(processes), each)
    assert (shares.client_at(made) % processes == owner).all()
    for row, drawn in zip(made, cohorts, strict=True):
        assert sorted(row[shares.is_taken(row)]) == sorted(drawn)
        busy = shares.is_taken(row).reshape(processes, devices, -1).sum(2)
        assert (busy.max(1) - busy.min(1) <= 1).all()  # the devices of a process share its clients out


@given(st.integers(2, 4), st.lists(st.tuples(st.integers(0, 30), st.integers(1, 9)), min_size=4, max_size=12))
def test_a_process_holds_the_rows_of_its_clients_and_no_others(processes, ranges):
    """Ranges may overlap, and a part may be empty."""
    train, test = Rows(*np.array(ranges).T), Rows(np.zeros(len(ranges), int), np.zeros(len(ranges), int))
    held = Holding.of(Played(processes, 1), (train, test))
    for process, index in enumerate(held.index):
        mine = {row for i in range(process, len(train), processes) for row in range(*train.of(i).indices(99))}
        assert index.tolist() == sorted(mine)
    for i, begin in enumerate(held.start(train)):
        found = held.index[i % processes][begin : begin + train.count[i]]
        assert found.tolist() == list(range(train.start[i], train.start[i] + train.count[i]))
    rows = np.unique(np.concatenate(held.index))
    process, where = held.dealt(rows)
    assert [held.index[p][at] for p, at in zip(process, where, strict=True)] == rows.tolist()


def numbers(result):
    """All that a run has made, as numbers."""
    found = [np.asarray(leaf, float) for leaf in jax.tree.leaves(result.model)]
    if result.has_personal:
        found += [np.asarray(leaf, float) for leaf in jax.tree.leaves([result.personal(i) for i in range(3)])]
    if result.by_client is not None:
        values = [moment.values for moment in result.by_client.moments.values()]
        found += [np.nan_to_num(np.asarray(leaf, float)) for leaf in jax.tree.leaves(values)]
    return found + [np.array([v for k, v in row.items() if k != "seconds"], float) for row in result.history]


RUNS = {
    "held-out clients": (LEAST_SQUARES, regression(), fedax.Ditto(lr=0.02, lam=0.1), {"unseen": 0.34}),
    "states beside the devices": (LEAST_SQUARES, regression(), fedax.APFL(lr=0.02), {"state_budget": "120B"}),
    "generated clients": (LOGISTIC, GENERATED, fedax.SCAFFOLD(lr=0.1), {"protocol": True}),
    "a regularizer": (SPARSE, regression(), fedax.PFedFBE(lr=0.02, lam=50.0), {}),
    "robust, all clients": (
        LEAST_SQUARES,
        regression(),
        fedax.Robust(fedax.FedAvg(lr=0.02), rule="median"),
        {"cohort": None},
    ),
}


def play(monkeypatch, processes):
    if jax.device_count() < processes:
        pytest.skip(f"needs {processes} devices")
    for module in ("devices", "prepare"):
        monkeypatch.setattr(f"fedax.engine.{module}.process_count", lambda: processes)


@pytest.mark.parametrize("name", RUNS)
def test_two_processes_make_what_one_makes(monkeypatch, name):
    problem, federation, method, options = RUNS[name]
    alone = numbers(fedax.simulate(problem, federation, method, **WORK | options))
    play(monkeypatch, 2)
    for mine, theirs in zip(numbers(fedax.simulate(problem, federation, method, **WORK | options)), alone, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5, atol=1e-5)


def test_a_sweep_over_two_processes(monkeypatch):
    grid = fedax.grid(fedax.SCAFFOLD(lr=0.1), {"lr": [0.01, 0.05]})
    alone = [numbers(r) for r in fedax.sweep(LEAST_SQUARES, regression(), grid, **WORK)]
    play(monkeypatch, 2)
    for mine, theirs in zip(fedax.sweep(LEAST_SQUARES, regression(), grid, **WORK), alone, strict=True):
        for a, b in zip(numbers(mine), theirs, strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-5)


def test_each_process_has_half_of_the_rows_and_states(monkeypatch):
    """And goes on from a checkpoint to the same bits."""
    play(monkeypatch, 2)
    run = fedax.Simulation(LEAST_SQUARES, regression(sizes=(10,) * 8), fedax.SCAFFOLD(lr=0.02), **WORK)
    assert isinstance(run.prepared.measured, DividedRows)
    arrays = [*run.prepared.measured.near.arrays.values(), *jax.tree.leaves(run.state.clients)]
    assert [2 * shard.data.nbytes for array in arrays for shard in array.addressable_shards] == [
        array.nbytes for array in arrays for _ in array.addressable_shards
    ]


def test_a_divided_run_goes_on_to_the_same_bits(monkeypatch, tmp_path):
    play(monkeypatch, 2)
    options = {**WORK, "checkpoint_every": 0}
    whole = fedax.simulate(LEAST_SQUARES, regression(), fedax.APFL(lr=0.02), **WORK)
    rows = fedax.stream(LEAST_SQUARES, regression(), fedax.APFL(lr=0.02), **options, out=tmp_path / "run")
    next(rows), next(rows)
    rows.close()
    again = fedax.simulate(
        LEAST_SQUARES, regression(), fedax.APFL(lr=0.02), **options, out=tmp_path / "run", resume=True
    )
    for mine, theirs in zip(numbers(again), numbers(whole), strict=True):
        np.testing.assert_array_equal(mine, theirs)


def test_more_processes_than_clients_is_one_sentence(monkeypatch):
    for module in ("devices", "prepare"):
        monkeypatch.setattr(f"fedax.engine.{module}.process_count", lambda: 7)
    with pytest.raises(fedax.FedaxError) as caught:
        fedax.simulate(LEAST_SQUARES, regression(), fedax.FedAvg(lr=0.1), rounds=1)
    assert str(caught.value) == (
        "the run has 7 processes, more than the 6 clients that train: each process must hold at least one"
    )


def test_one_process_has_no_other_axis():
    run = fedax.Simulation(LEAST_SQUARES, regression(), fedax.FedAvg(lr=0.1), rounds=1)
    assert isinstance(run.prepared.engine.mesh, Mesh)
    assert run.prepared.engine.mesh.axis_names == ("clients",)
