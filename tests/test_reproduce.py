"""`fedax reproduce`: the tables say what the papers print, the rule is the rule, and what was stopped goes on."""

from __future__ import annotations

import copy
import dataclasses
import io
import json
import math
import os
import shutil
from contextlib import redirect_stdout
from pathlib import Path
from typing import Any, NamedTuple
from xml.etree import ElementTree

import pytest

from fedax.cli import invoke
from fedax.engine import Simulation
from fedax.errors import FedaxError
from fedax.experiments.building import options, prepare
from fedax.experiments.resolved import resolved_comparison
from fedax.experiments.resuming import recall
from fedax.papers.reproductions import SCALES, Measured, ids, judge, load, saving
from fedax.papers.reproductions import docs_page as page
from fedax.papers.reproductions.a9a_table import METHODS
from fedax.papers.reproductions.description import Quantity, Scale
from fedax.papers.reproductions.figures_of_runs import quickest, spread, value
from fedax.papers.reproductions.library import described
from fedax.papers.reproductions.merging import merged
from fedax.papers.reproductions.reproducing import carry_out
from fedax.papers.reproductions.special import MEASURES
from fedax.papers.reproductions.verdict import Judged
from fedax.papers.reproductions.wording import shown
from fedax.report import RecordedRun
from fedax.runs.files import write_json

ROOT = Path(__file__).parent.parent
#: the experiments that the papers report
EVERY = """
apfl-fig2 apfl-fig3 apfl-fig4 apfl-fig5 apfl-fig6 apfl-table1 apfl-table2 apfl-table3
fco-constrained fco-fmri fco-lasso-I fco-lasso-II fco-lasso-III fco-lasso-IV
fco-lowrank-I fco-lowrank-II fco-lowrank-III fco-lowrank-IV fedac-a9a fedac-vanilla
feddeper-fig1 feddeper-fig3 feddeper-fig4 feddeper-fig7 feddeper-table1
fedspeed-ablation fedspeed-fig1 fedspeed-fig4 fedspeed-fig5 fedspeed-interval
fedspeed-table1 fedspeed-table2 fedspeed-table5 fedspeed-table8
pfedfbe-lasso-I pfedfbe-lasso-II pfedfbe-matrix pfedfbe-mnist thesis-bias
"""
GENERATED = ("lasso", "low_rank", "synthetic")

# The tables


def test_every_experiment_of_the_papers_is_there() -> None:
    assert sorted(EVERY.split()) == ids()


@pytest.mark.parametrize("name", ids())
def test_a_table_describes_experiments_at_both_scales(name: str) -> None:
    one = load(name)
    assert 0 < one.minutes <= 10
    assert one.departing("small")
    for scale in SCALES:
        settings = one.at(scale)
        figures, claims = one.asked(scale)
        assert figures or claims
        for quantity in one.quantities(scale):
            if quantity.quickest:
                assert all(setting.table["sweep"]["target"] == quantity.reaches for setting in settings)
        for setting in settings:
            if one.measure is None:
                made = setting.experiment()
                assert [str(table.label) for table in made.algorithm] == setting.methods
                assert made.data.name in (*one.data, *GENERATED)
            else:
                assert one.measure in MEASURES
    everything = {(s.part, method) for s in one.at("paper") for method in s.methods}
    for quantity in (*(f.quantity for f in one.figures), *(q for c in one.claims for q in c.quantities)):
        known = {method for part, method in everything if quantity.part in (None, part)}
        assert quantity.method in known, f"{quantity} is of no method of {sorted(known)}"


@pytest.mark.parametrize("name", [name for name in ids() if load(name).measure is None])
def test_what_is_resumed_is_what_was_begun(name: str, tmp_path: Path) -> None:
    made = load(name).at("small")[0].experiment().model_copy(update={"sweep": None}).with_yardstick()
    write_json(tmp_path / "experiment.json", resolved_comparison(made, ["a"]))
    again = recall(tmp_path)
    assert [table.build() for table in again.algorithm] == [table.build() for table in made.algorithm]
    assert again.model_dump(exclude={"algorithm"}) == made.model_dump(exclude={"algorithm"})


