"""Private in simulation: what a client can do to the server is what the noise is made for, and epsilon is counted."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

import fedax
from conftest import LEAST_SQUARES, regression, vector
from fedax.cli import invoke
from fedax.data import Federation
from fedax.errors import FedaxError
from fedax.privacy.accounting import known_epsilon

WORK = {"rounds": 1, "local_steps": 3, "batch_size": 4, "seed": 1}
CLIP = 0.02
FILE = """
rounds = 4
cohort = 2
eval_every = 2
data = { name = "iris", partition = { name = "IID", clients = 4 } }
model.name = "logistic"
algorithm = { name = "Private", base = { name = "FedAvg", lr = 0.1 }, clip = 1.0, noise = 2.0 }
"""


def neighbour(federation: Federation, client: int) -> Federation:
    """The federation with one client replaced by one with quite other rows."""
    clients = [dict(federation.client(i)) for i in range(federation.clients)]
    rows = {name: np.array(array) for name, array in clients[client].items()}
    clients[client] = {"x": -5 * rows["x"], "y": 7 - 3 * rows["y"]}
    return Federation.from_clients(clients)


@pytest.mark.parametrize("base", [fedax.FedAvg(lr=0.05), fedax.FedDualAvg(lr=0.05)])
def test_a_replaced_client_moves_the_model_by_no_more_than_the_sensitivity(base: fedax.Algorithm) -> None:
    """Both are clipped, and point in quite other directions: the mean of m moves by nearly 2 S / m, and never more."""
    federation = regression(sizes=(12, 12, 12, 12))
    private = fedax.Private(base, clip=CLIP)
    here = vector(fedax.simulate(LEAST_SQUARES, federation, private, **WORK).model)
    moved = [
        np.linalg.norm(vector(fedax.simulate(LEAST_SQUARES, neighbour(federation, i), private, **WORK).model) - here)
        for i in range(2)
    ]
    assert max(moved) <= 2 * CLIP / 4 * (1 + 1e-5)
    assert max(moved) > 0.5 * CLIP / 4
    loud = vector(fedax.simulate(LEAST_SQUARES, neighbour(federation, 0), base, **WORK).model)
    assert np.linalg.norm(loud - vector(fedax.simulate(LEAST_SQUARES, federation, base, **WORK).model)) > 2 * CLIP / 4


def test_a_bound_that_nothing_reaches_is_the_base() -> None:
    federation = regression(sizes=(12, 12, 12, 12))
    work = {**WORK, "rounds": 3}
    plain = fedax.simulate(LEAST_SQUARES, federation, fedax.SCAFFOLD(lr=0.05), **work)
    private = fedax.simulate(LEAST_SQUARES, federation, fedax.Private(fedax.SCAFFOLD(lr=0.05), clip=1e6), **work)
    np.testing.assert_allclose(vector(private.model), vector(plain.model), rtol=1e-6)
    assert "epsilon" not in private.history[-1]


def test_noise_has_its_size_and_epsilon_is_that_of_the_busiest_client() -> None:
    start = {"w": np.zeros(2000, np.float32)}
    problem = fedax.Problem(loss=lambda w, b: 0.0 * (w["w"] @ w["w"]), init=lambda key: start)
    federation = regression(sizes=(12,) * 6)
    method = fedax.Private(fedax.FedAvg(lr=0.1), clip=2.0, noise=3.0)
    result = fedax.simulate(problem, federation, method, rounds=5, cohort=2, seed=4)
    drawn = vector(result.model)
    assert drawn.std() == pytest.approx(3.0 * 2.0 / 2 * 5**0.5, rel=0.1)
    cohorts = [fedax.randomness.draw_cohort(jax.random.key(4), r, 6, 2).tolist() for r in range(5)]
    most = max(sum(i in cohort for cohort in cohorts) for i in range(6))
    assert result.history[0]["epsilon"] == 0.0
    assert result.history[-1]["epsilon"] == pytest.approx(known_epsilon(3.0, 1e-5, most))
    spent = [row["epsilon"] for row in result.history]
    assert spent == sorted(spent)


def test_what_noise_cannot_cover_is_refused() -> None:
    federation = regression(sizes=(12, 12))
    private = fedax.Private(fedax.FedAvg(lr=0.1), clip=1.0, noise=1.0)
    with pytest.raises(FedaxError, match="weighted is true"):
        fedax.simulate(LEAST_SQUARES, federation, private, rounds=1, weighted=True)
    with pytest.raises(FedaxError, match="model_state is 'average'"):
        fedax.simulate(LEAST_SQUARES, federation, private, rounds=1, model_state="average")
    with pytest.raises(FedaxError, match="does not take the mean"):
        fedax.Private(fedax.Robust(fedax.FedAvg(lr=0.1)), clip=1.0)


def test_every_evaluation_and_the_report_have_epsilon_and_a_figure_draws_accuracy_against_it(tmp_path, capsys) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "private.toml").write_text(FILE)
    out = tmp_path / "out"
    assert invoke(["compare", str(tmp_path / "private.toml"), "--seeds", "0,1", "--out", str(out)]) == 0
    logs = [
        [json.loads(line)["epsilon"] for line in log.read_text().splitlines()] for log in out.rglob("metrics.jsonl")
    ]
    assert [len(spent) for spent in logs] == [3, 3]
    assert all(spent[0] == 0.0 < spent[1] < spent[2] for spent in logs)
    assert "Epsilon of a client" in (out / "report.html").read_text()
    assert invoke(["figures", str(out), "--out", str(tmp_path / "figures")]) == 0
    assert (tmp_path / "figures" / "test-accuracy-epsilon.pdf").is_file()
