"""`fedax leaderboard`: the rules hold, runs go on, places are what statistics says, submissions are checked."""

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import stats

import fedax
from fedax.cli import invoke
from fedax.data import DATASETS
from fedax.errors import FedaxError
from fedax.experiments.events import Progress
from fedax.leaderboard import playing, running, submission
from fedax.leaderboard.diagrams import shown
from fedax.leaderboard.lessons import lessons, ours
from fedax.leaderboard.page import all_boards, page
from fedax.leaderboard.rules import BUDGETS, PARTS, TRIALS
from fedax.leaderboard.saved_tasks import Saved, read
from fedax.leaderboard.source import source_hash
from fedax.leaderboard.standing import Table, board, friedman, pair_ranks
from fedax.leaderboard.tasks import load, made, names
from fedax.testing import Check, Report

ROOT = Path(__file__).parent.parent
TINY = """
title = "Flowers"
about = "four clients"
suites = ["quick"]
track = "shared"
metric = "accuracy"
lr = 0.1
[experiment]
rounds = 24
local_steps = 2
batch_size = 8
[experiment.data]
name = "iris"
split = [0.4, 0.3, 0.3]
partition = { name = "IID", clients = 4 }
[experiment.model]
name = "logistic"
"""


@pytest.fixture(scope="module")
def tiny(tmp_path_factory):
    path = tmp_path_factory.mktemp("tasks") / "tiny.toml"
    path.write_text(TINY)
    return path


@pytest.fixture(scope="module")
def played(tiny):
    """FedAvg on the tiny task with one seed, and what was kept on the way."""
    kept = []
    task = load(str(tiny))
    entry = playing.play(
        playing.Ground(task),
        playing.named(task, "FedAvg"),
        (0,),
        None,
        lambda e: kept.append(json.loads(json.dumps(e))),
        lambda share: None,
    )
    return task, entry, kept


def test_tasks_span_what_they_should():
    full, quick = [load(name) for name in names("full")], [load(name) for name in names("quick")]
    assert len(full) >= 10
    assert {task.track for task in full} == {task.track for task in quick} == {"shared", "composite", "personal"}
    for task in quick:
        known = DATASETS.get(task.experiment.data.name)
        assert known is None or not known.files, task.name  # bundled or generated
    assert {task.experiment.model.name for task in full} >= {"logistic", "mlp", "cnn", "linear", "trace"}


def test_a_task_s_hash_is_of_what_is_learnt(tiny):
    import tomllib

    table = tomllib.loads(TINY)
    first = made("tiny", table)
    assert made("tiny", {**table, "title": "Other"}).hash == first.hash
    assert made("tiny", {**table, "lr": 0.2}).hash != first.hash
    with pytest.raises(FedaxError, match="rounds is 25: it must be a multiple of 24"):
        made("tiny", {**table, "experiment": {**table["experiment"], "rounds": 25}})
    with pytest.raises(FedaxError, match="task tiny has no metric"):
        made("tiny", {key: value for key, value in table.items() if key != "metric"})


def test_data_that_are_missing_are_named(monkeypatch):
    monkeypatch.setattr("fedax.leaderboard.tasks.present", lambda file: None)
    with pytest.raises(FedaxError, match="task a9a needs a9a, which is not here: fedax data fetch a9a"):
        load("a9a").build()


def test_rounds_pay_for_the_same(tiny):
    ground = playing.Ground(load(str(tiny)))
    assert ground.rounds(playing.named(ground.task, "FedAvg"))[0] == {"gradients": 24, "floats": 24}
    assert ground.rounds(playing.named(ground.task, "FedSpeed"))[0]["gradients"] == 12  # two gradients a step
    assert ground.rounds(playing.named(ground.task, "SCAFFOLD"))[0]["floats"] == 12  # control variates both ways
    ground.yardstick["floats"] /= 100
    with pytest.raises(FedaxError, match=r"too small for SCAFFOLD, which takes [\d,]+ in 1 of FedAvg's 24 rounds"):
        ground.rounds(playing.named(ground.task, "SCAFFOLD"))


def test_settings_are_chosen_without_test_rows_and_runs_go_on(played, monkeypatch):
    task, entry, kept = played
    assert len(entry["settings"]) == len(entry["grid"]["gradients"]) == TRIALS
    assert len(kept) == 2
    best = int(np.argmax(entry["grid"]["gradients"]))
    assert list(entry["runs"]) == [str(best)]
    assert len(entry["runs"][str(best)]["0"]["test"]) == PARTS + 1
    ground = playing.Ground(task)
    wrong = {**ground.federation.arrays, "y": ground.federation.arrays["y"].copy()}
    rows = ground.federation.test
    for i in range(ground.federation.clients):
        wrong["y"][rows.of(i)] = (wrong["y"][rows.of(i)] + 1) % 3
    ground.federation = fedax.Federation(
        wrong, ground.federation.train, ground.federation.validation, rows, info=ground.federation.info
    )
    other = playing.play(ground, playing.named(task, "FedAvg"), (), None, lambda entry: None, lambda share: None)
    assert other["grid"] == entry["grid"]

    def never(*_, **__):
        raise AssertionError("what is done is not run again")

    monkeypatch.setattr(playing, "Settings", never)
    again = playing.play(ground, playing.named(task, "FedAvg"), (0,), entry, lambda e: None, lambda share: None)
    assert again["runs"] == entry["runs"]


