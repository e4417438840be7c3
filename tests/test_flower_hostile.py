"""One site that lies, or sends what it should not: the federation goes on, and the log names the node."""

from __future__ import annotations

import dataclasses
import json
import stat
import types

import hypothesis
import numpy as np
import pytest
from hypothesis import strategies as st

import fedax
from conftest import LEAST_SQUARES, regression, vector
from fedax.errors import FedaxError

pytest.importorskip("flwr")

from flwr.app import ConfigRecord, Message, RecordDict
from flwr.serverapp import ServerApp

from fedax.flower import Setting, client_app
from fedax.flower.hello_checks import refusal
from fedax.flower.messages import Order, answer_content, flatten, hello_content, read_answer, read_hello
from fedax.flower.network import MAX_ROWS
from fedax.flower.rows import own_rows
from fedax.flower.safe_log import LENGTH, printable
from fedax.flower.sampling import draw
from fedax.flower.server import serve
from fedax.flower.worker import Worker
from flower_fuzz import fuzzed_federation
from flower_grid import LocalGrid

WORK = {"rounds": 2, "local_steps": 2, "batch_size": 5, "seed": 3, "eval_every": 1}
SIZES = (20, 20, 20, 20)


def setting(**options):
    method = options.pop("method", fedax.FedAvg(lr=0.05))
    return Setting(LEAST_SQUARES, method, federation=regression(sizes=SIZES), eval_on=("train",), **{**WORK, **options})


def own_setting(**options):
    """Sites that bring their own rows: the server knows of them what they say."""
    return Setting(LEAST_SQUARES, fedax.FedAvg(lr=0.05), clients=4, eval_on=("train",), **{**WORK, **options})


def own_app(asked):
    shown = regression(sizes=SIZES)
    return client_app(asked, data=lambda config: shown.client(config["partition-id"]))


def run(tmp_path, asked, grid, **options):
    return serve(grid, asked, tmp_path / "run", {"round-timeout": 0.01, **options}, pause=0.0)


def log_of(tmp_path):
    return (tmp_path / "run" / "network.log").read_text()


def saying(change):
    """An app that introduces itself as `change` makes it: a table of fields, or the text itself."""

    def app(message, context):
        hello = json.loads(json.dumps(dataclasses.asdict(app.honest.hello(message.content["about"]["run"]))))
        said = change(hello)
        text = said if isinstance(said, str) else json.dumps(said)
        return Message(RecordDict({"about": ConfigRecord({"hello": text})}), reply_to=message)

    return app


LIES = {
    "a number that there is not": (lambda h: {**h, "client": 99}, "must be from 0 to 3"),
    "a number below 0": (lambda h: {**h, "client": -1}, "client: Input should be greater than or equal to 0"),
    "a number that is a word": (lambda h: {**h, "client": "0"}, "client: Input should be a valid integer"),
    "no JSON": (lambda h: "{", "cannot be read"),
    "no table": (lambda h: "[1]", "cannot be read"),
    "deep nesting": (lambda h: "[" * 100_000, "cannot be read"),
    "a missing field": (lambda h: {k: v for k, v in h.items() if k != "steps"}, "steps: Field required"),
    "steps that fill memory": (lambda h: {**h, "steps": 2_000_000_000}, "2000000000 local steps a round: it must be 2"),
    "a million million rows": (lambda h: {**h, "rows": [10**12, 0, 0]}, "rows"),
    "no rows": (lambda h: {**h, "rows": [0, 0, 0]}, "rows: it must be 1 or more"),
    "a row of a terabyte": (lambda h: {**h, "layout": {"x": [[2**20, 2**18], "float32"]}}, "a row of its data takes"),
    "a dtype of Python's": (lambda h: {**h, "layout": {"x": [[3], "object"]}}, "layout.x.1"),
    "a text of megabytes": (lambda h: {**h, "described": {"a": "b" * 2**21}}, "at most 1048576 characters"),
}


