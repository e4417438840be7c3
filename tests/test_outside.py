"""Names from outside: methods, models, losses, partitions, datasets and regularizers of one's own, in every command."""

from __future__ import annotations

import csv
import json
import shutil
import sys

import pytest

import fedax
from fedax.cli.app import invoke
from fedax.errors import FedaxError
from fedax.experiments.file_tables import AlgorithmTable
from fedax.outside import load
from fedax.testing import check_algorithm

SOURCE = '''
from dataclasses import dataclass

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np

import fedax
from fedax.algorithms import aggregation
from fedax.algorithms.base import number, rate
from fedax.data import Partition
from fedax.evaluation.metrics import Metric
from fedax.regularizers import Regularizer


@fedax.algorithm
class MyMethod(fedax.Algorithm):
    """Half of FedAvg's step."""

    reference = "my notes"
    lr: float = rate()
    share: float = number("(0, 1]", default=0.5)

    def step(self, x_i, oracle, x, client, ctx):
        return x_i - self.share * self.lr * oracle.grad(x_i)

    def finish(self, x_i, oracle, x, client, ctx):
        return x_i - x, client

    def update(self, x, delta, ctx):
        return x + delta


class Net(nn.Module):
    """One hidden layer."""

    outputs: int
    hidden: tuple[int, ...] = (4,)

    @nn.compact
    def __call__(self, x):
        for width in self.hidden:
            x = nn.tanh(nn.Dense(width)(x.reshape(len(x), -1)))
        return nn.Dense(self.outputs)(x)


def make(outputs, scale=1.0):
    """A linear map."""
    def init(key, x):
        return {"w": jnp.zeros((x.shape[-1], outputs))}
    return init, lambda params, x: scale * x @ params["w"]


def my_loss(z, y):
    """Cross entropy, halved."""
    return -jax.nn.log_softmax(z)[jnp.arange(len(y)), y] / 2


@dataclass(frozen=True)
class RoundRobin(Partition):
    """Row i goes to client i mod n."""

    def assign(self, arrays, rows, rng):
        return [np.arange(i, rows, self.clients) for i in range(self.clients)]


@dataclass(frozen=True)
class Half(Regularizer):
    """Half of the squared length."""

    strength: float = 1.0
    smooth = True

    def leaf_value(self, a):
        return self.strength * jnp.sum(a**2) / 2

    def leaf_prox(self, a, t):
        return a / (1 + t * self.strength)

    def leaf_subgradient(self, a):
        return self.strength * a


def rows(count=60, seed=0):
    """Rows to be divided."""
    rng = np.random.default_rng(seed)
    return {"x": rng.normal(size=(count, 3)).astype(np.float32), "y": rng.integers(0, 3, count).astype(np.int32)}


def federation(clients=3):
    """Rows that come divided."""
    return fedax.Federation.from_clients([rows(20, seed) for seed in range(clients)], split=(0.5, 0.25, 0.25))


nearly = Metric("nearly", lambda z, y: z.max(axis=1) > 0, higher=True, percent=True, title="nearness")


def middle(uploads, weights):
    """The mean of the middle half."""
    return aggregation.trimmed_mean(uploads, weights, 0.25)


def nothing():
    return 3


number_three = 3
'''

EXPERIMENT = """
name = "own"
rounds = 2
local_steps = 2
data = {{ name = "{0}:rows", count = 90, partition = {{ name = "{0}:RoundRobin", clients = 3 }} }}
model = {{ name = "{0}:Net", hidden = [5] }}
problem = {{ loss = "{0}:my_loss", regularizer = {{ name = "{0}:Half", strength = 0.01 }} }}
algorithm = [{{ name = "{0}:MyMethod", lr = 0.1 }}, {{ name = "FedAvg", lr = 0.1 }}]
"""


@pytest.fixture(autouse=True)
def here(tmp_path, monkeypatch):
    """A directory with a module and an experiment; what was imported from it is forgotten."""
    (tmp_path / "own_things.py").write_text(SOURCE)
    (tmp_path / "own_leaves.py").write_text("import sys\nsys.exit(3)")
    (tmp_path / "own_broken.py").write_text("import nowhere_at_all")
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    for name in ("own_things", "own_leaves", "own_broken"):
        sys.modules.pop(name, None)