def test_what_is_saved_is_read_and_what_is_damaged_is_refused(played, tmp_path):
    task, entry, _ = played
    saved = Saved(task, tmp_path)
    saved.entries["FedAvg"] = entry
    saved.save()
    assert read(task, tmp_path).entries == {"FedAvg": entry}
    path = tmp_path / "tiny.json"
    for wrong in ({**entry, "grid": {budget: ["x"] * TRIALS for budget in BUDGETS}}, {"settings": []}):
        saved.entries["FedAvg"] = wrong
        saved.save()
        with pytest.raises(FedaxError, match="cannot be read"):
            read(task, tmp_path)
    path.write_text(path.read_text().replace(task.hash, "0" * 16))
    with pytest.raises(FedaxError, match="another version of task tiny"):
        read(task, tmp_path)


def test_a_method_whose_code_has_changed_runs_again(played, tmp_path):
    task, entry, _ = played
    saved = Saved(task, tmp_path)
    saved.entries["FedAvg"] = {**entry, "source": "0" * 16}
    assert not running._current(saved, ()).entries
    assert source_hash(fedax.FedAvg(lr=0.1)) != source_hash(fedax.FedProx(lr=0.1, mu=1.0))


def test_ranks_without_ties_are_ranks_and_friedman_is_scipy_s():
    rng = np.random.default_rng(0)
    apart = {name: [place + 0.001 * s for s in rng.random(5)] for place, name in enumerate("ABCD")}
    assert pair_ranks(apart, higher=False) == {"A": 1, "B": 2, "C": 3, "D": 4}
    noisy = {name: rng.normal(0, 1, 5).tolist() for name in "ABCDE"}
    assert sum(pair_ranks(noisy, higher=True).values()) == 15
    values = rng.normal(size=(12, 5)) + np.arange(5) * 0.4
    p, difference = friedman(stats.rankdata(values, axis=1))
    assert p == pytest.approx(stats.friedmanchisquare(*values.T).pvalue)
    assert difference == pytest.approx(2.728 * np.sqrt(5 * 6 / (6 * 12)), abs=2e-3)  # Demsar's Table 5


def fake(task, means, seeds=5, **more):
    """Saved results with these mean scores; the seeds' differences are fixed."""
    noise = np.linspace(-0.001, 0.001, seeds)
    saved = Saved(task)
    for number, label in enumerate(task.methods):
        mean = means.get(label, 0.5)
        grid = [mean, *[mean - 0.005] * 3, *[mean - 0.1] * 4, None]
        runs = {
            str(s): {
                "rounds": task.rounds,
                "cpu_seconds": 1.0,
                "test": np.linspace(0.1, mean + noise[(s + number) % seeds], PARTS + 1).tolist(),
                "worst": [mean / 2] * (PARTS + 1),
            }
            for s in range(seeds)
        }
        saved.entries[label] = {
            **{"method": label, "source": "", "spans": {}, "settings": [{"lr": float(i)} for i in range(TRIALS)]},
            **{"rounds": dict.fromkeys(BUDGETS, task.rounds), "price": {"gradients": 1.0, "floats": 1.0, "kept": 0.0}},
            **{"grid": dict.fromkeys(BUDGETS, grid), "runs": {"0": runs}, "cpu_seconds": 2.0},
        }
    return saved


def test_the_page_is_of_the_results_that_come_with_fedax():
    results = [read(load(name), None) for name in names("full")]
    text = page(results, shown(all_boards(results)), "leaderboard")
    assert (ROOT / "docs/leaderboard.md").read_text() == text


def test_a_board_and_its_page_say_what_the_results_say():
    some = [load(name) for name in ("digits-iid", "synthetic", "hospitals")]
    results = [fake(task, {"SCAFFOLD": 0.9, "FedSpeed": 0.3}) for task in some]
    found = board(results, "shared", "gradients")
    assert next(iter(found.mean_ranks)) == "SCAFFOLD"
    assert found.mean_ranks["SCAFFOLD"] == 1
    assert list(found.mean_ranks)[-1] == "FedSpeed"
    assert found.wins["SCAFFOLD"] == 3
    assert found.wins["FedAvg"] == 0
    table = found.tables[0]
    assert table.pair("FedAvg", "FedProx")[0] == "tied"
    assert table.near_best("FedAvg") == pytest.approx(4 / 9)
    assert Table(results[0], "gradients").to_target("FedSpeed", 0.4) is None
    boards = all_boards(results)
    assert list(ours(boards))[2] == "| **FedSpeed** | shared | FedAvg | 15 of 15 | 0, 0, 3 | 15 of 15 | 0, 0, 3 |"
    answers = dict(lessons(boards))
    pays = answers["When does SCAFFOLD pay?"]
    assert "ahead of FedAvg on 3 of 3 tasks and behind on 0" in pays[0]
    assert "ahead on 1 of 1 (digits-iid +40.0 ± " in pays[1]
    text = page([*results, Saved(load("a9a"))], {}, "leaderboard")
    assert "Run: 3 of 4 tasks" in text
    assert "Not run yet: a9a." in text
    assert "behind on 3 of 3 (digits-iid -20.0" in text
    alone = page(results[:1], {}, "leaderboard")
    assert "floats**: on the one task that was run, nobody is ahead of SCAFFOLD, of 15 methods.\n" in alone
    assert "Friedman's test does not reject" in page([fake(task, {}) for task in some], {}, "leaderboard")
    incomplete = fake(some[0], {})
    del incomplete.entries["FedAvg"]
    assert board([incomplete], "shared", "gradients") is None