def test_the_papers_own_figures() -> None:
    printed = {str(f.quantity): f.value for f in load("feddeper-table1").figures}
    assert printed["MNIST, MLP, 5 of 10: FedDeper (test accuracy)"] == 94.92
    assert printed["CIFAR-10, CNN, 10 of 100: SCAFFOLD (test accuracy)"] == 49.00
    printed = {f.quantity.method: f.value for f in load("fedspeed-table2").figures}
    assert list(printed.values()) == [83.97, 84.6, 85.38, 85.72, 84.35]
    (small,) = (s for s in load("feddeper-table1").at("paper") if s.part == "MNIST, CNN, 10 of 100")
    rho = {table.label: table.options.get("rho") for table in small.experiment().algorithm}
    assert rho["FedDeper"] == 0.005


@pytest.mark.parametrize("scale", SCALES)
def test_constrained_runs_begin_inside_their_balls(scale: Scale) -> None:
    if "FEDAX_DATA" not in os.environ:
        pytest.skip("needs QMNIST below FEDAX_DATA")
    for setting in load("fco-constrained").at(scale):  # a simulation refuses to begin outside
        made = setting.experiment()
        problem, federation = prepare(made)
        Simulation(problem, federation, made.algorithm[0].build(), protocol=False, **options(made, 0))


def test_measures_know_their_methods() -> None:
    for name in ("fedac-a9a", "fedac-vanilla"):
        assert set(load(name).at("paper")[0].methods) <= set(METHODS)


def test_a_change_names_methods_that_are_there() -> None:
    table = {"algorithm": [{"name": "FedAvg", "lr": 0.1}]}
    with pytest.raises(FedaxError, match="unknown method 'FedAvgg': did you mean 'FedAvg'"):
        merged(table, {"algorithm": {"FedAvgg": {"lr": 1.0}}})
    with pytest.raises(FedaxError, match="unknown method 'SCAFOLD'"):
        merged(table, {}, only=["SCAFOLD"])


# The rule


def table(**more: Any) -> dict[str, Any]:
    """A reproduction of three figures and a claim."""
    method = [{"name": "FedAvg", "label": label, "lr": 0.1} for label in "ABC"]
    return {
        "title": "three methods",
        "paper": "thesis",
        "where": "nowhere",
        "note": "",
        "minutes": 1,
        "experiment": {"rounds": 1, "data": {"name": "iris"}, "model": {"name": "logistic"}, "algorithm": method},
        "figures": [{"values": {"A": 90.0, "B": 80.0, "C": 79.5}}],
        "claim": [{"larger": "A", "than": ["B", "C"]}],
        **more,
    }


def verdicts(*ours: float | Measured, **more: Any) -> tuple[list[str], list[bool | None], str]:
    one = described("three", table(**more))
    numbers = [value if isinstance(value, Measured) else Measured(value) for value in ours]
    found = judge(one, "paper", {f"{m} (test accuracy)": n for m, n in zip("ABC", numbers, strict=False)})
    return [row.verdict for row in found.rows], [claim.holds for claim in found.claims], found.verdict


@pytest.mark.parametrize(
    ("ours", "rows", "claims", "whole"),
    [
        ((90.9, 79.1, 79.0), ["agrees"] * 3, [True, True], "agrees"),
        ((70.0, 60.0, 61.0), ["same order"] * 3, [True, True], "same order"),  # B and C are a tie in the paper
        ((60.0, 70.0, 79.0), ["does not", "does not", "agrees"], [False, False], "does not"),
        ((88.0, Measured(78.0, 3.0, 3), 70.0), ["same order", "agrees", "same order"], [True, True], "same order"),
        ((math.nan, 80.0, 79.5), ["does not", "agrees", "agrees"], [False, False], "does not"),
        ((90.0, 80.0), ["agrees", "agrees", "not measured"], [True, None], "agrees"),
        ((), ["not measured"] * 3, [None, None], "not measured"),
        ((91.1, 80.0, 80.0), ["same order", "agrees", "agrees"], [True, True], "same order"),
    ],
)
def test_the_rule(ours: tuple[float, ...], rows: list[str], claims: list[bool | None], whole: str) -> None:
    assert verdicts(*ours) == (rows, claims, whole)