@pytest.mark.parametrize("home", ["own_things", "own_things.py"])
def test_everything_in_an_experiment_can_be_ones_own(here, home, capsys):
    (here / "own.toml").write_text(EXPERIMENT.format(home))
    assert invoke(["compare", "own.toml", "--quiet", "--out", "out"]) == 0, capsys.readouterr().err
    run = here / "out/runs/mymethod-seed0"
    about = json.loads((run / "experiment.json").read_text())
    assert about["algorithm"] == {"name": f"{home}:MyMethod", "label": "MyMethod", "lr": 0.1, "share": 0.5}
    assert about["model"]["name"] == f"{home}:Net"
    assert about["model"]["outputs"] == 3
    assert about["problem"]["loss"] == f"{home}:my_loss"
    assert about["problem"]["regularizer"]["name"] == f"{home}:Half"
    before = (run / "metrics.jsonl").read_text()
    status = json.loads((run / "status.json").read_text())
    (run / "status.json").write_text(json.dumps(status | {"status": "interrupted"}))
    assert invoke(["resume", "out", "--quiet"]) == 0, capsys.readouterr().err
    assert [json.loads(line)["test_loss"] for line in before.splitlines()] == [
        json.loads(line)["test_loss"] for line in (run / "metrics.jsonl").read_text().splitlines()
    ]


def test_a_file_is_found_beside_the_experiment(here, monkeypatch):
    (here / "deep").mkdir()
    (here / "deep/mine.py").write_text(SOURCE)
    (here / "deep/own.toml").write_text(EXPERIMENT.format("mine.py"))
    found = fedax.experiments.read("deep/own.toml")
    assert found.algorithm[0].name == f"{(here / 'deep/mine.py').resolve()}:MyMethod"
    monkeypatch.chdir("deep")
    first = fedax.experiments.read("own.toml").algorithm[0].build()
    assert first == found.algorithm[0].build()
    assert type(first) is type(found.algorithm[0].build())


@pytest.mark.parametrize("home", ["own_things", "own_things.py"])
@pytest.mark.parametrize("command", ["sweep", "compare"])
def test_a_method_of_ones_own_takes_its_rate_from_the_grid(here, home, command, capsys):
    (here / "own.toml").write_text(
        EXPERIMENT.format(home).replace(", lr = 0.1", "") + "sweep.lr = [0.05, 0.1]\ntune.MyMethod.lr = [0.1, 0.3]\n"
    )
    if command == "sweep":
        assert invoke(["sweep", "own.toml", "--quiet", "--out", "out"]) == 0, capsys.readouterr().err
        assert {run["lr"] for run in csv.DictReader((here / "out/sweep.csv").read_text().splitlines())} == {
            "0.05",
            "0.1",
        }
        return
    assert invoke(["compare", "own.toml", "--quiet", "--out", "out"]) == 2
    assert "algorithm.0: MyMethod needs lr" in capsys.readouterr().err
    assert invoke(["compare", "own.toml", "--quiet", "--out", "out", "--tune", "--set", "tune.lr=[0.05, 0.1]"]) == 0
    own, plain = json.loads((here / "out/tuning.json").read_text())
    assert (own["tried"], plain["tried"]) == ({"lr": [0.1, 0.3]}, {"lr": [0.05, 0.1]})


def test_methods_of_ones_own_compared_in_python(here, capsys):
    (here / "own.toml").write_text(EXPERIMENT.format("own_things"))
    problem, federation = fedax.experiments.prepare(fedax.experiments.read("own.toml"))
    methods = [fedax.algorithms.build(f"own_things{end}:MyMethod", lr=0.1) for end in ("", ".py")]
    found = fedax.compare(problem, federation, methods, rounds=1, seeds=(0,), out="out")
    assert list(found.results) == ["MyMethod", "MyMethod 2"]
    assert invoke(["report", "out"]) == 0
    assert invoke(["resume", "out"]) == 2
    assert "a comparison made in Python" in capsys.readouterr().err


