"""DP-SGD: rows' gradients are clipped one by one, the noise has its size, and epsilon is that of the busiest row."""

from __future__ import annotations

import json

import jax
import numpy as np
import pytest

import fedax
from conftest import regression, vector
from dp_formulas import epsilon as rdp_epsilon
from fedax import randomness
from fedax.algorithms import ALGORITHMS
from fedax.cli import invoke
from fedax.data import Federation
from fedax.errors import FedaxError
from fedax.testing.targets import make

FILE = """
rounds = 2
batch_size = 8
data = { name = "iris", partition = { name = "IID", clients = 4 } }
model.name = "logistic"
problem.gradients = [{ name = "dp", clip = 1.0, noise = 1.1 }]
algorithm = { name = "FedAvg", lr = 0.1 }
"""
CLIP, SIZES = 0.3, (8, 11, 9)
DATA, FEDAVG = regression(sizes=SIZES), fedax.FedAvg(lr=0.1)
WORK = {"rounds": 1, "local_steps": 1, "batch_size": 4, "seed": 1}


def problem(noise: float = 0.0, clip: float = CLIP, **options):
    """The least squares of the other tests, with its rows' gradients clipped."""
    asked = {"name": "dp", "clip": clip, "noise": noise}
    return fedax.Problem(
        (lambda key, x: np.zeros(x.shape[-1], np.float32), lambda w, x: x @ w),
        loss="squared",
        gradients=[asked],
        **options,
    )


def by_hand(w, x, y, clip):
    """The mean of clipped gradients of (x.w - y)^2 / 2, row by row in NumPy."""
    rows = (x @ w - y)[:, None] * x
    return (rows * np.minimum(1, clip / np.linalg.norm(rows, axis=1, keepdims=True))).mean(0)


def moved(federation, made, method=FEDAVG, **options):
    return vector(fedax.simulate(made, federation, method, **{**WORK, **options}).model)


@pytest.mark.parametrize("batch_size", [None, 4])
@pytest.mark.parametrize("executor", ["batched", "looped", "debug"])
def test_each_row_s_gradient_is_clipped(batch_size, executor) -> None:
    """One step of one client's full gradient is DP-SGD's by hand; the executors agree on minibatches too."""
    rows = {name: np.asarray(array) for name, array in DATA.client(1).items()}
    alone = Federation.from_clients([rows])
    size = len(rows["y"]) if batch_size is None else batch_size
    drawn = np.arange(size)
    if batch_size is not None:
        key = randomness.key_for(jax.random.key(1), randomness.ROWS, 0, 0)
        drawn = np.asarray(randomness.draw_rows(key, 1, size, 11, "epochs", least=11, most=11))[0]
    expected = -0.1 * by_hand(np.zeros(rows["x"].shape[1]), rows["x"][drawn], rows["y"][drawn], CLIP)
    np.testing.assert_allclose(moved(alone, problem(), batch_size=batch_size, executor=executor), expected, rtol=1e-5)


def test_a_bound_that_no_row_reaches_changes_nothing() -> None:
    plain = fedax.Problem((lambda key, x: np.zeros(x.shape[-1], np.float32), lambda w, x: x @ w), loss="squared")
    for method in (fedax.SCAFFOLD(lr=0.05), fedax.SCAFFOLD(lr=0.05, option="I"), fedax.FedDyn(lr=0.05, alpha=0.1)):
        work = {"rounds": 3, "local_steps": 3, "method": method}
        np.testing.assert_allclose(moved(DATA, problem(clip=1e6), **work), moved(DATA, plain, **work), rtol=1e-5)


def test_a_replaced_row_moves_the_model_by_no_more_than_the_sensitivity() -> None:
    """Of m clients and batches of b, a step of lr: 2 C lr / (b m), nearly reached by rows that point the other way."""
    here, most, bound = moved(DATA, problem()), 0.0, 2 * CLIP * 0.1 / (4 * 3)
    for row in range(8):
        clients = [{name: np.array(array) for name, array in DATA.client(i).items()} for i in range(3)]
        clients[0]["x"][row] *= -50
        clients[0]["y"][row] = 90 + 50 * abs(clients[0]["y"][row])
        most = max(most, float(np.linalg.norm(moved(Federation.from_clients(clients), problem()) - here)))
    assert 0.5 * bound < most <= bound * (1 + 1e-5)


