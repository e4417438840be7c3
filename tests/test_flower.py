"""The methods over Flower are those of the simulation, and a network's accidents do not change what they compute."""

from __future__ import annotations

import dataclasses
import itertools
import json
import stat

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from sklearn.metrics import roc_auc_score

import fedax
from by_hand import by_hand
from conftest import LEAST_SQUARES, regression, vector
from fedax.errors import FedaxError
from fedax.regularizers import L1

pytest.importorskip("flwr")

from flwr.app import Message
from flwr.cli.config_utils import load_and_validate
from flwr.supercore.task_identity import TaskIdentity

from fedax.algorithms.base import algorithm
from fedax.cli import invoke
from fedax.flower import Setting, client_app
from fedax.flower.agreement import setting_of
from fedax.flower.client_state import NAMES
from fedax.flower.messages import Answer, Order, answer_content, flatten, read_answer, read_order, unflatten
from fedax.flower.privacy_settings import Privacy
from fedax.flower.rows import from_loader, own_rows
from fedax.flower.server import serve
from fedax.flower.worker import Worker
from fedax.privacy.accounting import secret_epsilon
from fedax.privacy.secret_cohorts import secret_draw
from fedax.runs.files import write_whole
from flower_grid import LocalGrid

SPARSE = fedax.Problem(loss=LEAST_SQUARES._batch_loss, init=LEAST_SQUARES._init, regularizer=L1(0.05))
METHODS = {
    "FedAvg": (LEAST_SQUARES, fedax.FedAvg(lr=0.05)),
    "SCAFFOLD": (LEAST_SQUARES, fedax.SCAFFOLD(lr=0.05)),
    "FedSpeed": (LEAST_SQUARES, fedax.FedSpeed(lr=0.05, lam=1.0)),
    "FedDualAvg": (SPARSE, fedax.FedDualAvg(lr=0.05)),
    "APFL": (LEAST_SQUARES, fedax.APFL(lr=0.05)),
    "PFedFBE": (SPARSE, fedax.PFedFBE(lr=0.02, lam=5.0)),
}
EQUAL, UNEQUAL = (20, 20, 20, 20), (12, 30, 21, 9)
WORK = {"rounds": 4, "cohort": 3, "local_steps": 2, "batch_size": 5, "seed": 3, "eval_every": 2}


def setting(name, sizes=EQUAL, **options):
    problem, method = METHODS[name] if isinstance(name, str) else (LEAST_SQUARES, name)
    return Setting(problem, method, federation=regression(sizes=sizes), eval_on=("train",), **{**WORK, **options})


def run(tmp_path, asked, grid=None, **options):
    grid = grid or LocalGrid(tmp_path, client_app(asked), asked.clients)
    return serve(grid, asked, tmp_path / "run", {"round-timeout": 0.01, **options}, pause=0.0)


def log_of(tmp_path):
    return (tmp_path / "run" / "network.log").read_text()


def close(a, b):
    np.testing.assert_allclose(vector(a), vector(b), rtol=1e-5, atol=1e-7)


def simulated(asked):
    work = {name: getattr(asked, name) for name in (*WORK, "local_epochs", "weighted", "availability")}
    return fedax.simulate(asked.problem, asked.federation, asked.algorithm, eval_on=["train"], **work)


