"""A PyTorch CNN on handwritten digits by FedSpeed and SCAFFOLD, and back to PyTorch.

    python examples/pytorch/compare.py [--rounds 50] [--clients 100] [--out cnn.pt]

MNIST is read from the directory that FEDAX_DATA names; without one, scikit-learn's small digits stand in.
"""

from __future__ import annotations

import argparse
import os
from pathlib import Path

import numpy as np
import torch
from torch import nn

import fedax


class CNN(nn.Module):
    """Two convolutions with ReLU and pooling, then two dense layers; plain PyTorch, with nothing of Fedax in it."""

    def __init__(self, side: int) -> None:
        super().__init__()
        self.side = side
        self.features = nn.Sequential(
            nn.Conv2d(1, 16, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
            nn.Conv2d(16, 32, 3, padding=1),
            nn.ReLU(),
            nn.MaxPool2d(2),
        )
        self.head = nn.Sequential(
            nn.Flatten(), nn.Linear(32 * (side // 4) ** 2, 64), nn.ReLU(), nn.Dropout(0.2), nn.Linear(64, 10)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Classes of images in any shape with as many pixels."""
        return self.head(self.features(x.reshape(-1, 1, self.side, self.side)))


def main(rounds: int, clients: int, out: Path) -> float:
    """Compare the methods, save the better model for PyTorch, and give its accuracy there."""
    partition = fedax.data.Dirichlet(clients=clients, alpha=0.3)
    name, side = ("mnist", 28) if os.environ.get("FEDAX_DATA") else ("digits", 8)
    federation = fedax.data.load(name, partition=partition)
    torch.manual_seed(0)
    net = CNN(side)
    problem, results = fedax.Problem(net, loss="cross_entropy"), {}
    work = {"rounds": rounds, "cohort": 10, "local_steps": 10, "batch_size": 20, "eval_every": max(1, rounds // 5)}
    for method in (fedax.FedSpeed(lr=0.1, lam=1.0), fedax.SCAFFOLD(lr=0.05)):
        name = type(method).__name__
        results[name] = fedax.simulate(problem, federation, method, **work)
        print(results[name].history.to_pandas()[["round", "test_accuracy", "test_loss"]].assign(method=name))
    best = max(results, key=lambda name: results[name].history[-1]["test_accuracy"])
    trained = results[best].to_torch(net).eval()
    torch.save(trained.state_dict(), out)
    tests = [federation.client(i, "test") for i in range(federation.clients)]
    x, y = (np.concatenate([np.asarray(test[key]) for test in tests]) for key in ("x", "y"))
    scale = 255 if x.dtype == np.uint8 else 1
    with torch.no_grad():
        right = trained(torch.tensor(x / scale, dtype=torch.float32)).argmax(1).numpy() == y
    print(f"{best}'s model in PyTorch: {right.mean():.1%} of the test rows are right; {out} has its state dict")
    return float(right.mean())


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="A PyTorch CNN by FedSpeed and SCAFFOLD.")
    parser.add_argument("--rounds", type=int, default=50)
    parser.add_argument("--clients", type=int, default=100)
    parser.add_argument("--out", type=Path, default=Path("cnn.pt"))
    main(**vars(parser.parse_args()))
