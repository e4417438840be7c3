"""`fedax recommend`: fair by construction, honest about ties, goes on where it was."""

import dataclasses
import io
import json

import numpy as np
import pytest
from rich.console import Console
from scipy import stats

import fedax
from fedax.algorithms import ALGORITHMS
from fedax.cli import invoke
from fedax.cli.progress import watch
from fedax.errors import FedaxError
from fedax.selection import contest as contests
from fedax.selection import recommend, recommendation
from fedax.selection.allowance import Allowance
from fedax.selection.candidates import Span, candidate, fitting
from fedax.selection.ranking import ROWS, ahead, rank


def problem(**more):
    return fedax.Problem(fedax.models.model("logistic", outputs=3), loss="cross_entropy", **more)


@pytest.fixture(scope="module")
def federation():
    return fedax.data.load("iris", partition=fedax.data.IID(clients=4), split=(0.5, 0.25, 0.25))


@pytest.mark.parametrize("track", ["shared", "personal", "composite"])
def test_every_method_of_a_track_has_ranges_and_can_be_made(track):
    for name in fitting(track):
        tried = candidate(name, lr=0.1, steps=2)
        assert tried.spans["lr"] == Span(pytest.approx(0.01), pytest.approx(1.0)), name
        settings = tried.draw(9)
        assert len(settings) == 9, name
        for numbers in settings:
            tried.make(numbers)  # raises where a number is outside its interval


def test_all_methods_are_in_some_track():
    names = {candidate(name, lr=0.1).name for track in ("shared", "personal", "composite") for name in fitting(track)}
    around = {"Robust", "Private"}  # they stand around a method, and change what it promises
    assert names == set(ALGORITHMS) - around - {"FedPD"}  # which is FedADMM unless rounds skip


def test_settings_fill_their_ranges_evenly():
    places = np.log10([numbers["lr"] for numbers in candidate("FedAvg", lr=1.0).draw(16)])
    assert stats.kstest(places, stats.uniform(-1, 2).cdf).statistic < 0.1
    both = [(np.log10(n["lr"]), np.log10(n["mu"])) for n in candidate("FedProx", lr=1.0).draw(64)]
    assert stats.qmc.discrepancy((np.array(both) - [-1, -2]) / 2) < 0.01  # random points have about 0.02


def test_a_number_without_a_range_is_named():
    assert set(candidate("FedAvg", lr=0.1).spans) == {"lr"}
    with pytest.raises(FedaxError, match="sigma without a default and without a range"):
        candidate(f"{__file__}:NoRange", lr=0.1)


@fedax.algorithm
class NoRange(fedax.Algorithm):
    lr: float = fedax.algorithms.base.rate()
    sigma: float = fedax.algorithms.base.number("(0, 1)")


@fedax.algorithm
class Standing(fedax.Algorithm):
    """Goes nowhere: any method must beat it."""

    lr: float = fedax.algorithms.base.rate()

    def step(self, x_i, oracle, x, client, ctx):
        return x_i

    def finish(self, x_i, oracle, x, client, ctx):
        return x_i - x, client

    def update(self, x, delta, ctx):
        return x + delta


def test_ties_are_what_students_test_cannot_tell_apart():
    rng = np.random.default_rng(0)
    for shift in np.linspace(0, 0.05, 30):
        a, b = rng.normal(0.9, 0.02, 5), rng.normal(0.9 - shift, 0.02, 5)
        beyond = stats.ttest_rel(a, b).pvalue < 0.05
        assert ahead(a, b, higher=True) == (beyond and a.mean() > b.mean())
        assert ahead(a, b, higher=False) == (beyond and a.mean() < b.mean())


def test_fewer_than_six_rows_decide_nothing():
    for rows in range(2, 12):  # the best case: every row in which two models differ speaks for the same one
        decides = stats.binomtest(rows, rows).pvalue < 0.05
        scores = {"A": [0.9 + rows / 1000] * 3, "B": [0.9] * 3}
        assert (rank(scores, higher=True, least=ROWS / 1000)[1].rank == 2) == decides


def test_a_diverged_method_is_behind_and_one_seed_decides_nothing():
    places = rank({"A": [0.5], "B": [0.9], "C": [np.nan]}, higher=True)
    assert [(p.label, p.rank) for p in places] == [("B", 1), ("A", 1), ("C", 3)]


def test_budgets_as_users_write_them():
    assert Allowance.of("1,000 rounds").amount == 1000
    for wrong in ("much", "5", "5 parsecs", "0 floats", "-1 gradients"):
        with pytest.raises(FedaxError, match="budget is"):
            Allowance.of(wrong)


def test_a_search_is_fair_and_goes_on_where_it_was(federation, tmp_path, monkeypatch):
    how = {"rounds": 9, "trials": 3, "seeds": (0, 1), "local_steps": 2, "batch_size": 8, "out": tmp_path}
    methods = ["FedAvg", "FedSpeed", f"{__file__}:Standing"]
    screen = Console(file=io.StringIO(), force_terminal=True, width=80)
    with watch(screen, quiet=False) as progress:
        found = recommend(problem(), federation, methods=methods, progress=progress, **how)
    shown = screen.file.getvalue()
    assert "stage 2 of 3: 3 methods, 1 setting each, a third of the rounds" in shown
    assert "the search" in shown
    assert "0:00:00 left" in shown  # at its end
    lines = [json.loads(line) for line in (tmp_path / "attempts.jsonl").read_text().splitlines()][1:]
    first = [line for line in lines if line["stage"] == 1]
    assert {label: sum(line["label"] == label for line in first) for label in ("FedAvg", "FedSpeed", "Standing")} == {
        "FedAvg": 3,
        "FedSpeed": 3,
        "Standing": 3,
    }
    assert all("test_accuracy" not in line["last"] for line in lines if line["stage"] < contests.FINAL)
    assert not {line["seed"] for line in lines if line["stage"] < contests.FINAL} & {0, 1}
    assert found.costs["FedSpeed"]["gradients"] <= found.costs["FedAvg"]["gradients"]  # two gradients a step
    assert found.costs["FedSpeed"]["rounds"] == 4
    assert found.best != "Standing"
    assert found.standings[-1].label == "Standing"

    def never(*_, **__):
        raise AssertionError("what is done is not run again")

    monkeypatch.setattr(contests, "Settings", never)
    monkeypatch.setattr(contests, "sweep", never)
    again = recommend(problem(), federation, methods=methods, **how)
    assert [place.label for place in again.standings] == [place.label for place in found.standings]
    with pytest.raises(FedaxError, match="of another search: trials was 3, not 2"):
        recommend(problem(), federation, methods=methods, **{**how, "trials": 2})