MINE = """
import fedax

@fedax.algorithm
class Mine(fedax.Algorithm):
    lr: float = fedax.algorithms.base.rate()
    def step(self, x_i, oracle, x, client, ctx):
        return x_i - self.lr * oracle.grad(x_i)
    def finish(self, x_i, oracle, x, client, ctx):
        return x_i - x, client
    def update(self, x, delta, ctx):
        return x + delta
"""


def test_a_method_of_one_s_own_is_added_and_verified(tiny, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "mine.py").write_text(MINE)
    add = ["leaderboard", "add", "mine.py:Mine", "--tasks", str(tiny), "--out", "board"]
    checks = [Check("purity", "failed", "a draw differs")]
    monkeypatch.setattr(submission, "check_target", lambda target: Report("Mine", checks))
    assert invoke(add) == 2
    assert "fails the conformance suite: purity: a draw differs" in capsys.readouterr().err
    checks[0] = Check("purity", "passed")
    assert invoke(add) == 0
    assert "tiny: 0 of 15 methods have results, so there is no place yet" in capsys.readouterr().out
    path = tmp_path / "board" / "submission-Mine.json"
    about = json.loads(path.read_text())
    assert set(about) >= {"method", "versions", "seeds", "tasks"}
    verify = ["leaderboard", "verify", str(path), "--tasks", str(tiny)]
    assert invoke(verify) == 0
    assert "holds  tiny, Mine, seed 0 again" in capsys.readouterr().out
    honest = json.loads(path.read_text())["tasks"]["tiny"]["entry"]
    monkeypatch.setattr(submission, "play", lambda *_: honest)
    entry = about["tasks"]["tiny"]["entry"]
    entry["settings"][0]["lr"] = 0.2
    for runs in entry["runs"].values():
        runs["0"]["test"][-1] -= 0.3
    path.write_text(json.dumps(about))
    assert invoke(verify) == 1
    said = capsys.readouterr().out
    assert "FAILS  tiny, Mine, seed 0 again" in said
    assert "FAILS  tiny, Mine: other settings" in said
    path.write_text("{}")
    assert invoke(verify) == 2
    assert "is no submission and no task's results" in capsys.readouterr().err


def test_the_results_that_come_with_fedax_can_be_verified(capsys):
    path = ROOT / "src/fedax/leaderboard/results/lasso.json"
    assert invoke(["leaderboard", "verify", str(path), "--methods", "FedAvg"]) == 0
    said = capsys.readouterr().out
    assert said.count("holds") == 3 + len(load("lasso").methods)
    assert "holds  lasso, FedAvg, seed 0 again" in said
    assert invoke(["leaderboard", "verify", str(path), "--methods", "APFL"]) == 2
    assert "has no such result: it has lasso, FedADMM; " in capsys.readouterr().err


def test_bad_input_is_one_sentence(tmp_path, capsys):
    for words, sentence in (
        (["run", "--suite", "huge"], "unknown suite 'huge'"),
        (["run", "--tasks", "digit-iid"], "did you mean 'digits-iid'?"),
        (["run", "--tasks", "lasso", "--methods", "FedAvgg"], "did you mean 'FedAvg'?"),
        (["run", "--tasks", "lasso", "--methods", "APFL"], "none of the tasks' tracks has APFL"),
        (["run", "--tasks", ","], "it must be names with commas between"),
        (["add", "FedAvg"], "is on the board already"),
        (["verify", str(tmp_path / "none.json")], "is not there"),
        (["page", "--results", str(tmp_path / "none")], "there is no such directory"),
    ):
        assert invoke(["leaderboard", *words, *(["--out", str(tmp_path / "o")] if words[0] in ("run", "add") else [])])
        assert sentence in capsys.readouterr().err, words


def test_a_run_stops_between_steps(tiny, tmp_path, monkeypatch):
    def slow(ground, one, seeds, entry, keep, say):
        keep({"grid": {}, "runs": {}, "settings": one.draw(TRIALS), "source": ""})
        raise AssertionError("it went on")

    monkeypatch.setattr(running, "play", slow)
    monkeypatch.setattr(Saved, "save", lambda self: None)
    with pytest.raises(running.Stopped):
        running.run([load(str(tiny))], ["FedAvg"], (0,), tmp_path, Progress(), minutes=1e-9)
