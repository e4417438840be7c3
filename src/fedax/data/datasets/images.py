"""Published sets of images, as bytes: MNIST and its relatives, CIFAR.

Each set has a function of one argument, "train" or "test", that reads the published division of that name.

The hashes are those of the TensorFlow Datasets registry; QMNIST's are of files that have the MD5 torchvision states.
"""

from __future__ import annotations

from typing import Literal, TypeAlias

import numpy as np

from fedax.data.checks import Array
from fedax.data.datasets.fetching import Published, find, present
from fedax.data.datasets.formats import parse_idx, read_cifar, read_idx, read_member
from fedax.errors import FedaxError, unknown

Part: TypeAlias = Literal["train", "test"]


def _idx_files(folder: str, address: str, known: dict[str, tuple[str, int]]) -> tuple[Published, ...]:
    return tuple(
        Published(f"{folder}/{name}.gz", (f"{address}{name}.gz",), sha256, size)
        for name, (sha256, size) in known.items()
    )


MNIST = _idx_files(
    "mnist",
    "https://storage.googleapis.com/cvdf-datasets/mnist/",
    {
        "train-images-idx3-ubyte": ("440fcabf73cc546fa21475e81ea370265605f56be210a4024d2ca8f203523609", 9912422),
        "train-labels-idx1-ubyte": ("3552534a0a558bbed6aed32b30c495cca23d567ec52cac8be1a0730e8010255c", 28881),
        "t10k-images-idx3-ubyte": ("8d422c7b0a1c1c79245a5bcf07fe86e33eeafee792b84584aec276f5a2dbc4e6", 1648877),
        "t10k-labels-idx1-ubyte": ("f7ae60f92e00ec6debd23a6088c31dbd2371eca3ffa0defaefb259924204aec6", 4542),
    },
)
FASHION = _idx_files(
    "fashion_mnist",
    "http://fashion-mnist.s3-website.eu-central-1.amazonaws.com/",
    {
        "train-images-idx3-ubyte": ("3aede38d61863908ad78613f6a32ed271626dd12800ba2636569512369268a84", 26421880),
        "train-labels-idx1-ubyte": ("a04f17134ac03560a47e3764e11b92fc97de4d1bfaf8ba1a3aa29af54cc90845", 29515),
        "t10k-images-idx3-ubyte": ("346e55b948d973a97e58d2351dde16a484bd415d4595297633bb08f03db6a073", 4422102),
        "t10k-labels-idx1-ubyte": ("67da17c76eaffca5446c3361aaab5c3cd6d1c2608764d35dfb1850b086bf8dd5", 5148),
    },
)
WRITERS = _idx_files(
    "qmnist",
    "https://raw.githubusercontent.com/facebookresearch/qmnist/master/",
    {
        "qmnist-train-labels-idx2-int": ("2c05dc77f6b916b38e455e97ab129a42a444f3dbef09b278a366f82904e0dd9f", 463024),
        "qmnist-test-labels-idx2-int": ("9fbcbe594c3766fdf4f0b15c5165dc0d1e57ac604e01422608bb72c906030d06", 526800),
    },
)
EMNIST = Published(
    "emnist/gzip.zip",
    ("https://www.itl.nist.gov/iaui/vip/cs_links/EMNIST/gzip.zip",),
    "fb9bb67e33772a9cc0b895e4ecf36d2cf35be8b709693c3564cea2a019fcda8e",
    561753746,
)
CIFAR10 = Published(
    "cifar10/cifar-10-binary.tar.gz",
    ("https://www.cs.toronto.edu/~kriz/cifar-10-binary.tar.gz",),
    "c4a38c50a1bc5f3a1c5537f2155ab9d68f9f25eb1ed8d9ddda3db29a59bca1dd",
    170052171,
)
CIFAR100 = Published(
    "cifar100/cifar-100-binary.tar.gz",
    ("https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz",),
    "58a81ae192c23a4be8b1804d68e518ed807d710a4eb253b1f2a199162a40d8ec",
    168513733,
)