def judged(left: Measured, right: Measured | float, relation: str = "larger") -> Judged:
    """A claim about A and B, or A and a number."""
    than = right if isinstance(right, float) else "B"
    one = described("two", table(figures=[], claim=[{relation: "A", "than": than}]))
    numbers = {"A (test accuracy)": left, **({"B (test accuracy)": right} if isinstance(right, Measured) else {})}
    return judge(one, "paper", numbers).claims[0]


def test_claims_are_judged_seed_by_seed() -> None:
    """Seeds that move both sides alike leave a small difference clear; its interval is Student's, by hand."""
    a, b = spread([90.0, 80.0, 70.0]), spread([89.0, 78.8, 69.2])
    assert a is not None
    assert b is not None
    assert a.half is not None
    assert a.half > 20
    found = judged(a, b)
    assert (found.holds, found.clear) == (True, True)
    assert found.difference == pytest.approx(1.0)
    assert found.half == pytest.approx(4.302653 * 0.2 / 3**0.5, rel=1e-5)
    unpaired = judged(dataclasses.replace(a, values=()), dataclasses.replace(b, values=()))
    assert (unpaired.holds, unpaired.clear) == (True, False)
    c = spread([91.0, 79.0, 69.9])
    assert c is not None
    assert (judged(a, c).holds, judged(a, c).clear) == (True, False)  # one seed stands the other way
    assert judged(a, 60.0).half == pytest.approx(a.half)
    assert judged(Measured(90.0), Measured(80.0)).clear is None


def test_targets_that_are_never_reached_have_an_order() -> None:
    quick, never = spread([20.0, 30.0]), spread([math.inf, math.inf])
    assert quick is not None
    assert never is not None
    assert (judged(quick, never, "smaller").holds, judged(quick, never, "smaller").clear) == (True, True)
    sometimes = spread([10.0, math.inf])
    assert sometimes is not None
    assert (judged(quick, sometimes, "smaller").holds, judged(quick, sometimes, "smaller").clear) == (True, False)


def test_a_tie_does_not_contradict_the_best() -> None:
    assert judged(Measured(1.0), Measured(1.0), "at_least").holds is True
    assert judged(Measured(1.0), Measured(1.0), "larger").holds is False
    assert judged(Measured(0.9), Measured(1.0), "at_least").holds is False
    assert judged(Measured(0.9), Measured(1.0), "at_most").holds is True


def test_what_stands_aside_is_judged_but_not_counted() -> None:
    claims = [{"larger": "A", "than": "B"}, {"larger": "C", "than": "A", "aside": True}]
    assert verdicts(90.0, 80.0, 79.5, claim=claims) == (["agrees"] * 3, [True, False], "agrees")
    figures = [{"values": {"A": 90.0, "B": 80.0}}, {"values": {"C": 99.0}, "aside": True}]
    assert verdicts(90.0, 80.0, 70.0, figures=figures)[2] == "agrees"


def test_without_claims_the_figures_decide() -> None:
    assert verdicts(70.0, 60.0, 61.0, claim=[])[2] == "same order"
    assert verdicts(60.0, 70.0, 61.0, claim=[])[2] == "does not"


