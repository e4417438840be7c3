"""The same budget for every method, and what the tables say of it."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from fedax.cli import invoke
from fedax.engine import Simulation
from fedax.engine.loop import account
from fedax.errors import FedaxError
from fedax.experiments import parse, prepare, run
from fedax.experiments.budget import hold_equal
from fedax.experiments.building import options
from fedax.experiments.resolved import resolved_run
from fedax.report import RecordedRun, held_equal
from fedax.runs.files import read_history

FILE = """
rounds = 8
cohort = 2
local_steps = 2
batch_size = 5
eval_every = 2
seeds = [0, 1]
data = { name = "iris", partition = { name = "IID", clients = 3 } }
model = { name = "logistic" }
[[algorithm]]
name = "FedAvg"
lr = 0.1
[[algorithm]]
name = "SCAFFOLD"
lr = 0.1
"""


def asked(*tables: dict[str, Any], **changes: Any) -> Any:
    plain = {
        "rounds": 8,
        "cohort": 2,
        "local_steps": 2,
        "batch_size": 5,
        "eval_every": 2,
        "data": {"name": "iris", "partition": {"name": "IID", "clients": 3}},
        "model": {"name": "logistic"},
        "algorithm": [{"lr": 0.1, **table} for table in tables],
    }
    return parse({**plain, **changes})


def spent(experiment: Any, kind: str) -> dict[str, tuple[int, int]]:
    """The rounds that each method gets, and what a log counts for them."""
    problem, federation = prepare(experiment)
    held, said = hold_equal(experiment, problem, federation)
    assert len(said) == len(held.algorithm)
    found = {}
    for table in held.algorithm:
        run = Simulation(problem, federation, table.build(), **options(held.of(table), held.seeds[0]))
        rounds, state = run.config.rounds, run.state
        account(run.prepared, state, 0, rounds)
        found[table.label] = rounds, state.gradients if kind == "gradients" else state.floats_up + state.floats_down
    return found


METHODS = (
    {"name": "FedAvg"},
    {"name": "SCAFFOLD"},
    {"name": "FedSpeed"},
    {"name": "FedCM"},
    {"name": "FedPD", "eta": 1.0, "skip": 0.5},
)


@pytest.mark.parametrize("kind", ["gradients", "floats"])
def test_every_method_spends_what_the_first_one_does(kind: str) -> None:
    found = spent(asked(*METHODS, budget=kind, rounds=40), kind)
    total = found["FedAvg"][1]
    for label, (rounds, cost) in found.items():
        each = cost / rounds * (3 if label == "FedPD" else 1)  # of FedPD's rounds a half or so are spoken in
        assert total - each < cost <= total, label
    rounds = {label: rounds for label, (rounds, _) in found.items()}
    if kind == "floats":  # SCAFFOLD sends a control variate beside the model, both ways; FedCM a direction down
        assert (rounds["FedAvg"], rounds["SCAFFOLD"], rounds["FedSpeed"], rounds["FedCM"]) == (40, 20, 40, 26)
        assert rounds["FedPD"] > 60
    else:  # FedSpeed takes a second gradient on each minibatch
        assert rounds == {"FedAvg": 40, "SCAFFOLD": 40, "FedSpeed": 20, "FedCM": 40, "FedPD": 40}


def test_clients_of_unequal_size_cost_what_they_cost_in_the_mean() -> None:
    """With all clients and their full gradients, SCAFFOLD's option I takes three where FedAvg takes two."""
    data = {"name": "iris", "partition": {"name": "Dirichlet", "clients": 3, "alpha": 0.5}}
    tables = ({"name": "FedAvg"}, {"name": "SCAFFOLD", "option": "I"}, {"name": "LocalOnly"})
    made = asked(*tables, data=data, rounds=9, budget="gradients").model_copy(
        update={"batch_size": None, "cohort": None}
    )
    found = spent(made, "gradients")
    assert [rounds for rounds, _ in found.values()] == [9, 6, 9]
    assert found["SCAFFOLD"][1] == found["FedAvg"][1]


def test_what_sends_nothing_has_the_rounds_of_the_first() -> None:
    made = asked({"name": "SCAFFOLD"}, {"name": "LocalOnly"}, budget="floats")
    held, said = hold_equal(made, *prepare(made))
    assert [table.rounds for table in held.algorithm] == [8, 8]
    assert "sends nothing" in said[1]
    assert hold_equal(held, None, None) == (held, []), "what is held is held"


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"budget": "float"}, ["budget", "did you mean 'floats'"]),
        ({"budget": "floats", "rounds": 1}, ["budget", "a round of SCAFFOLD", "more rounds"]),
        ({"budget": "floats", "tables": [{"name": "LocalOnly"}]}, ["budget", "LocalOnly", "sends nothing"]),
        ({"budget": "floats", "tables": [{"name": "FedAvg", "rounds": 3}]}, ["budget", "FedAvg", "give one of them"]),
    ],
)
def test_bad_budgets_are_one_sentence(tmp_path: Path, change: dict[str, Any], words: list[str]) -> None:
    tables = [*change.pop("tables", [{"name": "FedAvg"}]), {"name": "SCAFFOLD"}]
    with pytest.raises(FedaxError) as caught:
        run(asked(*tables, **change), tmp_path / "out")
    assert all(word in str(caught.value) for word in words), str(caught.value)
    assert not (tmp_path / "out").exists()


def test_the_command_says_what_is_held_equal_and_goes_on_with_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("file.toml").write_text(FILE)
    assert invoke(["compare", "file.toml", "--budget", "floats", "--out", "fair"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert said.index("SCAFFOLD: 4 rounds, half of FedAvg's") < said.index("FedAvg, seed 0: finished at round 8")
    assert "95 % interval over 2 seeds; held equal: floats sent, up and down, as FedAvg uses in 8 rounds" in said
    assert "Held equal: floats sent, up and down, as FedAvg uses in 8 rounds. Rounds: FedAvg 8, SCAFFOLD 4." in (
        Path("fair/report.html").read_text()
    )
    runs = Path("fair/runs")
    logs = [read_history(runs / name / "metrics.jsonl") for name in ("fedavg-seed0", "scaffold-seed0")]
    costs = [[row["floats_up"] + row["floats_down"] for row in log] for log in logs]
    assert costs[0] == costs[1], "evaluated where as much was spent"
    before = (runs / "scaffold-seed1" / "metrics.jsonl").read_text()
    shutil.rmtree(runs / "scaffold-seed1")
    assert invoke(["resume", "fair"]) == 0
    assert "SCAFFOLD, seed 1: finished at round 4" in capsys.readouterr().out
    rows = [
        [json.loads(line) for line in text.splitlines()]
        for text in (before, (runs / "scaffold-seed1/metrics.jsonl").read_text())
    ]
    for row in (row for history in rows for row in history):
        row.pop("seconds")
    assert rows[0] == rows[1]


def test_methods_may_have_rounds_of_their_own() -> None:
    made = asked({"name": "FedAvg"}, {"name": "FedAvg", "rounds": 2})
    runs = [RecordedRun(Path(), (), resolved_run(made, table, 0)) for table in made.algorithm]
    assert [run.rounds for run in runs] == [8, 2]
    assert held_equal(runs) == "Rounds: FedAvg 8, FedAvg 2 2."
