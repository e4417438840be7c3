"""The workloads by other libraries for federated learning, where they are installed.

Each is used as its own documentation does for simulation on one machine, with the same model, the same steps and the
same mean; their other methods are not ours to write, so only FedAvg is compared. FedJAX gets Fedax's model, convolution
included. Flower gets the PyTorch model, one process a core; starting its processes is not counted.
"""

from __future__ import annotations

import functools
import importlib.util
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads import Workload, workload

Runner = Callable[[int], float]


def runners(task: Workload, simulation: Any) -> tuple[dict[str, Runner], dict[str, str]]:
    """Those that can run the workload, and why the others do not."""
    found: dict[str, Runner] = {}
    absent: dict[str, str] = {}
    for name, (package, adapter) in PEERS.items():
        if importlib.util.find_spec(package) is None:
            absent[name] = "not installed"
        elif adapter is None:
            absent[name] = "no adapter"
        elif task.method != "FedAvg":
            absent[name] = f"no adapter for {task.method}"
        else:
            try:
                found[name] = adapter(task, simulation)
                found[name](1)
            except Exception as error:  # a peer that does not work here is no reason to stop
                found.pop(name, None)
                absent[name] = f"does not start: {type(error).__name__}: {error}"
    return found, absent


def fedjax(task: Workload, simulation: Any) -> Runner:
    """fedjax.algorithms.fed_avg, by its default backend, one compiled step at a time."""
    import fedjax as library
    import jax

    if not hasattr(jax, "tree_map"):  # a name that FedJAX 0.0.17 uses and JAX has given up
        jax.tree_map = jax.tree.map  # type: ignore[attr-defined]
    problem, rng = simulation.problem, np.random.default_rng(0)

    def slope(params: Any, batch: Any, _: Any) -> Any:
        return jax.grad(problem.loss)(params, batch)

    algorithm = library.algorithms.fed_avg.federated_averaging(
        slope,
        library.optimizers.sgd(learning_rate=task.lr),
        library.optimizers.sgd(learning_rate=1.0),
        library.ShuffleRepeatBatchHParams(batch_size=task.batch, num_epochs=None, num_steps=task.steps),
    )
    ends = zip(task.offsets[:-1], task.offsets[1:], strict=True)
    clients = [library.ClientDataset({"x": task.x[a:b], "y": task.y[a:b]}) for a, b in ends]
    key, state = jax.random.PRNGKey(0), [algorithm.init(simulation.x0.tree)]

    def run(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            cohort = rng.choice(task.clients, task.cohort, replace=False)
            state[0], _ = algorithm.apply(state[0], [(int(i), clients[i], key) for i in cohort])
        jax.block_until_ready(state[0].params)
        return time.perf_counter() - began

    return run


def flower(task: Workload, simulation: Any) -> Runner:
    """flwr.simulation.run_simulation with the strategy FedAvg; timed from the first round's start to the last's end."""
    from flwr.client import ClientApp
    from flwr.common import ndarrays_to_parameters
    from flwr.server import ServerApp, ServerAppComponents, ServerConfig
    from flwr.server.strategy import FedAvg
    from flwr.simulation import run_simulation

    from benchmarks import torch_loops

    root = str(Path(__file__).resolve().parent.parent)
    os.environ["PYTHONPATH"] = os.pathsep.join([root, os.environ.get("PYTHONPATH", "")])  # for its processes
    first = [p.detach().numpy() for p in torch_loops.network(task).parameters()]

    class Clock(FedAvg):  # type: ignore[misc]
        def configure_fit(self, *arguments: Any, **more: Any) -> Any:
            times.append(time.perf_counter())
            return super().configure_fit(*arguments, **more)

        def aggregate_fit(self, *arguments: Any, **more: Any) -> Any:
            mean = super().aggregate_fit(*arguments, **more)
            times.append(time.perf_counter())
            return mean

    times: list[float] = []

    def run(count: int) -> float:
        def server(context: Any) -> Any:
            strategy = Clock(
                fraction_fit=task.cohort / task.clients,
                min_fit_clients=task.cohort,
                min_available_clients=task.clients,
                fraction_evaluate=0.0,
                initial_parameters=ndarrays_to_parameters(first),
            )
            return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=count))

        times.clear()
        run_simulation(
            server_app=ServerApp(server_fn=server),
            client_app=ClientApp(client_fn=functools.partial(_flower_client, task.name)),
            num_supernodes=task.clients,
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
        )
        return times[-1] - times[0]

    return run


@functools.cache
def _torch_workload(name: str) -> Any:
    """Loaded once a process of Flower's, not sent to it with every client."""
    import torch

    from benchmarks import torch_loops

    torch.set_num_threads(1)
    task = workload(name)
    return task, *torch_loops.tensors(task), torch_loops.network(task)


def _flower_client(name: str, context: Any) -> Any:
    import torch
    from flwr.client import NumPyClient

    from benchmarks import torch_loops

    task, x, y, net = _torch_workload(name)
    params, loss = list(net.parameters()), torch_loops.loss_of(task)
    number = int(context.node_config["partition-id"])

    class Client(NumPyClient):  # type: ignore[misc]
        def fit(self, parameters: Any, config: Any) -> Any:
            torch_loops.copy_into(params, [torch.from_numpy(p) for p in parameters])
            rows = torch_loops.shuffled_rows(task, number)
            for inputs, labels in zip(x[rows].split(task.batch), y[rows].split(task.batch), strict=True):
                gradients = torch.autograd.grad(loss(net(inputs), labels), params)
                with torch.no_grad():
                    for p, g in zip(params, gradients, strict=True):
                        p.sub_(g, alpha=task.lr)
            return [p.detach().numpy() for p in params], 1, {}  # one example each: the plain mean

    return Client().to_client()


PEERS: dict[str, tuple[str, Callable[[Workload, Any], Runner] | None]] = {
    "FedJAX": ("fedjax", fedjax),
    "Flower": ("flwr", flower),
    "pfl": ("pfl", None),
    "FedLab": ("fedlab", None),
}
