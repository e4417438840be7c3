"""The workloads as plain PyTorch loops: the pace that a careful practitioner reaches without a framework.

Data sit in memory as tensors, a client starts by copying the shared parameters in place, a step is one
backward pass and one in-place update a parameter, and the average is accumulated as clients finish.

    python -m benchmarks.torch_loops A B C D P R --rounds 10
"""

from __future__ import annotations

import argparse
import copy
import os
import time
from collections.abc import Callable

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.workloads import WORKLOADS, Workload, workload

Parameters = list[Tensor]
Batches = list[tuple[Tensor, Tensor]]
ALPHA = 0.5  # APFL's weight


def rounds(task: Workload, count: int, *, warmup: int = 2, seed: int = 0) -> list[float]:
    """Seconds that each of `count` rounds takes, after `warmup` rounds that are not counted."""
    run = federation(task, seed=seed)
    for _ in range(warmup):
        run()
    return [_seconds(run) for _ in range(count)]


def federation(
    task: Workload, *, seed: int = 0, make: Callable[[Workload], nn.Module] | None = None
) -> Callable[[], nn.Module]:
    """A function that trains one more round each time it is called and gives the shared model.

    make: the model of the workload, by default `network`.
    """
    make = make or network
    torch.set_num_threads(cores())
    torch.manual_seed(seed)
    rng = np.random.default_rng(seed)
    x, y = tensors(task)
    shared = make(task)
    one_round = {"FedAvg": _fedavg, "SCAFFOLD": _scaffold, "APFL": _apfl}[task.method](task, shared)

    def batches(client: int) -> Batches:
        rows = shuffled_rows(task, client)
        return list(zip(x[rows].split(task.batch), y[rows].split(task.batch), strict=True))

    def run() -> nn.Module:
        one_round(rng.choice(task.clients, task.cohort, replace=False), batches)
        return shared

    return run


def _fedavg(task: Workload, shared: nn.Module) -> Callable[..., None]:
    local = copy.deepcopy(shared)
    old, new, loss = list(shared.parameters()), list(local.parameters()), loss_of(task)

    def one_round(cohort: np.ndarray, batches: Callable[[int], Batches]) -> None:
        total = [torch.zeros_like(p) for p in old]
        for client in cohort:
            copy_into(new, old)
            for inputs, labels in batches(client):
                gradients = torch.autograd.grad(loss(local(inputs), labels), new)
                with torch.no_grad():
                    for p, g in zip(new, gradients, strict=True):
                        p.sub_(g, alpha=task.lr)
            _add(total, new, 1 / task.cohort)
        copy_into(old, total)

    return one_round


def _scaffold(task: Workload, shared: nn.Module) -> Callable[..., None]:
    """Karimireddy et al. 2020, Algorithm 1, option II."""
    local = copy.deepcopy(shared)
    old, new, loss = list(shared.parameters()), list(local.parameters()), loss_of(task)
    control = [torch.zeros_like(p) for p in old]
    own = [[torch.zeros_like(p) for p in old] for _ in range(task.clients)]

    def one_round(cohort: np.ndarray, batches: Callable[[int], Batches]) -> None:
        total, change = ([torch.zeros_like(p) for p in old] for _ in range(2))
        for client in cohort:
            copy_into(new, old)
            with torch.no_grad():
                shift = [c - o for c, o in zip(control, own[client], strict=True)]
            for inputs, labels in batches(client):
                gradients = torch.autograd.grad(loss(local(inputs), labels), new)
                with torch.no_grad():
                    for p, g, s in zip(new, gradients, shift, strict=True):
                        p.sub_(g.add_(s), alpha=task.lr)
            with torch.no_grad():
                for p, q, c, o, d in zip(new, old, control, own[client], change, strict=True):
                    moved = (q - p).div_(task.steps * task.lr).sub_(c)
                    o.add_(moved)
                    d.add_(moved, alpha=1 / task.clients)
            _add(total, new, 1 / task.cohort)
        copy_into(old, total)
        _add(control, change, 1)

    return one_round


