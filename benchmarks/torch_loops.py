"""The workloads as plain PyTorch loops: the pace that a careful practitioner reaches without a framework.

Data sit in memory as tensors, a client starts by copying the shared parameters in place, a step is one
backward pass and one in-place update a parameter, and the average is accumulated as clients finish.

    python -m benchmarks.torch_loops A B C --rounds 10
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workloads import WORKLOADS, Workload, workload


def rounds(task: Workload, count: int, *, warmup: int = 2, seed: int = 0) -> list[float]:
    """Seconds that each of `count` rounds of FedAvg takes, after `warmup` rounds that are not counted."""
    run = federation(task, seed=seed)
    for _ in range(warmup):
        run()
    return [_seconds(run) for _ in range(count)]


def federation(task: Workload, *, seed: int = 0) -> Callable[[], nn.Module]:
    """A function that trains one more round of FedAvg each time it is called and gives the shared model."""
    torch.set_num_threads(cores())
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    x, y = _tensors(task)
    shared, local = network(task), network(task)
    loss = functional.cross_entropy if task.loss == "cross_entropy" else _logistic
    old, new = list(shared.parameters()), list(local.parameters())

    def run() -> nn.Module:
        total = [torch.zeros_like(p) for p in old]
        for client in rng.choice(task.clients, task.cohort, replace=False):
            with torch.no_grad():
                for p, q in zip(new, old, strict=True):
                    p.copy_(q)
            rows = _rows(task, client)
            for inputs, labels in zip(x[rows].split(task.batch), y[rows].split(task.batch), strict=True):
                gradients = torch.autograd.grad(loss(local(inputs), labels), new)
                with torch.no_grad():
                    for p, g in zip(new, gradients, strict=True):
                        p.sub_(g, alpha=task.lr)
            with torch.no_grad():
                for t, p in zip(total, new, strict=True):
                    t.add_(p, alpha=1 / task.cohort)
        with torch.no_grad():
            for q, t in zip(old, total, strict=True):
                q.copy_(t)
        return shared

    return run


def network(task: Workload) -> nn.Module:
    """The workload's model, layer by layer as Fedax builds it."""
    if task.model == "logistic":
        return nn.Linear(task.x.shape[1], task.outputs)
    layers: list[nn.Module] = []
    if task.model == "mlp":
        width, hidden = task.x.shape[1], task.options["hidden"]
    else:
        side, channels, hidden = task.x.shape[1], task.x.shape[3], task.options["dense"]
        for more in task.options["channels"]:
            layers += [nn.Conv2d(channels, more, 3, padding="same"), nn.ReLU(), nn.MaxPool2d(2)]
            side, channels = side // 2, more
        layers.append(nn.Flatten())
        width = side * side * channels
    for more in hidden:
        layers += [nn.Linear(width, more), nn.ReLU()]
        width = more
    return nn.Sequential(*layers, nn.Linear(width, task.outputs))


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _tensors(task: Workload) -> tuple[Tensor, Tensor]:
    x = torch.from_numpy(task.x)
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous()
    y = torch.from_numpy(task.y)
    return x, y.float() if task.loss == "logistic" else y.long()


def _logistic(logits: Tensor, y: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits[:, 0], y)


def _rows(task: Workload, client: int) -> Tensor:
    """The rows of the local steps: the client's rows shuffled, and shuffled anew whenever they run out."""
    start, stop = int(task.offsets[client]), int(task.offsets[client + 1])
    need = task.steps * task.batch
    passes = -(-need // (stop - start))
    return torch.cat([torch.randperm(stop - start) for _ in range(passes)])[:need] + start


def _seconds(run: Callable[[], object]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description="Time plain PyTorch loops on the benchmark workloads.")
    parser.add_argument("names", nargs="+", choices=list(WORKLOADS))
    parser.add_argument("--rounds", type=int, default=10)
    arguments = parser.parse_args()
    for name in arguments.names:
        task = workload(name)
        took = 1e3 * np.array(rounds(task, arguments.rounds))
        data = "real data" if task.real else "synthetic data"
        print(f"{name}  {task.title}, {data}: median {np.median(took):.1f} ms a round, fastest {took.min():.1f}")


if __name__ == "__main__":
    main()
