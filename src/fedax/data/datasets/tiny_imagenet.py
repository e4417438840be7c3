"""Tiny-ImageNet: 64x64 images of 200 of ImageNet's classes, decoded once and then mapped from disk.

The archive's test images have no labels, so its validation images serve as the test set, as in the papers.
Classes are numbered in the order of their WordNet names.
"""

from __future__ import annotations

import io
import zipfile
from pathlib import Path

import numpy as np

from fedax.data.checks import Array
from fedax.data.datasets.fetching import Published, find
from fedax.data.datasets.formats import reason
from fedax.data.datasets.images import Part
from fedax.data.storage.sharing import filled
from fedax.errors import FedaxError
from fedax.runtime import user_cache

# The hash is that of a public mirror's copy, which has the published number of bytes; its publisher states none.
ARCHIVE = Published(
    "tiny_imagenet/tiny-imagenet-200.zip",
    ("http://cs231n.stanford.edu/tiny-imagenet-200.zip",),
    "6198c8ae015e2b3e007c7841da39ec069199b9aa3bfa943a462022fe5e43c821",
    248100043,
)
_ROOT = "tiny-imagenet-200"


def tiny_imagenet(part: Part) -> dict[str, Array]:
    """The images as bytes [64, 64, 3], and their labels."""
    path = find(ARCHIVE)
    try:
        with zipfile.ZipFile(path) as archive:
            labels = _labels(archive, part)
            if not labels:
                raise FedaxError(f"{path} has no images in {_ROOT}/{'train' if part == 'train' else 'val'}")
            state = path.stat()
            decoded = user_cache() / "decoded" / f"tiny_imagenet-{part}-{state.st_size}-{state.st_mtime_ns}.npy"
            x = filled(decoded, (len(labels), 64, 64, 3), lambda out: _decode(archive, list(labels), path, out))
    except (KeyError, ValueError, OSError, EOFError, zipfile.BadZipFile) as error:
        raise FedaxError(f"{path} is truncated, corrupt or not Tiny-ImageNet: {reason(error)}") from error
    classes = sorted(set(labels.values()))
    return {"x": x, "y": np.searchsorted(classes, list(labels.values())).astype(np.int32)}


def _labels(archive: zipfile.ZipFile, part: Part) -> dict[str, str]:
    """The class of each image, by its name in the archive, in the order of names."""
    if part == "train":
        names = [name for name in archive.namelist() if name.startswith(f"{_ROOT}/train/") and name.endswith(".JPEG")]
        return {name: name.split("/")[2] for name in sorted(names)}
    lines = archive.read(f"{_ROOT}/val/val_annotations.txt").decode().splitlines()
    pairs = sorted(line.split("\t")[:2] for line in lines if line)
    return {f"{_ROOT}/val/images/{name}": wordnet for name, wordnet in pairs}


def _decode(archive: zipfile.ZipFile, names: list[str], path: Path, out: Array) -> None:
    try:
        from PIL import Image
    except ImportError:
        raise FedaxError(f"{path} cannot be read without Pillow: pip install 'fedax[images]'") from None
    for row, name in enumerate(names):
        with Image.open(io.BytesIO(archive.read(name))) as image:
            if image.size != (64, 64):
                raise FedaxError(f"{path}: {name} is {image.size[0]}x{image.size[1]}: it must be 64x64")
            out[row] = np.asarray(image.convert("RGB"))  # some images are grey