def test_the_best_round_a_target_and_a_columns_growth() -> None:
    rows = tuple(
        {"round": r, "test_accuracy": a, "seconds": s} for r, a, s in ((0, 0.1, 9), (2, 0.8, 10), (6, 0.7, 12))
    )
    run, asked = RecordedRun(Path("."), rows, state={"status": "finished"}), Quantity(method="FedAvg")
    assert value(asked, run) == 0.7
    assert value(asked.model_copy(update={"best": True}), run) == 0.8
    assert value(asked.model_copy(update={"reaches": 0.75}), run) == 2
    assert [value(asked.model_copy(update={"over": last}), run) for last in (0, 2)] == [0.75, 0.7]
    assert value(asked.model_copy(update={"metric": "seconds", "each_round": True}), run) == 0.5


def test_a_claim_of_one_scale_is_asked_for_there_alone() -> None:
    targets = {scale: [q.reaches for q in load("fedspeed-fig1").quantities(scale) if q.reaches] for scale in SCALES}
    assert set(targets["small"]) == {0.9}
    assert set(targets["paper"]) == {0.8, 0.85}


def test_a_factor_is_a_tolerance_too() -> None:
    figures = [{"metric": "suboptimality", "factor": 1.5, "values": {"A": 1e-3, "B": 1e-1}}]
    one = described("two", table(figures=figures, claim=[]))
    found = judge(one, "paper", {"A (suboptimality)": Measured(1.4e-3), "B (suboptimality)": Measured(0.2)})
    assert [row.verdict for row in found.rows] == ["agrees", "same order"]


def test_what_has_no_default_tolerance_must_state_one() -> None:
    with pytest.raises(ValueError, match="needs a tolerance or a factor"):
        described("rank", table(figures=[{"metric": "rank", "values": {"A": 5}}]))


# From runs to numbers

DIGITS = {
    **table(),
    "data": ["digits"],
    "departures": {"small": ["two rounds"]},
    "quantity": {"metric": "test_accuracy"},
    "experiment": {
        "rounds": 6,
        "local_steps": 2,
        "batch_size": 10,
        "eval_every": 2,
        "seeds": [0, 1],
        "data": {"name": "digits", "partition": {"name": "ByLabel", "clients": 5, "labels": 2}},
        "model": {"name": "logistic"},
        "algorithm": [{"name": "FedAvg", "lr": 0.1}, {"name": "LocalOnly", "lr": 0.1}],
    },
    "part": [{"name": "two labels"}, {"name": "all", "set": {"data": {"partition": {"name": "IID", "clients": 5}}}}],
    "small": {"set": {"rounds": 4}},
    "figures": [{"part": "two labels", "model": "shared", "values": {"FedAvg": 0.0}}],
    "claim": [
        {"larger": {"method": "LocalOnly", "model": "personal"}, "than": {"method": "FedAvg", "model": "shared"}},
        {
            "says": "labels matter",
            "smaller": {"method": "FedAvg", "part": "all", "minus": {"part": "two labels"}},
            "than": 1000,
        },
        {"smaller": {"method": "FedAvg", "metric": "round", "reaches": 2}, "than": 3},
    ],
}


def test_the_quickest_setting_of_a_sweep_is_sought_seed_by_seed(tmp_path: Path) -> None:
    rows = ["algorithm,seed,lr,rounds_to_target", "A,0,0.1,40", "A,0,0.2,15", "A,1,0.1,", "A,1,0.2,25", "B,0,0.1,5"]
    (tmp_path / "sweep.csv").write_text("\n".join([*rows, ""]))
    found = quickest(Quantity(method="A", reaches=1.0, quickest=True), {"": tmp_path})
    assert found is not None
    assert (found.mean, found.runs) == (20.0, 2)


class Made(NamedTuple):
    """What the command left in an empty directory, and what it said."""

    home: Path
    said: str

    @property
    def out(self) -> Path:
        return self.home / "runs/digits-two-small"


def type_(home: Path, *words: str) -> str:
    """What `fedax reproduce digits-two` says in a directory."""
    one, said = described("digits-two", DIGITS), io.StringIO()
    with pytest.MonkeyPatch.context() as patch, redirect_stdout(said):
        patch.setattr("fedax.papers.reproductions.load", lambda name: one)
        patch.setattr(saving, "SAVED", home / "saved")
        patch.chdir(home)
        assert invoke(["reproduce", "digits-two", "--quiet", *words]) == 0
    return " ".join(said.getvalue().split())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Made:
    home = tmp_path_factory.mktemp("reproduced")
    return Made(home, type_(home, "--save"))