@pytest.mark.parametrize("name", ["SCAFFOLD", "APFL"])
def test_patience_ends_a_run_where_the_simulation_ends(tmp_path, name):
    """With the last model that was evaluated: what clients have sent since is not used."""
    rng = np.random.default_rng(0)
    rows = [{"x": rng.normal(size=(12, 6)), "y": rng.normal(size=12)} for _ in range(3)]  # noise: soon overfitted
    data = fedax.Federation.from_clients(rows, split=(0.4, 0.4, 0.2))
    method = getattr(fedax, name)(lr=0.05)
    work = {"rounds": 300, "eval_every": 5, "patience": 3, "seed": 2, "stop_by": "loss"}
    asked = Setting(LEAST_SQUARES, method, federation=data, eval_on=("validation",), **work)
    result = serve(LocalGrid(tmp_path, client_app(asked), 3), asked, tmp_path / "run", {}, pause=0.0)
    whole = fedax.simulate(LEAST_SQUARES, data, method, eval_on=("validation",), **work)
    assert result.info["stopped"] == whole.info["stopped"]
    assert result.info["rounds"] == whole.info["rounds"] < 300
    np.testing.assert_allclose(vector(result.model), vector(whole.model), rtol=1e-5, atol=1e-6)
    assert "has not improved since" in json.loads((tmp_path / "run" / "status.json").read_text())["message"]
    if method.personalised:
        own = fedax.load(next((tmp_path / "states").glob("*/client-1/own"))).model
        np.testing.assert_allclose(vector(own), vector(whole.personal(1)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["FedAvg", "SCAFFOLD"])
def test_clients_that_are_there_sometimes_are_those_of_the_simulation(tmp_path, name):
    """Chain, drop-outs and slow clients are functions of (seed, round), over a network as simulated."""
    availability = fedax.Availability(leave=0.4, come=0.4, drop_out=0.3, slow=0.5, speed=0.5)
    asked = setting(name, availability=availability, rounds=8, eval_every=1)
    ours, theirs = run(tmp_path, asked), simulated(asked)
    close(ours.model, theirs.model)
    moved = [row["floats_up"] for row in theirs.history]
    assert [row["floats_up"] for row in ours.history] == moved
    assert len({b - a for a, b in itertools.pairwise(moved)}) > 1, "the cohorts differ in size"


@pytest.mark.parametrize("name", METHODS)
def test_a_run_over_flower_is_the_simulated_one(tmp_path, name):
    asked = setting(name)
    ours, theirs = run(tmp_path, asked), simulated(asked)
    close(ours.model, theirs.model)
    for here, there in zip(ours.history, theirs.history, strict=True):
        for key in here.keys() - {"seconds"}:
            assert here[key] == pytest.approx(there[key], rel=1e-4, abs=1e-6), key
    if asked.algorithm.personalised:
        for client in range(asked.clients):
            (own,) = tmp_path.glob(f"states/*/client-{client}/own")
            close(fedax.load(own).model, theirs.personal(client))


def test_the_statistics_of_a_metric_travel_and_come_to_the_simulated_value(tmp_path):
    rng = np.random.default_rng(0)
    clients = []
    for rows in UNEQUAL:
        y = rng.integers(0, 2, rows)
        clients.append({"x": (rng.normal(size=(rows, 3)) + y[:, None]).astype(np.float32), "y": y})
    clients[3]["y"][:] = 1  # of one class: its own auc has no meaning, and its rows count all the same
    problem = fedax.Problem(
        (lambda key, x: jnp.ones((3, 1)) / 9, lambda w, x: x @ w), loss="logistic", metrics=["auc", "calibration_error"]
    )
    method = fedax.Ditto(lr=0.05, lam=0.1)
    asked = Setting(problem, method, federation=fedax.Federation.from_clients(clients), eval_on=("train",), **WORK)
    ours, theirs = run(tmp_path, asked), simulated(asked)
    for here, there in zip(ours.history, theirs.history, strict=True):
        for name in ("auc", "calibration_error"):
            for key in (f"{own}train_{name}{over}" for own in ("", "personal_") for over in ("", "_mean", "_worst")):
                assert here[key] == pytest.approx(there[key], rel=1e-6), key
    odds = np.concatenate([one["x"] @ np.asarray(ours.model) for one in clients])[:, 0]
    right = np.concatenate([one["y"] for one in clients])
    assert ours.history[-1]["train_auc"] == pytest.approx(roc_auc_score(right, odds), abs=5e-3)


def test_the_shared_model_alone_may_be_evaluated(tmp_path):
    both, shared = setting("APFL"), setting("APFL", personal=False)
    full, ours = run(tmp_path / "both", both), run(tmp_path / "shared", shared)
    assert any(key.startswith("personal_") for key in full.history[-1])
    assert ours.history[-1].keys() == {key for key in full.history[-1] if not key.startswith("personal_")}
    close(ours.model, full.model)
    assert len(list((tmp_path / "shared").glob("states/*/client-*/own"))) == shared.clients  # kept all the same
    with pytest.raises(fedax.FedaxError, match="has no shared model to evaluate"):
        setting(fedax.LocalOnly(lr=0.1), personal=False)


def test_clients_of_unequal_size_and_work(tmp_path):
    asked = setting("SCAFFOLD", UNEQUAL, local_steps=None, local_epochs=1, weighted=True, rounds=3)
    close(run(tmp_path, asked).model, simulated(asked).model)


LOST = {(0, 1): "lost", (1, 2): "unheard", (1, 0): "lost", (2, 2): "unheard"}  # (round, client)


@pytest.mark.parametrize("name", ["SCAFFOLD", "FedSpeed"])
def test_an_upload_that_was_not_heard_leaves_no_trace(tmp_path, name):
    asked = setting(name, cohort=4, eval_every=9)

    def lose(message, node):
        order = read_order(message) if message.metadata.message_type == "train" else None
        return "kept" if order is None else LOST.get((order.round, grid.client_of(node)), "kept")

    grid = LocalGrid(tmp_path, client_app(asked), asked.clients, lose)
    ours = run(tmp_path, asked, grid)
    cohorts = [[i for i in range(4) if (r, i) not in LOST] for r in range(asked.rounds)]
    close(ours.model, by_hand(asked, cohorts))
    assert "round 2: client 0 did not answer" in log_of(tmp_path)


def test_a_method_that_needs_all_waits_for_all(tmp_path):
    @algorithm
    class Whole(fedax.SCAFFOLD):
        needs_all = True

    asked = setting(Whole(lr=0.05), cohort=4)
    seen = {}

    def lose(message, node):
        if message.metadata.message_type != "train":
            return "kept"
        key = read_order(message).round, grid.client_of(node)
        seen[key] = seen.get(key, 0) + 1
        return LOST.get(key, "kept") if seen[key] == 1 else "kept"

    grid = LocalGrid(tmp_path, client_app(asked), asked.clients, lose)
    close(run(tmp_path, asked, grid).model, simulated(setting("SCAFFOLD", cohort=4)).model)
    assert {key for key, times in seen.items() if times == 2} == set(LOST)


class Killed(BaseException):
    """The server is killed."""


@pytest.mark.parametrize("damage", [False, True])
def test_a_server_that_is_killed_goes_on(tmp_path, damage):
    """Clients have worked on the round that the server did not live to use; with damage, on one that it forgot, too."""
    asked = setting("SCAFFOLD", cohort=4)

    def kill(message, node):
        if message.metadata.message_type == "train" and read_order(message).round == 2 and grid.client_of(node) == 3:
            raise Killed
        return "kept"

    grid = LocalGrid(tmp_path, client_app(asked), asked.clients, kill)
    with pytest.raises(Killed):
        run(tmp_path, asked, grid)
    grid.lose = lambda message, node: "kept"
    if damage:
        newest = max((tmp_path / "run" / "checkpoints").glob("*.ckpt"))
        newest.write_bytes(newest.read_bytes()[:-1] + b"?")
    ours, theirs = run(tmp_path, asked, grid), simulated(asked)
    close(ours.model, theirs.model)
    assert [row["round"] for row in ours.history] == [row["round"] for row in theirs.history]
    assert f"goes on after round {1 if damage else 2}" in log_of(tmp_path)
    with pytest.raises(FedaxError, match="holds a run that has finished"):
        run(tmp_path, asked, grid)


def test_a_client_comes_back_on_another_node_with_its_state(tmp_path):
    asked = setting("SCAFFOLD", cohort=4)
    moved = []

    def move(message, node):
        if message.metadata.message_type == "train" and read_order(message).round == 2 and not moved:
            moved.append(grid.client_of(node))
            del grid.nodes[node]
            grid.join(moved[0])
            return "lost"
        return "kept"

    grid = LocalGrid(tmp_path, client_app(asked), asked.clients, move)
    close(run(tmp_path, asked, grid, **{"round-timeout": 60}).model, simulated(asked).model)
    assert f"client {moved[0]} is back" in log_of(tmp_path)


@pytest.mark.parametrize("both", [False, True])
def test_a_damaged_state(tmp_path, both):
    asked = setting("SCAFFOLD", cohort=4)

    def damage(message, node):
        if message.metadata.message_type == "train" and read_order(message).round == 2 and grid.client_of(node) == 1:
            for name in NAMES[: 1 + both]:
                (path,) = tmp_path.glob(f"states/*/client-1/{name}")
                path.write_bytes(path.read_bytes()[:-1] + b"?")
        return "kept"

    grid = LocalGrid(tmp_path, client_app(asked), asked.clients, damage)
    ours, theirs = run(tmp_path, asked, grid), simulated(asked)
    assert "state.bin is damaged and left out" in log_of(tmp_path)
    if both:
        assert "client 1 lost its state of round 2 and starts from its first one" in log_of(tmp_path)
        assert not np.allclose(vector(ours.model), vector(theirs.model), rtol=1e-5)
    else:
        close(ours.model, theirs.model)


def test_a_note_that_was_not_heard_is_said_again(tmp_path):
    """The answer that told of the damage came too late: the next one tells of it, and none after that."""
    asked = setting("SCAFFOLD", cohort=4, eval_every=9)

    def damage(message, node):
        if message.metadata.message_type != "train" or grid.client_of(node) != 1 or read_order(message).round != 1:
            return "kept"
        (path,) = tmp_path.glob("states/*/client-1/state.bin")
        path.write_bytes(path.read_bytes()[:-1] + b"?")
        return "unheard"

    grid = LocalGrid(tmp_path, client_app(asked), asked.clients, damage)
    run(tmp_path, asked, grid)
    told = [line for line in log_of(tmp_path).splitlines() if "round " in line and "state.bin is damaged" in line]
    assert len(told) == 1
    assert "round 3: client 1" in told[0]


def test_an_order_that_was_overtaken_is_refused(tmp_path):
    asked = setting("SCAFFOLD")
    worker = Worker(asked, 0, own_rows(asked, 0, None, {}), tmp_path)
    sent = flatten(asked.algorithm.broadcast(asked.algorithm.init(worker.x0)))
    order = Order("run", 1, 3, 0, 2, asked.fingerprint, broadcast=sent)
    assert worker.carry_out(order).upload
    late = worker.carry_out(dataclasses.replace(order, round=2))
    assert late.upload is None
    assert late.refused == "the order of round 3 came after that of round 4"
    assert worker.carry_out(dataclasses.replace(order, start=2, round=2)).upload, "a server that went back a round"


def test_the_wire_carries_what_the_paper_says(tmp_path):
    asked = setting("SCAFFOLD", cohort=4, rounds=1, eval_every=1)
    grid = LocalGrid(tmp_path, client_app(asked), asked.clients)
    run(tmp_path, asked, grid)
    down = [content for _, content in grid.log if "broadcast" in content]
    assert len(down) == 4
    d = 2 * 6  # floats: x and c
    assert all(sum(len(a.data) for a in content["broadcast"].values()) == 4 * d for content in down)
    assert all(set(content) <= {"about", "broadcast", "model"} for _, content in grid.log)
    up = [content for content in grid.answered if "upload" in content]
    assert all(set(content) == {"about", "metrics", "upload"} for content in up)
    assert all(sum(len(a.data) for a in content["upload"].values()) == 4 * d for content in up)


def test_every_dtype_survives_the_wire():
    tree = {"a": jnp.ones((2, 0, 3), jnp.bfloat16), "b": jnp.float16(1.5), "c": jnp.arange(3.0)[::-1]}
    TaskIdentity.run_id, TaskIdentity.node_id, TaskIdentity.task_id = 1, 1, 1
    content = answer_content(Answer(flatten(tree), {"test.loss": 0.5}))
    answer = read_answer(Message(content, 1, "train"))
    again = unflatten(answer.upload, tree)
    assert jax.tree.map(lambda a: (a.dtype, a.shape), again) == jax.tree.map(lambda a: (a.dtype, a.shape), tree)
    assert jax.tree.all(jax.tree.map(lambda a, b: bool(jnp.array_equal(a, b)), again, tree))


def rows(columns=6):
    rng = np.random.default_rng(0)
    return {"x": rng.normal(size=(20, columns)).astype(np.float32), "y": rng.normal(size=20).astype(np.float32)}


def test_clients_that_bring_their_own_rows(tmp_path):
    """The server has no data: it learns the layout of a row from the clients, and the sizes."""
    problem, method = METHODS["FedAvg"]
    shown = regression(sizes=EQUAL)
    asked = Setting(problem, method, clients=4, eval_on=("train",), **WORK)
    app = client_app(asked, data=lambda config: shown.client(config["partition-id"]))
    ours = run(tmp_path, asked, LocalGrid(tmp_path, app, 4))
    close(ours.model, simulated(setting("FedAvg")).model)


def test_another_experiment_is_refused_with_both_fingerprints(tmp_path):
    asked, other = setting("FedAvg", rounds=1), setting("FedAvg", rounds=1, seed=4)
    grid = LocalGrid(tmp_path, client_app(asked), asked.clients)
    stranger = grid.join(3, client_app(other))
    run(tmp_path, asked, grid)
    line = next(line for line in log_of(tmp_path).splitlines() if f"node {stranger}" in line)
    assert asked.fingerprint in line
    assert other.fingerprint in line
    assert line.endswith("seed is 4 there and 3 here")


CENTRE = fedax.Problem(loss=lambda w, b: jnp.mean((b["x"] - w) ** 2), init=lambda key: jnp.zeros(()))


@pytest.mark.parametrize(
    ("problem", "why"),
    [
        (LEAST_SQUARES, "is left out: the problem does not take rows of x float32[7], y float32[]: "),
        (CENTRE, "is left out: its rows are x float32[7], y float32[] and those of the others x float32[6]"),
    ],
)
def test_rows_of_another_shape_are_refused(tmp_path, problem, why):
    asked = Setting(problem, fedax.FedAvg(lr=0.05), clients=3, rounds=1, cohort=2, eval_on=("train",))
    good, bad = (client_app(asked, data=lambda config, n=n: rows(n)) for n in (6, 7))
    grid = LocalGrid(tmp_path, good, 2)
    grid.join(2, bad)
    run(tmp_path, asked, grid)
    assert why in log_of(tmp_path)


@pytest.mark.parametrize(
    ("loaded", "why"),
    [
        ({"x": np.ones((3, 2)), "y": np.ones(2)}, "the lengths|rows"),
        ({"train": {"x": np.ones((3, 2))}, "best": {}}, "the parts train, best"),
        ({"test": {"x": np.ones((3, 2))}}, "the parts test"),
        (None, "returned a NoneType"),
    ],
)
def test_a_loader_that_is_wrong_says_so(loaded, why):
    with pytest.raises(FedaxError, match=why):
        from_loader(loaded)


def test_a_full_disk_stops_the_client_and_not_the_run(tmp_path, monkeypatch):
    asked = setting("SCAFFOLD", cohort=4, rounds=2)

    def full(path, content):
        if "client-2" in str(path):
            raise OSError(28, "No space left on device")
        return write_whole(path, content)

    monkeypatch.setattr("fedax.flower.client_state.write_private", full)
    ours = run(tmp_path, asked)
    close(ours.model, by_hand(asked, [[0, 1, 3]] * 2))
    assert "the client's state cannot be written" in log_of(tmp_path)
    assert "no space left on device" in log_of(tmp_path)


def test_a_full_disk_stops_the_server_and_it_goes_on_when_there_is_room(tmp_path, monkeypatch):
    asked = setting("SCAFFOLD", cohort=4)

    def full(path, content):
        if path.name == "round-00000002.ckpt":
            raise OSError(28, "No space left on device")
        return write_whole(path, content)

    grid = LocalGrid(tmp_path, client_app(asked), asked.clients)
    with monkeypatch.context() as patch:
        patch.setattr("fedax.flower.server_folder.write_whole", full)
        with pytest.raises(FedaxError, match="run', which cannot be written: no space left on device"):
            run(tmp_path, asked, grid)
    close(run(tmp_path, asked, grid).model, simulated(asked).model)


def test_an_upload_that_the_guard_rejects_is_not_used(tmp_path):
    asked = setting("SCAFFOLD", cohort=4, rounds=2, eval_every=9)
    grid = LocalGrid(tmp_path, client_app(asked), asked.clients)
    poisoned = []

    def poison(node, reply):
        if "upload" in reply.content and grid.client_of(node) == 2:
            answer = read_answer(reply)
            bad = answer_content(dataclasses.replace(answer, upload={k: a * np.nan for k, a in answer.upload.items()}))
            reply.content["upload"] = bad["upload"]
            poisoned.append(node)

    grid.tamper = poison
    close(run(tmp_path, asked, grid).model, by_hand(asked, [[0, 1, 3]] * 2))
    assert f"client 2 (node {poisoned[0]}) is left out" in log_of(tmp_path)


def test_clipping_and_noise(tmp_path):
    """A bound that nothing reaches changes nothing; one that all exceed makes a FedAvg round a step of that length."""
    shown = regression(sizes=(20,)).client(0)
    app = lambda asked: client_app(asked, data=lambda config: shown)  # noqa: E731
    asked = Setting(LEAST_SQUARES, fedax.FedAvg(lr=0.05), clients=4, **{**WORK, "rounds": 1, "batch_size": None})
    models = {}
    for clip, noise in ((None, 0.0), (100.0, 0.0), (1e-3, 0.0), (1e-3, 1.0)):
        private = dataclasses.replace(asked, privacy=None if clip is None else Privacy(clip=clip, noise=noise))
        out = tmp_path / f"{clip}-{noise}"
        models[clip, noise] = run(out, private, LocalGrid(out, app(private), 4))
    close(models[100.0, 0.0].model, models[None, 0.0].model)
    assert np.linalg.norm(vector(models[1e-3, 0.0].model)) == pytest.approx(1e-3, rel=1e-5), "clients agree"
    assert not np.allclose(vector(models[1e-3, 1.0].model), vector(models[1e-3, 0.0].model))
    assert 0 < models[1e-3, 1.0].info["epsilon"] < np.inf


def test_secret_cohorts_are_drawn_by_a_secret_that_outlives_a_kill(tmp_path):
    """Nobody but the server's folder can tell who takes part, and epsilon is that of such cohorts."""
    private = Privacy(clip=1.0, noise=2.0, cohorts="secret")
    asked = dataclasses.replace(setting("FedAvg", cohort=2), privacy=private)
    trained = {}

    def note(message, node):
        if message.metadata.message_type == "train" and "broadcast" in message.content:
            round = read_order(message).round
            if round == 2 and not secrets:
                raise Killed
            trained.setdefault(round, set()).add(grid.client_of(node))
        return "kept"

    secrets = []
    grid = LocalGrid(tmp_path, client_app(asked), asked.clients, note)
    with pytest.raises(Killed):
        run(tmp_path, asked, grid)
    path = tmp_path / "run" / "cohorts.secret"
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    secrets.append(path.read_bytes())
    result = run(tmp_path, asked, grid)
    assert trained == {round: set(secret_draw(secrets[0], round, 2, range(4))) for round in range(4)}
    assert result.info["epsilon"] == secret_epsilon(2.0, private.delta, 4, 2, 4)
    assert not path.exists()
    assert "round 4: 2 answers" in log_of(tmp_path)
    assert "answers, clients" not in log_of(tmp_path)


def test_a_client_that_does_not_clip_is_clipped_by_the_server(tmp_path):
    """Four clients of one mind: what one of them sends a thousand times as long counts as what the others send."""
    shown = regression(sizes=(20,)).client(0)
    asked = Setting(LEAST_SQUARES, fedax.FedAvg(lr=0.05), clients=4, **{**WORK, "rounds": 1, "batch_size": None})
    private = dataclasses.replace(asked, privacy=Privacy(clip=1e-3, noise=0.0))
    grids = [LocalGrid(tmp_path / name, client_app(private, data=lambda config: shown), 4) for name in ("a", "b")]
    longest = []

    def lengthen(node, reply):
        if "upload" in reply.content and grids[1].client_of(node) == 2:
            answer = read_answer(reply)
            longer = {k: 1000 * a for k, a in answer.upload.items()}
            longest.append(np.sqrt(sum(np.sum(np.square(a)) for a in longer.values())))
            reply.content["upload"] = answer_content(dataclasses.replace(answer, upload=longer))["upload"]

    grids[1].tamper = lengthen
    honest, tampered = (run(tmp_path / name, private, grid) for name, grid in zip("ab", grids, strict=True))
    assert longest == [pytest.approx(1.0, rel=1e-4)]
    close(tampered.model, honest.model)


@pytest.mark.parametrize("weighted", [False, True])
def test_secure_aggregation(tmp_path, weighted):
    """The model is that of plain uploads up to the fixed-point numbers, of which no reply shows one."""
    sizes = UNEQUAL if weighted else EQUAL
    asked = setting("SCAFFOLD", sizes, cohort=4, rounds=2, weighted=weighted, secure=8.0)
    grid = LocalGrid(tmp_path, client_app(asked), asked.clients)
    ours = run(tmp_path, asked, grid, **{"round-timeout": 5.0})
    theirs = simulated(setting("SCAFFOLD", sizes, cohort=4, rounds=2, weighted=weighted))
    np.testing.assert_allclose(vector(ours.model), vector(theirs.model), atol=1e-6)
    assert ours.history[-1]["train_loss"] == pytest.approx(theirs.history[-1]["train_loss"], rel=1e-4)
    assert not any("upload" in content for content in grid.answered)


def test_a_client_that_is_lost_under_secure_aggregation_leaves_no_trace(tmp_path):
    asked = setting("SCAFFOLD", cohort=4, rounds=2, eval_every=9, secure=8.0)
    lost = lambda message, node: "lost" if "broadcast" in message.content and grid.client_of(node) == 2 else "kept"  # noqa: E731
    grid = LocalGrid(tmp_path, client_app(asked), asked.clients, lost)
    ours = run(tmp_path, asked, grid, **{"round-timeout": 0.5})
    np.testing.assert_allclose(vector(ours.model), vector(by_hand(asked, [[0, 1, 3]] * 2)), atol=1e-6)
    assert "round 1: not in the mean are the clients 2" in log_of(tmp_path)


def test_the_run_directory_is_one_that_report_reads(tmp_path, capsys):
    run(tmp_path, setting("APFL"))
    assert invoke(["report", str(tmp_path / "run")]) == 0
    assert (tmp_path / "run" / "report.html").stat().st_size > 1000
    assert not (tmp_path / "run" / "personal.safetensors").exists()
    assert not (tmp_path / "run" / "checkpoints").exists()


@pytest.mark.parametrize(
    ("config", "why"),
    [
        ({"min-clients": 5}, "min-clients is 5: it must be a whole number from 1 to 4"),
        ({"min-answers": 4}, "min-answers is 4: it must be a whole number from 1 to 3"),
        ({"round-timeout": -1.0}, "round-timeout is -1.0: it must be a number of seconds above 0"),
        ({"round-timeout": float("inf")}, "round-timeout is inf: it must be a number of seconds above 0, at most"),
        ({"max-norm": -1.0}, "max_norm is -1.0"),
    ],
)
def test_a_configuration_that_is_wrong_says_so(tmp_path, config, why):
    with pytest.raises(FedaxError, match=why):
        run(tmp_path, setting("FedAvg"), **config)
    assert not (tmp_path / "run").exists()


def test_too_few_answers_end_the_run_with_a_sentence(tmp_path):
    asked = setting("FedAvg", cohort=4, eval_every=9)
    lost = lambda message, node: "lost" if message.metadata.message_type == "train" else "kept"  # noqa: E731
    with pytest.raises(FedaxError, match="round 1 had 0 of the 2 answers that it needs after 10 attempts"):
        run(tmp_path, asked, LocalGrid(tmp_path, client_app(asked), 4, lost))
    assert json.loads((tmp_path / "run" / "status.json").read_text())["status"] == "failed"


EXPERIMENT = """
rounds = 2
data.name = "iris"
data.partition = { name = "IID", clients = 3 }
model = { name = "logistic" }
algorithm = [{ name = "FedAvg", lr = 0.1 }, { name = "SCAFFOLD", lr = 0.1 }]
"""


def test_fedax_flower_new(tmp_path, monkeypatch, capsys):
    (tmp_path / "first.toml").write_text(EXPERIMENT)
    assert invoke(["flower", "new", str(tmp_path / "app"), "--from", str(tmp_path / "first.toml")]) == 0
    config, warnings = load_and_validate(tmp_path / "app" / "pyproject.toml")
    assert not warnings
    assert config["tool"]["flwr"]["app"]["config"]["method"] == "FedAvg"
    with pytest.raises(FedaxError, match=r"method is missing.*FedAvg, SCAFFOLD"):
        setting_of(tmp_path / "app" / "experiment.toml", {})
    asked = setting_of(tmp_path / "app" / "experiment.toml", {"method": "SCAFFOLD", "seed": 5})
    assert (asked.clients, asked.seed, type(asked.algorithm).__name__) == (3, 5, "SCAFFOLD")
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert invoke(["flower", "new", str(tmp_path / "other"), "--from", str(tmp_path / "first.toml")]) == 2
    assert "pip install 'fedax[flower]'" in capsys.readouterr().err
