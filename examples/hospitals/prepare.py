"""Three sites' files, and one with all rows for the simulation: python prepare.py DIR

a9a describes 32,561 people by 123 columns of 0 and 1; the first five say in which fifth of the ages somebody is. West
sees the younger two fifths, north the middle one, east the older two: the same columns everywhere, and different
people. Where a9a is not on this machine and cannot be fetched, scikit-learn's 569 tumours stand in, by thirds of their
mean texture.
"""

import contextlib
import os
import sys
from pathlib import Path

import numpy as np

from fedax.data.datasets.bundled import breast_cancer
from fedax.data.datasets.libsvm import a9a
from fedax.errors import FedaxError
from fedax.experiments import prepare, read

HERE = Path(__file__).parent
AGES = np.array(["west", "west", "north", "east", "east"])


def patients():
    """All rows, the site of each, and what they are."""
    with contextlib.suppress(FedaxError, OSError):
        rows = a9a("train")
        return rows, AGES[rows["x"][:, :5].argmax(axis=1)], "a9a, 32,561 people by age"
    rows = breast_cancer()
    texture = rows["x"][:, 1]
    thirds = np.digitize(texture, np.quantile(texture, [1 / 3, 2 / 3]))
    return rows, np.array(["west", "north", "east"])[thirds], "569 tumours by texture, because a9a is not at hand"


def main(folder):
    """Write all.npz and site-0.npz to site-2.npz into a folder; what they hold, in words."""
    folder.mkdir(parents=True, exist_ok=True)
    rows, site, what = patients()
    np.savez(folder / "all.npz", **rows, site=site)
    before = Path.cwd()
    os.chdir(folder)  # where the experiment's path is looked for
    try:
        _, federation = prepare(read(HERE / "experiment.toml"))
    finally:
        os.chdir(before)
    for number in range(federation.clients):
        parts = {part: federation.client(number, part) for part in ("train", "test")}
        np.savez(folder / f"site-{number}.npz", **{f"{p}_{k}": a for p, rows in parts.items() for k, a in rows.items()})
    counts = ", ".join(f"{name} {count}" for name, count in zip(federation.names, federation.train.count, strict=True))
    return f"{what}; training rows: {counts}"


if __name__ == "__main__":
    print(main(Path(sys.argv[1])))
