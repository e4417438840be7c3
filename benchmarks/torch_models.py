"""PyTorch modules through Fedax, beside Fedax's own models and a plain PyTorch loop of the same module, in one run.

    python benchmarks/torch_models.py [--only A,C,T] [--repeats 9]      (FEDAX_DATA for MNIST)

A   the MLP 784-200-200-10 of workload A
C   the CNN of workload C
T   a transformer encoder of two layers (d 64, four heads), 16 tokens, 10 clients, 5 steps of batch 20

A and C are described in workloads.py. Each repeat times some rounds of each in turn, with a pause before each. What
counts is the ratio within a repeat: the module's time over the Flax model's, and the loop's over the module's. Medians
and quartiles are printed and saved in results/torch_models.json.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np
import torch
from torch import nn

import fedax
from benchmarks import torch_loops
from benchmarks.speed import PAUSE, clocked, quartiles, rounds_of, simulation, versions
from benchmarks.workloads import Workload, workload

RESULTS = Path(__file__).resolve().parent / "results" / "torch_models.json"
SECONDS = 1.0  # that each takes in a repeat, about


class Encoder(nn.Module):
    """Two encoder layers, and a linear layer on the mean over tokens."""

    def __init__(self) -> None:
        super().__init__()
        layer = nn.TransformerEncoderLayer(64, 4, 128, dropout=0.0, batch_first=True)
        self.layers, self.head = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False), nn.Linear(64, 10)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Classes of rows [rows, tokens, 64]."""
        found: torch.Tensor = self.head(self.layers(x).mean(dim=1))
        return found


def encoder() -> Workload:
    """Ten clients with a hundred rows of random tokens each."""
    rng = np.random.default_rng(0)
    x, y = rng.normal(size=(1000, 16, 64)).astype(np.float32), rng.integers(0, 10, 1000)
    sizes = {"cohort": 10, "steps": 5, "batch": 20, "offsets": np.arange(11) * 100}
    return Workload("T", "transformer encoder", "encoder", 10, "cross_entropy", x, y, lr=0.05, **sizes)


def network(task: Workload) -> nn.Module:
    """The workload's module, with weights from one seed."""
    torch.manual_seed(0)
    return Encoder() if task.model == "encoder" else torch_loops.network(task)


def runners(task: Workload) -> dict[str, Callable[[int], float]]:
    """The module through Fedax, the loop, and the Flax model where there is one."""
    inputs, _ = torch_loops.tensors(task)
    through = dataclasses.replace(task, x=np.ascontiguousarray(inputs.numpy()))
    one_round = torch_loops.federation(task, make=network)

    def loop(count: int) -> None:
        for _ in range(count):
            one_round()

    module = simulation(through, problem=fedax.Problem(network(task), loss=task.loss))
    found = {"module": clocked(rounds_of(module)), "loop": clocked(loop)}
    return found if task.model == "encoder" else found | {"flax": clocked(rounds_of(simulation(task)))}


def compare(task: Workload, repeats: int) -> dict[str, Any]:
    """One workload's row."""
    who = runners(task)
    counts, seconds = {}, {name: [] for name in who}
    for name, run in who.items():
        run(1)
        counts[name] = max(1, min(60, int(SECONDS / run(1))))
        run(counts[name])
    for _ in range(repeats):
        for name, run in who.items():
            time.sleep(PAUSE)
            seconds[name].append(run(counts[name]) / counts[name])
    pairs = {"module over flax": ("module", "flax"), "loop over module": ("loop", "module")}
    return {
        "title": task.title,
        "real data": task.real,
        "rounds a repeat": counts,
        "ms a round": {name: quartiles([1e3 * s for s in took]) for name, took in seconds.items()},
        "ratios": {
            title: quartiles([a / b for a, b in zip(seconds[one], seconds[other], strict=True)])
            for title, (one, other) in pairs.items()
            if one in seconds and other in seconds
        },
    }


def main() -> None:
    """Print and save the table."""
    parser = argparse.ArgumentParser(description="PyTorch modules through Fedax.")
    parser.add_argument("--only", default="A,C,T", help="workloads, such as A,T")
    parser.add_argument("--repeats", type=int, default=9)
    given = parser.parse_args()
    saved = json.loads(RESULTS.read_text()) if RESULTS.is_file() else {}
    for name in given.only.split(","):
        row = compare(encoder() if name == "T" else workload(name), given.repeats)
        saved[name] = {**row, "repeats": given.repeats, "cores": torch_loops.cores()}
        print(name, row["title"], row["ms a round"], row["ratios"], flush=True)
        saved["versions"] = versions()
        RESULTS.write_text(json.dumps(saved, indent=1) + "\n")


if __name__ == "__main__":
    main()