def test_noise_has_its_size_and_no_two_gradients_share_it() -> None:
    """Steps that are summed up have independent noise, SCAFFOLD's full gradient beside the step's too."""
    start = np.zeros(4000, np.float32)
    idle = fedax.Problem(
        loss=lambda w, b: 0.0 * (w @ w), init=lambda key: start, gradients=[{"name": "dp", "clip": 2.0, "noise": 3.0}]
    )
    alone = Federation.from_clients([dict(DATA.client(0))])
    result = fedax.simulate(idle, alone, fedax.FedAvg(lr=0.1), rounds=2, local_steps=3, batch_size=4, seed=2)
    assert vector(result.model).std() == pytest.approx(0.1 * 3.0 * 2.0 / 4 * 6**0.5, rel=0.1)
    twice = fedax.simulate(
        idle, alone, fedax.SCAFFOLD(lr=0.1, option="I"), rounds=2, local_steps=1, batch_size=8, seed=2
    )
    # c_i after round 1 is full noise n_f; the second round's step is -(n_2 - n_f + n_f) = n_2 of one client: n_1 + n_2
    assert vector(twice.model).std() == pytest.approx(0.1 * 3.0 * 2.0 / 8 * 2**0.5, rel=0.1)


@pytest.mark.parametrize("sampling", ["epochs", "iid"])
@pytest.mark.parametrize(
    ("method", "each", "last"), [(fedax.FedAvg(lr=0.1), 1, 0), (fedax.SCAFFOLD(lr=0.1, option="I"), 1, 1)]
)
def test_epsilon_is_that_of_the_row_that_was_used_most(sampling, method, each, last) -> None:
    work = {"rounds": 4, "cohort": 2, "local_steps": 5, "batch_size": 4, "seed": 3, "sampling": sampling}
    result = fedax.simulate(problem(noise=9.0), DATA, method, **work, eval_every=2)
    uses = [np.zeros(n) for n in SIZES]
    spent = [0.0]
    for round in range(4):
        for client in randomness.draw_cohort(jax.random.key(3), round, 3, 2).tolist():
            n = SIZES[client]
            key = randomness.key_for(jax.random.key(3), randomness.ROWS, round, client)
            for batch in np.asarray(randomness.draw_rows(key, 5, 4, n, sampling, least=8, most=11)):
                for row, times in zip(*np.unique(batch, return_counts=True), strict=True):
                    uses[client][row] += each * times**2
            uses[client] += last
        spent.append(rdp_epsilon(int(max(u.max() for u in uses)), 1.0, 9.0, 1e-5, "fixed"))
    found = [row["row_epsilon"] for row in result.history]
    assert found == pytest.approx([spent[0], spent[2], spent[4]], rel=1e-6)
    assert "epsilon" not in result.history[-1]


def test_what_the_account_does_not_cover_is_refused() -> None:
    for name, what in {"PerFedAvg": "further minibatches", "PFedMe": "gradients in a loop of its own"}.items():
        with pytest.raises(FedaxError, match=f"gradients: dp covers .* this method takes .*{what}"):
            fedax.simulate(problem(noise=1.0), DATA, make(ALGORITHMS[name]), **WORK)
    for gradients, why in (
        ([{"name": "zero_nans"}, {"name": "dp", "clip": 1.0}], "must come first"),
        ([{"name": "dp", "clip": 1.0}, "dp"], "must come first, and once"),
        (["dp"], "clip is missing"),
        ([{"name": "dp", "clip": 1.0, "noise": -1.0}], "gradients: dp: noise"),
        ([{"name": "dp", "clip": 1.0, "delta": 1}], "gradients: dp: delta"),
        ([{"name": "dp", "clip": 1.0, "noice": 1.0}], "unknown field of dp 'noice': did you mean 'noise'"),
    ):
        with pytest.raises(FedaxError, match=why):
            fedax.Problem((lambda key, x: 0, lambda w, x: x), loss="squared", gradients=gradients)


class Dropping:
    """A line whose inputs are dropped now and then."""

    def init(self, key, x):
        return np.zeros(x.shape[-1], np.float32), ()

    def apply(self, params, state, x, key, train):
        kept = jax.random.bernoulli(key, 0.5, x.shape) if train else 1
        return (kept * x) @ params, state


def test_a_model_whose_rows_depend_on_one_another_is_refused() -> None:
    with pytest.raises(FedaxError, match="gradients: dp clips the gradient of each row by itself, and the model draws"):
        moved(DATA, fedax.Problem(Dropping(), loss="squared", gradients=[{"name": "dp", "clip": 1.0}]))


def test_a_file_has_it_and_every_evaluated_round_and_the_table_show_it(tmp_path, capsys) -> None:
    (tmp_path / "private.toml").write_text(FILE)
    assert invoke(["compare", str(tmp_path / "private.toml"), "--seeds", "0", "--out", str(tmp_path / "out")]) == 0
    (log,) = (tmp_path / "out").rglob("metrics.jsonl")
    spent = [json.loads(line)["row_epsilon"] for line in log.read_text().splitlines()]
    assert spent[0] == 0.0
    assert spent == sorted(spent)
    assert len(spent) == 3
    assert "Epsilon of a row" in (tmp_path / "out/report.html").read_text()
    assert invoke(["export", str(tmp_path / "out"), "--to", str(tmp_path / "table.csv")]) == 0
    assert "row_epsilon" in (tmp_path / "table.csv").read_text()