def _apfl(task: Workload, shared: nn.Module) -> Callable[..., None]:
    """Deng et al. 2020, Algorithm 1 with a fixed weight."""
    local, mixed = copy.deepcopy(shared), copy.deepcopy(shared)
    old, new, both = (list(net.parameters()) for net in (shared, local, mixed))
    loss = loss_of(task)
    own = [[p.detach().clone() for p in old] for _ in range(task.clients)]

    def one_round(cohort: np.ndarray, batches: Callable[[int], Batches]) -> None:
        total = [torch.zeros_like(p) for p in old]
        for client in cohort:
            copy_into(new, old)
            for inputs, labels in batches(client):
                with torch.no_grad():
                    for m, v, w in zip(both, own[client], new, strict=True):
                        torch.lerp(w, v, ALPHA, out=m)
                personal = torch.autograd.grad(loss(mixed(inputs), labels), both)
                gradients = torch.autograd.grad(loss(local(inputs), labels), new)
                with torch.no_grad():
                    for w, v, g, h in zip(new, own[client], gradients, personal, strict=True):
                        w.sub_(g, alpha=task.lr)
                        v.sub_(h, alpha=task.lr * ALPHA)
            _add(total, new, 1 / task.cohort)
        copy_into(old, total)

    return one_round


class Block(nn.Module):
    """ResNet's basic block, with group normalisation."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.first = nn.Conv2d(before, after, 3, stride, 1, bias=False)
        self.second = nn.Conv2d(after, after, 3, 1, 1, bias=False)
        self.norms = nn.ModuleList([nn.GroupNorm(2, after), nn.GroupNorm(2, after)])
        self.shortcut = nn.Sequential()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.GroupNorm(2, after))

    def forward(self, x: Tensor) -> Tensor:
        y = functional.relu(self.norms[0](self.first(x)))
        return functional.relu(self.norms[1](self.second(y)) + self.shortcut(x))


def network(task: Workload) -> nn.Module:
    """The workload's model, layer by layer as Fedax builds it."""
    if task.model == "logistic":
        return nn.Linear(task.x.shape[1], task.outputs)
    if task.model == "resnet18":
        return _resnet(task)
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


def _resnet(task: Workload) -> nn.Module:
    layers: list[nn.Module] = [nn.Conv2d(task.x.shape[3], 64, 3, 1, 1, bias=False), nn.GroupNorm(2, 64), nn.ReLU()]
    before = 64
    for stage, after in enumerate((64, 128, 256, 512)):
        layers += [Block(before, after, 1 if stage == 0 else 2), Block(after, after, 1)]
        before = after
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(before, task.outputs))


def loss_of(task: Workload) -> Callable[[Tensor, Tensor], Tensor]:
    """The workload's loss, the mean over rows."""
    return functional.cross_entropy if task.loss == "cross_entropy" else _logistic


def cores() -> int:
    """How many cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def tensors(task: Workload) -> tuple[Tensor, Tensor]:
    """Inputs and labels as PyTorch wants them."""
    x = torch.from_numpy(task.x)
    if x.ndim == 4:
        x = x.permute(0, 3, 1, 2).contiguous()
    y = torch.from_numpy(task.y)
    return x, y.float() if task.loss == "logistic" else y.long()


def shuffled_rows(task: Workload, client: int) -> Tensor:
    """The rows of the local steps: the client's rows shuffled, and shuffled again whenever they run out."""
    start, stop = int(task.offsets[client]), int(task.offsets[client + 1])
    need = task.steps * task.batch
    passes = -(-need // (stop - start))
    return torch.cat([torch.randperm(stop - start) for _ in range(passes)])[:need] + start


@torch.no_grad()
def copy_into(to: Parameters, source: Parameters) -> None:
    """Values of one list of parameters into another, in place."""
    for p, q in zip(to, source, strict=True):
        p.copy_(q)


@torch.no_grad()
def _add(total: Parameters, more: Parameters, weight: float) -> None:
    for t, p in zip(total, more, strict=True):
        t.add_(p, alpha=weight)


def _logistic(logits: Tensor, y: Tensor) -> Tensor:
    return functional.binary_cross_entropy_with_logits(logits[:, 0], y)


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
