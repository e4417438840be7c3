"""The report on personal models: the protocol's tables, what cannot be compared, how the data were dealt out."""

from __future__ import annotations

import json
import math
import re
from pathlib import Path
from typing import Any

import pytest

from fedax.report import groups, read, write
from fedax.report.data_section import partitions
from report_runs import embedded, experiment, history, make, moments, personal, words


def cells(page: str, moment: str, title: str) -> list[list[str]]:
    """The body of one of the protocol's tables."""
    block = page.split(f'data-moment="{moment}"')[1].split(f"<h3>{title}")[1].split("</table>")[0]
    rows = re.findall(r"<tr>(.*?)</tr>", block.split("</thead>")[1], re.DOTALL)
    return [[words(cell).strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row, re.DOTALL)] for row in rows]


def test_personal_models_stand_beside_the_others(tmp_path: Path) -> None:
    page = write(tmp_path, personal(tmp_path)).read_text()
    rows = cells(page, "chosen", "All clients: test accuracy, %, round chosen on validation rows")
    # Student's t with one degree of freedom is 12.706 at 97.5 %; two seeds 2 % apart have a standard error of 1 %.
    # Weighted by rows: (7.5 + 7.5 + 2.5 + 15) / 60 and 1 % for the seeds' mean; the deviation is that of the four.
    deviation = f"{100 * math.sqrt((2 * 0.1875**2 + 0.3125**2 + 0.0625**2) / 4):.2f}"
    assert rows[0] == ["Ditto round 6"]
    shared, own = rows[1], rows[2]
    assert shared == ["Shared", "4", "51.00", "51.00 ± 12.71", "0.00", "51.00", "51.00", *["–"] * 6]
    assert own[:7] == ["Personal", "4", "55.17", "57.25 ± 12.71", deviation, "26.00", "76.00"]
    assert own[7:9] == ["50 %", "25 %"]
    assert own[10:12] == ["100 %", "0 %"]  # every client's is an eighth better than training alone
    assert rows[3] == ["FedAvg round 6; no personal models: clients use the shared one"]
    assert [row[0] for row in rows[4:]] == [
        "Shared",
        "LocalOnly round 6; no shared model: every client trains alone",
        "Local",
    ]
    assert rows[6][2] == "42.67"
    last = cells(page, "last", "All clients: test accuracy, %, last round")
    assert (last[0], last[1][3]) == (["Ditto round 10"], "25.50 ± 6.35")
    joined = cells(page, "chosen", "Clients that took part")
    assert joined[2][:3] == ["Personal", "2", "76.00"]
    assert cells(page, "chosen", "Clients held out from training")[2][:3] == ["Personal", "1", "91.00"]


def test_runs_on_other_data_are_not_compared_and_the_page_says_why(tmp_path: Path) -> None:
    first = make(tmp_path / "a", history(0.5, None), experiment=experiment("Ditto", 0), clients=moments(0.0))
    fewer = {"name": "digits", "seed": 0, "partition": {"name": "ByLabel", "clients": 5, "labels": 5}}
    other = moments(0.1, shared=False)
    other["names"] = [f"writer {i}" for i in range(5)]
    plan = experiment("LocalOnly", 0, data=fewer, rounds=20)
    second = make(tmp_path / "b", history(0.6, None), experiment=plan, clients=other)
    page = write(tmp_path, [first, second]).read_text()
    shown = words(page)
    assert (
        "These runs cannot be compared, for their data or models are not the same: "
        "data.partition.clients (6, 5), data.partition.labels (2, 5)."
    ) in shown
    assert "compare them with care: rounds (10, 20)." in shown
    assert "<strong>" not in page.split("<script")[0]
    assert "against shared" in shown
    assert "against local" not in shown  # other clients are no yardstick


