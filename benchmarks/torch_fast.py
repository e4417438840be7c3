"""The workloads by the strongest PyTorch that a user could write: compiled steps, and clients batched by `vmap`.

Three forms of FedAvg, on tensors in memory, the local rows drawn as `torch_loops` draws them:

    compiled            a client at a time, gradient and update as one program of `torch.compile`
    vmapped             all clients of the cohort at once, by `torch.func.vmap` of the gradient
    vmapped, compiled   both
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor
from torch.func import functional_call, grad, vmap

from benchmarks import torch_loops
from benchmarks.workloads import Workload

Parameters = dict[str, Tensor]
Step = Callable[[Parameters, Tensor, Tensor], Parameters]


def federation(task: Workload, *, batched: bool, compiled: bool, seed: int = 0) -> Callable[[], Parameters]:
    """A function that trains one more round of FedAvg each time it is called and gives the shared parameters."""
    torch.set_num_threads(torch_loops.cores())
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    x, y = torch_loops.tensors(task)
    net = torch_loops.network(task)
    shared = {name: p.detach().clone() for name, p in net.named_parameters()}
    step = _step(task, net, batched=batched)
    if compiled:
        step = torch.compile(step, dynamic=False)

    def trained(params: Parameters, rows: Tensor) -> Parameters:
        """Parameters after the local steps; rows [steps, batch], clients' axis first where they are batched."""
        for k in range(task.steps):
            now = rows[..., k, :]
            params = step(params, x[now], y[now])
        return params

    def run() -> Parameters:
        cohort = rng.choice(task.clients, task.cohort, replace=False)
        rows = torch.stack([torch_loops.shuffled_rows(task, i).view(task.steps, task.batch) for i in cohort])
        if batched:
            start = {name: p.expand(task.cohort, *p.shape) for name, p in shared.items()}
            new = {name: p.mean(0) for name, p in trained(start, rows).items()}
        else:
            new = {name: torch.zeros_like(p) for name, p in shared.items()}
            for own in rows:
                for name, p in trained(shared, own).items():
                    new[name].add_(p, alpha=1 / task.cohort)
        shared.update(new)
        return shared

    return run


def _step(task: Workload, net: torch.nn.Module, *, batched: bool) -> Step:
    loss = torch_loops.loss_of(task)

    def objective(params: Parameters, inputs: Tensor, labels: Tensor) -> Tensor:
        return loss(functional_call(net, params, (inputs,)), labels)

    slope = vmap(grad(objective)) if batched else grad(objective)

    def step(params: Parameters, inputs: Tensor, labels: Tensor) -> Parameters:
        slopes = slope(params, inputs, labels)
        return {name: p - task.lr * slopes[name] for name, p in params.items()}

    return step