def last_row(run: Path) -> dict[str, Any]:
    row: dict[str, Any] = json.loads((run / "metrics.jsonl").read_text().splitlines()[-1])
    return row


def test_a_reproduction_from_end_to_end(made: Made) -> None:
    result = saving.read(made.out / "result.json")
    assert result == saving.read(made.home / "saved/digits-two-small.json")
    runs = [made.out / "two-labels/runs" / f"fedavg-seed{seed}" for seed in (0, 1)]
    clients = [json.loads((run / "clients.json").read_text()) for run in runs]
    by_hand = [one["moments"]["last"]["values"]["shared"]["test"]["accuracy"] for one in clients]
    ours = result.measured["two labels: FedAvg (shared test accuracy)"]
    assert ours.mean == pytest.approx(100 * sum(sum(values) / len(values) for values in by_hand) / 2)
    assert ours.runs == 2
    assert result.measured["two labels: FedAvg (rounds to round = 2)"].mean == 2
    two, every = ([last_row(made.out / p / "runs" / f"fedavg-seed{s}") for s in (0, 1)] for p in ("two-labels", "all"))
    assert {row["round"] for row in (*two, *every)} == {4}
    gap = sum(a["test_accuracy"] - b["test_accuracy"] for a, b in zip(every, two, strict=True)) / 2
    less = "all: FedAvg (test accuracy), less that of two labels"
    assert result.measured[less].mean == pytest.approx(100 * gap)
    for words in (
        "two labels: FedAvg (shared test accuracy)",
        "labels matter",
        "Behind the claims",
        "- two rounds",
        "small scale: ",
    ):
        assert words in made.said
    assert "One seed:" not in made.said  # there are two
    assert (made.out / "two-labels/report.html").is_file()


def test_what_was_stopped_goes_on(made: Made, tmp_path: Path) -> None:
    whole = saving.read(made.out / "result.json")
    shutil.copytree(made.home, tmp_path, dirs_exist_ok=True)
    half = tmp_path / "runs/digits-two-small"
    shutil.rmtree(half / "all/runs/localonly-seed1")  # one run never began
    (half / "result.json").unlink()
    said = type_(tmp_path)
    assert "LocalOnly, seed 1: finished at round 4" in said
    assert said.count("finished at round") == 1
    assert saving.read(half / "result.json").measured == whole.measured


def test_part_by_part(made: Made, tmp_path: Path) -> None:
    whole, out = saving.read(made.out / "result.json").measured, tmp_path / "runs/digits-two-small"
    said = type_(tmp_path, "--part", "two labels")
    assert not (out / "all").exists()
    first = saving.read(out / "result.json").measured
    assert first == {name: whole[name] for name in whole if name.startswith("two labels")}
    assert said.count("not measured") == 1  # the last line alone speaks of what did not run
    assert "3 not measured" in said
    type_(tmp_path, "--part", "all")
    second = saving.read(out / "result.json").measured
    assert second == {name: whole[name] for name in whole if "less that of" not in name}
    assert {name.split(":")[0] for name in second} == {"two labels", "all"}
    type_(tmp_path)  # all there is: what is of both parts
    assert saving.read(out / "result.json").measured == whole


def test_method_by_method(made: Made, tmp_path: Path) -> None:
    whole, out = saving.read(made.out / "result.json").measured, tmp_path / "runs/digits-two-small"
    said = type_(tmp_path, "--method", "FedAvg", "--save")
    assert said.count("finished at round 4") == 4
    assert not list(out.glob("*/runs/localonly*"))
    ours = {name: whole[name] for name in whole if "LocalOnly" not in name}
    assert saving.read(out / "result.json").measured == ours
    assert saving.read(tmp_path / "saved/digits-two-small.json").measured == ours
    said = type_(tmp_path, "--method", "LocalOnly", "--part", "all")
    assert said.count("finished at round 4") == 2
    assert saving.read(out / "result.json").measured == {n: whole[n] for n in whole if n in ours or n.startswith("all")}
    said = type_(tmp_path)  # what is left
    assert said.count("finished at round 4") == 2
    assert saving.read(out / "result.json").measured == whole


