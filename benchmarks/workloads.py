"""The benchmark workloads: data, sizes and hyper-parameters, in NumPy alone so that any library can run them.

    A   FedAvg, MLP 784-200-200-10 on MNIST, 10 of 100 clients a round, 20 steps of batch 20
    B   FedAvg, logistic regression on a9a (123 features), 100 of 1,000 clients a round, 32 steps of batch 8
    C   FedAvg, CNN (32 and 64 channels, 1024 and 512 dense) on MNIST, 5 of 100 clients a round, 10 steps of batch 50
    D   A by SCAFFOLD, option II
    P   A by APFL with a fixed weight of 0.5
    R   FedAvg, ResNet-18 with group normalisation on CIFAR-10, 1 of 100 clients a round, 10 steps of batch 50

Where the environment's FEDAX_DATA names a directory, `mnist/train-images-idx3-ubyte.gz`,
`mnist/train-labels-idx1-ubyte.gz`, `a9a/a9a.gz` and `cifar10/cifar-10-binary.tar.gz` are read from there; otherwise the
data are drawn at random in the same shapes, which costs the same time to train on but shows no meaningful accuracy.
"""

from __future__ import annotations

import dataclasses
import gzip
import os
import tarfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

MNIST_ROWS, CIFAR_ROWS, A9A_ROWS, A9A_FEATURES = 60_000, 50_000, 32_561, 123


@dataclass(frozen=True)
class Workload:
    """One federation and how it is trained; client i owns rows offsets[i]:offsets[i + 1] of x and y.

    `loss` is "cross_entropy" (y the class) or "logistic" (one logit, y 0 or 1). A local step takes the next
    `batch` rows of the client's shuffled rows, shuffled again whenever they run out. `method` is "FedAvg", "SCAFFOLD"
    (option II) or "APFL" (a fixed weight of 0.5), all with server rate 1 and the plain mean over the cohort.
    """

    name: str
    title: str
    model: str
    outputs: int
    loss: str
    x: np.ndarray
    y: np.ndarray
    offsets: np.ndarray
    cohort: int
    steps: int
    batch: int
    lr: float
    options: dict[str, Any] = field(default_factory=dict)
    method: str = "FedAvg"
    real: bool = False

    @property
    def clients(self) -> int:
        return len(self.offsets) - 1


def workload(name: str, *, seed: int = 0) -> Workload:
    """Build a workload by its letter."""
    return WORKLOADS[name](np.random.default_rng(seed))


def _mlp(rng: np.random.Generator) -> Workload:
    x, y, real = _mnist(rng)
    x, y, offsets = _shards(x.reshape(-1, 784), y, clients=100, rng=rng)
    return Workload(
        name="A",
        title="MLP on MNIST",
        model="mlp",
        options={"hidden": (200, 200)},
        outputs=10,
        loss="cross_entropy",
        x=x,
        y=y,
        offsets=offsets,
        cohort=10,
        steps=20,
        batch=20,
        lr=0.1,
        real=real,
    )


def _logistic(rng: np.random.Generator) -> Workload:
    x, y, real = _a9a(rng)
    order = rng.permutation(len(x))
    return Workload(
        name="B",
        title="logistic regression on a9a",
        model="logistic",
        outputs=1,
        loss="logistic",
        x=x[order],
        y=y[order],
        offsets=np.linspace(0, len(x), 1_001).astype(np.int64),
        cohort=100,
        steps=32,
        batch=8,
        lr=0.1,
        real=real,
    )


def _cnn(rng: np.random.Generator) -> Workload:
    x, y, real = _mnist(rng)
    x, y, offsets = _shards(x, y, clients=100, rng=rng)
    return Workload(
        name="C",
        title="CNN on MNIST",
        model="cnn",
        options={"channels": (32, 64), "dense": (1024, 512)},
        outputs=10,
        loss="cross_entropy",
        x=x,
        y=y,
        offsets=offsets,
        cohort=5,
        steps=10,
        batch=50,
        lr=0.05,
        real=real,
    )


