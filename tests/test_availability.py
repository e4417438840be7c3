"""Clients that are there only sometimes, drop out or are slow: who takes part, and what a round is then worth."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import fedax
from conftest import LEAST_SQUARES, regression
from fedax.client.availability import Availability, Presence
from fedax.errors import FedaxError
from fedax.flower.sampling import draw

CENTRES = np.arange(1.0, 9.0)
CLIENTS = fedax.Federation.from_clients([{"x": np.full((2, 1), c, np.float32)} for c in CENTRES])
MEAN = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2) / 2, init=lambda key: jnp.zeros(1))
WAYS = {
    "share": Availability(share=0.5),
    "by client": Availability(share=tuple(np.linspace(0.1, 0.9, 8).tolist())),
    "schedule": Availability(on=2, off=3),
    "chain": Availability(leave=0.2, come=0.3),
    "drop-out": Availability(drop_out=0.4),
    "everything": Availability(leave=0.2, come=0.3, drop_out=0.2, slow=0.5, speed=0.3),
}


def present(asked: Availability, rounds: int, seed: int = 0, clients: int = 8) -> np.ndarray:
    here = Presence(asked, seed, clients)
    return np.stack([here.there(r) for r in range(rounds)])


def test_shares_are_met_client_by_client() -> None:
    rates = np.linspace(0.1, 0.9, 8)
    found = present(Availability(share=tuple(rates.tolist())), 2000).mean(0)
    np.testing.assert_allclose(found, rates, atol=4 * 0.5 / np.sqrt(2000))


def test_a_chain_stays_and_moves_as_its_probabilities_say() -> None:
    found = present(Availability(leave=0.1, come=0.3), 4000)
    assert abs(found.mean() - 0.3 / 0.4) < 0.03
    left = (found[:-1] & ~found[1:]).sum() / found[:-1].sum()
    came = (~found[:-1] & found[1:]).sum() / (~found[:-1]).sum()
    assert abs(left - 0.1) < 0.01
    assert abs(came - 0.3) < 0.02


def test_a_chain_is_a_function_of_seed_and_round_in_whatever_order_it_is_asked() -> None:
    asked = Availability(leave=0.3, come=0.3)
    straight, other = present(asked, 20, seed=4), Presence(asked, 4, 8)
    for round in (19, 3, 11, 11, 0, 19):
        np.testing.assert_array_equal(other.there(round), straight[round])


def test_a_schedule_has_its_period_and_phases_differ() -> None:
    found = present(Availability(on=2, off=3), 50, clients=100)
    np.testing.assert_array_equal(found[5:], found[:-5])
    assert (found[:5].sum(0) == 2).all()
    assert len({tuple(column) for column in found[:5].T.tolist()}) == 5


def test_the_cohort_is_the_networks_own_among_those_that_are_there() -> None:
    here, seed = Presence(Availability(share=0.5), 3, 20), 3
    from fedax.client.draws import orders_program

    orders = np.asarray(orders_program(20, 6)(jax.random.key(seed), np.arange(30)))
    for round, order in enumerate(orders):
        mine = here.drawn(round, order, 6)
        theirs = draw(seed, round, 20, 6, set(np.flatnonzero(here.there(round)).tolist()))
        assert mine[mine >= 0].tolist() == theirs


@pytest.mark.parametrize("way", WAYS)
def test_a_round_is_the_mean_of_those_who_stayed(way: str) -> None:
    """With the rate 1 a client sends its own centre less the model, however many steps it takes: the model after each
    round is the mean of the centres of those who were there to the end, and where nobody was it stays."""
    asked, seed = WAYS[way], 5
    run = fedax.Simulation(
        MEAN, CLIENTS, fedax.FedAvg(lr=1.0), rounds=12, availability=asked, local_steps=3, seed=seed, personal=True
    )
    here, expected = Presence(asked, seed, 8), 0.0
    for row in run:
        if row["round"]:
            round = row["round"] - 1
            stayed = here.there(round) & here.stays(round)
            expected = CENTRES[stayed].mean() if stayed.any() else expected
        np.testing.assert_allclose(float(run.result.model[0]), expected, rtol=1e-5)


@pytest.mark.parametrize("way", ["everything", "schedule"])
def test_executors_and_stores_agree(way: str, tmp_path: Any) -> None:
    data = regression()
    asked = Availability(share=0.4) if way == "schedule" else WAYS[way]
    how = {"rounds": 8, "cohort": 4, "batch_size": 4, "local_steps": 4, "availability": asked, "weighted": True}
    method = fedax.SCAFFOLD(lr=0.05)
    made = [
        fedax.simulate(LEAST_SQUARES, data, method, **how, **more)
        for more in ({"executor": "batched"}, {"executor": "looped"}, {"executor": "debug"}, {"state_budget": 100})
    ]
    for other in made[1:]:
        np.testing.assert_allclose(np.asarray(other.model), np.asarray(made[0].model), rtol=1e-4, atol=1e-6)
        assert [row["gradients"] for row in other.history] == [row["gradients"] for row in made[0].history]
        assert [row["floats_up"] for row in other.history] == [row["floats_up"] for row in made[0].history]


def test_costs_count_those_who_stayed() -> None:
    asked, seed = WAYS["everything"], 5
    result = fedax.simulate(MEAN, CLIENTS, fedax.FedAvg(lr=0.5), rounds=12, availability=asked, seed=seed)
    here = Presence(asked, seed, 8)
    stayed = sum(int((here.there(r) & here.stays(r)).sum()) for r in range(12))
    assert result.history[-1]["floats_up"] == stayed


def test_a_method_that_needs_all_passes_over_rounds_with_fewer() -> None:
    needs_all = [cls for cls in fedax.algorithms.ALGORITHMS.values() if cls.needs_all is True]
    here = Presence(Availability(share=0.5), 0, 8, needs_all=True)
    order = np.arange(8, dtype=np.int32)
    drawn = np.stack([here.drawn(r, order, 4) for r in range(200)])
    counts = (drawn >= 0).sum(1)
    assert set(counts.tolist()) == {0, 4}
    assert isinstance(needs_all, list)


def test_slow_clients_take_a_share_of_the_steps() -> None:
    run = fedax.Simulation(
        MEAN, CLIENTS, fedax.FedAvg(lr=0.1), rounds=1, local_steps=10, availability=Availability(slow=0.25, speed=0.3)
    )
    assert sorted(run.prepared.steps.tolist()) == [3, 3, *[10] * 6]


def test_one_who_is_away_for_good_leaves_its_state_as_it_was() -> None:
    """A client that is never there never trains alone."""
    rates = (1e-12, *[1.0] * 7)
    result = fedax.simulate(
        MEAN, CLIENTS, fedax.algorithms.LocalOnly(lr=0.5), rounds=5, availability=Availability(share=rates)
    )
    own = np.array([float(result.personal(i)[0]) for i in range(8)])
    assert own[0] == 0.0
    assert (own[1:] > 0.9).all()


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"share": 0}, "above 0"),
        ({"share": (0.5, 2)}, "at most 1"),
        ({"on": 1}, "go together"),
        ({"leave": 0.1}, "go together"),
        ({"share": 0.5, "on": 1, "off": 1}, "give one of them"),
        ({"drop_out": 1.0}, r"\[0, 1\)"),
        ({"speed": 0}, r"\(0, 1\]"),
        ({"slow": 1.5}, r"\[0, 1\]"),
    ],
)
def test_what_cannot_be_is_one_sentence(given: dict[str, Any], words: str) -> None:
    with pytest.raises(FedaxError, match=words):
        Availability(**given)


def test_as_many_shares_as_clients() -> None:
    with pytest.raises(FedaxError, match="2 probabilities and there are 8 clients"):
        fedax.simulate(MEAN, CLIENTS, fedax.FedAvg(lr=1.0), rounds=1, availability=Availability(share=(0.5, 0.5)))


def test_a_column_of_a_table_says_how_often_a_client_is_there(tmp_path: Any) -> None:
    from fedax.experiments import parse
    from fedax.experiments.building import availability_of

    rates = {"north": 0.25, "south": 1.0}
    rows = [f"{site},{n},{rate},{n % 2}" for site, rate in rates.items() for n in range(10)]
    (tmp_path / "sites.csv").write_text("\n".join(["site,a,uptime,y", *rows]))
    data = {"name": "csv", "path": str(tmp_path / "sites.csv"), "label": "y", "client": "site", "features": ["a"]}
    table = {"rounds": 1, "data": data, "model": {"name": "linear"}, "algorithm": {"name": "FedAvg", "lr": 0.1}}
    experiment = parse({**table, "availability": {"column": "uptime", "slow": 0.5}})
    made = availability_of(experiment)
    assert made is not None
    assert dict(zip(experiment.data.build().names, made.shares, strict=True)) == pytest.approx(rates)
    with pytest.raises(FedaxError, match="from 0 to 1"):
        availability_of(parse({**table, "availability": {"column": "a"}}))


# Early stopping


def history(values: list[float], patience: int, *, higher: bool = False) -> int:
    """The number of evaluations after which a run with these values stops."""
    from fedax.engine.early_stopping import stopped

    rows = [{"round": r, "validation_loss": value} for r, value in enumerate(values)]
    for n in range(1, len(rows) + 1):
        if stopped(rows[:n], ("validation_loss", higher), patience):
            return n
    return len(rows)


def test_patience_counts_evaluations_since_the_best() -> None:
    assert history([3, 2, 1, 1, 1, 1], 2) == 5
    assert history([3, 2, 1, 1.5, 0.9, 1, 1], 2) == 7
    assert history([3, 2, 1], 1) == 3
    assert history([1, 2, 3, 3, 2], 2, higher=True) == 5


def test_a_run_stops_where_patience_ends_and_says_so(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    data = fedax.Federation.from_clients(
        [{"x": rng.normal(size=(12, 6)), "y": rng.normal(size=12)} for _ in range(3)], split=(0.4, 0.4, 0.2)
    )  # noise alone: training on it soon makes validation worse
    how = {"rounds": 400, "eval_every": 5, "patience": 3, "out": tmp_path / "run", "checkpoint_every": 0}
    result = fedax.simulate(LEAST_SQUARES, data, fedax.FedAvg(lr=0.05), **how)
    losses = [row["validation_loss"] for row in result.history]
    assert len(losses) - 1 - int(np.argmin(losses)) == 3
    assert result.info["rounds"] == result.history[-1]["round"] < 400
    assert "has not improved since" in result.info["stopped"]
    status = fedax.report.read(tmp_path / "run").state
    assert status["status"] == "finished"
    assert "has not improved since" in status["message"]


@pytest.mark.parametrize(
    ("more", "words"),
    [({"patience": 2}, "validation rows"), ({"stop_by": "loss"}, "goes with patience"), ({"patience": 0}, "patience")],
)
def test_patience_that_cannot_be_is_refused_before_any_work(more: dict[str, Any], words: str) -> None:
    with pytest.raises(FedaxError, match=words):
        fedax.simulate(MEAN, CLIENTS, fedax.FedAvg(lr=1.0), rounds=3, **more)
