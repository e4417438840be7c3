"""Real processes on this machine: the shared model over Flower is the simulated one.

With `make test-network`, as are the faults of test_flower_faults.py; messages and methods are tested in test_flower.py.
"""

from __future__ import annotations

import os

import numpy as np
import pytest

import fedax
from conftest import vector
from fedax.experiments import prepare, read
from fedax.experiments.building import options

pytest.importorskip("flwr")

from fedax.flower.app_folder import new
from flower_federation import Federation

PLAIN = """
rounds = 3
cohort = 3
local_steps = 2
batch_size = 8
eval_every = 3
data.name = "iris"
data.partition = { name = "IID", clients = 4 }
model.name = "logistic"
algorithm = [
  { name = "FedAvg", lr = 0.1 },
  { name = "SCAFFOLD", lr = 0.1 },
  { name = "FedSpeed", lr = 0.1, lam = 1.0 },
  { name = "APFL", lr = 0.1 },
]
"""
SPARSE = (
    PLAIN.split("algorithm")[0]
    + """
problem.regularizer = { name = "L1", strength = 0.01 }
algorithm = [{ name = "FedDualAvg", lr = 0.1 }, { name = "PFedFBE", lr = 0.01, lam = 20.0 }]
"""
)
SHORT = PLAIN.replace("clients = 4", "clients = 2").replace("cohort = 3", "cohort = 2")
METHODS = {"FedAvg": "plain", "SCAFFOLD": "plain", "FedSpeed": "plain", "APFL": "plain"}
METHODS |= {"FedDualAvg": "sparse", "PFedFBE": "sparse"}


pytestmark = pytest.mark.skipif(
    not os.environ.get("FEDAX_NETWORK"), reason="FEDAX_NETWORK is not set: make test-network"
)


@pytest.fixture(scope="module")
def federation(tmp_path_factory):
    folder = tmp_path_factory.mktemp("federation")
    for name, text in (("plain", PLAIN), ("sparse", SPARSE), ("short", SHORT)):
        (folder / f"{name}.toml").write_text(text)
        new(folder / name, folder / f"{name}.toml")
    with Federation(folder) as made:
        yield made


def same(folder, experiment, method, out, atol=1e-7):
    """The model in `out` is that of the simulation."""
    asked = read(folder / f"{experiment}.toml").only([method])
    simulated = fedax.simulate(*prepare(asked), asked.algorithm[0].build(), **options(asked, 0))
    np.testing.assert_allclose(vector(fedax.load(out).model), vector(simulated.model), rtol=1e-5, atol=atol)


def test_a_client_and_the_server_are_killed(federation):
    """Both go on where they were: the model is that of a run without accidents."""
    out = federation.folder / "out"
    for client in range(2):
        federation.start_node(client)
    federation.run(federation.folder / "short", method="SCAFFOLD", out=str(out))
    federation.reach(out, 1)
    federation.kill_server()
    federation.kill_node(1)
    federation.start_node(1)
    federation.run(federation.folder / "short", method="SCAFFOLD", out=str(out))
    federation.finish(out)
    same(federation.folder, "short", "SCAFFOLD", out)


def test_all_methods_over_four_nodes(federation):
    for client in {*range(4)} - federation.nodes.keys():
        federation.start_node(client)
    outs = {name: federation.folder / name for name in METHODS}
    for name, out in outs.items():  # side by side: a node carries out one run's message while the other servers think
        federation.run(federation.folder / METHODS[name], method=name, out=str(out), min_clients=4)
    sealed = federation.folder / "sealed"
    federation.run(federation.folder / "plain", method="SCAFFOLD", out=str(sealed), min_clients=4, secure=8.0)
    for name, out in outs.items():
        federation.finish(out, 900)
        same(federation.folder, METHODS[name], name, out)
    federation.finish(sealed, 900)
    same(federation.folder, "plain", "SCAFFOLD", sealed, atol=1e-6)


def test_simulation_inside_flower(tmp_path):
    pytest.importorskip("ray")
    (tmp_path / "plain.toml").write_text(PLAIN)
    new(tmp_path / "plain", tmp_path / "plain.toml")
    with Federation(tmp_path / "federation", simulated=True) as federation:
        federation.run(tmp_path / "plain", nodes=4, method="SCAFFOLD", out=str(tmp_path / "out"), min_clients=4)
        federation.finish(tmp_path / "out")
    same(tmp_path, "plain", "SCAFFOLD", tmp_path / "out")