def _resnet(rng: np.random.Generator) -> Workload:
    x, y, real = _cifar10(rng)
    x, y, offsets = _shards(x, y, clients=100, rng=rng)
    return Workload(
        name="R",
        title="ResNet-18 with group normalisation on CIFAR-10",
        model="resnet18",
        outputs=10,
        loss="cross_entropy",
        x=x,
        y=y,
        offsets=offsets,
        cohort=1,
        steps=10,
        batch=50,
        lr=0.05,
        real=real,
    )


def _scaffold(rng: np.random.Generator) -> Workload:
    return dataclasses.replace(_mlp(rng), name="D", title="SCAFFOLD, MLP on MNIST", method="SCAFFOLD")


def _apfl(rng: np.random.Generator) -> Workload:
    return dataclasses.replace(_mlp(rng), name="P", title="APFL, MLP on MNIST", method="APFL")


WORKLOADS: dict[str, Callable[[np.random.Generator], Workload]] = {
    "A": _mlp,
    "B": _logistic,
    "C": _cnn,
    "D": _scaffold,
    "P": _apfl,
    "R": _resnet,
}


def _shards(
    x: np.ndarray, y: np.ndarray, *, clients: int, rng: np.random.Generator
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Rows sorted by label and cut into two shards a client, dealt at random (McMahan et al. 2017)."""
    size = len(y) // (2 * clients)
    order = np.argsort(y, kind="stable").reshape(2 * clients, size)
    order = order[rng.permutation(2 * clients)].reshape(-1)
    return x[order], y[order], np.arange(clients + 1) * 2 * size


def _directory(name: str) -> Path | None:
    root = os.environ.get("FEDAX_DATA")
    folder = Path(root) / name if root else None
    return folder if folder is not None and folder.is_dir() else None


def _mnist(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, bool]:
    folder = _directory("mnist")
    if folder is None:
        x = rng.random((MNIST_ROWS, 28, 28, 1), dtype=np.float32)
        return x, rng.permutation(np.arange(MNIST_ROWS, dtype=np.int32) % 10), False
    pixels = np.frombuffer(gzip.decompress((folder / "train-images-idx3-ubyte.gz").read_bytes()), np.uint8)
    labels = np.frombuffer(gzip.decompress((folder / "train-labels-idx1-ubyte.gz").read_bytes()), np.uint8)
    x = pixels[16:].reshape(MNIST_ROWS, 28, 28, 1).astype(np.float32) / np.float32(255)
    return x, labels[8:].astype(np.int32), True


def _cifar10(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, bool]:
    folder = _directory("cifar10")
    if folder is None:
        x = rng.random((CIFAR_ROWS, 32, 32, 3), dtype=np.float32)
        return x, rng.permutation(np.arange(CIFAR_ROWS, dtype=np.int32) % 10), False
    wanted = {f"data_batch_{i}.bin" for i in range(1, 6)}
    with tarfile.open(folder / "cifar-10-binary.tar.gz") as archive:
        parts = {m.name.rsplit("/", 1)[-1]: archive.extractfile(m) for m in archive.getmembers() if m.isfile()}
        raw = b"".join(part.read() for name, part in sorted(parts.items()) if name in wanted and part is not None)
    rows = np.frombuffer(raw, np.uint8).reshape(CIFAR_ROWS, 3073)
    x = rows[:, 1:].reshape(-1, 3, 32, 32).transpose(0, 2, 3, 1).astype(np.float32) / np.float32(255)
    return x, rows[:, 0].astype(np.int32), True


def _a9a(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, bool]:
    folder = _directory("a9a")
    x = np.zeros((A9A_ROWS, A9A_FEATURES), np.float32)
    if folder is None:
        # As in a9a, about 14 of the binary features are on in a row.
        x[rng.random(x.shape) < 14 / A9A_FEATURES] = 1
        return x, (rng.random(A9A_ROWS) < 0.24).astype(np.int32), False
    y = np.zeros(A9A_ROWS, np.int32)
    with gzip.open(folder / "a9a.gz", "rt") as lines:
        for row, line in enumerate(lines):
            label, *entries = line.split()
            y[row] = int(label) > 0
            for entry in entries:
                column, _, value = entry.partition(":")
                x[row, int(column) - 1] = float(value)
    return x, y, True