@pytest.mark.parametrize("home", ["own_things", "own_things.py", "deep/mine.py"])
def test_an_app_for_flower_takes_ones_own_files_along(here, home, monkeypatch):
    agreement = pytest.importorskip("fedax.flower.agreement")
    (here / "deep").mkdir()
    (here / "deep/mine.py").write_text(SOURCE)
    (here / "own.toml").write_text(EXPERIMENT.format(home))
    assert invoke(["flower", "new", "app", "--from", "own.toml"]) == 0
    fingerprints = []
    for site in ("here", "there"):
        shutil.copytree("app", here / "sites" / site)
        monkeypatch.chdir(here / "sites" / (site if home == "own_things" else ""))
        path = here / "sites" / site / "experiment.toml"
        fingerprints.append(agreement.setting_of(path, {"method": "MyMethod"}).fingerprint)
        monkeypatch.chdir(here)
    assert fingerprints[0] == fingerprints[1]


def test_an_app_for_flower_refuses_files_that_sites_would_not_find(here, capsys):
    pytest.importorskip("flwr")
    (here / "own.toml").write_text(EXPERIMENT.format(here / "own_things.py"))
    assert invoke(["flower", "new", "app", "--from", "own.toml"]) == 2
    assert "would not be found at the sites" in capsys.readouterr().err


def test_a_federation_and_a_pair_of_functions(capsys):
    settings = {"data.name": "own_things:federation", "data.clients": "4", "model.name": "own_things:make"}
    settings |= {"model.scale": "2.0", "rounds": "1", "algorithm.name": "own_things:MyMethod", "algorithm.lr": "0.1"}
    table: dict = {"data": {}, "model": {}, "algorithm": {}}
    for key, value in settings.items():
        fedax.experiments.reading.override(table, key, value)
    experiment = fedax.experiments.parse(table)
    problem, federation = fedax.experiments.building.prepare(experiment)
    assert (federation.clients, problem.name) == (4, "cross_entropy")
    result = fedax.simulate(problem, federation, experiment.algorithm[0].build(), rounds=1)
    assert result.history[-1]["test_loss"] > 0
    table["data"]["partition"] = {"name": "IID", "clients": 2}
    with pytest.raises(FedaxError, match="partition must be left out: own_things:federation comes divided"):
        fedax.experiments.building.prepare(fedax.experiments.parse(table))


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        ("algorithm.name", "own_nowhere:MyMethod", "the module 'own_nowhere' cannot be imported: ModuleNotFoundError"),
        ("algorithm.name", "own_broken:MyMethod", "No module named 'nowhere_at_all'"),
        ("algorithm.name", "own_leaves:MyMethod", "the module 'own_leaves' cannot be imported: SystemExit: 3"),
        ("algorithm.name", "nowhere.py:MyMethod", "the file 'nowhere.py' does not exist"),
        ("algorithm.name", "own_leaves.py:MyMethod", "the file 'own_leaves.py' cannot be imported: SystemExit"),
        ("algorithm.name", "own_things:MyMetod", "unknown method of own_things 'MyMetod': did you mean 'MyMethod'?"),
        ("algorithm.name", "own_things:", "it must be written module:Name"),
        ("algorithm.name", "own_things:Net", "own_things:Net is no method: derive it from fedax.Algorithm"),
        ("algorithm.sahre", "0.1", "unknown field of MyMethod 'sahre': did you mean 'share'?"),
        ("model.name", "own_things:number_three", "own_things:number_three is no model"),
        ("model.name", "own_things:nothing", "own_things:nothing"),
        ("model.hiden", "[3]", "unknown option of own_things:Net 'hiden': did you mean 'hidden'?"),
        ("problem.loss", "own_things:number_three", "is no loss: it must be a function of (outputs, y)"),
        ("problem.regularizer.name", "own_things:Net", "is no regularizer"),
        ("data.name", "own_things:number_three", "is no dataset"),
        ("data.name", "own_things:nothing", "own_things:nothing has no options"),
        ("data.cuont", "3", "unknown option of own_things:rows 'cuont': did you mean 'count'?"),
        ("data.partition.name", "own_things:MyMethod", "is no partition: derive it from fedax.data.Partition"),
    ],
)
def test_a_mistake_is_one_sentence_before_any_work(here, key, value, message, capsys):
    (here / "own.toml").write_text(EXPERIMENT.format("own_things"))
    part = key.replace("algorithm.", "algorithm.0.")
    assert invoke(["compare", "own.toml", "--quiet", "--out", "out", "--set", f"{part}={value}"]) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert message in said
    assert not (here / "out").exists()


