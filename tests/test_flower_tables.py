"""Sites with tables over Flower: sums make their preparation, rows stay, and the trained model predicts."""

from __future__ import annotations

import json

import numpy as np
import pandas
import pytest

import fedax
from fedax.data.tables.preparation import Preparation
from fedax.errors import FedaxError

pytest.importorskip("flwr")
from fedax.cli import invoke
from fedax.flower import Setting, client_app, table_sums_app
from fedax.flower.server import serve
from fedax.flower.table_sums import agreed_columns, prepare_over
from flower_grid import LocalGrid

KINDS = {"age": "number", "smokes": "boolean", "ward": "category", "seen": "date %d.%m.%Y"}
ASKED = {"label": "ill", "labels": ["no", "yes"], "sites": 3, "timeout": 5.0}


def table(site, rows=60):
    rng = np.random.default_rng(site)
    age = rng.normal(50 + 10 * site, 10, rows).round(1)
    return pandas.DataFrame(
        {
            "age": np.where(rng.random(rows) < 0.2, np.nan, age),
            "smokes": rng.choice(["yes", "no", ""], rows),
            "ward": rng.choice(["A", "B", ["C", "D", "E"][site]], rows),
            "seen": pandas.date_range("2024-01-01", periods=rows).strftime("%d.%m.%Y"),
            "ill": np.where(rng.random(rows) < 1 / (1 + np.exp((60 - age) / 10)), "yes", "no"),
        }
    )


def grid_of(tmp_path, tables):
    read = lambda config: tables[config["partition-id"]]  # noqa: E731
    made = LocalGrid(tmp_path, table_sums_app(read), len(tables))
    for site, (_, context) in enumerate(made.nodes.values()):
        context.node_config["preparation"] = str(tmp_path / f"site-{site}.json")
    return made


def test_sites_prepare_as_one_table_would_and_the_model_predicts(tmp_path, capsys):
    tables = [table(site) for site in range(3)]
    made = prepare_over(grid_of(tmp_path, tables), agreed_columns(KINDS, fill=True), **ASKED)
    whole = pandas.concat(tables)
    columns = fedax.data.from_table(whole, label="ill", missing="fill", dates=["seen"], split=None).info["preparation"]
    by_name = {column["name"]: column for column in columns.columns}
    for column in made.columns:
        for key in ("fill", "mean", "scale", "values"):
            if key in column and isinstance(column[key], float):
                assert column[key] == pytest.approx(by_name[column["name"]][key], rel=1e-12)
            elif key in column:
                assert column[key] == by_name[column["name"]][key]
    kept = Preparation.from_json(json.loads((tmp_path / "site-2.json").read_text()))
    assert np.array_equal(kept.transform(whole), made.transform(whole))

    problem = fedax.Problem(fedax.models.model("logistic", outputs=1), loss="logistic")
    setting = Setting(problem, fedax.FedAvg(lr=0.5), clients=3, rounds=2, local_steps=2)
    load = lambda config: kept.arrays(tables[config["partition-id"]])  # noqa: E731
    grid = LocalGrid(tmp_path, client_app(setting, data=load), 3)
    serve(grid, setting, tmp_path / "run", {"preparation": str(tmp_path / "site-0.json")}, pause=0.0)
    whole.head(5).to_csv(tmp_path / "new.csv", index=False)
    assert invoke(["predict", str(tmp_path / "run"), str(tmp_path / "new.csv")]) == 0
    assert "prediction,probability_no,probability_yes" in capsys.readouterr().out


def test_what_a_site_refuses_or_forges_is_one_sentence(tmp_path):
    tables = [table(site) for site in range(3)]
    tables[1] = tables[1].drop(columns="ward").assign(age="old")
    with pytest.raises(FedaxError, match=r"node 101 refuses: .*'ward' is missing.*'age' has 'old' at row 1"):
        prepare_over(grid_of(tmp_path, tables), agreed_columns(KINDS, fill=True), **ASKED)
    grid = grid_of(tmp_path, [table(site) for site in range(3)])
    forgeries = ({"age": [1e400, 0, 0]}, {"age": [-5, 0, 1]}, {"age": [[1]]}, {"age": "x"}, {"other": 1}, [1])
    for forged in (*map(json.dumps, forgeries), "[" * 100_000, '{"age": 1' + "0" * 400 + "}", '{"age": [1e308, 0, 0]}'):

        def tamper(node, reply, forged=forged):
            reply.content["said"]["json"] = forged

        grid.tamper = tamper
        with pytest.raises(FedaxError, match="node 100"):
            prepare_over(grid, agreed_columns({"age": "number"}, fill=True), **ASKED)
    grid.tamper, grid.lose = (lambda node, reply: None), (lambda message, node: "lost" if node == 102 else "kept")
    with pytest.raises(FedaxError, match="1 of 3 sites did not answer"):
        prepare_over(grid, agreed_columns(KINDS, fill=True), **ASKED)
    with pytest.raises(FedaxError, match=r"columns.age: unknown kind 'nummer': did you mean 'number'"):
        agreed_columns({"age": "nummer"}, fill=True)
    with pytest.raises(FedaxError, match="2 of 3 sites are there"):
        prepare_over(grid_of(tmp_path, [table(0), table(1)]), agreed_columns(KINDS, True), **{**ASKED, "timeout": 0.01})


def test_no_row_is_sent(tmp_path):
    grid = grid_of(tmp_path, [table(site) for site in range(3)])
    prepare_over(grid, agreed_columns(KINDS, fill=True), **ASKED)
    biggest = max(len(content["said"]["json"]) for content in grid.answered)
    longer = grid_of(tmp_path, [table(site, rows=600) for site in range(3)])
    prepare_over(longer, agreed_columns(KINDS, fill=True), **ASKED)
    assert max(len(content["said"]["json"]) for content in longer.answered) < 1.3 * biggest
