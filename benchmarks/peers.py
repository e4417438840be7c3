"""The workloads by other libraries for federated learning, each in an environment that has it (`side_by_side.py`).

Each is used as its own documentation does for simulation on one machine, with the same model, the same steps and the
same mean; their other methods are not ours to write, so only FedAvg is compared. FedJAX gets Fedax's model, convolution
included. pfl, FedLab and Flower get the PyTorch model, Flower with one process a core; starting its processes is not
counted, nor is an evaluation of any.
"""

from __future__ import annotations

import functools
import os
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.workloads import Workload, workload

Runner = Callable[[int], float]  #: runs a number of further rounds and returns the seconds they took


def clocked(train: Callable[[int], object]) -> Runner:
    """Its seconds by the clock."""

    def run(count: int) -> float:
        began = time.perf_counter()
        train(count)
        return time.perf_counter() - began

    return run


def fedjax(task: Workload) -> Runner:
    """fedjax.algorithms.fed_avg, by its default backend, one compiled step at a time."""
    import fedjax as library
    import jax

    from benchmarks.speed import simulation

    if not hasattr(jax, "tree_map"):  # a name that FedJAX 0.0.17 uses and JAX has given up
        jax.tree_map = jax.tree.map  # type: ignore[attr-defined]
    prepared, rng = simulation(task).prepared, np.random.default_rng(0)
    problem = prepared.problem

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
    key, state = jax.random.PRNGKey(0), [algorithm.init(prepared.x0.tree)]

    def run(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            cohort = rng.choice(task.clients, task.cohort, replace=False)
            state[0], _ = algorithm.apply(state[0], [(int(i), clients[i], key) for i in cohort])
        jax.block_until_ready(state[0].params)
        return time.perf_counter() - began

    return run


def flower(task: Workload) -> Runner:
    """flwr.simulation.run_simulation with its FedAvg; timed from the second round's start to the last's end."""
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
            return ServerAppComponents(strategy=strategy, config=ServerConfig(num_rounds=count + 1))

        times.clear()
        run_simulation(
            server_app=ServerApp(server_fn=server),
            client_app=ClientApp(client_fn=functools.partial(_flower_client, task.name)),
            num_supernodes=task.clients,
            backend_config={"client_resources": {"num_cpus": 1, "num_gpus": 0.0}},
        )
        return times[-1] - times[2]  # its processes load their data in the first round, which is not counted

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


def pfl(task: Workload) -> Runner:
    """pfl's FederatedAveraging in its simulated backend, one process."""
    import torch
    from pfl.aggregate.simulate import SimulatedBackend
    from pfl.algorithm.base import NNAlgorithmParams
    from pfl.algorithm.federated_averaging import FederatedAveraging
    from pfl.data.federated_dataset import FederatedDataset
    from pfl.data.pytorch import PyTorchTensorDataset
    from pfl.data.sampling import get_user_sampler
    from pfl.hyperparam import NNTrainHyperParams
    from pfl.model.pytorch import PyTorchModel

    from benchmarks import torch_loops

    torch.set_num_threads(torch_loops.cores())
    x, y = torch_loops.tensors(task)
    net, loss = torch_loops.network(task), torch_loops.loss_of(task)
    net.loss = lambda x, y: loss(net(x), y)
    net.metrics = lambda x, y: {}

    def client(number: int) -> Any:
        rows = torch_loops.shuffled_rows(task, number)
        return PyTorchTensorDataset((x[rows], y[rows]))

    data = FederatedDataset(client, get_user_sampler("random", list(range(task.clients))))
    backend = SimulatedBackend(training_data=data, val_data=data)
    model = PyTorchModel(net, torch.optim.SGD, torch.optim.SGD(net.parameters(), lr=1.0))
    local = NNTrainHyperParams(local_num_epochs=1, local_learning_rate=task.lr, local_batch_size=task.batch)

    def run(count: int) -> float:
        rounds = NNAlgorithmParams(
            central_num_iterations=count + 1,  # its first, in which it evaluates, is not counted
            evaluation_frequency=count + 1,
            train_cohort_size=task.cohort,
            val_cohort_size=None,
        )
        clock = _PflClock()
        FederatedAveraging().run(rounds, backend, model, local, callbacks=[clock], send_metrics_to_platform=False)
        return clock.times[-1] - clock.times[0]

    return run


class _PflClock:
    """A callback of pfl's that notes when iterations end."""

    def __init__(self) -> None:
        self.times: list[float] = []

    def on_train_begin(self, *, model: Any) -> Any:
        from pfl.metrics import Metrics

        return Metrics()

    def after_central_iteration(self, metrics: Any, model: Any, *, central_iteration: int) -> Any:
        from pfl.metrics import Metrics

        self.times.append(time.perf_counter())
        return False, Metrics()

    def on_train_end(self, *, model: Any) -> None:
        pass


def fedlab(task: Workload) -> Runner:
    """FedLab's standalone pipeline, SyncServerHandler and SGDSerialClientTrainer, without its evaluation."""
    import logging

    import torch

    # FedLab imports torchvision and uses no operator of it; a torchvision for GPUs has none beside a torch for CPUs.
    beside = torch.library.Library("torchvision", "FRAGMENT")
    for operator in ("nms", "qnms"):
        if not hasattr(torch.ops.torchvision, operator):
            beside.define(f"{operator}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
    from fedlab.contrib.algorithm.fedavg import FedAvgSerialClientTrainer, FedAvgServerHandler
    from torch.utils.data import DataLoader, TensorDataset

    from benchmarks import torch_loops

    torch.set_num_threads(torch_loops.cores())
    x, y = torch_loops.tensors(task)

    class Clients:
        def get_dataloader(self, number: int, batch: int) -> Any:
            rows = torch_loops.shuffled_rows(task, number)
            return DataLoader(TensorDataset(x[rows], y[rows]), batch_size=batch)

    quiet = logging.getLogger("fedlab")
    quiet.setLevel(logging.ERROR)
    net = torch_loops.network(task)
    handler = FedAvgServerHandler(net, 10**9, task.cohort / task.clients, logger=quiet)
    trainer = FedAvgSerialClientTrainer(net, task.clients, logger=quiet)
    handler.num_clients = task.clients
    trainer.setup_dataset(Clients())
    trainer.setup_optim(1, task.batch, task.lr)
    trainer.criterion = torch_loops.loss_of(task)

    def run(count: int) -> float:
        began = time.perf_counter()
        for _ in range(count):
            trainer.local_process(handler.downlink_package, handler.sample_clients())
            for upload in trainer.uplink_package:
                handler.load(upload)
        return time.perf_counter() - began

    return run
