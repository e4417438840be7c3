"""Eight sites over TLS, 200 rounds of six of them, sites and server killed at random: it must end, with a sound model.

    python benchmarks/long_federation.py [ROUNDS [FOLDER]]      an hour; saves results/long_federation.json

A site or the server is killed (SIGKILL) and started again every few rounds, at a random moment. Clients have eight
seconds for a round, so that a dead site holds up a round and not the run. A server that gives up, because too few of
the sites answer while the machine is busy, is started again as well. The final model is compared with that of the same
rounds by hand, with the clients that the run's log names for each; and test loss and model with
64 simulations of the same experiment, undisturbed, under other seeds; and with as many in which clients are away as
often as the run's log tells, ten rounds at a time, for a site that is down changes what is learned.
"""

from __future__ import annotations

import contextlib
import json
import random
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent / "tests"))

import fedax  # noqa: E402
from by_hand import by_hand  # noqa: E402
from conftest import vector  # noqa: E402
from fedax.experiments import prepare, read  # noqa: E402
from fedax.experiments.building import options  # noqa: E402
from fedax.flower.agreement import setting_of  # noqa: E402
from fedax.flower.app_folder import new  # noqa: E402
from fedax.flower.certificates import make  # noqa: E402
from fedax.runs.files import write_json  # noqa: E402
from flower_federation import Federation, cohorts_of, status  # noqa: E402

RESULTS = HERE / "results" / "long_federation.json"
SITES, CALM = 8, 64
AGAIN = 15.0  # seconds until a node that does not stay up is started again
EXPERIMENT = """
rounds = {rounds}
cohort = 6
local_steps = 2
batch_size = 8
eval_every = 20
data.name = "iris"
data.partition = {{ name = "IID", clients = 8 }}
model.name = "logistic"
algorithm = {{ name = "SCAFFOLD", lr = 0.1 }}
"""


def disturbed(folder: Path, rounds: int, draw: random.Random) -> tuple[Path, dict[str, int]]:
    """The directory of a run that was disturbed, and how often."""
    out, app, kills = folder / "out", folder / "app", {"sites": 0, "server": 0, "server_gave_up": 0}
    new(app, folder / "experiment.toml")
    make(folder / "keys", SITES, ["localhost"])
    asked = {"out": str(out), "round_timeout": 8.0, "min_clients": 5, "min_answers": 4}
    with Federation(folder / "federation", keys=folder / "keys") as federation:
        for client in range(SITES):
            federation.start_node(client)
        federation.run(app, **asked)
        next_kill = 3
        while status(out)["status"] != "finished":
            while not reach(federation, out, min(next_kill, rounds)):
                federation.run(app, **asked)
                kills["server_gave_up"] += 1
                while status(out)["status"] == "failed":
                    time.sleep(1)
            if next_kill >= rounds:
                federation.finish(out, 1200)
                break
            time.sleep(draw.random() * 2)
            if draw.random() < 0.2:
                federation.kill_server()
                federation.run(app, **asked)
                kills["server"] += 1
            else:
                client = draw.randrange(SITES)
                federation.kill_node(client)
                federation.start_node(client)
                kills["sites"] += 1
            next_kill = status(out)["round"] + draw.randrange(5, 12)
            print(status(out), kills, flush=True)
        left = len(federation.server_apps())
    return out, {**kills, "servers_left": left - 1 if left else 0}


def reach(federation: Federation, out: Path, round: int) -> bool:
    """Wait for a round, and start nodes again as a supervisor would; False if the server gave up before.

    A SuperLink takes a killed node for active until its heartbeat is missed, and refuses its key until then.
    """
    end, tried = time.monotonic() + 1200, dict[int, float]()
    while status(out)["round"] < round:
        assert time.monotonic() < end, f"round {round} is not reached"
        if status(out)["status"] == "failed":
            return False
        for client in [c for c, processes in federation.nodes.items() if processes[0].poll() is not None]:
            if time.monotonic() - tried.get(client, 0.0) > AGAIN:
                federation.kill_node(client)
                federation.start_node(client)
                tried[client] = time.monotonic()
        time.sleep(0.2)
    return True


