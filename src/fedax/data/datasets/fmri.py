"""One slice of one subject's scans of the Haxby et al. (2001) study of vision: each run is a client.

The subject looked at pictures of eight categories, with rests between, in twelve runs of 121 scans; nine scans
of a run are of each category. Two categories make a binary classification with 18 rows a run, as in
H. Yuan's thesis, section 4.5.4, which has six subjects and 39,912 voxels where this slice has 530.
"""

from __future__ import annotations

import io
import zipfile
from collections.abc import Sequence

import numpy as np

from fedax.data.checks import Array
from fedax.data.datasets import formats as files
from fedax.data.datasets.fetching import Published, find
from fedax.data.federation import Federation, Rows
from fedax.data.tables.scaling import standardised
from fedax.errors import FedaxError, unknown

FILE = Published("haxby/haxby2001_sub1_slice.npz", size=961698)
_PAIR = ("face", "house")


def haxby(
    classes: Sequence[str] = _PAIR,
    *,
    validation_runs: Sequence[int] = (),
    test_runs: Sequence[int] = (10, 11),
) -> Federation:
    """The scans of the given categories, a client a run, with whole runs held out.

    The thesis holds out the whole of one subject, 12 of 71 runs, which its models have never seen; with one
    subject at hand, whole runs are held out. All clients share the held-out rows, without copies. `y` is the
    category's place in `classes`.

    `x` holds the voxels, each standardised within its run over all of the run's scans, whatever they show. A
    client can do that alone, and held-out rows have no part in the scale of others. The thesis says only that `nilearn`
    normalised the scans.

    Parameters
    ----------
    classes : two or more categories; default "face" and "house"
    validation_runs : runs held out for choosing hyper-parameters; default none
    test_runs : runs held out for testing; default the last two of the twelve, 10 and 11

    >>> haxby(validation_runs=[9]).names  # doctest: +SKIP
    ('run 0', 'run 1', 'run 2', 'run 3', 'run 4', 'run 5', 'run 6', 'run 7', 'run 8')
    """
    x, label, run = _read()
    y = _numbered(label, classes)
    held_out = _check_runs(run, {"validation_runs": validation_runs, "test_runs": test_runs})
    clients = np.setdiff1d(run, np.concatenate(held_out)).tolist()
    if not clients:
        raise FedaxError(f"validation_runs and test_runs hold out all {len(np.unique(run))} runs: one must be left")
    blocks = [np.flatnonzero((run == r) & (y >= 0)) for r in clients]
    blocks += [np.flatnonzero(np.isin(run, runs) & (y >= 0)) for runs in held_out]
    count = np.array([len(block) for block in blocks])
    start = np.cumsum(count) - count
    parts = (np.arange(len(clients)), np.full(len(clients), -2), np.full(len(clients), -1))
    train, validation, test = (Rows(start[part], count[part]) for part in parts)
    order = np.concatenate(blocks)
    info = {"dataset": "haxby", "partition": "a client a run", "seed": None, "classes": len(classes)}
    names = tuple(f"run {r}" for r in clients)
    return Federation({"x": x[order], "y": y[order]}, train, validation, test, names, info)


def scans() -> dict[str, Array]:
    """All scans of faces (0) and houses (1), standardised as in `haxby`, without their runs."""
    x, label, _ = _read()
    y = _numbered(label, _PAIR)
    return {"x": x[y >= 0], "y": y[y >= 0]}


def _read() -> tuple[Array, Array, Array]:
    """The standardised voxels, the category's name and the run of each scan."""
    path = find(FILE)
    try:
        with np.load(io.BytesIO(files.content(path)), allow_pickle=False) as stored:
            arrays = {key: stored[key] for key in stored}
    except (ValueError, OSError, EOFError, AttributeError, zipfile.BadZipFile) as error:
        raise FedaxError(f"{path} is not an npz file of plain arrays: {error}") from error
    for key in ("X", "label", "run"):
        if key not in arrays:
            raise FedaxError(f"{path} has the arrays {sorted(arrays)}: it must have X, label and run")
    x, label, run = arrays["X"], arrays["label"], arrays["run"]
    fits = x.ndim == 2 and label.shape == run.shape == x.shape[:1] and len(x) > 0
    if not fits or x.dtype.kind not in "iuf" or label.dtype.kind != "U" or run.dtype.kind not in "iu":
        found = ", ".join(f"{key} {arrays[key].dtype}{list(arrays[key].shape)}" for key in ("X", "label", "run"))
        raise FedaxError(f"{path} has {found}: X must be numbers [scans, voxels], label text [scans], run int [scans]")
    if not np.isfinite(x).all():
        raise FedaxError(f"{path} has NaN or infinity in X: all must be finite")
    return _standardised(x, run), label, run


def _standardised(x: Array, run: Array) -> Array:
    """Mean 0 and standard deviation 1 of each voxel in each run; a voxel that is constant in a run becomes 0."""
    scaled = np.empty(x.shape, np.float32)
    for r in np.unique(run):
        scaled[run == r] = standardised(x[run == r])
    return scaled


def _numbered(label: Array, classes: Sequence[str]) -> Array:
    """Each scan's place in `classes`, or -1."""
    known = np.unique(label).tolist()
    if isinstance(classes, str) or len(classes) < 2 or len(set(classes)) < len(classes):
        raise FedaxError(f"classes is {classes!r}: it must be two or more different categories of {', '.join(known)}")
    y = np.full(len(label), -1, np.int32)
    for i, name in enumerate(classes):
        if name not in known:
            raise unknown("category", name, known)
        y[label == name] = i
    return y


def _check_runs(run: Array, held_out: dict[str, Sequence[int]]) -> list[Array]:
    """The held-out runs of each part; all exist and none is in two parts."""
    known, taken = np.unique(run).tolist(), dict[int, str]()
    for field, runs in held_out.items():
        if not np.iterable(runs) or not set(runs) <= set(known):
            raise FedaxError(f"{field} is {runs!r}: it must be a sequence of the runs {', '.join(map(str, known))}")
        for r in runs:
            if r in taken:
                raise FedaxError(f"run {r} is in {taken[r]} and again in {field}: it must be held out once")
            taken[r] = field
    return [np.array(runs, np.int64) for runs in held_out.values()]