def test_runs_on_another_draw_of_the_data_cannot_be_compared(tmp_path: Path) -> None:
    runs = []
    for label, seed in (("A", 0), ("B", 7)):
        data = {"name": "digits", "seed": seed}
        runs.append(make(tmp_path / label, history(0.5, None), experiment=experiment(label, 0, data=data)))
    assert "are not the same: data.seed (0, 7)." in words(write(tmp_path, runs).read_text())


def test_a_personal_run_that_crashed_shows_what_it_left(tmp_path: Path) -> None:
    found = personal(tmp_path)
    crashed = tmp_path / "runs/Ditto-1"
    (crashed / "clients.json").write_text(json.dumps({k: v for k, v in moments(0.0).items() if k != "moments"}))
    (crashed / "status.json").write_text(
        json.dumps({"status": "failed", "round": 5, "rounds": 10, "message": "no disk"})
    )
    (crashed / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in history(0.5, 0.6, (0, 5))))
    page = write(tmp_path, found).read_text()
    assert "Ditto, seed 1 failed at round 5 of 10: no disk." in words(page)
    rows = cells(page, "chosen", "All clients")
    assert rows[0] == ["Ditto round 6; 1 of 2 seeds; 1 finished, 1 failed"]
    assert rows[2][3] == "56.25"


def test_a_method_that_did_not_finish_wins_nothing(tmp_path: Path) -> None:
    runs = []
    for label, shift, status in (("A", 0.0, "finished"), ("B", 0.0, "failed"), ("C", -0.1, "finished")):
        kept, state = moments(shift), {"status": status, "round": 10, "rounds": 10}
        plan = experiment(label, 0)
        runs.append(make(tmp_path / label, history(0.5 + shift, None), experiment=plan, clients=kept, status=state))
    bodies = re.findall(r"<tbody>(.*?)</tbody>", write(tmp_path, runs).read_text().split("<script")[0], re.DOTALL)
    summary = re.findall(r"<tr>(.*?)</tr>", bodies[0])
    methods = [body for body in bodies if 'scope="rowgroup"' in body]
    assert ["<strong>" in row for row in summary] == [True, False, False]
    assert ["<strong>" in body for body in methods[:3]] == [True, False, False]


@pytest.mark.parametrize(
    "damage",
    [
        {"moments": [1]},
        {"moments": {"chosen": {"round": 1, "values": {}}}},
        {"moments": {"last": {"round": None, "values": {}}}},
        {"moments": {"last": {"round": 1, "values": {"shared": {"test": {"accuracy": [0.5]}}}}}},
        {"joined": "x"},
        {"unseen": [[True]]},
    ],
)
def test_damaged_moments_are_left_out(tmp_path: Path, damage: dict[str, Any]) -> None:
    run = make(tmp_path / "a", history(0.5, None), experiment=experiment("A", 0), clients=moments(0.0) | damage)
    page = write(tmp_path, [run])
    assert "data-moment=" not in page.read_text().split("<script")[0]
    assert embedded(page)["clients"][0]["moments"] == {}


@pytest.mark.parametrize(
    ("counts", "said"),
    [
        ([[4 * (i == label) for label in range(10)] for i in range(10)], "labels is 0.900:"),  # 1 - 1/10
        ([[i + 1, 3 * (i + 1)] for i in range(4)], "labels is 0.000:"),
        ([[6, 0], [0, 2], [0, 0]], "labels is 0.500:"),  # a client without rows has no distribution
        ([[0, 0]], ""),
        ([[1, 2], [3]], ""),
        ([[1, None]], ""),
        (None, ""),
    ],
)
def test_the_partition_in_words(tmp_path: Path, counts: Any, said: str) -> None:
    told = {"label_counts": counts, "rows": {"train": [3, 1, 8]}}
    (of,) = partitions(groups([read(make(tmp_path / "a", [], clients=told))]))
    assert of["words"].startswith("3 clients train on 12 rows, from 1 to 8 each, median 3.")
    assert said in of["words"]
    assert ("total variation" in of["words"]) == bool(said)
