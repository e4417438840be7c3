"""The datasets by name."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

from fedax.data.datasets import bundled, fmri, images, libsvm, tiny_imagenet
from fedax.data.datasets.spec import REQUIRED, Dataset, Divided
from fedax.data.generators.base import from_preset
from fedax.data.generators.clusters import CLUSTERS
from fedax.data.generators.sparse import LASSO, LOW_RANK, lasso, low_rank
from fedax.data.generators.synthetic import SYNTHETIC
from fedax.data.tables import own_rows as tables


def _pair(reader: Callable[..., Any]) -> dict[str, Any]:
    return {"read": partial(reader, "train"), "read_test": partial(reader, "test")}


_BUNDLED = "https://scikit-learn.org/stable/datasets/toy_dataset.html"
_TABLE = {
    **{"path": REQUIRED, "label": REQUIRED, "client": None, "features": None, "categorical": None, "drop": None},
    **{"dates": None, "missing": "error", "weights": None, "task": None},
}

_ALL = (
    Dataset("digits", "8x8 images of handwritten digits", bundled.digits, 1797, 10, reference=_BUNDLED),
    Dataset("breast_cancer", "30 features of tumours, standardised", bundled.breast_cancer, 569, 2, reference=_BUNDLED),
    Dataset("wine", "13 chemical features of wines, standardised", bundled.wine, 178, 3, reference=_BUNDLED),
    Dataset("iris", "4 features of flowers, standardised", bundled.iris, 150, 3, reference=_BUNDLED),
    Dataset(
        "diabetes",
        "10 features of patients, regression, all standardised",
        bundled.diabetes,
        442,
        reference=_BUNDLED,
    ),
    Dataset(
        "mnist",
        "28x28 images of handwritten digits",
        **_pair(images.mnist),
        rows=60000,
        classes=10,
        test_rows=10000,
        files=images.MNIST,
        options={"standardise": False},
        normalise=images.MNIST_SCALE,
        reference="LeCun, Bottou, Bengio and Haffner (1998); http://yann.lecun.com/exdb/mnist/",
    ),
    Dataset(
        "fashion_mnist",
        "28x28 images of clothes",
        **_pair(images.fashion_mnist),
        rows=60000,
        classes=10,
        test_rows=10000,
        files=images.FASHION,
        reference="Xiao, Rasul and Vollgraf (2017); https://github.com/zalandoresearch/fashion-mnist (MIT)",
    ),
    Dataset(
        "qmnist",
        "MNIST with the writer of each digit",
        **_pair(images.qmnist),
        rows=60000,
        classes=10,
        test_rows=10000,
        files=(*images.MNIST, *images.WRITERS),
        reference="Yadav and Bottou (2019); https://github.com/facebookresearch/qmnist (BSD)",
    ),
    Dataset(
        "emnist",
        f"28x28 images of handwritten letters and digits; subset {', '.join(images.SUBSETS)}",
        **_pair(images.emnist),
        rows=112800,
        classes=47,
        test_rows=18800,
        files=(images.EMNIST,),
        options={"subset": "balanced"},
        reference="Cohen, Afshar, Tapson and van Schaik (2017); "
        "https://www.nist.gov/itl/products-and-services/emnist-dataset",
    ),
    Dataset(
        "cifar10",
        "32x32 colour images of things",
        **_pair(images.cifar10),
        rows=50000,
        classes=10,
        test_rows=10000,
        files=(images.CIFAR10,),
        normalise=images.CIFAR10_SCALE,
        reference="Krizhevsky (2009); https://www.cs.toronto.edu/~kriz/cifar.html",
    ),
    Dataset(
        "cifar100",
        "32x32 colour images of things",
        **_pair(images.cifar100),
        rows=50000,
        classes=100,
        test_rows=10000,
        files=(images.CIFAR100,),
        normalise=images.CIFAR100_SCALE,
        reference="Krizhevsky (2009); https://www.cs.toronto.edu/~kriz/cifar.html",
    ),
    Dataset(
        "tiny_imagenet",
        "64x64 colour images of things",
        **_pair(tiny_imagenet.tiny_imagenet),
        rows=100000,
        classes=200,
        test_rows=10000,
        files=(tiny_imagenet.ARCHIVE,),
        reference="Stanford's course CS231n (2015), from ImageNet, whose terms hold; http://cs231n.stanford.edu",
    ),
    Dataset(
        "a9a",
        "123 binary features of people",
        **_pair(libsvm.a9a),
        rows=32561,
        classes=2,
        test_rows=16281,
        files=libsvm.A9A,
        reference="UCI Adult, as Platt (1998) coded it; https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/",
    ),
    Dataset(
        "w8a",
        "300 binary features of web pages",
        **_pair(libsvm.w8a),
        rows=49749,
        classes=2,
        test_rows=14951,
        files=libsvm.W8A,
        reference="Platt (1998); https://www.csie.ntu.edu.tw/~cjlin/libsvmtools/datasets/",
    ),
    Dataset(
        "haxby",
        "530 voxels, faces against houses",
        fmri.scans,
        216,
        2,
        files=(fmri.FILE,),
        reference="Haxby et al. (2001), one slice of one subject, as PyMVPA has it (MIT)",
    ),
    Dataset("csv", "a table of your own in a CSV file", tables.csv, options=_TABLE),
    Dataset("parquet", "a table of your own in a Parquet file", tables.parquet, options=_TABLE),
    Dataset("huggingface", "a Hugging Face dataset that save_to_disk wrote", tables.huggingface, options=_TABLE),
    Dataset(
        "numpy",
        "arrays of your own in an npz archive",
        tables.numpy,
        options={"path": REQUIRED, "features": "x", "label": "y", "client": None},
    ),
    Dataset("libsvm", "any file in LibSVM's format", libsvm.libsvm, options={"path": REQUIRED, "features": None}),
)

DATASETS: dict[str, Dataset] = {dataset.name: dataset for dataset in _ALL}

FEDERATIONS: dict[str, Divided] = {
    dataset.name: dataset
    for dataset in (
        Divided("lasso", "generated regressions with a sparse truth", lasso, LASSO, {"test_rows": 32}),
        Divided("low_rank", "generated regressions on matrices, low-rank truth", low_rank, LOW_RANK, {"test_rows": 32}),
        Divided("synthetic", "generated, a model and inputs a client", partial(from_preset, SYNTHETIC), SYNTHETIC),
        Divided("clusters", "generated Gaussian clusters", partial(from_preset, CLUSTERS), CLUSTERS),
        Divided(
            "haxby",
            "530 voxels of a brain that sees faces or houses, a client a run, 18 rows each",
            fmri.haxby,
            defaults={"classes": ("face", "house"), "validation_runs": (), "test_runs": (10, 11)},
        ),
    )
}