def test_a_conclusion_says_no_more_than_the_seeds(federation, tmp_path, monkeypatch):
    monkeypatch.setitem(recommendation.YARDSTICK, "shared", "Standing")
    measured = []
    monkeypatch.setattr(recommendation, "gradients_in", lambda *_: measured.append(1) or Allowance(500, "gradients"))
    methods = ["FedAvg", f"{__file__}:Standing"]
    how = {"budget": "1 minute", "trials": 1, "seeds": (0,), "local_steps": 2, "batch_size": 8, "out": tmp_path}
    found = recommend(problem(), federation, methods=methods, finalists=1, **how)
    assert [place.label for place in found.standings] == ["FedAvg", "Standing"]  # the yardstick is always in the final
    assert json.loads((tmp_path / "recommendation.json").read_text())["standings"][0]["half"] == "nan"
    assert found.sentence().endswith("the best of the finalists; with one seed, that may be chance.")
    recommend(problem(), federation, methods=methods, finalists=1, **how)
    assert measured == [1]  # what a time limit comes to: another measurement would be another search

    rows = federation.validation.count.sum()
    assert (found.rows, found.least) == (rows, 6 / rows)

    def concluded(**scores):
        costs = {label: {"floats": 100.0, "kept": 0.0} for label in scores} | {"Dear": {"floats": 200.0, "kept": 0.0}}
        told = dataclasses.replace(found, standings=rank(scores, higher=True), finals=scores, costs=costs, least=0.0)
        return told.sentence()

    said = concluded(Dear=[0.91, 0.9, 0.92], FedAvg=[0.9, 0.91, 0.92], Standing=[0.5, 0.51, 0.5])
    assert said.startswith("Take FedAvg: accuracy 91.0 %; it is the cheapest of the finalists that are within noise")
    assert said.endswith("(Dear too). It is 40.7 ± 2.9 points better than Standing.")  # 4.303 * 1.155 / sqrt(3)
    assert "Take Dear: accuracy 95.0 %, ahead of all other finalists beyond noise" in concluded(
        Dear=[0.95, 0.95], Standing=[0.9, 0.9]
    )
    assert "may be chance. It is not better than Standing" in concluded(Dear=[0.95, 0.96], Standing=[0.7, 0.93])


def test_bad_searches_are_refused_in_one_sentence(federation, tmp_path):
    alone = fedax.data.load("iris", partition=fedax.data.IID(clients=1), split=(0.5, 0.25, 0.25))
    with pytest.raises(FedaxError, match="one client"):
        recommend(problem(), alone)
    rows = fedax.data.load("iris", partition=fedax.data.IID(clients=4), split=(0.5, 0.0, 0.5))
    with pytest.raises(FedaxError, match="needs validation rows"):
        recommend(problem(), rows)
    with pytest.raises(FedaxError, match="one round of FedAvg takes"):
        recommend(problem(), federation, methods=["FedAvg"], budget="3 gradients")
    with pytest.raises(FedaxError, match="one round of SCAFFOLD takes"):  # the dearest: what is needed for all
        recommend(problem(), federation, methods=["FedAvg", "SCAFFOLD"], budget="3 floats")
    with pytest.raises(FedaxError, match="no models of the clients' own"):
        recommend(problem(), federation, methods=["FedAvg"], personal=True)
    with pytest.raises(FedaxError, match="unknown metric 'aucc'"):
        recommend(problem(), federation, methods=["FedAvg"], metric="aucc")
    with pytest.raises(FedaxError, match="unknown algorithm"):
        recommend(problem(), federation, methods=["FedAvgg"])
    with pytest.raises(FedaxError, match="minutes"):
        recommend(problem(), federation, methods=["FedAvg"], trials=2, budget="0.0001 minutes")


def test_the_winner_is_an_experiment_that_runs(tmp_path, capsys):
    file = tmp_path / "iris.toml"
    file.write_text(
        'rounds = 9\nlocal_steps = 2\nbatch_size = 8\n[data]\nname = "iris"\nsplit = [0.5, 0.25, 0.25]\n'
        'partition = { name = "IID", clients = 4 }\n[model]\nname = "logistic"\n'
        '[algorithm]\nname = "FedAvg"\nlr = 0.1\n'
    )
    out = tmp_path / "out"
    words = ["recommend", str(file), "--methods", "FedAvg,FedProx", "--trials", "2", "--seeds", "2", "--out", str(out)]
    assert invoke(words) == 0
    said = capsys.readouterr().out
    assert "Finalists, 2 seeds each" in said
    assert "stage 1 of 3: 2 methods, 2 settings each" in said
    assert fedax.experiments.read(out / "winner.toml").rounds == 9
    assert invoke(["recommend", str(file), "--methods", ",", "--out", str(out)]) == 2
