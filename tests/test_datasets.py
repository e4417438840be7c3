"""Named datasets: what is written in a published format is what is read; damage is named; there is one copy."""

from __future__ import annotations

import gc
import gzip
import io
import os
import re
import tarfile
import weakref
import zipfile
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import array_shapes, arrays

from fedax.cli import invoke
from fedax.data import DATASETS, IID, ByLabel, Homogeneous, Partition, load, partition
from fedax.data.datasets import formats as files
from fedax.data.datasets import images
from fedax.data.datasets.fetching import find
from fedax.data.datasets.tiny_imagenet import tiny_imagenet
from fedax.data.storage import sharing
from fedax.errors import FedaxError

ROOT = Path(os.environ.get("FEDAX_DATA") or os.devnull)


def real(folder):
    return pytest.mark.skipif(not (ROOT / folder).is_dir(), reason=f"FEDAX_DATA has no {folder}")


@pytest.fixture
def room(tmp_path, monkeypatch):
    """An empty data directory and an empty cache, without a network."""
    monkeypatch.setenv("FEDAX_DATA", str(tmp_path / "data"))
    monkeypatch.setenv("FEDAX_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("FEDAX_OFFLINE", "1")

    def put(name, content):
        path = tmp_path / "data" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        return path

    return put


def idx(array):
    kind = {1: 0x08, 4: 0x0C}[array.itemsize]
    big = array.astype(array.dtype.newbyteorder(">"))
    return bytes([0, 0, kind, array.ndim]) + np.array(array.shape, ">u4").tobytes() + big.tobytes()


def mnist_like(room, folder="mnist", train=20, test=10, seed=0):
    rng = np.random.default_rng(seed)
    written = {}
    for part, stem, rows in (("train", "train", train), ("test", "t10k", test)):
        x = rng.integers(0, 256, (rows, 28, 28), np.uint8)
        y = (np.arange(rows) % 10).astype(np.uint8)
        room(f"{folder}/{stem}-images-idx3-ubyte", idx(x))
        room(f"{folder}/{stem}-labels-idx1-ubyte.gz", gzip.compress(idx(y)))
        written[part] = {"x": x, "y": y}
    return written


def tar(members, folder="cifar"):
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w:gz") as archive:
        for name, content in members.items():
            header = tarfile.TarInfo(f"{folder}/{name}")
            header.size = len(content)
            archive.addfile(header, io.BytesIO(content))
    return raw.getvalue()


def cifar_rows(rows, labels, rng):
    """Images [rows, 32, 32, 3], labels [rows, labels], and the bytes of CIFAR's file of them."""
    x = rng.integers(0, 256, (rows, 32, 32, 3), np.uint8)
    y = rng.integers(0, 10, (rows, labels), np.uint8)
    raw = b"".join(bytes(y[i]) + b"".join(x[i, :, :, c].tobytes() for c in range(3)) for i in range(rows))
    return x, y, raw


# Formats


@settings(max_examples=40, deadline=None)
@given(
    arrays(np.uint8, array_shapes(max_dims=3, min_side=0, max_side=5))
    | arrays(np.int32, array_shapes(max_dims=3, max_side=5)),
    st.booleans(),
)
def test_idx_reads_what_was_written(array, zipped):
    raw = gzip.compress(idx(array)) if zipped else idx(array)
    np.testing.assert_array_equal(files.parse_idx(raw, "it"), array)


@settings(max_examples=40, deadline=None)
@given(arrays(np.uint8, (3, 4)), st.data())
def test_an_idx_file_cut_anywhere_is_refused(array, data):
    raw = data.draw(st.sampled_from([idx(array), gzip.compress(idx(array))]))
    with pytest.raises(FedaxError, match=r"^it is (truncated|not an idx file)"):
        files.parse_idx(raw[: data.draw(st.integers(0, len(raw) - 1))], "it")


def test_mnist_and_fashion_mnist_are_read_from_their_own_directories(room):
    for folder, seed in (("mnist", 0), ("fashion_mnist", 1)):
        written = mnist_like(room, folder, seed=seed)
        for part in ("train", "test"):
            read = DATASETS[folder].arrays(part, {})
            np.testing.assert_array_equal(read["x"], written[part]["x"])
            np.testing.assert_array_equal(read["y"], written[part]["y"])
            assert (read["x"].dtype, read["y"].dtype) == (np.uint8, np.int32)


def test_qmnist_adds_the_writers(room):
    written = mnist_like(room)
    for part, stem, spare in (("train", "qmnist-train", 0), ("test", "qmnist-test", 5)):
        y = written[part]["y"]
        extended = np.zeros((len(y) + spare, 8), np.int32)
        extended[: len(y), 0] = y
        extended[:, 2] = 2000 + np.arange(len(extended)) // 3
        room(f"qmnist/{stem}-labels-idx2-int.gz", gzip.compress(idx(extended)))
        read = DATASETS["qmnist"].arrays(part, {})
        np.testing.assert_array_equal(read["writer"], 2000 + np.arange(len(y)) // 3)
        np.testing.assert_array_equal(read["x"], written[part]["x"])
    federation = load("qmnist", partition=partition("ByWriter"), split=None)
    assert federation.train.count.tolist() == [3] * 6 + [2]
    extended[0, 0] += 1
    room("qmnist/qmnist-test-labels-idx2-int.gz", gzip.compress(idx(extended)))
    with pytest.raises(FedaxError, match="do not begin with those of MNIST's 10 images"):
        images.qmnist("test")


@pytest.mark.parametrize("packed", [True, False])
def test_emnist_is_upright_and_counts_from_0(room, packed):
    x = np.random.default_rng(0).integers(0, 256, (26, 28, 28), np.uint8)
    y = np.arange(1, 27, dtype=np.uint8)
    members = {
        "emnist-letters-train-images-idx3-ubyte.gz": gzip.compress(idx(x.transpose(0, 2, 1).copy())),
        "emnist-letters-train-labels-idx1-ubyte.gz": gzip.compress(idx(y)),
    }
    if packed:
        raw = io.BytesIO()
        with zipfile.ZipFile(raw, "w") as archive:
            for name, content in members.items():
                archive.writestr(f"gzip/{name}", content)
        room("emnist/gzip.zip", raw.getvalue())
    else:
        for name, content in members.items():
            room(f"emnist/{name}", content)
    read = DATASETS["emnist"].arrays("train", {"subset": "letters"})
    np.testing.assert_array_equal(read["x"], x)
    np.testing.assert_array_equal(read["y"], np.arange(26))
    assert load("emnist", subset="letters", partition=IID(2), split=None).info["classes"] == 26
    with pytest.raises(FedaxError, match="did you mean 'letters'"):
        load("emnist", subset="leters")
    if packed:
        with pytest.raises(FedaxError, match=r"gzip.zip has no gzip/emnist-digits-train-images"):
            load("emnist", subset="digits")


@pytest.mark.parametrize(("name", "labels"), [("cifar10", 1), ("cifar100", 2)])
def test_cifar_reads_what_was_written_in_the_order_of_its_batches(room, name, labels):
    rng = np.random.default_rng(0)
    batches = [f"data_batch_{i}.bin" for i in range(1, 6)] if name == "cifar10" else ["train.bin"]
    last = "test_batch.bin" if name == "cifar10" else "test.bin"
    made = {batch: cifar_rows(4, labels, rng) for batch in [*batches, last]}
    stored = dict(sorted(((batch, raw) for batch, (_, _, raw) in made.items()), reverse=True))
    room(DATASETS[name].files[0].name, tar(stored))
    for part, asked in (("train", batches), ("test", [last])):
        read = DATASETS[name].arrays(part, {})
        np.testing.assert_array_equal(read["x"], np.concatenate([made[batch][0] for batch in asked]))
        np.testing.assert_array_equal(read["y"], np.concatenate([made[batch][1][:, -1] for batch in asked]))


def jpeg(colour, mode="RGB", size=(64, 64)):
    Image = pytest.importorskip("PIL.Image")
    raw = io.BytesIO()
    Image.new(mode, size, colour).save(raw, "JPEG", quality=100)
    return raw.getvalue()


def tiny(room, **changes):
    """Two classes with two images each, one of them grey, and two of the test set; images are of one colour."""
    root = "tiny-imagenet-200"
    members = {
        f"{root}/train/n02/images/n02_0.JPEG": jpeg((200, 10, 10)),
        f"{root}/train/n02/images/n02_1.JPEG": jpeg(90, "L"),
        f"{root}/train/n01/images/n01_0.JPEG": jpeg((10, 200, 10)),
        f"{root}/train/n01/images/n01_1.JPEG": jpeg((10, 10, 200)),
        f"{root}/val/images/val_0.JPEG": jpeg((250, 250, 250)),
        f"{root}/val/images/val_1.JPEG": jpeg((0, 0, 0)),
        f"{root}/val/val_annotations.txt": b"val_1.JPEG\tn02\t0\t0\t9\t9\nval_0.JPEG\tn01\t0\t0\t9\t9\n",
    }
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as archive:
        for name, content in (members | {f"{root}/{name}": content for name, content in changes.items()}).items():
            archive.writestr(name, content)
    return room("tiny_imagenet/tiny-imagenet-200.zip", raw.getvalue())


def test_tiny_imagenet_is_decoded_once_and_then_mapped(room, tmp_path):
    tiny(room)
    read = tiny_imagenet("train")
    assert read["y"].tolist() == [0, 0, 1, 1]
    middle = read["x"][:, 32, 32].astype(int)
    expected = [(10, 200, 10), (10, 10, 200), (200, 10, 10), (90, 90, 90)]
    np.testing.assert_allclose(middle, expected, atol=6)  # JPEG rounds colours
    test = tiny_imagenet("test")
    assert test["y"].tolist() == [0, 1]
    assert test["x"][:, 5, 5, 0].tolist() == [250, 0]
    assert sharing._mapped(read["x"])
    stored = sorted((tmp_path / "cache" / "decoded").iterdir())
    assert len(stored) == 2
    stamps = [path.stat().st_mtime_ns for path in stored]
    tiny_imagenet("train")
    assert [path.stat().st_mtime_ns for path in sorted((tmp_path / "cache" / "decoded").iterdir())] == stamps
    federation = load("tiny_imagenet", partition=IID(2), test="official")
    assert federation.test.count.tolist() == [2, 2]


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"train/n01/images/n01_1.JPEG": b"no picture"}, "truncated, corrupt or not Tiny-ImageNet"),
        ({"train/n01/images/n01_1.JPEG": jpeg((0, 0, 0), size=(32, 64))}, "n01_1.JPEG is 32x64: it must be 64x64"),
    ],
)
def test_a_bad_picture_leaves_nothing_behind(room, tmp_path, changes, sentence):
    tiny(room, **changes)
    with pytest.raises(FedaxError, match=sentence):
        tiny_imagenet("train")
    assert list((tmp_path / "cache" / "decoded").iterdir()) == []