def test_a_sweep_method_by_method(tmp_path: Path) -> None:
    swept = copy.deepcopy(DIGITS)
    swept["experiment"] |= {"seeds": [0], "sweep": {"lr": [0.01, 0.1], "metric": "test_loss"}}
    swept["experiment"]["algorithm"] = [{"name": "FedAvg", "lr": 0.1}, {"name": "FedProx", "lr": 0.1, "mu": 1}]
    both = ["FedAvg", "FedProx"]
    swept |= {"figures": [{"part": "all", "values": dict.fromkeys(both, 0.0)}], "claim": [], "part": DIGITS["part"][1:]}
    one = described("digits-two", swept)
    whole, _ = carry_out(one, "small", tmp_path / "whole")
    first, _ = carry_out(one, "small", tmp_path / "parts", methods=["FedProx"])
    assert first.measured == {name: n for name, n in whole.measured.items() if "FedProx" in name}
    assert [path.name for path in (tmp_path / "parts/all/runs").iterdir()] == ["fedprox-seed0"]
    second, made = carry_out(one, "small", tmp_path / "parts", methods=["FedAvg"])
    assert second.measured == whole.measured
    assert len(whole.measured) == 2
    assert [path.name for path in made[tmp_path / "parts/all"]] == ["fedavg-seed0", "fedprox-seed0"]
    lines = [(tmp_path / home / "all/sweep.csv").read_text().splitlines() for home in ("whole", "parts")]
    without_seconds = [[line.rpartition(",")[0] for line in one] for one in lines]
    assert without_seconds[0] == without_seconds[1]


def test_what_if(made: Made, tmp_path: Path) -> None:
    changes = ("--set", "algorithm.FedAvg.lr=0.001", "--set", "rounds=2")
    said = type_(tmp_path, "--part", "all", *changes)
    assert "- Changed: algorithm.FedAvg.lr = 0.001. - Changed: rounds = 2." in said
    runs = {kind: tmp_path / f"runs/digits-two-small/all/runs/{kind}-seed0" for kind in ("fedavg", "localonly")}
    tables = {kind: json.loads((run / "experiment.json").read_text()) for kind, run in runs.items()}
    plain = json.loads((made.out / "all/runs/localonly-seed0/experiment.json").read_text())
    rates = {kind: table["algorithm"]["lr"] for kind, table in tables.items()}
    assert rates == {"fedavg": 0.001, "localonly": plain["algorithm"]["lr"]}
    assert last_row(runs["fedavg"])["round"] == 2


def test_two_of_three_methods_one_after_the_other(tmp_path: Path) -> None:
    """The third has not begun, and no report asks for it."""
    table = copy.deepcopy(DIGITS)
    rate = table["experiment"]["algorithm"][0]["lr"]
    table["experiment"]["algorithm"].append({"name": "FedProx", "lr": rate, "mu": 1})
    one = described("digits-two", table)
    for method in ("FedAvg", "FedProx"):
        _, made = carry_out(one, "small", tmp_path / "out", parts=["all"], methods=[method], seeds=1)
    found = [path.name for path in made[tmp_path / "out/all"]]
    assert found == ["fedavg-seed0", "fedprox-seed0"]