MNIST_SCALE = {"mean": (0.1307,), "std": (0.3081,)}  # of all training pixels; `tests/test_datasets.py` computes them
# The means and deviations of the channels in FedSpeed (Sun et al., 2023), appendix, "Data Argumentation".
CIFAR10_SCALE = {"mean": (0.491, 0.482, 0.447), "std": (0.247, 0.243, 0.262)}
CIFAR100_SCALE = {"mean": (0.5071, 0.4867, 0.4408), "std": (0.2675, 0.2565, 0.2761)}

SUBSETS = ("balanced", "byclass", "bymerge", "letters", "digits", "mnist")


def mnist(part: Part) -> dict[str, Array]:
    """MNIST's images as bytes [28, 28], and their labels."""
    return _pair("MNIST", MNIST, part)


def fashion_mnist(part: Part) -> dict[str, Array]:
    """Fashion-MNIST's images as bytes [28, 28], and their labels."""
    return _pair("Fashion-MNIST", FASHION, part)


def qmnist(part: Part) -> dict[str, Array]:
    """MNIST's images and labels, and as `writer` the number of the person who wrote each.

    QMNIST (Yadav and Bottou, 2019) traced MNIST's digits back to NIST's forms. Its first rows are MNIST's in their
    order; column 0 of its labels is the digit, column 2 the writer.
    """
    arrays = mnist(part)
    path = find(WRITERS[part == "test"])
    extended = read_idx(path)
    rows = len(arrays["y"])
    fits = extended.ndim == 2 and extended.shape[1] >= 3 and len(extended) >= rows
    if not fits or not np.array_equal(extended[:rows, 0], arrays["y"]):
        raise FedaxError(f"{path} has labels {extended.shape} that do not begin with those of MNIST's {rows} images")
    return {**arrays, "writer": extended[:rows, 2].astype(np.int32)}


def emnist(part: Part, subset: str = "balanced") -> dict[str, Array]:
    """One of EMNIST's six divisions, as bytes [28, 28], upright; labels from 0.

    The files hold each image transposed, and number the letters from 1.
    """
    if subset not in SUBSETS:
        raise unknown("EMNIST subset", subset, SUBSETS)
    x, y = (_emnist_file(f"emnist-{subset}-{part}-{kind}-ubyte") for kind in ("images-idx3", "labels-idx1"))
    arrays = _checked("EMNIST", x, y)
    first = int(subset == "letters")
    return {"x": np.ascontiguousarray(arrays["x"].transpose(0, 2, 1)), "y": arrays["y"] - np.int32(first)}


def _emnist_file(name: str) -> Array:
    """A file of the archive, or the same file unpacked beside it."""
    unpacked = present(Published(f"emnist/{name}"))
    if unpacked is not None:
        return read_idx(unpacked)
    path = find(EMNIST)
    member = f"gzip/{name}.gz"
    return parse_idx(read_member(path, member), f"{path}: {member}")


def cifar10(part: Part) -> dict[str, Array]:
    """CIFAR-10's images as bytes [32, 32, 3], and their labels."""
    train = [f"data_batch_{i}.bin" for i in range(1, 6)]
    return read_cifar(find(CIFAR10), train if part == "train" else ["test_batch.bin"], labels=1)


def cifar100(part: Part) -> dict[str, Array]:
    """CIFAR-100's images as bytes [32, 32, 3], and their labels, the fine ones of the two that each row has."""
    return read_cifar(find(CIFAR100), [f"{part}.bin"], labels=2)


def _pair(name: str, files: tuple[Published, ...], part: Part) -> dict[str, Array]:
    images, labels = files[:2] if part == "train" else files[2:]
    return _checked(name, read_idx(find(images)), read_idx(find(labels)))


def _checked(name: str, x: Array, y: Array) -> dict[str, Array]:
    if x.shape[1:] != (28, 28) or y.shape != x.shape[:1] or not len(x):
        raise FedaxError(f"{name}'s files do not fit: images {x.shape}, labels {y.shape}")
    return {"x": x, "y": y.astype(np.int32)}