@pytest.mark.parametrize("lie", LIES)
def test_a_node_that_lies_of_itself_is_left_out(tmp_path, lie):
    change, why = LIES[lie]
    asked = own_setting(cohort=3)
    grid = LocalGrid(tmp_path, own_app(asked), 3)
    app = saying(change)
    app.honest = Worker(asked, 3, own_rows(asked, 3, lambda c: regression(sizes=SIZES).client(3), {}), tmp_path / "w")
    node = grid.join(3, app)
    ours = run(tmp_path, asked, grid)
    assert ours.info["rounds"] == 2
    (line,) = [line for line in log_of(tmp_path).splitlines() if f"node {node}" in line]
    assert why in line


NUMBERS = st.integers() | st.integers(0, 8) | st.sampled_from([2**31, 2**40, 2_000_000_000])
JSON = st.recursive(
    st.none()
    | st.booleans()
    | NUMBERS
    | st.floats()
    | st.text(max_size=20)
    | st.sampled_from(["float32", "int8", "O"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
FIELDS = ("client", "rows", "steps", "layout", "fingerprint", "described", "proof", "unknown")
LAYOUTS = st.fixed_dictionaries({"layout": st.dictionaries(st.text(max_size=5), st.tuples(st.lists(NUMBERS), JSON))})
ROWS = st.fixed_dictionaries({"rows": st.lists(NUMBERS, min_size=3, max_size=3)})


@hypothesis.settings(max_examples=400, deadline=None, derandomize=True)
@hypothesis.given(changed=st.dictionaries(st.sampled_from(FIELDS), JSON, min_size=1) | LAYOUTS | ROWS)
def test_whatever_an_introduction_holds_it_is_refused_or_can_be_true(changed):
    """Drawn against the schema: what passes is what an honest site could say, whatever the other fields hold."""
    asked = own_setting()
    honest = {"client": 0, "rows": [16, 0, 4], "steps": 2, "layout": {"x": [[6], "float32"], "y": [[], "float32"]}}
    honest |= {"fingerprint": asked.fingerprint, "described": dict(asked.described), "proof": ""}
    content = RecordDict({"about": ConfigRecord({"hello": json.dumps({**honest, **changed})})})
    try:
        hello = read_hello(types.SimpleNamespace(content=content, has_error=lambda: False))
        why = refusal(asked, hello, MAX_ROWS)
    except FedaxError as error:
        why = str(error)
    if why:
        assert printable(why).isprintable()
        return
    assert 0 <= hello.client < 4
    assert 1 <= hello.rows[0] <= MAX_ROWS
    assert all(0 <= rows <= MAX_ROWS for rows in hello.rows)
    assert (hello.steps, hello.fingerprint) == (2, asked.fingerprint)
    assert sum(4 * int(np.prod(shape, dtype=object)) for shape, _ in hello.layout.values()) <= 4 * 2**28


def test_a_field_more_is_passed_over(tmp_path):
    asked = own_setting()
    grid = LocalGrid(tmp_path, own_app(asked), 3)
    app, honest = saying(lambda hello: {**hello, "colour": "green"}), own_app(asked)
    app.honest = Worker(asked, 3, own_rows(asked, 3, lambda c: regression(sizes=SIZES).client(3), {}), tmp_path / "w")
    grid.join(3, lambda m, c: (app if m.metadata.message_type == "query" else honest)(m, c))
    run(tmp_path, asked, grid)
    assert "round 2: 4 answers, clients 0, 1, 2, 3" in log_of(tmp_path)


def test_a_number_belongs_to_the_site_that_had_it_first(tmp_path):
    """Another site, with a secret of its own, greets as client 0 in the midst of a run, and again after a restart."""
    asked = own_setting(rounds=4)
    grid = LocalGrid(tmp_path, own_app(asked), 4)
    thieves = []

    def steal(message, node):
        if message.metadata.message_type == "train" and len(thieves) < 1:
            thieves.append(grid.join(0, states="thief"))
        return "kept"

    grid.lose = steal
    run(tmp_path, asked, grid)
    log = log_of(tmp_path)
    assert f"node {thieves[0]} (client 0) is refused: client 0 belongs to the site that had this number first" in log
    assert "no longer node" not in log
    assert not any("broadcast" in content for node, content in grid.log if node == thieves[0])
    owners = json.loads((tmp_path / "run" / "network.json").read_text())["owners"]
    assert sorted(owners) == ["0", "1", "2", "3"]
    secret = (tmp_path / "states" / "client-0.secret").read_bytes()
    assert all(secret.hex() not in mark for marks in owners.values() for mark in marks)


def test_the_first_to_come_does_not_decide_what_rows_are_like(tmp_path):
    asked = own_setting(cohort=2)
    grid = LocalGrid(tmp_path, own_app(asked), 0)
    odd = client_app(asked, data=lambda config: {"x": np.ones((20, 6), np.float32), "y": np.ones((20, 1), np.float32)})
    first = grid.join(3, odd)
    for client in range(3):
        grid.join(client)
    assert run(tmp_path, asked, grid).info["rounds"] == 2
    assert f"client 3 (node {first}) is left out: its rows are" in log_of(tmp_path)


@pytest.mark.parametrize("factor", [None, 0.0])
def test_an_upload_far_above_the_others_does_not_count(tmp_path, factor):
    asked = setting(eval_every=9)
    grid = LocalGrid(tmp_path, client_app(asked), 4)

    def lengthen(node, reply):
        if "upload" in reply.content and grid.client_of(node) == 2:
            answer = read_answer(reply)
            longer = {name: 1000 * array for name, array in answer.upload.items()}
            reply.content["upload"] = answer_content(dataclasses.replace(answer, upload=longer))["upload"]

    grid.tamper = lengthen
    options = {} if factor is None else {"norm-factor": factor}
    ours = run(tmp_path, asked, grid, **options)
    left_out = log_of(tmp_path).count("client 2 (node 102) is left out: the norm of its upload is")
    assert left_out == (2 if factor is None else 0)
    plain = fedax.simulate(LEAST_SQUARES, asked.federation, asked.algorithm, **WORK)
    near = np.linalg.norm(vector(ours.model) - vector(plain.model)) < np.linalg.norm(vector(plain.model))
    assert near == (factor is None)


def test_text_of_a_site_stays_on_one_line_and_shows_its_controls(tmp_path):
    asked = setting(rounds=1)
    grid = LocalGrid(tmp_path, client_app(asked), 4)

    def note(node, reply):
        if "upload" in reply.content and grid.client_of(node) == 2:
            reply.content["about"]["note"] = "fine\n2026-01-01 00:00:00 INFO finished\x1b[2J\x07\u202e" + "x" * 10**6

    grid.tamper = note
    run(tmp_path, asked, grid)
    text = log_of(tmp_path)
    assert all(c.isprintable() or c == "\n" for c in text)
    (line,) = [line for line in text.splitlines() if "fine" in line]
    assert r"fine\n2026-01-01 00:00:00 INFO finished\x1b[2J\x07\u202e" in line
    assert len(line) < LENGTH + 200
    assert printable("plain") == "plain"


@pytest.mark.parametrize(
    ("error", "status"), [(RuntimeError("a\x1b[2Jb"), "failed"), (KeyboardInterrupt(), "interrupted")]
)
def test_a_server_that_stops_says_so(tmp_path, error, status):
    asked = setting()

    def fail(message, node):
        if message.metadata.message_type == "train":
            raise error
        return "kept"

    with pytest.raises(type(error)):
        run(tmp_path, asked, LocalGrid(tmp_path, client_app(asked), 4, fail))
    said = json.loads((tmp_path / "run" / "status.json").read_text())
    assert said["status"] == status
    words = r"unexpected RuntimeError: a\x1b[2Jb" if status == "failed" else "the server was stopped"
    assert words in said["message"]
    assert words in log_of(tmp_path)


@pytest.mark.parametrize("name", ["../../escape", "/tmp/escape", "..", "a/b", "", ".hidden", "a\x00b", "x" * 200])
def test_a_run_s_name_stays_within_the_folder_of_states(tmp_path, name):
    asked = setting(method=fedax.SCAFFOLD(lr=0.05))
    worker = Worker(asked, 0, own_rows(asked, 0, None, {}), tmp_path / "states")
    sent = flatten(asked.algorithm.broadcast(asked.algorithm.init(worker.x0)))
    order = Order(name, 1, 0, 0, 2, asked.fingerprint, broadcast=sent)
    with pytest.raises(FedaxError, match="the order's run is"):
        worker.carry_out(order)
    assert not list(tmp_path.rglob("*.bin"))


def test_an_experiment_s_name_may_be_anything(tmp_path):
    asked = setting(method=fedax.SCAFFOLD(lr=0.05), name="../Étude / 1")
    assert run(tmp_path, asked, LocalGrid(tmp_path, client_app(asked), 4)).info["rounds"] == 2


def test_states_are_for_their_owner_alone(tmp_path):
    asked = setting(method=fedax.APFL(lr=0.05))
    run(tmp_path, asked, LocalGrid(tmp_path, client_app(asked), 4))
    found = list((tmp_path / "states").rglob("*"))
    assert {"state.bin", "model.safetensors", "client-0.secret"} <= {path.name for path in found}
    modes = {path: stat.S_IMODE(path.stat().st_mode) for path in [tmp_path / "states", *found]}
    assert all(mode == (0o700 if path.is_dir() else 0o600) for path, mode in modes.items()), modes


def test_a_round_never_has_more_than_its_cohort(tmp_path):
    """One of two clients is lost, and two who come before them in the draw connect: the answer that came is left."""
    asked = setting(rounds=1, cohort=2)
    first, second, third = draw(asked.seed, 0, 4, 3, range(4))
    (fourth,) = {*range(4)} - {first, second, third}
    grid = LocalGrid(tmp_path, client_app(asked), 0)
    grid.join(third)
    lost = grid.join(fourth)

    def lose(message, node):
        if message.metadata.message_type != "train" or node != lost:
            return "kept"
        grid.join(first)
        grid.join(second)
        return "lost"

    grid.lose = lose
    run(tmp_path, asked, grid, **{"min-answers": 2})
    assert f"round 1: 2 answers, clients {min(first, second)}, {max(first, second)}" in log_of(tmp_path)


def test_metrics_of_rows_that_a_site_does_not_have_do_not_count(tmp_path):
    """No site has rows for tests: the history has no such column, and all of its numbers are finite."""
    asked = own_setting(cohort=2)
    grid = LocalGrid(tmp_path, own_app(asked), 3)

    def claim(node, reply):
        if "metrics" in reply.content:
            reply.content["metrics"]["test.loss"] = 1e30
        elif "hello" in reply.content["about"]:
            hello = json.loads(reply.content["about"]["hello"])
            reply.content["about"]["hello"] = json.dumps({**hello, "rows": [hello["rows"][0], 0, 0]})

    grid.tamper = claim
    last = run(tmp_path, asked, grid).history[-1]
    assert np.isfinite(list(last.values())).all()
    assert not any(name.startswith("test") for name in last)


def test_a_thousand_fuzzed_messages_stop_no_server(tmp_path):
    """benchmarks/fuzzed_messages.py does a hundred thousand."""
    found = fuzzed_federation(tmp_path, rounds=5, honest=150, hostile=100, seed=0)
    assert found["fuzzed"] >= 1000
    assert found["status"] == "finished"
    assert found["left_out"] > 300  # of the rest some were harmless: a field more, a metric less


def test_the_app_is_one_of_flower():
    assert isinstance(fedax.flower.server_app("experiment.toml"), ServerApp)


def test_the_introduction_survives_the_wire(tmp_path):
    asked = own_setting()
    worker = Worker(asked, 3, own_rows(asked, 3, lambda c: regression(sizes=SIZES).client(3), {}), tmp_path)
    first, again, other = worker.hello("a"), worker.hello("a"), worker.hello("b")
    assert first.proof == again.proof != other.proof
    assert len(hello_content(first)["about"]["hello"]) > 100