# Damage


def test_damaged_archives_are_named(room):
    rng = np.random.default_rng(0)
    batches = {f"data_batch_{i}.bin": cifar_rows(30, 1, rng)[2] for i in range(1, 6)}
    whole = tar(batches)
    for content, words in (
        (whole[: len(whole) // 2], "is truncated or corrupt"),
        (b"not an archive", "is truncated or corrupt"),
        (b"", "is truncated or corrupt"),
        (whole[:2000] + bytes(3000) + whole[5000:], "is truncated or corrupt"),
        (whole[:-8] + bytes(4) + whole[-4:], "is truncated or corrupt: CRC"),
        (
            tar({**batches, "data_batch_3.bin": batches["data_batch_3.bin"][:-1]}),
            "data_batch_3.bin is truncated: 92189",
        ),
        (tar({**batches, "data_batch_3.bin": b""}), "data_batch_3.bin is truncated: 0 bytes"),
        (tar({name: raw for name, raw in batches.items() if "3" not in name}), "has no data_batch_3.bin"),
    ):
        room("cifar10/cifar-10-binary.tar.gz", content)
        with pytest.raises(FedaxError, match=rf"cifar-10-binary.tar.gz.*{words}") as raised:
            load("cifar10")
        assert "\n" not in str(raised.value)
    for content in (b"not a zip", b""):
        room("tiny_imagenet/tiny-imagenet-200.zip", content)
        room("emnist/gzip.zip", content)
        with pytest.raises(FedaxError, match=r"tiny-imagenet-200.zip is truncated"):
            load("tiny_imagenet")
        with pytest.raises(FedaxError, match=r"gzip.zip is truncated"):
            load("emnist")


def test_files_that_do_not_fit_are_named(room):
    mnist_like(room)
    room("mnist/train-labels-idx1-ubyte.gz", gzip.compress(idx(np.zeros(19, np.uint8))))
    with pytest.raises(FedaxError, match=re.escape("MNIST's files do not fit: images (20, 28, 28), labels (19,)")):
        load("mnist")
    room("mnist/train-images-idx3-ubyte", idx(np.zeros((19, 28, 27), np.uint8)))
    with pytest.raises(FedaxError, match=re.escape("images (19, 28, 27)")):
        load("mnist")
    room("a9a/a9a", b"-1 3:1 124:1\n")
    with pytest.raises(FedaxError, match="a9a is not LibSVM text with 123 features"):
        load("a9a")
    for text in (b"", b"hello\n", b"1 2:x\n"):
        room("a9a/a9a", text)
        with pytest.raises(FedaxError, match="a9a is not LibSVM text with 123 features"):
            load("a9a")
    room("a9a/a9a", b"-1 3:1 11:1\n+1 5:1\n")
    federation = load("a9a", partition=IID(2), split=None)
    assert federation.arrays["x"].shape == (2, 123)
    assert sorted(zip(federation.arrays["x"].sum(axis=1), federation.arrays["y"], strict=True)) == [(1, 1), (2, 0)]


# The official test set


def test_the_official_test_set_is_shared_by_all_clients(room):
    written = mnist_like(room)
    federation = load("mnist", partition=ByLabel(5, 2), split=(0.5, 0.5), seed=3, test="official")
    assert federation.info["test"] == "official"
    assert federation.clients == 5
    for i in range(5):
        test = federation.client(i, "test")
        np.testing.assert_array_equal(test["x"], written["test"]["x"])
        np.testing.assert_array_equal(test["y"], written["test"]["y"])
        assert np.shares_memory(test["x"], federation.client(0, "test")["x"])
    assert federation.rows == 30
    assert federation.train.count.sum() + federation.validation.count.sum() == 20
    rows = [federation.client(i, part)["x"] for i in range(5) for part in ("train", "validation")]
    held = {row.tobytes() for block in rows for row in block}
    assert held == {row.tobytes() for row in written["train"]["x"]}
    everything = load("mnist", partition=IID(4), test="official")
    assert everything.train.count.tolist() == [5] * 4
    assert everything.validation.count.tolist() == [0] * 4


def test_the_official_test_set_is_refused_where_it_does_not_fit(room):
    mnist_like(room)
    with pytest.raises(FedaxError, match="iris has no test set of its own"):
        load("iris", test="official")
    with pytest.raises(FedaxError, match="test is 'offical': it must be 'official', or be left out"):
        load("mnist", test="offical")
    for split in ((0.7, 0.1, 0.2), (1.0,), 3):
        with pytest.raises(FedaxError, match=r"split is .*: with test 'official' it must be two fractions"):
            load("mnist", test="official", split=split)
    with pytest.raises(FedaxError, match=r"test is 'official': FeatureShift.* changes x"):
        load("mnist", partition=partition("FeatureShift", clients=2, rotation=90.0), test="official")


# One copy


def test_a_set_is_in_memory_once(room):
    mnist_like(room)
    first, second = (load("mnist", partition=Homogeneous(n), split=None) for n in (2, 3))
    assert first.arrays["x"] is second.arrays["x"]
    one = load("mnist", partition=IID(2), seed=1)
    assert load("mnist", partition=IID(2), seed=1) is one
    assert load("mnist", partition=IID(2), seed=2) is not one
    assert load("mnist", partition=IID(2), seed=1, split=None) is not one
    for federation in (first, one):
        with pytest.raises(ValueError, match="read-only"):
            federation.arrays["x"][0] = 0


def test_what_nobody_holds_is_given_up(room):
    mnist_like(room)
    federation = load("mnist", partition=Homogeneous(2), split=None)
    gone = weakref.ref(federation.arrays["x"])
    del federation
    gc.collect()
    assert gone() is None


def test_a_changed_file_is_read_again(room):
    written = mnist_like(room)
    first = load("mnist", partition=Homogeneous(1), split=None)
    again = mnist_like(room, seed=5)
    second = load("mnist", partition=Homogeneous(1), split=None)
    np.testing.assert_array_equal(first.arrays["x"], written["train"]["x"])
    np.testing.assert_array_equal(second.arrays["x"], again["train"]["x"])


def test_a_partition_that_cannot_be_hashed_still_divides(room):
    class Mine(Partition):
        __hash__ = None

        def assign(self, arrays, rows, rng):
            return [np.arange(rows)]

    mnist_like(room)
    assert load("mnist", partition=Mine(1)).clients == 1


def test_above_the_budget_arrays_are_mapped_and_equal(room, tmp_path, monkeypatch):
    mnist_like(room)
    inside = load("mnist", partition=IID(3), test="official")
    monkeypatch.setenv("FEDAX_MEMORY_BUDGET", "1000")
    inside_arrays = {key: array.copy() for key, array in inside.arrays.items()}
    del inside
    gc.collect()
    mapped = load("mnist", partition=IID(3), test="official")
    assert sharing._mapped(mapped.arrays["x"])
    for key, array in inside_arrays.items():
        np.testing.assert_array_equal(mapped.arrays[key], array)
    assert [path for path in (tmp_path / "cache").rglob("*") if path.is_file()] == []
    monkeypatch.setenv("FEDAX_MEMORY_BUDGET", "1 GB")
    with pytest.raises(FedaxError, match="FEDAX_MEMORY_BUDGET is '1 GB': it must be a whole number of bytes"):
        load("mnist", partition=IID(2))


# The command


def test_the_commands_list_and_describe(room, capsys):
    mnist_like(room)
    assert invoke(["data", "list"]) == 0
    lines = {line.split()[0]: line.split()[-1] for line in capsys.readouterr().out.splitlines() if line.strip()}
    assert set(DATASETS) <= set(lines)
    assert (lines["mnist"], lines["cifar10"], lines["iris"]) == ("yes", "no", "bundled")
    assert invoke(["data", "info", "mnist"]) == 0
    out = capsys.readouterr().out
    assert "x uint8[20, 28, 28], y int32[20]" in out
    assert "rows of each label: 2 2 2 2 2 2 2 2 2 2" in out
    assert invoke(["data", "info", "cifar100"]) == 0
    out = capsys.readouterr().out
    assert "not here" in out
    assert "https://www.cs.toronto.edu/~kriz/cifar-100-binary.tar.gz" in out
    assert "0.5071" in out
    assert invoke(["data", "info", "cfar10"]) == 2
    assert "did you mean 'cifar10'" in capsys.readouterr().err


# Real files


@pytest.mark.parametrize("name", [pytest.param(n, marks=real(n)) for n in ("mnist", "qmnist", "cifar10", "a9a")])
def test_real_files_have_the_stated_size(name):
    dataset = DATASETS[name]
    for part, rows in (("train", dataset.rows), ("test", dataset.test_rows)):
        arrays = dataset.arrays(part, {})
        assert {len(array) for array in arrays.values()} == {rows}
        assert len(np.unique(arrays["y"])) == dataset.classes


@real("qmnist")
def test_the_real_writers():
    """539 writers of the training images, 19 to 131 images each; 297 others of the test images."""
    train, test = (DATASETS["qmnist"].arrays(part, {})["writer"] for part in ("train", "test"))
    names, counts = np.unique(train, return_counts=True)
    assert (len(names), counts.min(), counts.max()) == (539, 19, 131)
    assert len(np.unique(test)) == 297
    assert not set(names) & set(test)


@real("cifar10")
def test_the_published_scale_is_that_of_the_real_images():
    """FedSpeed's means are those of CIFAR-10's training images. So is its deviation, of all pixels of a channel."""
    x = DATASETS["cifar10"].arrays("train", {})["x"].reshape(-1, 3)
    counts = [np.bincount(x[:, c], minlength=256) for c in range(3)]
    values = np.arange(256) / 255
    mean = np.array([count @ values / len(x) for count in counts])
    std = np.sqrt([count @ (values - m) ** 2 / len(x) for count, m in zip(counts, mean, strict=True)])
    np.testing.assert_allclose(mean, images.CIFAR10_SCALE["mean"], atol=1e-3)
    np.testing.assert_allclose(std, images.CIFAR10_SCALE["std"], atol=1e-3)


@real("mnist")
def test_the_real_training_images_are_mnists():
    """SHA-256 of the unzipped training images, as the data directory's own description states it."""
    import hashlib

    raw = files.content(find(images.MNIST[0]))
    assert hashlib.sha256(raw).hexdigest() == "ba891046e6505d7aadcbbe25680a0738ad16aec93bde7f9b65e87a2fc25776db"
