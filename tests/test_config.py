"""What is asked of a run: one definition for simulate, experiment files and Flower; nothing is built twice."""

from __future__ import annotations

import dataclasses
import inspect

import numpy as np
import pytest

import fedax
from conftest import LEAST_SQUARES, regression
from fedax.client.plan import RoundWork
from fedax.engine import Simulation
from fedax.engine.config import RunConfig, SimulatedWork
from fedax.engine.prepare import Prepared
from fedax.errors import FedaxError
from fedax.experiments import Experiment, file_tables, parse, run

TABLE = {
    "rounds": 2,
    "seeds": [0, 1],
    "data": {"name": "iris", "partition": {"name": "IID", "clients": 3}},
    "model": {"name": "logistic"},
}


def test_simulate_shows_its_options():
    shown = inspect.signature(fedax.simulate).parameters
    assert list(shown)[:3] == ["problem", "federation", "algorithm"]
    assert {field.name for field in dataclasses.fields(RunConfig)} == set(shown) - set(list(shown)[:3])
    assert shown["cohort"].default is None
    assert shown["rounds"].default is inspect.Parameter.empty
    assert inspect.signature(fedax.stream).parameters.keys() == shown.keys()


@pytest.mark.parametrize("call", [fedax.simulate, Simulation, lambda *a, **k: list(fedax.stream(*a, **k))])
def test_a_typo_is_one_sentence(call):
    with pytest.raises(FedaxError, match="unknown option 'cohrot': did you mean 'cohort'"):
        call(LEAST_SQUARES, regression(), fedax.FedAvg(lr=0.1), rounds=1, cohrot=2)
    with pytest.raises(FedaxError, match="rounds is missing"):
        call(LEAST_SQUARES, regression(), fedax.FedAvg(lr=0.1))


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"weighted": "yes"}, "weighted must be true or false, not 'yes'"),
        ({"zero_below": -1.0}, "zero_below must be a number from 0 on, not -1.0"),
        ({"executor": "loped"}, "unknown executor 'loped': did you mean 'looped'"),
        ({"resume": True}, "resume needs out and checkpoint_every"),
        ({"devices": 0}, "devices must be a whole number from 1 on, not 0"),
    ],
)
def test_what_an_option_may_be_is_said_by_its_type(options, sentence):
    with pytest.raises(FedaxError, match=sentence):
        RunConfig(rounds=1, **options)


def test_files_and_flower_have_the_options_of_simulate():
    pytest.importorskip("flwr")
    from fedax.flower.agreement import Setting

    assert {field.name for field in dataclasses.fields(SimulatedWork)} <= Experiment.model_fields.keys()
    assert {field.name for field in dataclasses.fields(RoundWork)} <= {
        field.name for field in dataclasses.fields(Setting)
    }
    assert parse({**TABLE, "cohort": 2, "algorithm": {"name": "FedAvg", "lr": 0.1}}).cohort == 2


def test_an_experiment_prepares_each_run_once_and_builds_each_method_once(tmp_path, monkeypatch):
    prepared, built = [], []
    of = Prepared.of.__func__

    def counted(cls, problem, federation, algorithm, config, beside=None):
        prepared.append((type(algorithm).__name__, config.seed))
        return of(cls, problem, federation, algorithm, config, beside)

    monkeypatch.setattr(Prepared, "of", classmethod(counted))

    build = file_tables.build
    monkeypatch.setattr(file_tables, "build", lambda name, *a, **k: built.append(name) or build(name, *a, **k))
    tables = [{"name": "FedAvg", "lr": 0.1}, {"name": "FedProx", "lr": 0.1, "mu": 0.1}]
    outcome = run(parse({**TABLE, "algorithm": tables}), tmp_path / "runs")
    assert [each.status for each in outcome.runs] == ["finished"] * 4
    assert sorted(prepared) == [("FedAvg", 0), ("FedAvg", 1), ("FedProx", 0), ("FedProx", 1)]
    assert sorted(built) == ["FedAvg", "FedProx"]


def test_rows_on_the_devices_are_shared():
    config = RunConfig(rounds=1)
    one = Prepared.of(LEAST_SQUARES, regression(), fedax.FedAvg(lr=0.1), config)
    federation = regression()
    other = Prepared.of(LEAST_SQUARES, federation, fedax.SCAFFOLD(lr=0.1), config, beside=one)
    assert other.measured.arrays["x"] is one.measured.arrays["x"]


def test_draws_do_not_depend_on_where_blocks_end():
    """The clients and the rows of a round are a function of the seed and the round alone."""
    from fedax.client.draws import Draws

    run = Simulation(
        LEAST_SQUARES, regression(), fedax.FedAvg(lr=0.1), rounds=11, cohort=3, local_steps=2, batch_size=4
    ).prepared
    engine, found, shapes = run.engine, [], set()
    for block in (11, 4, 1):
        draws = Draws(run.plan, engine.executor.places, engine.mesh, engine.seed, block)
        shapes.add((draws.who(0).shape, draws.rows(0, run.data.count).shape))
        rows = [np.asarray(draws.rows(r, run.data.count))[r % block] for r in range(11)]
        found.append((draws.cohorts(0, 11), draws.cohorts(3, 9), np.stack(rows)))
    assert len(shapes) == 1  # so that runs of any length share a method's program
    for other in found[1:]:
        for a, b in zip(found[0], other, strict=True):
            np.testing.assert_array_equal(a, b)