def test_a_what_if_of_one_part_may_have_a_field_that_another_lacks(tmp_path: Path) -> None:
    """The digits have no preset; the part on synthetic data has one, and runs alone."""
    table = copy.deepcopy(DIGITS)
    data = {"data": {"name": "synthetic", "preset": "0-0", "clients": 3, "max_rows": 50}}
    table["part"] = [*table["part"], {"name": "made", "set": data}]
    one = described("digits-two", table)
    set_it = {"changes": [("data.preset", "'1-1'"), ("rounds", "2")], "methods": ["FedAvg"]}
    _, made = carry_out(one, "small", tmp_path / "alone", parts=["made"], **set_it)
    run, *_ = made[tmp_path / "alone/made"]
    assert json.loads((run / "experiment.json").read_text())["data"]["preset"] == "1-1"
    with pytest.raises(FedaxError, match=r"unknown field of \[data\] 'preset'"):
        carry_out(one, "small", tmp_path / "both", **set_it)


def test_a_saved_result_keeps_its_note_and_its_other_parts(made: Made, tmp_path: Path) -> None:
    saved = tmp_path / "saved/digits-two-small.json"
    shutil.copytree(made.home, tmp_path, dirs_exist_ok=True)
    before = saving.read(saved)
    of_an_earlier_table = {**before.measured, "two labels: Gone (test accuracy)": Measured(1.0)}
    noted = dataclasses.replace(before, note="as found", measured=of_an_earlier_table)
    saved.write_text(json.dumps(noted.as_json()))
    shutil.rmtree(tmp_path / "runs")
    type_(tmp_path, "--part", "two labels", "--save")
    after = saving.read(saved)
    assert (after.measured, after.note, after.minutes) == (before.measured, "as found", None)


def test_a_result_is_kept_at_both_scales_where_they_are_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "SAVED", tmp_path)
    for name, scales in (("apfl-fig2", ["paper", "small"]), ("apfl-table2", ["small"])):
        for quantity in map(str, load(name).quantities("small")[:2]):  # one after the other
            saving.keep(load(name), saving.ReproductionResult(name, "small", {quantity: Measured(0.5)}))
        found = [saving.read(path) for path in sorted(tmp_path.glob(f"{name}-*"))]
        assert [(one.scale, len(one.measured)) for one in found] == [(scale, 2) for scale in scales]


def test_a_directory_of_something_else_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    one = described("digits-two", DIGITS)
    Path("taken").mkdir()
    Path("taken/thesis.txt").write_text("mine")
    with pytest.raises(FedaxError, match="it already holds something"):
        carry_out(one, "small", Path("taken"))
    Path("other").mkdir()
    parts = [{"part": "two labels", "table": {"rounds": 7}}]
    about = {"reproduction": "digits-two", "scale": "small", "parts": parts}
    Path("other/reproduction.json").write_text(json.dumps(about))
    with pytest.raises(FedaxError, match=r"it holds another reproduction.*parts\.0\.table\.rounds differs"):
        carry_out(one, "small", Path("other"))


# The command line


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["apfl-tabel2"], "unknown reproduction 'apfl-tabel2': did you mean 'apfl-table2'? Allowed: apfl-fig2, "),
        (["apfl-table2", "--scale", "smal"], "unknown scale 'smal': did you mean 'small'? Allowed: small, paper"),
        (
            ["apfl-fig2", "--part", "2 clases"],
            "unknown part '2 clases': did you mean '2 classes'? Allowed: 2 classes, ",
        ),
        (["apfl-fig2", "--method", "SCAFOLD"], "unknown method 'SCAFOLD': did you mean 'SCAFFOLD'? Allowed: FedAvg, "),
        (
            ["feddeper-table1", "--part", "MNIST, MLP, 5 of 10, half the steps", "--method", "FedAvg"],
            "unknown method 'FedAvg': Allowed: FedDeper*",
        ),
        (["fedac-a9a", "--method", "FedAvg"], "--method is 'FedAvg': the methods of fedac-a9a are run together"),
        (["apfl-table2", "--page", "x.md"], "--page is x.md: it is about all reproductions"),
        (["apfl-table2", "--seeds", "0"], "Invalid value for '--seeds'"),
        (["apfl-table2", "--set", "rounds"], "--set is 'rounds': it must be FIELD=VALUE"),
        (["apfl-table2", "--set", "rouns=3"], "unknown field 'rouns': did you mean 'rounds'?"),
        (
            ["apfl-table2", "--set", "algorithm.FedAvg.rl=3"],
            "algorithm.0: unknown field of FedAvg 'rl': did you mean 'lr'?",
        ),
        (["apfl-table2", "--set", "rounds=3", "--save"], "--set is 'rounds=3': a result with changed fields"),
        (["thesis-bias", "--set", "rounds=3"], "--set rounds: thesis-bias is no experiment"),
    ],
)
def test_a_mistake_is_one_sentence(words: list[str], said: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["reproduce", *words]) == 2
    err = capsys.readouterr().err
    assert err.startswith(f"error: {said}")
    assert err.count("\n") == 1