def test_lists_show_them(capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    for arguments, words in {
        ("algorithms", "own_things:MyMethod"): "share = 0.5",
        ("own_things:MyMethod",): "my notes",
        ("own_things:Net",): "hidden = [4]",
        ("own_things:make",): "scale = 1.0",
        ("own_things:my_loss",): "Cross entropy, halved.",
        ("own_things:RoundRobin",): "Row i goes to client i mod n.",
        ("own_things:Half",): "penalty",
        ("own_things:rows",): "count = 60",
        ("losses",): "cross_entropy",
        ("metrics",): "average_precision",
        ("metrics", "own_things:nearly"): "nearness, %",
        ("own_things:nearly",): "more",
        ("aggregations",): "attackers = 1",
        ("own_things:middle",): "The mean of the middle half.",
        ("schedules",): "inverse-time",
        ("gradients",): "clip_by_global_norm",
    }.items():
        assert invoke(["list", *arguments]) == 0
        said = capsys.readouterr().out
        assert words in said
        assert "SCAFFOLD" not in said
    assert invoke(["list", "own_things:MyMetod"]) == 2
    assert invoke(["list", "models", "mlp"]) == 2
    capsys.readouterr()
    assert invoke(["list", "schedules", "own_things:middle"]) == 2
    assert "an experiment names no schedule of your own" in capsys.readouterr().err


def test_an_aggregation_of_your_own(here):
    method = fedax.Robust(fedax.FedAvg(lr=0.05), rule="own_things.py:middle")
    check_algorithm(method, checks=["aggregation", "executors", "client order"]).raise_if_failed()
    table = {"name": "Robust", "base": {"name": "FedAvg", "lr": 0.1}, "rule": "own_things:middle"}
    assert AlgorithmTable(**table).build().rule == "own_things:middle"
    for rule, sentence in {
        "own_things:midle": "unknown aggregation of own_things 'midle': did you mean 'middle'",
        "own_things:number_three": "is no aggregation: it must be a function of",
        "meadian": "unknown Robust rule 'meadian': did you mean 'median'",
    }.items():
        with pytest.raises(FedaxError, match=sentence):
            fedax.Robust(fedax.FedAvg(lr=0.05), rule=rule)


def test_the_same_name_is_the_same_class():
    check = lambda found: True  # noqa: E731
    assert load("own_things.py:Net", "model", check, "") is load("./own_things.py:Net", "model", check, "")
    assert load("own_things:Net", "model", check, "") is load("own_things:Net", "model", check, "")


def test_compare_in_python_leaves_a_comparison(here):
    clients = fedax.data.load("iris", partition=fedax.data.IID(3))
    problem = fedax.Problem(fedax.models.model("linear", outputs=3), loss="cross_entropy")
    methods = [fedax.FedAvg(lr=0.1), fedax.FedAvg(lr=0.2), fedax.SCAFFOLD(lr=0.1)]
    found = fedax.compare(problem, clients, methods, rounds=2, seeds=(0, 1), out="both")
    assert list(found.results) == ["FedAvg", "FedAvg 2", "SCAFFOLD"]
    mean, deviation = found.table()["SCAFFOLD"]["test_loss"]
    assert mean > 0
    assert deviation is not None
    assert all(f"\n{label} " in repr(found) for label in found.results)
    about = json.loads((here / "both/experiment.json").read_text())
    assert about["runs"][:2] == ["fedavg-seed0", "fedavg-seed1"]
    assert (here / "both/runs/scaffold-seed1/metrics.jsonl").is_file()
    assert invoke(["report", "both"]) == 0
    for wrong in ({"methods": []}, {"seeds": (0, 0)}, {"seed": 3}):
        with pytest.raises(FedaxError, match=next(iter(wrong))):
            fedax.compare(**{"problem": problem, "federation": clients, "methods": methods, "rounds": 1, **wrong})