def away(log: str) -> float:
    """The share of rounds that a site is away, by a run's log: not connected when the round ended, or no answer.

    >>> away("client 0 is node 5\\nround 1: client 0 did not answer in 8 s\\nround 1: 6 answers, clients 1\\n")
    1.0
    """
    here: set[str] = set()
    silent: set[str] = set()
    missing = rounds = 0
    for line in log.splitlines():
        if ", start " in line:
            here.clear()
        elif found := re.search(r"client (\d+) is node", line):
            here.add(found[1])
        elif found := re.search(r"client (\d+) \(node \d+\) is gone", line):
            here.discard(found[1])
        elif found := re.search(r"round \d+: client (\d+) did not answer", line):
            silent.add(found[1])
        elif re.search(r"round \d+: \d+ answers", line):
            missing, rounds = missing + SITES - len(here - silent), rounds + 1
            silent.clear()
    return missing / (SITES * rounds)


def main() -> None:
    """Disturb one run, and compare it with simulations that were not disturbed."""
    rounds, began = int(sys.argv[1]) if len(sys.argv) > 1 else 200, time.monotonic()
    with contextlib.ExitStack() as stack:
        given = sys.argv[2] if len(sys.argv) > 2 else stack.enter_context(tempfile.TemporaryDirectory())
        folder = Path(given).resolve()
        if status(folder / "out")["status"] == "finished":
            out, kills = folder / "out", json.loads((folder / "kills.json").read_text())
        else:
            folder.mkdir(parents=True, exist_ok=True)
            (folder / "experiment.toml").write_text(EXPERIMENT.format(rounds=rounds))
            out, kills = disturbed(folder, rounds, random.Random(2026))
            kills["seconds"] = round(time.monotonic() - began)
            write_json(folder / "kills.json", kills)
        compare(folder, out, kills)


def compare(folder: Path, out: Path, kills: dict[str, int]) -> None:
    """Save how a run ended, and how it lies among simulations."""
    result, log = fedax.load(out), (out / "network.log").read_text()
    experiment = read(folder / "experiment.toml")
    problem, federation = prepare(experiment)
    method, gone = experiment.algorithm[0].build(), away(log)
    cohorts = cohorts_of(log)
    again = vector(by_hand(setting_of(folder / "experiment.toml", {}), cohorts))
    calm = spread(problem, federation, method, experiment, None)
    sometimes = fedax.Availability(leave=0.1 * gone / (1 - gone), come=0.1)
    absent = spread(problem, federation, method, experiment, sometimes)
    loss, model = result.history[-1]["test_loss"], vector(result.model)
    summary = {
        "sites": SITES,
        "rounds": result.info["rounds"],
        "killed": {name: kills[name] for name in ("sites", "server", "server_gave_up", "servers_left")},
        "server_starts": log.count(", start "),
        "sites_away": round(gone, 3),
        "answers_a_round": round(sum(map(len, cohorts)) / len(cohorts), 2),
        "seconds": kills["seconds"],
        "test_loss": loss,
        "largest_difference_from_the_rounds_by_hand": float(np.abs(model - again).max()),
        "simulations": CALM,
        "undisturbed": within(loss, model, *calm),
        "undisturbed_with_clients_away": within(loss, model, *absent),
    }
    print(json.dumps(summary, indent=1))
    write_json(RESULTS, summary)


def spread(problem: Any, federation: Any, method: Any, experiment: Any, availability: Any) -> tuple[Any, Any]:
    """Test losses and models of simulations under other seeds."""
    runs = [
        fedax.simulate(problem, federation, method, **{**options(experiment, seed), "availability": availability})
        for seed in range(1, CALM + 1)
    ]
    return [run.history[-1]["test_loss"] for run in runs], np.array([vector(run.model) for run in runs])


def within(loss: float, model: Any, losses: Any, models: Any) -> dict[str, Any]:
    """Whether a loss and a model lie in the spread of others: of models, the distance from their mean."""
    centre = models.mean(0)
    distance, others = float(np.linalg.norm(model - centre)), np.linalg.norm(models - centre, axis=1)
    return {
        "test_loss": [min(losses), max(losses)],
        "distance": distance,
        "their_distance": [float(others.min()), float(others.max())],
        "within": bool(min(losses) <= loss <= max(losses) and distance <= others.max()),
    }


if __name__ == "__main__":
    main()