def test_the_list(capsys: pytest.CaptureFixture[str]) -> None:
    assert invoke(["reproduce"]) == 0
    said = capsys.readouterr().out
    assert all(name in said for name in ids())


def test_the_page_is_that_of_the_saved_results() -> None:
    assert (ROOT / "docs/reproductions.md").read_text() == page.page()


def test_pictures_are_those_of_the_saved_results_and_small() -> None:
    drawn = page.pictures()
    assert sorted(drawn) == [name for name in ids() if any(saving.saved(name, scale) for scale in SCALES)]
    for name, text in drawn.items():
        assert (ROOT / f"docs/reproductions/{name}.svg").read_text() == text
        assert ElementTree.fromstring(text).tag.endswith("svg")
        assert len(text) < 20_000, name


def test_the_page_counts_verdicts_and_gives_reasons() -> None:
    first = page.page().split("\n## All of them")[0]
    for scale in SCALES:
        found = [page.outcome(load(name), scale) for name in ids()]
        agree, order, rest = (found.count(kind) for kind in page.KINDS)
        assert f"**{agree} agree** with the paper, **{order} stand in its order**, **{rest} do not**" in first
    for name in ids():
        for gap in load(name).gap:
            assert gap.why in first
            assert gap.evidence or gap.known_by in ("open", "scale"), gap.what
        if not load(name).gap and "does not" in [page.outcome(load(name), scale) for scale in SCALES]:
            assert name in first.split("No reason is known yet for")[1]


def test_the_page_shows_every_number_that_was_measured() -> None:
    """Those that the paper prints beside ours, and those that its sentences are about."""
    sections = {text.split("\n", 1)[0]: text for text in page.page().split("\n## ")}
    for name in ids():
        for scale in SCALES:
            result = saving.saved(name, scale)
            asked = {str(q): q for q in load(name).quantities(scale)}
            for what in asked.keys() & ({} if result is None else result.measured):
                ours = shown(asked[what], result.measured[what])
                lines = [line for line in sections[name].splitlines() if line.startswith(f"| {what} |")]
                assert any(f"| {ours} |" in line for line in lines), (name, scale, what)


def test_saved_results_are_of_reproductions() -> None:
    for path in saving.SAVED.glob("*.json"):
        result = saving.read(path)
        assert path == saving.where(result.id, result.scale)
        assert set(result.measured) & {str(q) for q in load(result.id).quantities(result.scale)}


def test_a_result_is_read_back_as_it_was(tmp_path: Path) -> None:
    numbers = {"a": Measured(math.inf), "b": Measured(1.5, 0.25, 3), "c": Measured(2.0)}
    curves = {"2 classes": {"FedAvg": [(0.0, 0.125), (10.0, 0.9)]}}
    result = saving.ReproductionResult("apfl-fig2", "small", numbers, 2.0, {"jax": "1"}, "a note", curves)
    (tmp_path / "r.json").write_text(json.dumps(result.as_json()))
    assert saving.read(tmp_path / "r.json") == result
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(FedaxError, match=r"broken\.json is not the result of a reproduction"):
        saving.read(tmp_path / "broken.json")
